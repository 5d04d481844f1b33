// Tools: publish a test event, invalidate a tag, explain a plan, take a profile, and change the level of the log.

import { post, read, readFile } from "./api.js";
import { html, section, setText } from "./elements.js";
import { counted } from "./format.js";
import { planDrawing } from "./plan.js";

export const title = "Tools";
export const interval = 5_000;
export const isOfGraph = true;
export const hasForms = true;

/** The duration of a CPU profile. */
const PROFILE_SECONDS = 30;

/** A form with an output below it. `run` returns the text to show. */
function form(id, fields, action, run) {
  const output = html("output", { class: "effect", role: "status" });
  const button = html("button", { type: "submit" }, action);
  return html(
    "form",
    {
      id,
      class: "tool",
      submit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          output.value = await run();
          output.classList.remove("bad");
        } catch (error) {
          output.value = error.message;
          output.classList.add("bad");
        } finally {
          button.disabled = false;
        }
      },
    },
    fields,
    button,
    output,
  );
}

/** A form with a button that saves a file of the router. Its output has the error of the router, or the file's name. */
const download = (id, action, path, fallback) =>
  form(id, [], action, async () => {
    const { name, content } = await readFile(path, fallback);
    const url = URL.createObjectURL(content);
    html("a", { href: url, download: name }).click();
    // The browser has read the address when the click returns, and may read the content for a moment.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    return `Saved as ${name}.`;
  });

const field = (label, input) => html("label", {}, label, input);

export function open() {
  const provider = html("select", { required: true });
  const topic = html("input", { required: true, autocomplete: "off" });
  const event = html("textarea", { spellcheck: "false" }, "{}");
  const publish = form(
    "publish",
    [field("Provider", provider), field("Topic", topic), field("Event", event)],
    "Publish",
    async () => {
      const published = await post("publish", { provider: provider.value, topic: topic.value }, event.value);
      return `${published[0].toUpperCase()}${published.slice(1)}.`;
    },
  );

  const tag = html("input", { required: true, autocomplete: "off" });
  const invalidation = () => JSON.stringify({ kind: "cache_tag", cache_tag: tag.value });
  const invalidate = form("invalidate", [field("Cache tag", tag)], "Invalidate", async () => {
    const { entries } = JSON.parse(await post("preview", {}, invalidation()));
    await post("invalidate", {}, invalidation());
    return `Invalidated. ${counted(entries, "entry", "entries")} of this router became stale.`;
  });
  const cacheNote = html(
    "p",
    { class: "note" },
    "Types, entities and whole subgraphs can be invalidated on the ",
    html("a", { href: "/admin/cache" }, "page of the caches"),
    ".",
  );

  const operation = html("textarea", { spellcheck: "false", required: true }, "{ __typename }");
  const name = html("input", { autocomplete: "off" });
  const plan = html("div", { id: "explained" });
  const explain = form(
    "explain",
    [field("Operation", operation), field("Operation name, if there are several", name)],
    "Explain",
    async () => {
      plan.replaceChildren();
      const explained = JSON.parse(
        await post("explain", { name: name.value }, operation.value, "application/graphql"),
      );
      plan.replaceChildren(planDrawing(explained.plan).element);
      return "";
    },
  );

  const level = html(
    "select",
    {},
    ["debug", "trace", "info", "warn", "error", "configured"].map((it) => html("option", {}, it)),
  );
  const minutes = html("input", { type: "number", min: "1", max: "60", value: "5", required: true });
  const logState = html("p", { class: "note", id: "log-state" });
  const log = form("log", [field("Level", level), field("Minutes", minutes)], "Change", async () => {
    showLevel(JSON.parse(await post("log-level", { level: level.value, minutes: minutes.value }, "")));
    return level.value === "configured" ? "The configured level counts again." : "Changed.";
  });

  function showLevel(changed) {
    setText(
      logState,
      changed === null
        ? "The log has its configured level."
        : `The log has the level ${changed.level} for another ${counted(Math.max(1, Math.ceil(changed.secondsLeft / 60)), "minute")}.`,
    );
  }

  const profiles = html("div");
  const element = html(
    "div",
    {},
    html("h1", {}, title),
    section("Publish a test event", publish),
    section("Invalidate a tag", invalidate, cacheNote),
    section("Explain a plan", html("p", { class: "note" }, "The operation is not executed."), explain, plan),
    section("Level of the log", logState, log),
    section("Profiles", profiles),
  );

  async function update() {
    const tools = await read("tools");
    const known = [...provider.options].map((it) => it.value);
    if (known.join("\n") !== tools.providers.join("\n")) {
      provider.replaceChildren(...tools.providers.map((it) => html("option", {}, it)));
    }
    invalidate.hidden = !tools.hasCache;
    cacheNote.hidden = !tools.hasCache;
    if (!tools.hasCache && !element.querySelector("#no-cache")) {
      invalidate.before(html("p", { class: "note", id: "no-cache" }, "Nothing is cached (cache.enabled)."));
    }
    showLevel(tools.logLevel);
    if (profiles.childElementCount === 0) {
      profiles.append(
        tools.hasProfiles
          ? html(
              "div",
              {},
              download(
                "cpu-profile",
                `CPU, ${PROFILE_SECONDS} seconds (pprof)`,
                `/debug/pprof/profile?seconds=${PROFILE_SECONDS}`,
                "profile.pb",
              ),
              download("heap-profile", "Memory (pprof)", "/debug/pprof/heap", "heap.pb"),
              html("p", {}, html("a", { href: "/debug/pprof/tasks" }, "Threads and load of workers")),
            )
          : html("p", { class: "note" }, "Profiles are off. Set admin.profiling to take some."),
      );
    }
  }

  return { element, update };
}

// One group of the live page with its subscribers, and the history of one of them from the time on at which it is
// watched.

import { post, read } from "./api.js";
import { countColumn, html, numberColumn, section, setText, table } from "./elements.js";
import { bytes, count, counted, duration } from "./format.js";

/** What the reasons of ends mean. Others are the codes of errors. */
const REASONS = {
  client_completed: "its client has completed it",
  connection_closed: "its client has closed the connection, or lost it",
  source_completed: "the source has no more events",
  SLOW_SUBSCRIBER: "its client has read too slowly, and its queue was full",
  SHUTTING_DOWN: "the router is shutting down",
};

const STEPS = {
  delivered: "delivered",
  queued: "waiting, the socket is full",
  dropped: "dropped",
  caughtUp: "caught up",
  ended: "ended",
};

/**
 * The page of one group, and of one of its subscribers. Returns a function that shows what the parameter names:
 * `GROUP`, or `GROUP/SUBSCRIBER`.
 */
export function groupDetail(container, go) {
  let shown = null;
  let view = null;
  return async (parameter) => {
    container.hidden = parameter === null;
    if (parameter === null) {
      shown = null;
      return;
    }
    const isNew = shown !== parameter;
    if (isNew) {
      const [group, subscriber] = parameter.split("/");
      view = subscriber === undefined ? groupView(group, go) : subscriberView(group, subscriber);
      container.replaceChildren(view.element);
      shown = parameter;
    }
    await view.update();
    if (isNew) container.querySelector("h2").focus();
  };
}

const tiles = (element, facts) =>
  element.replaceChildren(
    ...Object.entries(facts).map(([label, text]) => html("div", {}, html("dt", {}, label), html("dd", {}, text))),
  );

function groupView(group, go) {
  const heading = html("h2", { tabindex: "-1" }, "Group");
  const source = html("p", { class: "note" });
  const facts = html("dl", { class: "tiles" });
  const note = html("p", { class: "note" });
  const subscribers = table({
    caption: "Subscribers of the group",
    empty: "The group has no subscriber any more.",
    key: (it) => it.id,
    filter: "Filter subscribers",
    sort: { column: 3, down: true },
    onSelect: (it) => go(`live/${group}/${it.id}`),
    columns: [
      { title: "Subscriber", text: (it) => it.id },
      { title: "Transport", text: (it) => it.transport },
      numberColumn("Subscribed for", (it) => it.seconds, duration),
      countColumn("Waiting", "waiting", "Results that wait because the socket is full"),
    ],
  });
  async function update() {
    const it = await read("subscribers", { group });
    setText(heading, it.operationName ?? "Operation without a name");
    const field = it.field.replace("Subscription.", "");
    setText(source, `Field ${field}, from ${it.provider}: ${it.topics.join(", ")}`);
    tiles(facts, {
      Subscribers: count(it.count),
      Filter: it.filtered ? "yes" : "no",
      Graph: count(it.generation),
    });
    const left = it.count - it.subscribers.length;
    setText(
      note,
      "Subscribers that read too slowly come first. Select one to watch it from now on." +
        (left > 0 ? ` ${counted(left, "other subscriber")} of the group not listed.` : ""),
    );
    subscribers.update(it.subscribers);
  }
  const element = html(
    "div",
    {},
    html("p", {}, html("a", { href: "#live" }, "All groups")),
    heading,
    source,
    facts,
    section("Subscribers", note, subscribers.element),
  );
  return { element, update };
}

function subscriberView(group, id) {
  const heading = html("h2", { tabindex: "-1" }, `Subscriber ${id}`);
  const state = html("p", { class: "note", id: "subscriber-state", role: "status" });
  const facts = html("dl", { class: "tiles" });
  const more = html("p", { class: "note" });
  const entries = table({
    caption: "History of the subscriber",
    empty: "Nothing has happened since it is watched.",
    key: (it) => JSON.stringify([it.atMicros, it.step]),
    sort: { column: 0, down: true },
    rowsMax: 400,
    columns: [
      { title: "After", value: (it) => it.atMicros, text: (it) => duration(it.atMicros / 1e6) },
      { title: "What", text: (it) => (it.reason === null ? STEPS[it.step] : `ended: ${it.reason}`) },
      {
        title: "Results",
        number: true,
        value: (it) => (it.step === "ended" || it.step === "caughtUp" ? null : it.count),
        text: (it) => (it.step === "ended" || it.step === "caughtUp" ? "" : count(it.count)),
      },
      { title: "Size", number: true, value: (it) => it.bytes, text: (it) => (it.bytes > 0 ? bytes(it.bytes) : "") },
      {
        title: "Waited",
        number: true,
        value: (it) => it.waited,
        text: (it) => (it.waited > 0 ? duration(it.waited) : ""),
        note: "The longest time that one of these results waited for the socket",
      },
      {
        title: "Lost before",
        number: true,
        value: (it) => it.lost,
        text: (it) => [it.lost > 0 ? count(it.lost) : "", it.gap ? "gap" : ""].filter(Boolean).join(", "),
        note: "Losses that these results announced to the client",
      },
    ],
  });
  async function update() {
    // Begins the history, or reads it. If it was forgotten while the page was hidden, it begins again.
    const it = JSON.parse(await post("watch", { id }, ""));
    const { totals } = it;
    setText(heading, `Subscriber ${id} (${it.transport})`);
    setText(state, describeState(it));
    tiles(facts, {
      "Subscribed for": duration(it.seconds),
      "Watched for": duration(it.watchedSeconds),
      Delivered: count(totals.delivered),
      Size: bytes(totals.bytes),
      "Waiting now": count(it.waiting),
      "Longest wait": duration(totals.longestWait),
      Dropped: count(totals.dropped),
      Lost: count(totals.lost),
      Gaps: count(totals.gaps),
    });
    entries.update(it.entries);
    setText(more, it.entriesLeftOut > 0 ? `${counted(it.entriesLeftOut, "older entry", "older entries")} not kept.` : "");
  }
  const element = html(
    "div",
    {},
    html("p", {}, html("a", { href: `#live/${group}` }, "The group")),
    heading,
    state,
    facts,
    section("History", entries.element, more),
  );
  return { element, update };
}

/** Says how the subscriber is, or why it has ended. */
function describeState({ entries, behindSeconds, waiting }) {
  const end = entries.findLast((it) => it.step === "ended");
  if (end !== undefined) return `It has ended: ${REASONS[end.reason] ?? `the error ${end.reason}`}.`;
  if (behindSeconds !== null) {
    return (
      `It reads too slowly: its socket has been full for ${duration(behindSeconds)}, ` +
      `and ${counted(waiting, "result")} wait.`
    );
  }
  return "It reads its results in time.";
}

// Operations: a table of those that are used most, and for each its text, plan, errors and clients.

import { read } from "./api.js";
import { countColumn, html, numberColumn, section, setText, table } from "./elements.js";
import { bytes, count, duration, percent, short } from "./format.js";
import { planDrawing, pretty } from "./plan.js";

export const title = "Operations";
export const interval = 5_000;
export const isOfGraph = true;

const failedShare = ({ failed, requests }) => (requests > 0 ? failed / requests : 0);
const address = ({ kind, name }) => `operations/${encodeURIComponent(`${kind}/${name}`)}`;

/** Names and versions may contain any character, so joined ones could be equal. */
const clientKey = ({ name, version }) => JSON.stringify([name, version]);

const clientColumns = [
  { title: "Client", text: (it) => it.name },
  { title: "Version", text: (it) => it.version },
  countColumn("Requests", "requests"),
];

/** The columns that operations and clients have in common. */
const workColumns = [
  { ...numberColumn("Failed", failedShare, percent), share: failedShare },
  numberColumn("Mean", (it) => it.latency.mean, duration),
  numberColumn("p99", (it) => it.latency.p99, duration, "Estimated from few buckets, so it is coarse"),
  numberColumn("CPU", (it) => it.cpuSeconds, duration, "CPU time of all requests"),
  numberColumn("Fetches", (it) => it.subgraphRequestsMean, short, "Requests to subgraphs for each request"),
  numberColumn("Cost", (it) => it.costMean, short, "Mean cost, if costs are measured"),
  numberColumn("Size", (it) => it.bytesMean, bytes, "Mean size of responses"),
];

/** A column with a hit ratio, which is null if nothing could be hit. */
const ratioColumn = (title, name, note) => numberColumn(title, (it) => it.hitRatios[name], percent, note);

export function open(_, { go }) {
  const note = html(
    "p",
    { class: "note" },
    "Since the start of the router, or since the operation got a row of its own. " +
      "All times are from the arrival of a request to its response.",
  );
  const operations = table({
    caption: "Operations",
    filter: "Filter operations",
    empty: "No operation has been sent yet.",
    key: (it) => `${it.kind} ${it.name}`,
    sort: { column: 2, down: true },
    onSelect: (it) => go(address(it)),
    columns: [
      { title: "Operation", text: (it) => it.name },
      { title: "Kind", text: (it) => it.kind },
      countColumn("Requests", "requests"),
      ...workColumns,
      ratioColumn("Plan hits", "plan", "Share of requests whose operation was prepared before"),
      ratioColumn("Cache hits", "response", "Share of whole responses that were in memory, if they are stored"),
      ratioColumn("Shared", "shared", "Share of requests that got the response to an equal one in flight"),
    ],
  });
  const clients = table({
    caption: "Clients",
    empty: "No client has sent an operation yet.",
    key: clientKey,
    sort: { column: 2, down: true },
    columns: [...clientColumns, ...workColumns],
  });
  const detail = html("div", { hidden: true });
  const list = html("div", {}, operations.element, section("Clients", clients.element));
  const element = html("div", {}, html("h1", {}, title), note, detail, list);
  const one = operationDetail(detail);

  async function update(parameter) {
    if (parameter !== null) {
      await one(parameter);
      list.hidden = true;
      return;
    }
    one(null);
    list.hidden = false;
    const all = await read("operations");
    if (!all.enabled) setText(note, "The metrics of single operations are turned off (metrics.operations.max).");
    // The rows that others share are of interest only if they have requests.
    const used = (it) => it.requests > 0 || it.name !== "other";
    operations.update(all.operations.filter(used));
    clients.update(all.clients.filter(used));
  }

  return { element, update };
}

/** The drawing of the plan, if the operation is among the prepared ones. */
function planOf({ plan }) {
  if (plan !== null) return planDrawing(plan);
  const text = "The operation is not among the prepared ones now. It is when it is sent again.";
  return { element: html("p", { class: "note" }, text) };
}

/** The page of one operation. Returns a function that shows the operation of that parameter, or none. */
function operationDetail(container) {
  let shown = null;
  let parts = null;
  return async (parameter) => {
    if (parameter === null) {
      container.hidden = true;
      shown = null;
      return;
    }
    const [kind, ...rest] = parameter.split("/");
    const name = rest.join("/");
    const it = await read("operation", { name, kind });
    // Another plan has other nodes, and the operation may have got one.
    const identity = JSON.stringify([parameter, it.text, it.plan], (key, value) =>
      key === "measured" ? undefined : value,
    );
    if (shown !== identity) {
      shown = identity;
      parts = {
        facts: html("dl", { class: "tiles" }),
        plan: planOf(it),
        clients: table({
          caption: "Clients of the operation",
          empty: "No client is known.",
          columns: clientColumns,
          key: clientKey,
          sort: { column: 2, down: true },
        }),
        errors: table({
          caption: "Errors of the operation",
          empty: "No request has failed.",
          key: ({ code }) => code,
          sort: { column: 1, down: true },
          columns: [
            { title: "Code of the first error", text: ({ code }) => code },
            {
              title: "Requests",
              number: true,
              value: ({ count: value }) => value,
              text: ({ count: value }) => count(value),
            },
          ],
        }),
      };
      container.replaceChildren(
        html("p", {}, html("a", { href: "#operations" }, "All operations")),
        html("h2", { tabindex: "-1" }, `${kind} ${name}`),
        parts.facts,
        section("Plan", parts.plan.element),
        section(
          "Text",
          it.text === null
            ? html("p", { class: "note" }, "See above.")
            : html(
                "pre",
                { id: "operation-text", tabindex: "0" },
                it.text.includes("\n") ? it.text.trim() : pretty(it.text),
              ),
        ),
        html(
          "div",
          { class: "halves" },
          section("Clients", parts.clients.element),
          section("Errors", parts.errors.element),
        ),
      );
    }
    const facts = {
      Requests: count(it.requests),
      Failed: percent(failedShare(it)),
      Mean: duration(it.latency.mean),
      Median: duration(it.latency.p50),
      p99: duration(it.latency.p99),
      "CPU each": duration(it.cpuMean),
      Fetches: short(it.subgraphRequestsMean),
      Cost: short(it.costMean),
      Size: bytes(it.bytesMean),
      "Plan hits": percent(it.hitRatios.plan),
      "Cache hits": percent(it.hitRatios.response),
      "Of them stale": percent(it.hitRatios.stale),
      Shared: percent(it.hitRatios.shared),
    };
    parts.facts.replaceChildren(
      ...Object.entries(facts).map(([label, text]) => html("div", {}, html("dt", {}, label), html("dd", {}, text))),
    );
    if (it.plan !== null) parts.plan.update(it.plan);
    parts.clients.update(it.clients);
    parts.errors.update(it.errors);
    if (container.hidden) {
      container.hidden = false;
      container.querySelector("h2").focus();
    }
  };
}

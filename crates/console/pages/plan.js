// The plan of an operation as a drawing: each fetch is a node with its measured times, each wave a column, and arrows are
// dependencies. Below it is a list with the same and the texts of the requests.

import { arrow, box, drawingRegion, leftOf, moveByArrows, picture, placeColumns, rightOf, rowsOf } from "./drawing.js";
import { html, setText } from "./elements.js";
import { counted, duration } from "./format.js";

const NODE = { width: 190, height: 52, gapX: 60, gapY: 16 };

/** The height of a node with times. */
const MEASURED_HEIGHT = 68;

const KINDS = {
  root: "root fields",
  rootBelow: "root fields below",
  entities: "entities",
  publish: "publishes",
  request: "request to a topic",
};

/** The types of the objects that a fetch completes. */
const typesOf = (fetch) => (fetch.batches ?? []).map((it) => it.representation?.typename).filter(Boolean);

function describeFetch(fetch) {
  const types = typesOf(fetch);
  return types.length > 0 ? `entities: ${types.join(", ")}` : (KINDS[fetch.kind] ?? fetch.kind);
}

/** The text of an operation with one field in each line. */
export function pretty(text) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|\.\.\.|[{}()]|[^\s{}()".]+|\./g) ?? [];
  let out = "";
  let depth = 0;
  let parentheses = 0;
  let before = "";
  for (const token of tokens) {
    const line = `\n${"  ".repeat(token === "}" ? depth - 1 : depth)}`;
    if (parentheses > 0 || token === "(" || token === ")") {
      // Arguments and definitions of variables stay as they are, with spaces between words.
      const isTight =
        token === "(" || token === ")" || before === "(" || /[:[{$]$/.test(before) || /^[\]:,}]/.test(token);
      out += isTight ? token : ` ${token}`;
    } else if (token === "{") {
      out += out === "" ? token : " {";
    } else if (
      depth > 0 &&
      !(before === "..." || before === "on" || before.endsWith(":") || token.startsWith("@"))
    ) {
      out += line + token;
    } else {
      out += out === "" || before === "..." ? token : ` ${token}`;
    }
    if (token === "(") parentheses += 1;
    if (token === ")") parentheses -= 1;
    if (token === "{" && parentheses === 0) depth += 1;
    if (token === "}" && parentheses === 0) depth -= 1;
    before = token;
  }
  return out;
}

/** The measured times of a fetch. */
function describeTimes({ requests, p50, p90 }) {
  if (requests === 0) return "not sent yet";
  return p50 === null ? "not measured yet" : `p50 ${duration(p50)}, p90 ${duration(p90)}`;
}

/** The same with the number of requests, as an addition to the line of the fetch. */
function describeRequests(measured) {
  return measured.requests === 0
    ? ", not sent yet"
    : `, ${counted(measured.requests, "request")}, ${describeTimes(measured)}`;
}

/**
 * Returns `{element, update(plan)}`: the drawing and the list. `update` shows the times of the same plan. A plan that is
 * only explained has none.
 */
export function planDrawing(plan) {
  const fetches = plan.fetches ?? [];
  if (fetches.length === 0 && !plan.subscription) {
    return { element: html("p", { class: "note" }, "The operation needs no subgraph."), update() {} };
  }
  const isMeasured = fetches.some((it) => it.measured);
  const node = { ...NODE, height: isMeasured ? MEASURED_HEIGHT : NODE.height };
  const columns = [];
  for (const fetch of fetches) (columns[fetch.wave - 1] ??= []).push(fetch);
  const waves = columns.length;
  const places = placeColumns(
    node,
    Array.from(columns, (wave) => wave?.map(({ id }) => id)),
  );
  const arrows = fetches.flatMap((fetch) =>
    fetch.dependsOn.map((id) => arrow(rightOf(node, places.get(id)), leftOf(node, places.get(fetch.id)))),
  );
  const details = new Map();
  const nodes = new Map(
    fetches.map((fetch) => [
      fetch.id,
      box({
        ...places.get(fetch.id),
        ...node,
        name: fetch.subgraph,
        what: describeFetch(fetch),
        note: fetch.measured ? describeTimes(fetch.measured) : null,
        click: () => reveal(fetch.id),
      }),
    ]),
  );
  function reveal(id) {
    const target = details.get(id);
    target.open = true;
    target.scrollIntoView({ block: "nearest" });
    target.querySelector("summary").focus({ preventScroll: true });
  }
  moveByArrows([...nodes.values()]);
  const summary = `${counted(fetches.length, "fetch", "fetches")} in ${counted(waves, "wave")}`;
  const size = { columns: waves, rows: rowsOf(columns), label: `Plan: ${summary}`, role: "group" };
  const drawing = picture(node, size, arrows.flat(), [...nodes.values()]);
  const list = fetches.map((fetch) => {
    const after =
      fetch.dependsOn.length === 0 ? "" : `, after ${fetch.dependsOn.map((id) => `fetch ${id}`).join(", ")}`;
    const item = html(
      "details",
      {},
      html(
        "summary",
        {},
        `Fetch ${fetch.id}: ${fetch.subgraph}, ${describeFetch(fetch)} (wave ${fetch.wave}${after})`,
        html("span", { class: "times" }, fetch.measured ? describeRequests(fetch.measured) : ""),
      ),
      html(
        "pre",
        { tabindex: "0" },
        fetch.operation ? pretty(fetch.operation) : `${fetch.eventSubgraph ?? ""} ${fetch.field ?? ""}`,
      ),
    );
    details.set(fetch.id, item);
    return item;
  });
  const start =
    plan.subscription &&
    html(
      "p",
      { class: "note" },
      plan.subscription.kind === "event"
        ? `The subscription starts with events of ${plan.subscription.eventSubgraph}, field ${plan.subscription.field}.`
        : `The subscription is served by ${plan.subscription.subgraph}.`,
    );
  const element = html(
    "div",
    { class: "plan" },
    html(
      "p",
      { class: "note" },
      `${summary}.`,
      isMeasured
        ? " Times are those of some recent requests until their response; a fetch from a cache sends none."
        : null,
    ),
    start,
    fetches.length > 0
      ? drawingRegion("Drawing of the plan", drawing)
      : null,
    list,
  );

  function update({ fetches: now }) {
    for (const { id, measured } of now) {
      if (!measured) continue;
      setText(nodes.get(id).querySelector(".times"), describeTimes(measured));
      setText(details.get(id).querySelector(".times"), describeRequests(measured));
    }
  }

  return { element, update };
}

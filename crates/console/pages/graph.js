// The graph: subgraphs with the traffic between them, types with their fields and use, and the last reload.

import { read } from "./api.js";
import { arrow, box, drawingRegion, picture, placeColumns, rightOf, rowsOf } from "./drawing.js";
import { countColumn, html, numberColumn, section, setText, svg, table } from "./elements.js";
import { count, counted, duration, listed, percent, perSecond, short } from "./format.js";
import { counterRates, isFailing } from "./rates.js";

export const title = "Graph";
export const interval = 5_000;
export const isOfGraph = true;

/** The subgraphs in the drawing: those with most traffic. The table has all of them. */
const DRAWN_MAX = 24;

const NODE = { width: 190, height: 64, gapX: 110, gapY: 16 };

const clock = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

/** The figures of a subgraph in the last minute; null for one without a server. */
function figuresOf({ minute }, seconds) {
  if (minute === null) return null;
  return {
    rate: seconds > 0 ? minute.requests / seconds : null,
    failed: minute.requests > 0 ? minute.errors / minute.requests : null,
    p50: minute.latency?.p50 ?? null,
    p99: minute.latency?.p99 ?? null,
    isUnhealthy: minute.breaker !== "closed" || isFailing(minute),
    breaker: minute.breaker,
  };
}

/** The lines below the name in the box of a subgraph. */
function describeFigures({ rate, failed, p50, p99, breaker }) {
  const times = p99 === null ? "" : `, ${duration(p50)} / ${duration(p99)}`;
  const state = breaker === "closed" ? "" : `, breaker ${breaker}`;
  return { what: `${perSecond(rate)}${times}`, note: `${percent(failed ?? 0)} failed${state}` };
}

/** A column with a figure of subgraphs that have a server. */
const figureColumn = (head, name, format, note) =>
  numberColumn(head, (it) => it.figures?.[name], (figure) => (figure === undefined ? "" : format(figure)), note);

export function open(_, { go }) {
  const note = html("p", { class: "note" });
  const drawing = drawingRegion("Drawing of the traffic between subgraphs");
  const more = html("p", { class: "note" });
  const traffic = table({
    caption: "Traffic",
    empty: "No operation is prepared.",
    key: (it) => JSON.stringify([it.from, it.to]),
    filter: "Filter traffic",
    sort: { column: 2, down: true },
    columns: [
      { title: "From", text: (it) => it.from ?? "clients" },
      { title: "To", text: (it) => it.to },
      countColumn("Fetches", "requests", "Since the graph serves, by operations that are prepared now"),
      numberColumn("Rate", (it) => it.rate, perSecond, "Since the last update of this page"),
    ],
  });
  const subgraphs = table({
    caption: "Subgraphs",
    empty: "The graph has no subgraph.",
    key: (it) => it.name,
    filter: "Filter subgraphs",
    columns: [
      { title: "Subgraph", text: (it) => it.name },
      { title: "Kind", text: (it) => (it.kind === "events" ? "events of a broker" : "server") },
      figureColumn("Requests", "rate", perSecond, "In the last minute"),
      figureColumn("Failed", "failed", percent, "In the last minute"),
      figureColumn("p50", "p50", duration, "In the last minute"),
      figureColumn("p99", "p99", duration, "In the last minute"),
      countColumn("Fields", "fields"),
      countColumn("Entities", "entities"),
    ],
  });
  const types = table({
    caption: "Types",
    empty: "The graph has no type.",
    key: (it) => it.name,
    filter: "Filter types",
    rowsMax: 200,
    onSelect: (it) => go(`graph/${encodeURIComponent(it.name)}`),
    columns: [
      { title: "Type", text: (it) => it.name },
      { title: "Kind", text: (it) => (it.isEntity ? `${it.kind}, entity` : it.kind) },
      countColumn("Fields", "fieldCount"),
      { title: "Subgraphs", text: (it) => listed(it.subgraphs) },
    ],
  });
  const detail = html("div", { id: "type", hidden: true });
  const reload = html("div", { id: "reload" });
  const element = html(
    "div",
    {},
    html("h1", {}, title),
    note,
    drawing,
    more,
    section("Traffic", traffic.element),
    section("Subgraphs", subgraphs.element),
    section("Types", types.element, detail),
    section("Last reload", reload),
  );
  const ofType = typeDetail(detail);
  const beginReading = counterRates();

  async function update(parameter) {
    const [graph] = await Promise.all([read("graph"), ofType(parameter)]);
    const rate = beginReading();
    const edges = graph.traffic.map((it) => ({
      ...it,
      rate: rate([graph.generation, it.from, it.to], it.requests),
    }));
    const known = graph.subgraphs.map((it) => ({ ...it, figures: figuresOf(it, graph.minuteSeconds) }));
    setText(
      note,
      `Graph ${graph.generation}: ${counted(graph.subgraphs.length, "subgraph")}, ` +
        `${counted(graph.typeCount, "type")} with fields. ` +
        "Arrows are the fetches of the operations that are prepared now, with their rate since the last update. " +
        "Boxes have the requests, the median and the 99th percentile of the latency, and the failures of each " +
        "subgraph in the last minute.",
    );
    traffic.update(edges);
    subgraphs.update(known);
    types.update(graph.types);
    const shown = draw(edges, new Map(known.map((it) => [it.name, it.figures])));
    drawing.hidden = shown === null;
    if (shown !== null) drawing.replaceChildren(shown.picture);
    setText(
      more,
      shown !== null && shown.left > 0 ? `and ${counted(shown.left, "subgraph")} with less traffic` : "",
    );
    showReload(graph.lastReload);
  }

  function showReload(last) {
    if (last === null) {
      reload.replaceChildren(html("p", { class: "note" }, "The graph has not changed since the start."));
      return;
    }
    const lists = ["added", "changed", "removed"]
      .filter((it) => last[it].count > 0)
      .map((it) =>
        html(
          "li",
          {},
          html("b", {}, `${it}: `),
          last[it].names.join(", "),
          last[it].count > last[it].names.length ? ` and ${last[it].count - last[it].names.length} more` : "",
        ),
      );
    reload.replaceChildren(
      html("p", { class: "note" }, `${duration(last.secondsAgo)} ago.`),
      lists.length > 0 ? html("ul", {}, lists) : html("p", {}, "Nothing that clients see has changed."),
    );
  }

  return { element, update };
}

/** The fields of one type below the table. Returns a function that shows the type of that name, or none. */
function typeDetail(container) {
  let shown = null;
  let fields = null;
  return async (name) => {
    if (name === null) {
      container.hidden = true;
      shown = null;
      return;
    }
    const type = await read("type", { name });
    if (shown !== name) {
      shown = name;
      fields = table({
        caption: `Fields of ${name}`,
        empty: "The type has no fields of its own.",
        key: (it) => it.name,
        filter: "Filter fields",
        sort: { column: 3, down: true },
        columns: [
          { title: "Field", text: (it) => it.name },
          { title: "Type", text: (it) => it.type },
          { title: "Subgraphs", text: (it) => it.subgraphs.join(", ") },
          {
            title: "Requests",
            number: true,
            value: (it) => it.usage?.requests ?? null,
            text: (it) => (it.usage === null ? "–" : count(it.usage.requests)),
            note: "Requests that select the field, since the start of the router (metrics.fields)",
          },
          { title: "Clients", text: describeClients },
          {
            title: "Last used",
            number: true,
            value: (it) => it.usage?.lastUsed ?? null,
            text: (it) => (it.usage?.lastUsed ? clock.format(new Date(it.usage.lastUsed * 1_000)) : ""),
          },
          countColumn("Operations", "operationCount", "Operations that are prepared now and select the field"),
          { title: "Such as", text: (it) => (it.operations ?? []).join(", ") },
        ],
      });
      container.replaceChildren(
        html("h3", { tabindex: "-1" }, `Fields of ${name} `, html("a", { href: "#graph" }, "Close")),
        fields.element,
      );
    }
    fields.update(type.fields);
    if (container.hidden) {
      container.hidden = false;
      container.querySelector("h3").focus();
    }
  };
}

/** The clients that use a field, with their requests. */
function describeClients({ usage }) {
  if (usage === null) return "";
  const names = usage.clients.map(({ name, version, requests }) =>
    [name, version, `(${count(requests)})`].filter((it) => it !== "").join(" "),
  );
  const left = usage.clientCount - names.length;
  return [...names, ...(left > 0 ? [`and ${left} more`] : [])].join(", ");
}

/** Clients at the left, and each subgraph one column behind the source of most of its fetches. */
function draw(traffic, figures) {
  if (traffic.length === 0) return null;
  const total = new Map();
  for (const { to, requests } of traffic) total.set(to, (total.get(to) ?? 0) + requests);
  const names = [...total.keys()].sort((a, b) => total.get(b) - total.get(a) || a.localeCompare(b));
  const drawn = new Set(names.slice(0, DRAWN_MAX));
  const edges = traffic.filter((it) => drawn.has(it.to) && (it.from === null || drawn.has(it.from)));
  // The source of most fetches of each subgraph, which decides about its column.
  const main = new Map();
  for (const edge of edges) {
    if (edge.requests > (main.get(edge.to)?.requests ?? 0)) main.set(edge.to, edge);
  }
  const depth = (name, seen = new Set()) => {
    const from = main.get(name)?.from ?? null;
    if (from === null || seen.has(name)) return 1;
    return 1 + depth(from, seen.add(name));
  };
  const columns = [];
  for (const name of drawn) (columns[depth(name)] ??= []).push(name);
  columns[0] = [null];
  const places = placeColumns(NODE, columns);
  const most = Math.max(...edges.map((it) => it.requests));
  const lines = edges.flatMap(({ from, to, requests, rate }) => {
    const a = places.get(from);
    const b = places.get(to);
    const isForward = b.x > a.x;
    const start = rightOf(NODE, a);
    // An edge back or within a column leaves and enters at the right.
    const end = [isForward ? b.x : b.x + NODE.width, b.y + NODE.height / 2 + (from === to ? 12 : 0)];
    const label = `${from ?? "clients"} to ${to}: ${count(requests)}${rate === null ? "" : `, ${perSecond(rate)}`}`;
    const line = arrow(start, end, { width: (1 + 4 * (requests / most)).toFixed(1), fromRight: !isForward, label });
    const x = isForward ? (start[0] + end[0]) / 2 : Math.max(start[0], end[0]) + 46;
    const y = (start[1] + end[1]) / 2;
    return [
      ...line,
      svg("text", { class: "flow", x, y: y - 5, "text-anchor": "middle" }, short(requests)),
      rate === null ? null : svg("text", { class: "rate", x, y: y + 14, "text-anchor": "middle" }, perSecond(rate)),
    ].filter((it) => it !== null);
  });
  const boxes = [...places].map(([name, place]) => {
    const known = name === null ? null : (figures.get(name) ?? null);
    const fetches = name === null ? null : counted(total.get(name), "fetch", "fetches");
    const { what, note } = known === null ? { what: fetches, note: null } : describeFigures(known);
    const className = known?.isUnhealthy ? "node late" : "node";
    return box({ ...place, ...NODE, name: name ?? "clients", what, note, className });
  });
  const label =
    `Fetches between clients and ${counted(drawn.size, "subgraph")}. ` + "The table below has the same figures.";
  // An edge back leaves and enters at the right.
  const size = { columns: columns.length, rows: rowsOf(columns), more: 60, label };
  return { picture: picture(NODE, size, lines, boxes), left: names.length - drawn.size };
}

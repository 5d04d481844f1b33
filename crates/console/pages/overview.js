// The overview: figures of the last minute, charts of the last hour, and what needs attention. Some figures are those
// of the process, the others those of the selected graph, or sums over all graphs.

import { graphNames, read } from "./api.js";
import { chart, rates } from "./chart.js";
import { countColumn, html, numberColumn, section, setText, table } from "./elements.js";
import { bytes, count, counted, duration, percent, perSecond, short } from "./format.js";
import { isFailing } from "./rates.js";

export const title = "Overview";
export const interval = 5_000;
export const isOfGraph = true;
export const hasAllGraphs = true;

const ratio = (part, whole) => (whole > 0 ? part / whole : null);
const latency = (it, quantile) => it.latency?.[quantile] ?? null;

/** Builds the page. Returns its element, and a function that reads and shows the newest figures. */
export function open(_, { go }) {
  const tiles = {};
  const tile = (name, label) => {
    tiles[name] = html("dd", { id: `now-${name}` }, "–");
    return html("div", {}, html("dt", {}, label), tiles[name]);
  };
  const scope = html("h2", {}, "Graph");
  const headline = html(
    "div",
    { class: "figures" },
    html(
      "section",
      { id: "graph-figures" },
      scope,
      html(
        "dl",
        { class: "tiles" },
        tile("requests", "Requests"),
        tile("errors", "Errors"),
        tile("p50", "Median"),
        tile("p99", "p99"),
        tile("subscribers", "Subscribers"),
        tile("events", "Events"),
      ),
    ),
    html(
      "section",
      { id: "process-figures" },
      html("h2", {}, "Process"),
      html(
        "dl",
        { class: "tiles" },
        tile("cpu", "CPUs in use"),
        tile("memory", "Memory"),
        tile("connections", "Connections"),
      ),
    ),
  );
  const problems = html("ul", { class: "problems", id: "problems" });
  const note = html("p", { class: "note" });

  const line = (name, className) => ({ name, className });
  const ofGraph = {
    requests: chart({
      id: "chart-requests",
      title: "Requests",
      format: perSecond,
      lines: [line("all", "c1"), line("with errors", "bad")],
    }),
    latency: chart({
      id: "chart-latency",
      title: "Latency",
      format: duration,
      lines: [line("p50", "c1"), line("p90", "c2"), line("p99", "c3")],
    }),
    events: chart({
      id: "chart-events",
      title: "Events",
      format: perSecond,
      lines: [line("received", "c1"), line("delivered", "c2")],
    }),
    subscribers: chart({
      id: "chart-subscribers",
      title: "Subscribers",
      format: short,
      lines: [line("subscribers", "c1")],
    }),
  };
  const ofProcess = {
    cpu: chart({
      id: "chart-cpu",
      title: "CPU",
      format: (value) => short(value),
      lines: [line("CPUs in use", "c1")],
    }),
    memory: chart({
      id: "chart-memory",
      title: "Resident memory",
      format: bytes,
      isSize: true,
      lines: [line("memory", "c1")],
    }),
    connections: chart({
      id: "chart-connections",
      title: "Connections of clients",
      format: short,
      lines: [line("connections", "c1")],
    }),
    refused: chart({
      id: "chart-refused",
      title: "Refused or dropped",
      format: perSecond,
      lines: [line("all reasons", "bad")],
    }),
  };

  const subgraphs = table({
    caption: "Subgraphs, in the last minute",
    filter: "Filter subgraphs",
    empty: "The graph has no subgraph with a server.",
    key: (it) => it.name,
    sort: { column: 2, down: true },
    onSelect: (it) => go(`overview/${encodeURIComponent(it.name)}`),
    columns: [
      { title: "Subgraph", text: (it) => it.name },
      { title: "State", value: stateRank, cell: stateBadge },
      { title: "Requests", number: true, value: (it) => it.requests, text: (it) => perSecond(it.perSecond) },
      {
        title: "Failed",
        number: true,
        value: (it) => ratio(it.errors, it.requests) ?? 0,
        text: (it) => percent(ratio(it.errors, it.requests)),
        share: (it) => ratio(it.errors, it.requests) ?? 0,
      },
      numberColumn("p50", (it) => latency(it, "p50"), duration),
      numberColumn("p99", (it) => latency(it, "p99"), duration),
      countColumn("In flight", "inFlight"),
      countColumn("Since the start", "requestsSinceStart"),
    ],
  });
  const shared = html(
    "p",
    { class: "note", hidden: true },
    "Graphs with the same server of a subgraph share its figures.",
  );
  const detail = html("div", { id: "subgraph", hidden: true });
  const providers = table({
    caption: "Brokers, in the last minute",
    empty: "No broker is configured.",
    key: (it) => it.name,
    columns: [
      { title: "Broker", text: (it) => it.name },
      { title: "State", text: (it) => it.state },
      {
        title: "Received",
        number: true,
        value: (it) => it.received,
        text: (it) => perSecond(it.receivedPerSecond),
      },
      {
        title: "Published",
        number: true,
        value: (it) => it.published,
        text: (it) => perSecond(it.publishedPerSecond),
      },
      countColumn("Streams", "streams"),
      {
        title: "Behind",
        number: true,
        value: (it) => it.lagEvents,
        text: (it) => (it.lagEvents === null ? "–" : counted(it.lagEvents, "event")),
      },
      countColumn("Gaps", "gaps"),
      countColumn("Errors", "errors"),
    ],
  });
  const shed = table({
    caption: "Refused or dropped in the last minute, by reason",
    empty: "Nothing was refused in the last minute.",
    key: (it) => it.reason,
    sort: { column: 1, down: true },
    columns: [
      { title: "Reason", text: (it) => it.reason },
      countColumn("Count", "count"),
    ],
  });

  const drawn = (charts) =>
    html(
      "div",
      { class: "charts" },
      Object.values(charts).map((it) => it.element),
    );
  const hourOfGraph = section("The last hour of the graph", drawn(ofGraph));
  const element = html(
    "div",
    {},
    html("h1", {}, title),
    note,
    problems,
    headline,
    hourOfGraph,
    section("The last hour of the process", drawn(ofProcess)),
    section("Subgraphs", shared, subgraphs.element, detail),
    section("Brokers", providers.element),
    section("Refused or dropped", shed.element),
  );

  const ofSubgraph = subgraphDetail(detail);

  async function update(parameter) {
    const [overview] = await Promise.all([read("overview"), ofSubgraph(parameter)]);
    show(overview);
  }

  /** Shows which graph the figures are about; without a name all graphs, or the only one. */
  function showScope(graph, graphs) {
    const isSum = graph === null && graphs > 1;
    const named = graph === null ? "" : ` ${graph}`;
    setText(scope, isSum ? "All graphs" : `Graph${named}`);
    setText(hourOfGraph.firstChild, `The last hour of ${isSum ? "all graphs" : `the graph${named}`}`);
    shared.hidden = graphs < 2;
  }

  function show({ minute, series, seconds, version, uptimeSeconds, generation, graph, ...rest }) {
    const rate = (value) => (minute.seconds > 0 && value !== null ? value / minute.seconds : null);
    const graphs = graphNames().length;
    const served = generation === null ? counted(graphs, "graph") : `graph ${generation}`;
    setText(
      note,
      `Version ${version}, running for ${duration(uptimeSeconds)}, ${served}. ` +
        "Figures are those of the last minute." +
        (graphs > 1 ? " Brokers, and what is refused or dropped, are those of the process." : ""),
    );
    showScope(graph, graphs);
    const texts = {
      requests: perSecond(rate(minute.requests)),
      errors: percent(ratio(minute.errors, minute.requests) ?? 0),
      p50: duration(latency(minute, "p50")),
      p99: duration(latency(minute, "p99")),
      cpu: short(rate(minute.cpu)),
      memory: bytes(minute.memory),
      connections: count(minute.connections),
      subscribers: count(minute.subscribers),
      events: perSecond(rate(minute.events)),
    };
    for (const [name, text] of Object.entries(texts)) setText(tiles[name], text);
    tiles.errors.classList.toggle("bad", minute.errors > 0);

    const none = seconds.map(() => null);
    const column = (name) => series[name] ?? none;
    const rateOf = (name) => rates(seconds, column(name));
    const quantiles = series.latency ?? { p50: none, p90: none, p99: none };
    ofGraph.requests.update(seconds, [rateOf("requests"), rateOf("errors")]);
    ofGraph.latency.update(seconds, [quantiles.p50, quantiles.p90, quantiles.p99]);
    ofGraph.events.update(seconds, [rateOf("events"), rateOf("deliveries")]);
    ofGraph.subscribers.update(seconds, [column("subscribers")]);
    ofProcess.cpu.update(seconds, [rateOf("cpu")]);
    ofProcess.memory.update(seconds, [column("memory")]);
    ofProcess.connections.update(seconds, [column("connections")]);
    ofProcess.refused.update(seconds, [rateOf("refused")]);

    const found = rest.problems.map(({ severity, kind, name, text }) =>
      html("li", { class: severity }, html("b", {}, name === "" ? kind : `${kind} ${name}`), ` ${text}`),
    );
    if (found.length === 0) found.push(html("li", { class: "ok" }, "No subgraph or broker is unhealthy."));
    if (problems.textContent !== found.map((it) => it.textContent).join("")) problems.replaceChildren(...found);
    subgraphs.update(rest.subgraphs.map((it) => ({ ...it, perSecond: rate(it.requests) })));
    providers.update(
      rest.providers.map((it) => ({
        ...it,
        receivedPerSecond: rate(it.received),
        publishedPerSecond: rate(it.published),
      })),
    );
    shed.update(rest.shed);
  }

  return { element, update };
}

const RANKS = { open: 3, "half-open": 2, failing: 1, healthy: 0 };

function stateOf({ breaker, errors, requests }) {
  if (breaker !== "closed") return breaker;
  return isFailing({ requests, errors }) ? "failing" : "healthy";
}

function stateRank(it) {
  return RANKS[stateOf(it)];
}

function stateBadge(it) {
  const state = stateOf(it);
  const text = { open: "breaker open", "half-open": "breaker half-open" }[state] ?? state;
  return html("span", { class: `badge ${["ok", "warning", "warning", "error"][RANKS[state]]}` }, text);
}

/** The charts of one subgraph below the table. Returns a function that shows the subgraph of that name, or none. */
function subgraphDetail(container) {
  let shown = null;
  let charts = null;
  return async (name) => {
    if (name === null) {
      container.hidden = true;
      shown = null;
      return;
    }
    const { seconds, series } = await read("subgraph", { name });
    if (shown !== name) {
      shown = name;
      const line = (name, className) => ({ name, className });
      charts = {
        requests: chart({
          id: "subgraph-requests",
          title: `Requests to ${name}`,
          format: perSecond,
          lines: [line("all", "c1"), line("failed", "bad")],
        }),
        latency: chart({
          id: "subgraph-latency",
          title: `Latency of ${name}`,
          format: duration,
          lines: [line("p50", "c1"), line("p90", "c2"), line("p99", "c3")],
        }),
      };
      const close = html("a", { href: "#overview" }, "Close");
      container.replaceChildren(
        html("h3", { tabindex: "-1" }, name, " ", close),
        html("div", { class: "charts" }, charts.requests.element, charts.latency.element),
      );
    }
    const none = seconds.map(() => null);
    const { p50, p90, p99 } = series.subgraphLatency ?? { p50: none, p90: none, p99: none };
    charts.requests.update(seconds, [
      rates(seconds, series.subgraphRequests ?? none),
      rates(seconds, series.subgraphErrors ?? none),
    ]);
    charts.latency.update(seconds, [p50, p90, p99]);
    if (container.hidden) {
      container.hidden = false;
      container.firstChild.focus();
    }
  };
}

// Live data: the way of events from providers over triggers to groups of subscribers, with rates and what is behind.

import { read } from "./api.js";
import { arrow, box, drawingRegion, leftOf, picture, placeOf, pointOf, rightOf } from "./drawing.js";
import { countColumn, html, section, setText, svg, table } from "./elements.js";
import { eventPaths } from "./event_paths.js";
import { count, counted, duration, perSecond, short } from "./format.js";
import { counterRates } from "./rates.js";
import { groupDetail } from "./subscribers.js";

export const title = "Live";
export const interval = 2_000;
export const isOfGraph = true;

const NODE = { width: 210, height: 56, gapX: 90, gapY: 14 };

/** The share of the way to a transport at which an arrow has its number: the arrows of a group are apart there. */
const NUMBER_AT = 0.35;

export function open(_, { go }) {
  const note = html("p", { class: "note" });
  const drawing = drawingRegion("Drawing of the way of events");
  const more = html("p", { class: "note" });
  const providers = table({
    caption: "Providers",
    empty: "No broker is configured.",
    key: (it) => it.name,
    columns: [
      { title: "Provider", text: (it) => it.name },
      {
        title: "State",
        text: (it) => it.state,
        cell: (it) => html("span", { class: `badge ${it.connected ? "ok" : "error"}` }, it.state),
      },
      {
        title: "Received",
        number: true,
        value: (it) => it.received,
        text: (it) => `${count(it.received)} (${perSecond(it.rate)})`,
      },
      countColumn("Published", "published"),
      countColumn("Dropped", "dropped"),
      countColumn("Gaps", "gaps"),
      countColumn("Reconnects", "reconnects"),
    ],
  });
  const topics = table({
    caption: "Topics",
    empty: "No topic is in use.",
    key: (it) => JSON.stringify([it.provider, it.topic]),
    filter: "Filter topics",
    columns: [
      { title: "Topic", text: (it) => it.topic },
      { title: "Provider", text: (it) => it.provider },
      countColumn("Streams", "streams"),
      {
        title: "Received",
        number: true,
        value: (it) => it.received,
        text: (it) => `${count(it.received)} (${perSecond(it.rate)})`,
      },
      { title: "Behind", number: true, value: (it) => it.lagEvents, text: describeLag },
      countColumn("Dropped", "dropped"),
      countColumn("Not published", "publishFailures"),
    ],
  });
  const groups = table({
    caption: "Groups of equal subscribers",
    empty: "There are no subscribers.",
    key: (it) => it.id,
    filter: "Filter groups",
    sort: { column: 2, down: true },
    onSelect: (it) => go(`live/${it.id}`),
    columns: [
      { title: "Operation", text: (it) => it.operationName ?? "without a name" },
      { title: "Field", text: (it) => it.field.replace("Subscription.", "") },
      countColumn("Subscribers", "subscribers"),
      { title: "Transports", text: describeTransports },
      { title: "Topics", text: (it) => it.topics },
      countColumn("In flight", "eventsInFlight"),
      countColumn("Waiting", "eventsWaiting"),
      { title: "Filter", text: (it) => (it.filtered ? "yes" : "") },
      countColumn("Graph", "generation"),
    ],
  });
  const transports = table({
    caption: "Transports",
    empty: "No client is connected.",
    key: (it) => it.transport,
    columns: [
      { title: "Transport", text: (it) => it.transport },
      countColumn("Connections", "streams"),
      countColumn("Subscriptions", "subscriptions"),
    ],
  });
  const slow = table({
    caption: "Slow readers since the start, by what was done",
    empty: "No client was too slow.",
    key: (it) => it.policy,
    columns: [
      { title: "Policy", text: (it) => it.policy },
      countColumn("Count", "count"),
    ],
  });
  const detail = html("div", { hidden: true });
  const showDetail = groupDetail(detail, go);
  const all = html(
    "div",
    {},
    note,
    drawing,
    more,
    section("Providers", providers.element),
    section("Topics", topics.element),
    section("Groups", groups.element),
    html(
      "div",
      { class: "halves" },
      section("Transports", transports.element),
      section("Slow readers", slow.element),
    ),
  );
  const element = html("div", {}, html("h1", {}, title), detail, all);

  const beginReading = counterRates();

  async function update(parameter) {
    all.hidden = parameter !== null;
    await showDetail(parameter);
    if (parameter !== null) return;
    const live = await read("live");
    const rate = beginReading();
    const withRates = {
      providers: live.providers.map((it) => ({ ...it, rate: rate(["provider", it.name], it.received) })),
      topics: live.providers.flatMap((it) =>
        it.topics.map((topic) => ({
          ...topic,
          provider: it.name,
          rate: rate(["topic", it.name, topic.topic], topic.received),
        })),
      ),
      triggers: live.triggers.map((it) => ({
        ...it,
        rate: rate(["trigger", it.id], it.events),
      })),
    };
    setText(
      note,
      `${counted(live.subscribers, "subscriber")} in ${counted(live.groupCount, "group")} ` +
        `on ${counted(live.triggerCount, "trigger")}.`,
    );
    providers.update(withRates.providers);
    topics.update(withRates.topics);
    groups.update(
      live.triggers.flatMap((trigger) =>
        trigger.groups.map((it) => ({ ...it, topics: trigger.topics.join(", ") })),
      ),
    );
    transports.update(live.transports);
    slow.update(live.slowReaders.filter((it) => it.count > 0));
    draw(withRates, live.transports);
  }

  function draw({ providers: sources, triggers }, transports) {
    const paths = eventPaths(sources, triggers, transports);
    setText(more, paths.left > 0 ? `and ${counted(paths.left, "smaller trigger")}` : "");
    drawing.hidden = paths.nodes.length === 0;
    if (paths.nodes.length > 0) drawing.replaceChildren(picturePaths(paths));
  }

  return { element, update };
}

const describeTransports = ({ transports }) =>
  transports.map(({ transport, subscribers }) => `${transport} (${count(subscribers)})`).join(", ");

function describeLag({ lagEvents, lagSeconds }) {
  const parts = [];
  if (lagEvents !== null) parts.push(counted(lagEvents, "event"));
  if (lagSeconds !== null && lagSeconds > 0) parts.push(duration(lagSeconds));
  return parts.length === 0 ? "–" : parts.join(", ");
}

/** The drawing of the way of events. Arrows to transports have the number of subscribers. */
function picturePaths({ nodes, edges, columns, rows }) {
  const places = new Map(nodes.map((it) => [it, placeOf(NODE, it.column, it.row)]));
  const lines = edges.flatMap(({ from, to, label, subscribers }) => {
    const [start, end] = [rightOf(NODE, places.get(from)), leftOf(NODE, places.get(to))];
    const line = arrow(start, end, { label });
    if (subscribers === undefined) return line;
    const [x, y] = pointOf(start, end, NUMBER_AT);
    return [...line, svg("text", { class: "flow", x, y: y + 4, "text-anchor": "middle" }, short(subscribers))];
  });
  const boxes = nodes.map((it) =>
    box({ ...NODE, ...places.get(it), name: it.name, what: it.what, className: it.isBad ? "node late" : "node" }),
  );
  const label =
    "Events flow from providers to triggers, groups and transports. The tables below have the same figures.";
  return picture(NODE, { columns, rows, label }, lines, boxes);
}

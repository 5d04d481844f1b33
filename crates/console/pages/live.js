// Live data: the way of events from providers over triggers to groups of subscribers, with rates and what is behind.

import { read } from "./api.js";
import { arrow, box, drawingRegion, leftOf, picture, placeOf, rightOf } from "./drawing.js";
import { countColumn, html, section, setText, table } from "./elements.js";
import { count, counted, duration, perSecond, short } from "./format.js";
import { counterRates } from "./rates.js";
import { groupDetail } from "./subscribers.js";

export const title = "Live";
export const interval = 2_000;
export const isOfGraph = true;

/** The triggers and groups in the drawing. The tables have all of them. */
const TRIGGERS_MAX = 12;
const GROUPS_MAX = 4;

const NODE = { width: 210, height: 56, gapX: 70, gapY: 14 };
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
    const shown = [...triggers].sort((a, b) => b.subscribers - a.subscribers).slice(0, TRIGGERS_MAX);
    const left = triggers.length - shown.length;
    setText(more, left > 0 ? `and ${counted(left, "smaller trigger")}` : "");
    drawing.hidden = shown.length === 0;
    if (shown.length > 0) drawing.replaceChildren(wayOfEvents(sources, shown, transports));
  }

  return { element, update };
}

function describeLag({ lagEvents, lagSeconds }) {
  const parts = [];
  if (lagEvents !== null) parts.push(counted(lagEvents, "event"));
  if (lagSeconds !== null && lagSeconds > 0) parts.push(duration(lagSeconds));
  return parts.length === 0 ? "–" : parts.join(", ");
}

/** Columns of nodes, each below each other, with edges between columns. */
function wayOfEvents(sources, triggers, transports) {
  const nodes = [];
  const edges = [];
  const place = (column, row, name, what, isBad = false) => {
    const node = { ...placeOf(NODE, column, row), name, what, isBad };
    nodes.push(node);
    return node;
  };
  const names = [...new Set(triggers.map((it) => it.provider))];
  let row = 0;
  const open = transports.filter((it) => it.subscriptions > 0);
  const targets = [];
  const ofGroups = [];
  for (const provider of names) {
    const first = row;
    const source = sources.find((it) => it.name === provider);
    const ofProvider = [];
    for (const trigger of triggers.filter((it) => it.provider === provider)) {
      const start = row;
      const largest = trigger.groups.slice(0, GROUPS_MAX);
      const groups = largest.map((group) => {
        const waiting = group.eventsWaiting > 0 ? `, ${counted(group.eventsWaiting, "event")} waiting` : "";
        const name = group.operationName ?? group.field.replace("Subscription.", "");
        return place(
          2,
          row++,
          name,
          `${counted(group.subscribers, "subscriber")}${waiting}`,
          group.eventsWaiting > 0,
        );
      });
      if (trigger.groupCount > largest.length) {
        groups.push(place(2, row++, "…", `${trigger.groupCount - largest.length} more groups`));
      }
      if (groups.length === 0) row += 1;
      const rate = trigger.rate === null ? "" : `, ${perSecond(trigger.rate)}`;
      const events = counted(trigger.events, "event") + rate;
      const node = place(
        1,
        (start + row - 1) / 2,
        trigger.topics.join(", "),
        `${trigger.state}, ${events}`,
        trigger.state !== "live",
      );
      groups.forEach((group) => edges.push([node, group]));
      ofGroups.push(...groups);
      ofProvider.push(node);
    }
    const state = source
      ? `${source.state}${source.rate === null ? "" : `, ${perSecond(source.rate)}`}`
      : "subgraph";
    const node = place(0, (first + row - 1) / 2, provider, state, source?.connected === false);
    ofProvider.forEach((trigger) => edges.push([node, trigger]));
  }
  open.forEach(({ transport, subscriptions, streams }, index) => {
    const middle = Math.max(0, (row - open.length) / 2) + index;
    targets.push(place(3, middle, transport, `${short(subscriptions)} over ${counted(streams, "connection")}`));
  });
  // The router does not count which group is served by which transport.
  for (const group of ofGroups) for (const target of targets) edges.push([group, target]);
  const rows = Math.max(row, targets.length);
  const columns = targets.length > 0 ? 4 : 3;
  const lines = edges.flatMap(([from, to]) => arrow(rightOf(NODE, from), leftOf(NODE, to)));
  const boxes = nodes.map(({ isBad, ...node }) =>
    box({ ...NODE, ...node, className: isBad ? "node late" : "node" }),
  );
  const label =
    "Events flow from providers to triggers, groups and transports. The tables below have the same figures.";
  return picture(NODE, { columns, rows, label }, lines, boxes);
}

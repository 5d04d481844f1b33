// The way of events as nodes and edges: provider → topics of a trigger → group → transport. Knows nothing of the page:
// `live.js` draws it.

import { counted, perSecond, short } from "./format.js";

/** The triggers, and the groups of each, that are drawn. The tables of the page have all of them. */
const TRIGGERS_MAX = 12;
const GROUPS_MAX = 4;

/** The column of each kind of node. */
const COLUMN = { provider: 0, trigger: 1, group: 2, transport: 3 };

/**
 * Returns `{nodes, edges, columns, rows, left}`. A node is `{column, row, name, what, isBad}`; a row may be a fraction.
 * An edge is `{from, to, label}` with two nodes, and from a group to a transport also `{subscribers}`. `left` is the
 * number of triggers without a node: those with the fewest subscribers.
 *
 * `sources` and `triggers` have a `rate` per second, or null if it is not known.
 */
export function eventPaths(sources, triggers, transports) {
  const drawn = [...triggers].sort((a, b) => b.subscribers - a.subscribers).slice(0, TRIGGERS_MAX);
  const nodes = [];
  const edges = [];
  const place = (column, row, name, what, isBad = false) => {
    const node = { column, row, name, what, isBad };
    nodes.push(node);
    return node;
  };
  const groupsByTransport = new Map();
  const served = (group, counts) => {
    for (const { transport, subscribers } of counts) {
      const groups = groupsByTransport.get(transport) ?? [];
      groups.push({ group, subscribers });
      groupsByTransport.set(transport, groups);
    }
  };
  let row = 0;
  const placeGroup = (group) => {
    const waiting = group.eventsWaiting > 0 ? `, ${counted(group.eventsWaiting, "event")} waiting` : "";
    const name = group.operationName ?? group.field.replace("Subscription.", "");
    const what = `${counted(group.subscribers, "subscriber")}${waiting}`;
    const node = place(COLUMN.group, row++, name, what, group.eventsWaiting > 0);
    served(node, group.transports);
    return node;
  };
  const placeTrigger = (trigger) => {
    const first = row;
    const largest = trigger.groups.slice(0, GROUPS_MAX);
    const groups = largest.map(placeGroup);
    if (trigger.groupCount > largest.length) {
      const others = place(COLUMN.group, row++, "…", `${counted(trigger.groupCount - largest.length, "more group")}`);
      served(others, countsOfOthers(trigger, largest));
      groups.push(others);
    }
    if (groups.length === 0) row += 1;
    const rate = trigger.rate === null ? "" : `, ${perSecond(trigger.rate)}`;
    const what = `${trigger.state}, ${counted(trigger.events, "event")}${rate}`;
    const name = trigger.topics.join(", ");
    const node = place(COLUMN.trigger, (first + row - 1) / 2, name, what, trigger.state !== "live");
    for (const group of groups) edges.push({ from: node, to: group, label: `${node.name} to ${group.name}` });
    return node;
  };
  for (const provider of new Set(drawn.map((it) => it.provider))) {
    const first = row;
    const source = sources.find((it) => it.name === provider);
    const ofProvider = drawn.filter((it) => it.provider === provider).map(placeTrigger);
    const rate = source && source.rate !== null ? `, ${perSecond(source.rate)}` : "";
    const what = source ? `${source.state}${rate}` : "subgraph";
    const node = place(COLUMN.provider, (first + row - 1) / 2, provider, what, source?.connected === false);
    for (const trigger of ofProvider) edges.push({ from: node, to: trigger, label: `${provider} to ${trigger.name}` });
  }
  // In the order of the table; one that the table does not have yet comes last.
  const known = transports.map(({ transport }) => transport).filter((it) => groupsByTransport.has(it));
  const used = [...new Set([...known, ...groupsByTransport.keys()])];
  used.forEach((transport, index) => {
    const middle = Math.max(0, (row - used.length) / 2) + index;
    const open = transports.find((it) => it.transport === transport);
    const what = open ? `${short(open.subscriptions)} over ${counted(open.streams, "connection")}` : "";
    const node = place(COLUMN.transport, middle, transport, what);
    for (const { group, subscribers } of groupsByTransport.get(transport)) {
      const label = `${group.name} to ${transport}: ${counted(subscribers, "subscriber")}`;
      edges.push({ from: group, to: node, label, subscribers });
    }
  });
  return {
    nodes,
    edges,
    columns: used.length > 0 ? 4 : 3,
    rows: Math.max(row, used.length),
    left: triggers.length - drawn.length,
  };
}

/** The numbers of subscribers by transport in the groups of a trigger that have no node of their own. */
function countsOfOthers(trigger, drawn) {
  const counts = new Map(trigger.transports.map(({ transport, subscribers }) => [transport, subscribers]));
  for (const { transport, subscribers } of drawn.flatMap((it) => it.transports)) {
    counts.set(transport, (counts.get(transport) ?? 0) - subscribers);
  }
  return [...counts]
    .filter(([, subscribers]) => subscribers > 0)
    .map(([transport, subscribers]) => ({ transport, subscribers }));
}

// The console's drawing of the way of events, without a browser: which nodes and arrows it has for known figures.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { eventPaths } from "../../../../crates/console/pages/event_paths.js";

const PROVIDER = { name: "nats/default", state: "connected", connected: true, rate: 2 };
const TRANSPORTS = [
  { transport: "websocket", streams: 2, subscriptions: 5 },
  { transport: "sse", streams: 3, subscriptions: 3 },
  { transport: "multipart", streams: 1, subscriptions: 1 },
];

/** Numbers of subscribers by transport as the router writes them. */
const by = (counts) => Object.entries(counts).map(([transport, subscribers]) => ({ transport, subscribers }));
const sum = (counts) => Object.values(counts).reduce((sum, it) => sum + it, 0);

const group = (operationName, counts, more = {}) => ({
  operationName, field: "Subscription.moved", eventsWaiting: 0, subscribers: sum(counts), transports: by(counts),
  ...more,
});

const trigger = (topic, counts, groups, more = {}) => ({
  provider: PROVIDER.name, topics: [topic], state: "live", events: 7, rate: null, subscribers: sum(counts),
  transports: by(counts), groupCount: groups.length, groups, ...more,
});

/** The arrows as `from > to`, those to transports with their number. */
const arrows = ({ edges }) =>
  edges.map(({ from, to, subscribers }) => `${from.name} > ${to.name}${subscribers ? `: ${subscribers}` : ""}`);

const whatOf = ({ nodes }, name) => nodes.find((it) => it.name === name).what;

describe("the drawing of the way of events", () => {
  it("joins a group with the transports of its subscribers only", () => {
    const board = group("Board", { websocket: 3, sse: 1 });
    const ticker = group("Ticker", { sse: 2 });
    const moved = trigger("moved", { websocket: 3, sse: 3 }, [board, ticker]);
    const paths = eventPaths([PROVIDER], [moved], TRANSPORTS);
    assert.deepEqual(arrows(paths), [
      "moved > Board",
      "moved > Ticker",
      "nats/default > moved",
      "Board > websocket: 3",
      "Board > sse: 1",
      "Ticker > sse: 2",
    ]);
    assert.equal(paths.edges.at(-1).label, "Ticker to sse: 2 subscribers");
    const { nodes, columns, rows, left } = paths;
    assert.deepEqual([columns, rows, left], [4, 2, 0]);
    assert.deepEqual(
      nodes.map(({ name, column, row }) => [name, column, row]),
      [
        ["Board", 2, 0],
        ["Ticker", 2, 1],
        ["moved", 1, 0.5],
        ["nats/default", 0, 0.5],
        ["websocket", 3, 0],
        ["sse", 3, 1],
      ],
    );
    assert.equal(whatOf(paths, "nats/default"), "connected, 2/s");
    assert.equal(whatOf(paths, "websocket"), "5 over 2 connections");
  });

  it("gives the transports of the groups without a node to the node for all of these", () => {
    const names = ["A", "B", "C", "D", "E", "F"];
    const groups = names.map((name) => group(name, { websocket: 2, sse: 1 }));
    // The router lists some of 9 groups.
    const moved = trigger("moved", { websocket: 15, sse: 4, multipart: 1 }, groups, { groupCount: 9 });
    const paths = eventPaths([PROVIDER], [moved], TRANSPORTS);
    assert.equal(whatOf(paths, "…"), "5 more groups");
    assert.deepEqual(
      arrows(paths).filter((it) => it.startsWith("…")),
      ["… > websocket: 7", "… > multipart: 1"],
    );
    assert.equal(arrows(paths).filter((it) => it.startsWith("A >")).length, 2);
  });

  it("shows what is late or closed, subgraphs as sources, and groups without a name", () => {
    const lost = { ...PROVIDER, state: "reconnecting", connected: false, rate: null };
    const late = group(null, { websocket: 1 }, { eventsWaiting: 4 });
    const opening = trigger("moved", { websocket: 1 }, [late], { state: "opening" });
    const served = trigger("Subscription.reviewed", {}, [], { provider: "subgraph/reviews" });
    const paths = eventPaths([lost], [opening, served], []);
    const bad = paths.nodes.filter((it) => it.isBad).map(({ name, what }) => [name, what]);
    assert.deepEqual(bad, [
      ["moved", "1 subscriber, 4 events waiting"],
      ["moved", "opening, 7 events"],
      ["nats/default", "reconnecting"],
    ]);
    assert.equal(whatOf(paths, "subgraph/reviews"), "subgraph");
    // The table of transports is a moment older than the group.
    assert.equal(whatOf(paths, "websocket"), "");
    assert.equal(arrows(paths).at(-1), "moved > websocket: 1");
  });

  it("leaves out the triggers with the fewest subscribers", () => {
    const triggers = Array.from({ length: 15 }, (_, index) =>
      trigger(`topic-${index}`, { sse: index + 1 }, [group(`Of${index}`, { sse: index + 1 })]));
    const paths = eventPaths([PROVIDER], triggers, TRANSPORTS);
    assert.equal(paths.left, 3);
    const drawn = paths.nodes.filter(({ column }) => column === 1).map(({ name }) => name);
    assert.deepEqual(drawn, Array.from({ length: 12 }, (_, index) => `topic-${14 - index}`));
    assert.deepEqual(eventPaths([PROVIDER], [], TRANSPORTS).nodes, []);
  });
});

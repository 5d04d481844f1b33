// Three routers behind HAProxy are restarted one after the other while clients subscribe and query: no query fails, and
// no event is lost. HAProxy has the configuration of the documentation, and the routers shut down with default times.
// Runs alone: its load needs what the machine can do.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { startHaproxy } from "../haproxy.mjs";
import { haproxy, skipBecause, skipWithout } from "../programs.mjs";
import { startQueryLoad } from "../query_load.mjs";
import { SOURCES } from "../resume/brokers.mjs";
import { EventStreamClient, SocketClient } from "../resume/clients.mjs";
import { figures } from "../resume/figures.mjs";
import { startSubgraphProcess } from "../resume/subgraphs.mjs";
import { freePort, startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const ROUTERS = 3;

/** Subscribers, and how many of them connect before the next ones do. One in five uses an event stream. */
const SUBSCRIBERS = 5_000;
const CONNECTING_MAX = 250;

/** Queries in a second, whether or not earlier ones have their responses, and the connections that they share. */
const QUERIES_PER_SECOND = 500;
const QUERY_CONNECTIONS = 64;

/** Time between two events. Each reaches all subscribers, so that they receive 10,000 results in a second. */
const EVENT_MS = 500;

/** More events than the test publishes. */
const EVENTS_MAX = 1_000;

/** Time until a router has ended: `shutdown.delay` and `subscriptions.drain_period` at most, and some more. */
const END_MS = 45_000;

/** HAProxy has two descriptors for each subscriber. */
const DESCRIPTORS_MIN = 2 * SUBSCRIBERS + 1_000;

const TOPIC = "moves.rolling";
const SUBSCRIPTION = "subscription { flightMoved { id altitude number } }";
const QUERY = "query Flight($id: ID!) { flight(id: $id) { id number } }";
const QUERIES = [["1", "ST 101"], ["2", "ST 202"], ["3", "ST 303"]].map(([id, number]) => ({
  body: JSON.stringify({ query: QUERY, variables: { id } }),
  expected: JSON.stringify({ data: { flight: { id, number } } }),
}));

const jetStream = SOURCES.find(({ name }) => name === "jetstream");

function skip() {
  const descriptors = Number(execFileSync("sh", ["-c", "ulimit -Hn"], { encoding: "utf8" }));
  // `unlimited` is not a number.
  if (descriptors < DESCRIPTORS_MIN) return skipBecause(`the limit of open files is below ${DESCRIPTORS_MIN}`);
  return skipWithout(haproxy, "haproxy") || skipWithout(jetStream.program, "nats-server");
}

describe("rolling restart", { skip: skip() }, () => {
  let subgraphs, broker, balancer;
  const routers = [];
  const subscribers = [];
  before(async () => {
    [subgraphs, broker] = await Promise.all([startSubgraphProcess(), jetStream.start()]);
    await broker.createTopic(TOPIC);
    const places = [];
    for (let index = 0; index < ROUTERS; index += 1) {
      places.push({ graphql: await freePort(), admin: await freePort() });
    }
    routers.push(...await Promise.all(places.map(startRouter)));
    balancer = await startHaproxy(places);
  });
  after(async () => {
    for (const subscriber of subscribers) subscriber.close();
    // The test has stopped them as operators do.
    await Promise.all(routers.filter((router) => router.isRunning()).map((router) => router.kill("SIGKILL")));
    await balancer?.stop();
    await broker?.stop();
    await subgraphs?.stop();
  });

  const startRouter = (ports) => startServe({
    supergraph: broker.supergraph(TOPIC),
    ports,
    config: {
      subgraphs: subgraphs.configuration,
      // Subscribers get their first position within a second; the default is half a minute.
      cursor: { keys: ["a key of more than 16 bytes"], heartbeat: "1s" },
      events: broker.configuration,
      // A router without optimizations, on a machine that also runs the clients, has not the capacity for all events and
      // queries of this test. Overload protection would refuse some queries; an optimized one refuses none.
      admission: { enabled: false },
    },
  });

  /** Connects all subscribers and waits until each has a cursor: then it can lose nothing. */
  async function subscribe() {
    const { address } = balancer;
    while (subscribers.length < SUBSCRIBERS) {
      const next = Array.from({ length: Math.min(CONNECTING_MAX, SUBSCRIBERS - subscribers.length) }, (_, index) => {
        const isSocket = index % 5 !== 0;
        const Client = isSocket ? SocketClient : EventStreamClient;
        const client = new Client({ address, query: SUBSCRIPTION, events: EVENTS_MAX });
        return Object.assign(client, { isSocket, isJoined: true });
      });
      subscribers.push(...next);
      for (const subscriber of next) subscriber.open();
      await eventually(() => next.every(({ connections }) => connections > 0), "subscribers to connect");
    }
    await eventually(() => subscribers.every(({ cursor }) => cursor), "the position of each subscriber");
  }

  /** Publishes events 1, 2, 3, … until it is stopped; `stop()` returns the number of the last one. */
  function publishEvents() {
    let isOver = false;
    const publishing = (async () => {
      for (let number = 1; ; number += 1) {
        assert.ok(number <= EVENTS_MAX, "EVENTS_MAX is too small");
        await broker.publish(TOPIC, [number]);
        if (isOver) return number;
        await pause(EVENT_MS);
      }
    })();
    publishing.catch(() => {});
    return {
      stop() {
        isOver = true;
        return publishing;
      },
    };
  }

  /** Restarts a router as an operator does. */
  async function restart(index) {
    const router = routers[index];
    const ended = router.kill("SIGTERM", END_MS);
    ended.catch(() => {});
    await balancer.untilServer(index, "DOWN");
    assert.ok(router.isRunning(), "HAProxy notices before the router has ended");
    await ended;
    assert.equal(await router.stop(), 0, router.output());
    routers[index] = await startRouter(router.ports);
    await balancer.untilServer(index, "UP");
  }

  it("fails no query and loses no event", async (test) => {
    const started = Date.now();
    await subscribe();
    const publishing = Date.now();
    const events = publishEvents();
    const load = startQueryLoad({
      address: balancer.address, queries: QUERIES, perSecond: QUERIES_PER_SECOND, connections: QUERY_CONNECTIONS,
    });
    let published;
    let queries;
    try {
      for (const index of routers.keys()) await restart(index);
    } finally {
      published = await events.stop();
      queries = await load.stop();
    }
    const publishedMs = Date.now() - publishing;
    for (const { account } of subscribers) account.events = published;
    await eventually(() => subscribers.every(({ account }) => account.missing === 0), "all events").catch(() => {});

    const row = figures({ clients: subscribers, events: published, publishedMs, started });
    const servers = await balancer.servers();
    const total = (column) => servers.reduce((sum, server) => sum + Number(server[column]), 0);
    test.diagnostic(`${published} events, ${row.reconnections} reconnections, ${row.repeated} repeated results`);
    test.diagnostic(`${queries.sent} queries on ${queries.opened} connections, ${queries.slowestMs} ms at most`);
    test.diagnostic(`connections that HAProxy repeated: ${total("wretr")}, with another router: ${total("wredis")}`);

    assert.deepEqual(queries.failures, [], `${queries.failed} queries failed\n${balancer.output()}`);
    assert.ok(queries.sent > QUERIES_PER_SECOND * (queries.seconds - 1), `only ${queries.sent} queries were sent`);
    assert.ok(queries.opened <= QUERY_CONNECTIONS, `clients had to open ${queries.opened} connections`);
    // The sample lets HAProxy repeat requests that could not be connected. A restart in good order does not need that.
    assert.deepEqual({ retries: total("wretr"), redispatches: total("wredis") }, { retries: 0, redispatches: 0 });

    const none = { missing: 0, outOfOrder: 0, repeatedOnConnection: 0, lost: 0, gaps: 0, unrecognised: 0, refused: 0 };
    assert.deepEqual(row.faults, none, row.details.join("\n"));
    assert.equal(row.repeated, 0, "each client got each event once");
    assert.ok(row.reconnections >= SUBSCRIBERS, `${row.reconnections} reconnections: which router was restarted?`);
  });
});

// Overload protection: refusals, what is still admitted, the shares of clients and classes, and a load that is several
// times what a subgraph can do.
// Runs alone: it measures rates and times at a full load.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { text } from "node:stream/consumers";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import WebSocket from "ws";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { compose } from "../composition.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

/** Equal queries in flight would be done once. */
const UNSHARED = { operations: false, subgraph_queries: false };

const QUERY = "{ flights { number } }";

/** The bounds of a limit that stays as it is. */
const fixedLimit = (requests) => ({ initial: requests, min: requests, max: requests });

/**
 * Starts the board's subgraphs, and a router with overload protection. `admission` configures the protection, `config`
 * the rest of the router. `stop` stops the router and the subgraphs.
 */
async function startProtected(admission, config = {}) {
  const subgraphs = await startSubgraphs();
  const router = await startServe({
    supergraph: memorySupergraph(),
    config: {
      subgraphs: subgraphs.configuration,
      sharing: UNSHARED,
      admission: { enabled: true, ...admission },
      ...config,
    },
  });
  const stop = async () => {
    await router.stop();
    await subgraphs.stop();
  };
  return { subgraphs, router, stop };
}

/** Sends a request by POST: its status, headers and parsed body. */
async function send(router, body, headers = {}) {
  const response = await fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(typeof body === "string" ? { query: body } : body),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: JSON.parse(text) };
}

/** The value of a metric, with its labels if it has any. */
async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name} `));
  assert.ok(line, `${name} is not in:\n${text}`);
  return Number(line.slice(name.length));
}

const metricBecomes = (router, name, value) =>
  eventually(async () => (await metric(router, name)) === value, `${name} to be ${value}`);

function assertRefused(response, what) {
  const after = response.headers.get("retry-after");
  assert.equal(response.status, 503, `${what}: ${response.text}`);
  assert.match(after ?? "", /^([1-9]|[12][0-9]|30)$/, what);
  const [{ message, extensions }] = response.body.errors;
  assert.deepEqual(extensions, { code: "OVERLOADED", retryAfter: Number(after) }, what);
  assert.equal(message, `the router is overloaded: try again in ${after} s`, what);
  assert.equal("data" in response.body, false, what);
}

describe("a limit that is reached", () => {
  const IN_FLIGHT = 'starling_admission_requests{class="normal"}';
  const WAITING = 'starling_admission_waiting{class="normal"}';
  let subgraphs, router, stop, held;

  // Each test has a router of its own, the subgraphs respond to nothing, and a client fills the limit and the queue.
  beforeEach(async () => {
    ({ subgraphs, router, stop } = await startProtected({
      limit: fixedLimit(20),
      // So long that a request of a test waits until it is admitted.
      queue: { max_waiting: 2, target: "60s", interval: "60s" },
      priority: [{ when: "request.headers['x-class'] == 'critical'", class: "critical" }],
      fair_by: "request.headers['x-client']",
    }, { http: { batching: { enabled: true } } }));
    // The only operation that is known has the weight of an average operation.
    assert.equal((await send(router, QUERY)).status, 200);
    subgraphs.pause();
    held = Array.from({ length: 20 }, () => send(router, QUERY, { "x-client": "storm" }));
    await metricBecomes(router, IN_FLIGHT, 20);
    held.push(...Array.from({ length: 2 }, () => send(router, QUERY, { "x-client": "storm" })));
    await metricBecomes(router, WAITING, 2);
  });
  afterEach(async () => {
    subgraphs.resume();
    // What was admitted, and what has waited, is done.
    for (const { status, body } of await Promise.all(held)) {
      assert.equal(status, 200);
      assert.equal(body.data.flights.length, 3);
    }
    // There is room again at once.
    assert.equal((await send(router, QUERY)).status, 200);
    await stop();
  });

  it("refuses requests with 503 and the time to come back, for every media type", async () => {
    const refused = 'starling_admission_refused_total{class="normal",reason="queue_full"}';
    const earlier = await metric(router, refused);
    const types = ["application/json", "application/graphql-response+json", "text/event-stream", "*/*"];
    for (const accept of types) {
      const response = await send(router, QUERY, { accept, "x-client": "storm" });
      assertRefused(response, accept);
    }
    assert.equal(await metric(router, refused), earlier + types.length);
  });

  it("does not parse what it refuses", async () => {
    assertRefused(await send(router, "{ this is no GraphQL", { "x-client": "storm" }), "a text");
    const hash = { persistedQuery: { version: 1, sha256Hash: "ab" } };
    assertRefused(await send(router, { extensions: hash }, { "x-client": "storm" }), "a hash");
  });

  it("refuses a batch as a whole", async () => {
    const batch = [{ query: QUERY }, { query: "{ __typename }" }];
    assertRefused(await send(router, batch, { "x-client": "storm" }), "a batch");
  });

  it("admits another client at once", async () => {
    // It needs no subgraph, so that it can be done now.
    const response = await send(router, "{ __typename }", { "x-client": "other" });
    assert.deepEqual(response.body, { data: { __typename: "Query" } });
  });

  it("gives the next free place to another client, before the one with more requests in the queue", async () => {
    const others = Array.from({ length: 4 }, () => send(router, QUERY, { "x-client": "other" }));
    // Two are admitted beyond the limit, the others take the places of waiting requests of the storm.
    await metricBecomes(router, IN_FLIGHT, 22);
    await eventually(
      async () => (await metric(router, 'starling_admission_refused_total{class="normal",reason="queue_full"}')) > 0,
      "a request of the storm to leave the queue",
    );
    const dropped = await Promise.race(held.slice(20));
    assertRefused(dropped, "a request of the storm");
    subgraphs.resume();
    assert.ok((await Promise.all(others)).filter(({ status }) => status === 200).length >= 3);
    const statuses = (await Promise.all(held)).map(({ status }) => status);
    assert.deepEqual(statuses.slice(0, 20), Array(20).fill(200));
    held = [];
  });

  it("admits critical requests beside the others", async () => {
    const headers = { "x-client": "storm", "x-class": "critical" };
    const all = await Promise.all(Array.from({ length: 10 }, () => send(router, "{ __typename }", headers)));
    assert.deepEqual(all.map(({ status }) => status), Array(10).fill(200));
  });

  it("does not let a client keep its place that has gone", async () => {
    const gone = new AbortController();
    const request = fetch(router.graphql, {
      method: "POST",
      signal: gone.signal,
      headers: { "content-type": "application/json", "x-client": "third", "x-class": "critical" },
      body: JSON.stringify({ query: QUERY }),
    });
    const critical = 'starling_admission_requests{class="critical"}';
    await metricBecomes(router, critical, 1);
    gone.abort();
    await assert.rejects(request);
    await metricBecomes(router, critical, 0);
  });
});

describe("refusals", () => {
  it("are sent at once up to a rate, and held for some seconds beyond it", async () => {
    const { subgraphs, router, stop } = await startProtected(
      { limit: fixedLimit(1), queue: { max_waiting: 0 }, refusals_per_core: 1 }, { workers: 1 },
    );
    try {
      subgraphs.pause();
      const work = send(router, QUERY);
      await metricBecomes(router, 'starling_admission_requests{class="normal"}', 1);
      const round = async () => {
        const earlier = await metric(router, "starling_http_refusals_held_total");
        const began = performance.now();
        const responses = await Promise.all(Array.from({ length: 4 }, () => send(router, QUERY)));
        for (const response of responses) assertRefused(response, "a refusal");
        const held = await metric(router, "starling_http_refusals_held_total") - earlier;
        return held > 0 && { held, seconds: (performance.now() - began) / 1000 };
      };
      // One each second may be sent at once, so that four at the same time are too many.
      const { held, seconds } = await eventually(round, "a refusal to be held");
      assert.ok(held < 4, `${held}`);
      assert.ok(seconds > 2, `${seconds}`);
      assert.equal(await metric(router, "starling_http_held_refusals"), 0);
      subgraphs.resume();
      assert.equal((await work).status, 200);
    } finally {
      await stop();
    }
  });
});

describe("refusals over HTTP/2", () => {
  it("leave other requests of the connection their streams while some are held", async () => {
    const { subgraphs, router, stop } = await startProtected(
      { limit: fixedLimit(1), queue: { max_waiting: 0 }, refusals_per_core: 1 }, { workers: 1 },
    );
    const session = http2.connect(router.url);
    const ask = async () => {
      const stream = session.request({
        ":method": "POST", ":path": "/graphql", "content-type": "application/json",
      });
      stream.end(JSON.stringify({ query: "{ __typename }" }));
      const [headers] = await once(stream, "response");
      stream.resume();
      await once(stream, "close");
      return headers[":status"];
    };
    try {
      subgraphs.pause();
      const work = send(router, QUERY);
      await metricBecomes(router, 'starling_admission_requests{class="normal"}', 1);
      let pending = 0;
      const storm = Array.from({ length: 60 }, async () => {
        pending += 1;
        const status = await ask();
        pending -= 1;
        return status;
      });
      await eventually(async () => (await metric(router, "starling_http_held_refusals")) >= 4, "refusals to be held");
      subgraphs.resume();
      assert.equal((await work).status, 200);
      assert.equal(await ask(), 200);
      assert.ok(pending > 0, "it has not waited for the refusals before it");
      const statuses = await Promise.all(storm);
      assert.ok(statuses.filter((it) => it === 503).length >= 4, `${statuses}`);
    } finally {
      session.close();
      await stop();
    }
  });
});

describe("a WebSocket", () => {
  it("gets an error for an operation that is refused, and the events of live subscriptions", async () => {
    const { subgraphs, router, stop } = await startProtected({ limit: fixedLimit(1), queue: { max_waiting: 0 } });
    const client = openSocket(router);
    try {
      const events = client.subscribe("subscription { flightMoved { id altitude } }");
      const publish = (altitude) => router.publish("memory/default", "flights.moved", event("1", altitude));
      await repeatUntil(events.next(), publish, "the first event");
      subgraphs.pause();
      const held = send(router, QUERY);
      await metricBecomes(router, 'starling_admission_requests{class="normal"}', 1);
      // So many that a connection without a live subscription would be closed.
      for (const operation of Array(10).fill(["{ __typename }", "subscription { flightMoved { id } }"]).flat()) {
        const { error, results } = await client.subscribe(operation).ended();
        assert.deepEqual(results, [], operation);
        assert.equal(error[0].extensions.code, "OVERLOADED", operation);
        assert.ok(error[0].extensions.retryAfter >= 1, operation);
      }
      await publish(7000);
      await events.find(({ data }) => data.flightMoved.altitude === 7000, "an event at the limit");
      subgraphs.resume();
      assert.equal((await held).status, 200);
      const { results } = await client.subscribe("{ __typename }").ended();
      assert.deepEqual(results, [{ data: { __typename: "Query" } }]);
      assert.equal(client.opened(), 1);
    } finally {
      await client.dispose();
      await stop();
    }
  });

  for (const [protocol, type] of [["graphql-transport-ws", "subscribe"], ["graphql-ws", "start"]]) {
    it(`is closed with 1013 if all of its operations are refused, with ${protocol}`, async () => {
      const { subgraphs, router, stop } = await startProtected({ limit: fixedLimit(1), queue: { max_waiting: 0 } });
      const socket = new WebSocket(router.socket, protocol);
      const closed = once(socket, "close");
      const received = [];
      socket.on("message", (message) => received.push(JSON.parse(message)));
      const errors = () => received.filter((it) => it.type === "error").length;
      const start = (id) => socket.send(JSON.stringify({ id, type, payload: { query: "{ __typename }" } }));
      try {
        await within(once(socket, "open"), "the socket to open");
        socket.send(JSON.stringify({ type: "connection_init" }));
        await eventually(() => received.some((it) => it.type === "connection_ack"), "connection_ack");
        subgraphs.pause();
        const held = send(router, QUERY);
        await metricBecomes(router, 'starling_admission_requests{class="normal"}', 1);
        for (let id = 1; id <= 15; id += 1) start(`${id}`);
        await eventually(() => errors() === 15, "15 refusals");
        assert.equal(socket.readyState, WebSocket.OPEN);
        start("16");
        const [code, reason] = await within(closed, "the close");
        assert.deepEqual([code, String(reason)], [1013, "the router is overloaded: try again later"]);
        assert.equal(errors(), 16);
        subgraphs.resume();
        assert.equal((await held).status, 200);
      } finally {
        socket.terminate();
        await stop();
      }
    });
  }
});

describe("new subscriptions", () => {
  it("leave a part of the limit to queries, and do not starve", async () => {
    const { subgraphs, router, stop } = await startProtected({ limit: fixedLimit(100), queue: { max_waiting: 0 } });
    const client = openSocket(router);
    const subscribe = () => client.subscribe("subscription { flightMoved { id altitude } }");
    const publish = () => router.publish("memory/default", "flights.moved", event("1", 7000));
    try {
      // The router knows that the operation opens a subscription once it has.
      await repeatUntil(subscribe().next(), publish, "the first event");
      assert.equal((await send(router, QUERY)).status, 200);
      subgraphs.pause();
      const held = [];
      while ((await metric(router, "starling_admission_in_flight")) <= 85) {
        held.push(send(router, QUERY));
        await metricBecomes(router, 'starling_admission_requests{class="normal"}', held.length);
      }
      // One is opened after each ten queries, so long as the limit is not reached.
      await repeatUntil(subscribe().next(), publish, "an event of the one");
      const { error } = await subscribe().ended();
      assert.equal(error[0].extensions.code, "OVERLOADED");
      assert.equal(await metric(router, 'starling_admission_streams_refused_total{class="normal"}'), 1);
      assert.equal((await send(router, "{ __typename }")).status, 200);
      subgraphs.resume();
      for (const { status } of await Promise.all(held)) assert.equal(status, 200);
    } finally {
      await client.dispose();
      await stop();
    }
  });
});

describe("handshakes", () => {
  let router;
  before(async () => {
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { workers: 1, admission: { enabled: true, handshakes_per_core: 1 } },
    });
  });
  after(() => router.stop());

  /** Does a handshake: its status, the value of `retry-after`, and the seconds that it took. */
  const shake = () => {
    const began = performance.now();
    const headers = {
      connection: "upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      "sec-websocket-protocol": "graphql-transport-ws",
    };
    return new Promise((resolve, reject) => {
      const end = ({ statusCode: status, headers }) => {
        const after = Number(headers["retry-after"]);
        resolve({ status, after, seconds: (performance.now() - began) / 1000 });
      };
      http.get(router.graphql, { headers })
        .on("upgrade", (response, socket) => (socket.destroy(), end(response)))
        .on("response", (response) => (response.resume(), end(response)))
        .on("error", reject);
    });
  };

  it("have an even pace, and are refused if they would wait for too long", async () => {
    const all = await Promise.all(Array.from({ length: 20 }, shake));
    const accepted = all.filter(({ status }) => status === 101);
    const refused = all.filter(({ status }) => status === 503);
    assert.equal(accepted.length + refused.length, 20, JSON.stringify(all));
    // One at once, and one in each of ten seconds.
    assert.ok(accepted.length >= 11 && refused.length >= 1, JSON.stringify(all));
    assert.ok(Math.max(...accepted.map(({ seconds }) => seconds)) > 9, JSON.stringify(accepted));
    for (const { after } of refused) assert.ok(after >= 10 && after <= 20, `${after}`);
    assert.equal(await metric(router, "starling_admission_handshakes_refused_total"), refused.length);
    assert.equal(await metric(router, "starling_admission_handshakes_waiting"), 0);
    assert.equal(await metric(router, "starling_http_connections_waiting"), 0);
  });

  it("do not delay requests on new connections that come after them", async () => {
    const storm = Array.from({ length: 6 }, shake);
    await eventually(
      async () => await metric(router, "starling_admission_handshakes_waiting") >= 4,
      "handshakes to wait for their turns",
    );
    storm.push(...Array.from({ length: 3 }, shake));
    await metricBecomes(router, "starling_http_connections_waiting", 3);
    // A connection whose first bytes come late, and one of which they are there at once.
    const { hostname, port } = new URL(router.graphql);
    const late = net.connect(Number(port), hostname);
    await once(late, "connect");
    for (const socket of [net.connect(Number(port), hostname), late]) {
      socket.write("GET /graphql?query=%7B__typename%7D HTTP/1.1\r\nhost: localhost\r\n" +
        "apollo-require-preflight: true\r\nconnection: close\r\n\r\n");
      assert.match(await text(socket), /^HTTP\/1\.1 200 [^]*\{"data":\{"__typename":"Query"\}\}$/);
    }
    assert.ok(await metric(router, "starling_http_connections_waiting") >= 1, "handshakes still wait");
    for (const { status } of await Promise.all(storm)) assert.equal(status, 101);
  });

  it("are parked also if their clients connect first and send later", async () => {
    const { hostname, port } = new URL(router.graphql);
    const silent = [];
    while (silent.length < 6) {
      silent.push(net.connect(Number(port), hostname));
      await metricBecomes(router, "starling_http_connections", silent.length);
    }
    for (const socket of silent) {
      socket.write("GET /graphql HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n" +
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
        "sec-websocket-protocol: graphql-transport-ws\r\n\r\n");
    }
    await eventually(
      async () => await metric(router, "starling_http_connections_waiting") >= 3,
      "handshakes to be parked",
    );
    for (const socket of silent) {
      const [head] = await once(socket, "data");
      assert.match(String(head), /^HTTP\/1\.1 101 /);
      socket.destroy();
    }
  });
});

describe("a request that waits", () => {
  it("is refused when it has waited for the time of the queue", async () => {
    const { subgraphs, router, stop } = await startProtected({ limit: fixedLimit(1), queue: { interval: "50ms" } });
    try {
      subgraphs.pause();
      const held = send(router, QUERY);
      await metricBecomes(router, 'starling_admission_requests{class="normal"}', 1);
      assertRefused(await send(router, QUERY), "a request that has waited");
      const refused = 'starling_admission_refused_total{class="normal",reason="waited_too_long"}';
      assert.equal(await metric(router, refused), 1);
      subgraphs.resume();
      assert.equal((await held).status, 200);
    } finally {
      await stop();
    }
  });
});

/** A subgraph that does `parallel` requests at a time, each in `ms`, in the order in which they come. */
async function startBottleneck(parallel, ms) {
  let working = 0;
  const queue = [];
  const work = async (response) => {
    working += 1;
    await pause(ms);
    working -= 1;
    response.writeHead(200, { "content-type": "application/json" }).end('{"data":{"item":"done"}}');
    if (queue.length > 0) work(queue.shift());
  };
  const server = http.createServer((request, response) => {
    request.resume();
    if (working < parallel) work(response);
    else queue.push(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/graphql`,
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

describe("a load of several times the capacity", () => {
  const PARALLEL = 10;
  const SERVICE_MS = 50;
  let subgraph, router;

  before(async () => {
    subgraph = await startBottleneck(PARALLEL, SERVICE_MS);
    const sdl = "type Query { item: String }";
    router = await startServe({
      supergraph: await compose({ items: { sdl, url: subgraph.url } }),
      config: {
        sharing: UNSHARED,
        admission: {
          // The limit stays at its initial value while the router itself has little to do.
          limit: { initial: 20, min: 10, max: 1000 }, fair_by: "request.headers['x-client']",
        },
      },
    });
    // The limit compares with the time of an operation without load, which it learns from the first ones.
    for (let number = 0; number < 16; number += 1) assert.equal((await send(router, "{ item }")).status, 200);
  });
  after(async () => {
    await router?.stop();
    await subgraph?.stop();
  });

  /** Sends requests one after the other until `isOver()`; a refused client waits for a moment. Returns the times. */
  async function client(name, isOver, gapMs) {
    const done = [];
    let refused = 0;
    while (!isOver()) {
      const started = performance.now();
      const response = await send(router, "{ item }", { "x-client": name });
      if (response.status === 200) {
        assert.deepEqual(response.body, { data: { item: "done" } });
        done.push({ at: started, ms: performance.now() - started });
      } else {
        assertRefused(response, name);
        refused += 1;
      }
      // The subgraph is in this process, too: too many refusals would keep it from responding.
      await pause(response.status === 200 ? gapMs : 400);
    }
    return { done, refused };
  }

  it("is served up to the capacity and in time, and does not hurt another client", async () => {
    const started = performance.now();
    const elapsed = () => performance.now() - started;
    const isOver = () => elapsed() > 12_000;
    // 200 at a time are twenty times what the subgraph does at a time.
    const storm = Array.from({ length: 200 }, () => client("storm", isOver, 0));
    const other = await client("other", isOver, 100);
    const results = await Promise.all(storm);
    // The limit has found the capacity after a few seconds.
    const settled = started + 6000;
    const late = ({ done }) => done.filter(({ at }) => at > settled).map(({ ms }) => ms);
    const times = results.flatMap(late).sort((a, b) => a - b);
    const perSecond = times.length / ((elapsed() - 6000) / 1000);
    const limit = await metric(router, "starling_admission_limit");
    const p90 = times[Math.floor(times.length * 0.9)];
    const refused = results.reduce((sum, it) => sum + it.refused, 0);
    const facts = { perSecond, p90, limit, refused, others: late(other).length, othersRefused: other.refused };
    // 200 per second are possible. A busy machine does not reach all of them.
    assert.ok(perSecond > 60, JSON.stringify(facts));
    assert.ok(p90 < 3000, JSON.stringify(facts));
    assert.ok(limit < 250, JSON.stringify(facts));
    assert.ok(refused > 100, JSON.stringify(facts));
    assert.ok(other.refused <= 3 && late(other).length > 2, JSON.stringify(facts));
  });

  it("leaves nothing behind", async () => {
    for (let number = 0; number < 20; number += 1) {
      assert.equal((await send(router, "{ item }", { "x-client": "storm" })).status, 200);
    }
    assert.equal(await metric(router, 'starling_admission_waiting{class="normal"}'), 0);
  });
});

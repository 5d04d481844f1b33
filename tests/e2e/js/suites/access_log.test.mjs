// The access log and request ids: what each transport leaves in the log, which lines are written, and where the id goes.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { constants, openSync } from "node:fs";
import { mkdtemp, readFile, readdir, rename, rm } from "node:fs/promises";
import http2 from "node:http2";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-sse";
import { SUBSCRIPTION_BY_ID, event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { startSubgraph } from "../counting_subgraph.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const FLIGHTS = "query All { flights { id } }";
const HEX_ID = /^[0-9a-f]{32}$/;

describe("the access log", () => {
  const keep = closeAfterEach();
  let subgraphs, issuer;
  before(async () => {
    subgraphs = await startSubgraphs();
    issuer = await startIssuer();
  });
  after(async () => {
    await subgraphs?.stop();
    await issuer?.stop();
  });

  /** Starts a router that writes the log to standard output, with its lines as objects. */
  async function open(accessLog = {}, config = {}) {
    const router = keep(await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { issuers: [issuer.configuration] } },
        access_log: { enabled: true, ...accessLog },
        ...config,
      },
    }));
    router.lines = () => router.output().split("\n").filter((it) => it.startsWith('{"time":')).map(JSON.parse);
    router.linesOf = async (name, count) => {
      const some = () => router.lines().filter((it) => it.event === name);
      await eventually(() => some().length >= count, `${count} lines of ${name}`);
      return some();
    };
    return router;
  }

  const send = (router, body, headers = {}) => fetch(router.graphql, {
    method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body),
  });

  it("has a line for each request, and no secret of it", async () => {
    const router = await open({ fields: [{ name: "user", value: "claims.sub" }] });
    const token = issuer.issue({ sub: "ann" });
    const response = await send(router, { query: FLIGHTS, variables: { hidden: "hidden variable" } }, {
      authorization: `Bearer ${token}`, "graphql-client-name": "web", "graphql-client-version": "1.2", cookie: "c=hidden",
    });
    const body = await response.text();
    const [line] = await router.linesOf("request", 1);
    const { time, duration_ms: duration, operation_id: id, ...others } = line;
    assert.ok(Math.abs(Date.parse(time) - Date.now()) < 60_000, time);
    assert.ok(duration > 0 && duration < 30_000, `${duration}`);
    assert.match(id, HEX_ID);
    assert.deepEqual(others, {
      event: "request", address: "127.0.0.1", method: "POST", path: "/graphql", protocol: "HTTP/1.1", status: 200,
      bytes: body.length, operation: "All", kind: "query", client: "web", client_version: "1.2", user: "ann",
    });
    assert.doesNotMatch(router.output(), new RegExp(`hidden|${token.slice(-20)}`));
  });

  it("names the trace of a request, while there are traces", async () => {
    const router = await open({}, { tracing: { enabled: true } });
    const trace = "0af7651916cd43dd8448eb211c80319c";
    await send(router, { query: FLIGHTS }, { traceparent: `00-${trace}-b7ad6b7169203331-00` });
    await send(router, { query: FLIGHTS });
    const [continued, own] = await router.linesOf("request", 2);
    assert.equal(continued.trace_id, trace);
    assert.match(own.trace_id, HEX_ID);
    assert.notEqual(own.trace_id, trace);
  });

  it("names the traces of operations on a WebSocket and of subscriptions", async () => {
    const router = await open({}, { tracing: { enabled: true } });
    const trace = "0af7651916cd43dd8448eb211c80319c";
    const streams = openStreams(router, { traceparent: `00-${trace}-b7ad6b7169203331-00` });
    const request = { query: SUBSCRIPTION_BY_ID, variables: { id: "1" } };
    streams.subscribe(request);
    const [{ trace_id: continued }] = await router.linesOf("subscription_started", 1);
    assert.equal(continued, trace);
    const socket = openSocket(router);
    await socket.subscribe(FLIGHTS).next();
    const [{ trace_id: queried }] = await router.linesOf("operation", 1);
    socket.subscribe(request);
    const [, { trace_id: subscribed }] = await router.linesOf("subscription_started", 2);
    assert.match(queried, HEX_ID);
    assert.match(subscribed, HEX_ID);
    assert.notEqual(subscribed, queried);
    await socket.dispose();
    const [ended] = await router.linesOf("subscription_ended", 1);
    assert.equal(ended.trace_id, subscribed);
    await streams.dispose();
  });

  it("has the ids of requests in the lines of operations, subscriptions and WebSockets", async () => {
    const router = await open({}, { request_id: { enabled: true } });
    const request = { query: SUBSCRIPTION_BY_ID, variables: { id: "1" } };
    const streams = openStreams(router, { "x-request-id": "stream-1" });
    streams.subscribe(request);
    await router.linesOf("subscription_started", 1);
    await streams.dispose();
    await router.linesOf("subscription_ended", 1);
    const socket = openSocket(router);
    await socket.subscribe(FLIGHTS).next();
    await socket.subscribe("{ nothing }").ended();
    socket.subscribe(request);
    await router.linesOf("subscription_started", 2);
    await socket.dispose();
    const [{ connection, request_id: ofHandshake }] = await router.linesOf("websocket_ended", 1);
    const idsOf = async (name, count) => (await router.linesOf(name, count)).map((it) => it.request_id);
    const started = await idsOf("subscription_started", 2);
    assert.equal(started[0], "stream-1");
    assert.deepEqual(await idsOf("subscription_ended", 2), started);
    const own = [ofHandshake, started[1], ...(await idsOf("operation", 2))];
    assert.ok(own.every((id) => HEX_ID.test(id)), own.join());
    assert.equal(new Set(own).size, own.length, own.join());
    const handshake = router.lines().find((it) => it.event === "request" && it.connection === connection);
    assert.equal(handshake.request_id, ofHandshake);
  });

  it("says why a request was refused", async () => {
    const router = await open();
    await send(router, { query: "{ nothing }" });
    await send(router, { query: FLIGHTS }, { authorization: "Bearer wrong" });
    await fetch(`${router.graphql}?query=${encodeURIComponent("mutation Secret { x }")}`);
    await fetch(`${router.url}/elsewhere`);
    const lines = await router.linesOf("request", 4);
    const refused = lines.map(({ status, errors, code }) => [status, errors, code]);
    assert.deepEqual(refused[0].slice(1), [1, "GRAPHQL_VALIDATION_FAILED"]);
    assert.deepEqual(refused[1], [401, 1, "UNAUTHENTICATED"]);
    assert.deepEqual(refused[2].slice(1), [1, "GRAPHQL_VALIDATION_FAILED"]);
    assert.equal(lines[3].path, "/elsewhere");
    assert.equal(lines[3].status, 404);
    assert.ok(!JSON.stringify(lines).includes("Secret"), "queries of URLs are not logged");
  });

  it("counts the errors of a response", async () => {
    const router = await open({}, { subgraphs: { ...subgraphs.configuration, flights: { url: "http://127.0.0.1:1/" } } });
    await send(router, { query: FLIGHTS });
    const [{ status, errors, operation }] = await router.linesOf("request", 1);
    assert.deepEqual([status, errors, operation], [200, 1, "All"]);
  });

  it("has a request whose client has left before the response", async () => {
    const flights = keep(await startSubgraph(() => new Promise(() => {})));
    const router = await open({}, {
      subgraphs: { ...subgraphs.configuration, flights: { url: flights.url } }, request_id: { enabled: true },
    });
    const body = JSON.stringify({ query: FLIGHTS });
    const socket = net.connect(router.ports.graphql, "127.0.0.1");
    await once(socket, "connect");
    socket.write(
      "POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: left-1\r\n" +
        `content-length: ${body.length}\r\n\r\n${body}`,
    );
    await eventually(() => flights.requests.length > 0, "the request of the router");
    socket.destroy();
    const [{ time, duration_ms: duration, operation_id: id, ...others }] = await router.linesOf("request", 1);
    assert.ok(time && duration > 0);
    assert.match(id, HEX_ID);
    assert.deepEqual(others, {
      event: "request", request_id: "left-1", address: "127.0.0.1", method: "POST", path: "/graphql",
      protocol: "HTTP/1.1", operation: "All", kind: "query", reason: "cancelled",
    });
  });

  it("has the operations of a WebSocket, and the beginning and the end of its subscriptions", async () => {
    const router = await open();
    const socket = openSocket(router, { "graphql-client-name": "tv" });
    const [result] = [await socket.subscribe(FLIGHTS).next()];
    assert.equal(result.data.flights.length, 3);
    const [operation] = await router.linesOf("operation", 1);
    assert.equal(operation.transport, "websocket");
    assert.deepEqual([operation.operation, operation.kind, operation.errors], ["All", "query", undefined]);
    await socket.subscribe("{ nothing }").ended();
    const [, refused] = await router.linesOf("operation", 2);
    assert.equal(refused.code, "GRAPHQL_VALIDATION_FAILED");

    const follow = (id) => socket.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id } });
    const [first, second] = [follow("1"), follow("2")];
    const started = await router.linesOf("subscription_started", 2);
    assert.deepEqual(started.map(({ operation: name, kind }) => [name, kind]), Array(2).fill(["Moves", "subscription"]));
    await repeatUntil(first.next(), () => router.publish("memory/default", "flights.moved.1", event("1", 5)), "an event");
    first.stop();
    const [completed] = await router.linesOf("subscription_ended", 1);
    assert.equal(completed.reason, "client_completed");
    await socket.dispose();
    const [, closed] = await router.linesOf("subscription_ended", 2);
    assert.equal(closed.reason, "connection_closed");
    assert.ok(closed.duration_ms > 0);
    second.stop();
    const [handshake] = await router.linesOf("request", 1);
    assert.equal(handshake.status, 101);
  });

  it("has one line for a subscription that is refused", async () => {
    const router = await open({}, { subscriptions: { max_topics_per_connection: 1 } });
    const socket = openSocket(router);
    const follow = (id) => socket.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id } });
    await Promise.race(["1", "2"].map((id) => follow(id).ended()));
    const [refused] = await router.linesOf("operation", 1);
    assert.deepEqual([refused.operation, refused.kind, refused.errors, refused.code],
      ["Moves", "subscription", 1, "OVERLOADED"]);
    await socket.dispose();
    await router.linesOf("websocket_ended", 1);
    const events = router.lines().map(({ event: name }) => name).filter((it) => it !== "request");
    assert.deepEqual(events.sort(), ["operation", "subscription_ended", "subscription_started", "websocket_ended"]);
  });

  it("knows the client of a subscription and counts its events, whatever the transport", async () => {
    const router = await open(
      { when: "client.name == 'tv'", fields: [{ name: "tenant", value: "request.headers['x-tenant']" }] },
      { websocket: { init_payload_headers: ["graphql-client-name", "x-tenant"] } },
    );
    const headers = { "graphql-client-name": "tv", "x-tenant": "a" };
    const clients = [
      openStreams(router, { ...headers, "graphql-client-name": "web" }), openSocket(router, headers),
      openStreams(router, headers),
    ];
    const all = clients.map((it) => it.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } }));
    // A subscription that its client completes before the line has no counts.
    const started = await router.linesOf("subscription_started", 2);
    const publish = () => router.publish("memory/default", "flights.moved.1", event("1", 5));
    for (const one of all) await repeatUntil(one.next(), publish, "an event");
    all.forEach((it) => it.stop());
    const ended = await router.linesOf("subscription_ended", 2);
    for (const lines of [started, ended]) {
      assert.deepEqual(lines.map((it) => it.transport).sort(), ["sse", "websocket"]);
      for (const { address, client, tenant } of lines) {
        assert.deepEqual([address, client, tenant], ["127.0.0.1", "tv", "a"]);
      }
    }
    assert.ok(ended.every((it) => it.events > 0), JSON.stringify(ended));
    assert.ok(started.every((it) => it.events === undefined));
    for (const client of clients) await client.dispose();
  });

  it("has one beginning and one end of a subscription that moves with a renewed token", async () => {
    const router = await open({}, {
      headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
      websocket: { init_payload_headers: ["authorization"] },
      request_id: { enabled: true },
    });
    const bearer = (id) => ({ authorization: `Bearer ${issuer.issue({ sub: "ann", jti: id })}` });
    const socket = openSocket(router, bearer("1"));
    const subscription = socket.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } });
    const find = (condition) => repeatUntil(
      subscription.find(condition, "an event"),
      () => router.publish("memory/default", "flights.moved.1", event("1", 5)),
      "an event",
    );
    await router.linesOf("subscription_started", 1);
    await find(() => true);
    socket.ping(bearer("2"));
    await find(({ extensions }) => extensions?.gap);
    subscription.stop();
    const [ended] = await router.linesOf("subscription_ended", 1);
    assert.equal(ended.reason, "client_completed");
    assert.ok(ended.events > 1, `${ended.events}`);
    await socket.dispose();
    const [{ operations }] = await router.linesOf("websocket_ended", 1);
    assert.equal(operations, 1);
    const lines = router.lines().filter((it) => it.event.startsWith("subscription_"));
    assert.deepEqual(lines.map((it) => [it.event, it.request_id]),
      ["subscription_started", "subscription_ended"].map((name) => [name, ended.request_id]));
  });

  it("joins the lines of a WebSocket by its id, and says how it has ended", async () => {
    const router = await open();
    const socket = openSocket(router);
    await socket.subscribe(FLIGHTS).next();
    socket.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } });
    await router.linesOf("subscription_started", 1);
    await socket.dispose();
    const [{ time, duration_ms: duration, connection, ...ended }] = await router.linesOf("websocket_ended", 1);
    assert.ok(time && duration > 0);
    assert.match(connection, /^[0-9a-f]{16}$/);
    assert.deepEqual(ended, {
      event: "websocket_ended", address: "127.0.0.1", transport: "websocket", operations: 2, reason: "client_closed",
      close_code: 1000, close_reason: "Normal Closure",
    });
    for (const name of ["request", "operation", "subscription_started", "subscription_ended"]) {
      assert.deepEqual((await router.linesOf(name, 1)).map((it) => it.connection), [connection], name);
    }

    const other = openSocket(router);
    await other.subscribe(FLIGHTS).next();
    await router.stop();
    const { connection: another, reason, close_code: code, operations } = router.lines().at(-1);
    assert.deepEqual([reason, code, operations], ["router_closed", 1001, 1]);
    assert.notEqual(another, connection);
  });

  it("has the end of a stream of events with its reason", async () => {
    const router = await open();
    const streams = openStreams(router);
    const stream = streams.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } });
    const [{ transport }] = await router.linesOf("subscription_started", 1);
    assert.equal(transport, "sse");
    // From its first event on, the stream has left HTTP.
    const publish = (id) => () => router.publish("memory/default", `flights.moved.${id}`, event(id, 5));
    await repeatUntil(stream.next(), publish("1"), "an event");
    stream.stop();
    const [{ reason }] = await router.linesOf("subscription_ended", 1);
    assert.equal(reason, "connection_closed");
    const other = streams.subscribe({ query: SUBSCRIPTION_BY_ID, variables: { id: "2" } });
    await repeatUntil(other.next(), publish("2"), "an event");
    await router.stop();
    const ends = router.lines().filter((it) => it.event === "subscription_ended");
    assert.equal(ends.at(-1).reason, "SHUTTING_DOWN");
    other.stop();
    await streams.dispose();
  });

  it("has the reason for which a stream ends that shares its connection", async () => {
    const router = await open();
    const request = { query: SUBSCRIPTION_BY_ID, variables: { id: "1" } };
    const single = keep(createClient({ url: router.graphql, retryAttempts: 0, singleConnection: true }));
    single.subscribe(request, { next() {}, error() {}, complete() {} });
    await router.linesOf("subscription_started", 1);
    const topic = new URLSearchParams({ provider: "memory/default", topic: "flights.moved.1" });
    const completed = await fetch(`${router.admin}/admin/complete?${topic}`, { method: "POST" });
    assert.ok(completed.ok, await completed.text());
    const [{ reason: first }] = await router.linesOf("subscription_ended", 1);
    assert.equal(first, "source_completed");

    const session = keep(http2.connect(router.url));
    session.on("error", () => {});
    session.stop = () => session.destroy();
    const stream = session.request({
      ":method": "POST", ":path": "/graphql", "content-type": "application/json", accept: "text/event-stream",
    });
    stream.on("error", () => {});
    stream.resume().end(JSON.stringify(request));
    await router.linesOf("subscription_started", 2);
    const stopped = router.stop();
    const [, { reason: second }] = await router.linesOf("subscription_ended", 2);
    assert.equal(second, "SHUTTING_DOWN");
    session.destroy();
    await stopped;
  });

  it("writes lines as text to standard output, where values that are not plain have quotes", async () => {
    const router = await open({
      format: "text", fields: [{ name: "tenant", value: "request.headers['x-tenant']" }],
    });
    const response = await send(router, { query: FLIGHTS }, { "x-tenant": 'a "b" status=500' });
    const bytes = (await response.text()).length;
    const line = await eventually(() => /^.* event=request .*(?=\n)/m.exec(router.output())?.[0], "the line");
    assert.match(line, /^time=\d{4}-\d\d-\d\dT\S+Z event=request address=127\.0\.0\.1 method=POST path=\/graphql /);
    for (const part of ["status=200", `bytes=${bytes}`, "operation=All", 'tenant="a \\"b\\" status=500"']) {
      assert.ok(` ${line} `.includes(` ${part} `), `${part}: ${line}`);
    }
    assert.deepEqual(router.lines(), []);
  });

  it("writes the lines that its condition selects, into a file that may be moved away", async () => {
    const router = await open({
      file: "access.log", format: "text", when: "operation.name != 'All' || response.status != 200",
    });
    const file = path.join(router.folder, "access.log");
    const read = (name) => readFile(name, "utf8");
    await send(router, { query: FLIGHTS });
    await send(router, { query: "query Other { flights { id } }" });
    await eventually(async () => (await read(file)).includes("operation=Other"), "the line");
    assert.doesNotMatch(await read(file), /operation=All/);
    await rename(file, `${file}.moved`);
    await send(router, { query: "query Later { flights { id } }" });
    await eventually(async () => (await read(file)).includes("operation=Later"), "the line in a new file");
    assert.match(await read(`${file}.moved`), /^time=\S+ event=request .*operation=Other/);
  });
});

describe("the lines of the access log", () => {
  const keep = closeAfterEach();
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  after(() => subgraphs?.stop());

  async function send(router, name, headers = {}) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query: `query ${name} { flights { id } }` }),
    });
    assert.equal((await response.json()).data.flights.length, 3);
  }

  const start = (accessLog, options = {}) => startServe({
    supergraph: memorySupergraph(),
    config: { subgraphs: subgraphs.configuration, access_log: { enabled: true, ...accessLog } },
    ...options,
  }).then(keep);

  it("go to a new file when one has reached its size, and the oldest file is removed", async () => {
    const router = await start({ file: "access.log", rotate_at: "4KiB", keep: 2 });
    const files = ["access.log.2", "access.log.1", "access.log"];
    const read = (name) => readFile(path.join(router.folder, name), "utf8").catch(() => "");
    const linesOf = (text) => text.split("\n").filter(Boolean).map(JSON.parse);
    // Some lines at a time: those that are written at once go to one file, whatever its size.
    let texts = [];
    for (let first = 0; first < 80; first += 4) {
      const names = [0, 1, 2, 3].map((it) => `Q${first + it}`);
      await Promise.all(names.map((name) => send(router, name)));
      await eventually(async () => {
        texts = await Promise.all(files.map(read));
        return names.every((name) => texts.join("").includes(`"operation":"${name}"`));
      }, `the lines of ${names}`);
    }
    // Nothing is written any more, so that no file moves between two readings.
    texts = await Promise.all(files.map(read));
    const found = (await readdir(router.folder)).filter((it) => it.startsWith("access.log"));
    assert.deepEqual(found.sort(), [...files].sort());
    for (const text of texts) assert.ok(text.length > 0 && text.length <= 4096, `${text.length} bytes`);
    const numbers = texts.flatMap(linesOf).map((it) => Number(it.operation.slice(1))).sort((a, b) => a - b);
    assert.ok(numbers[0] > 0, "the first lines are gone");
    assert.deepEqual(numbers, Array.from({ length: 80 - numbers[0] }, (_, at) => numbers[0] + at));
  });

  it("are dropped and counted while nobody reads them, and requests go on", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-e2e-"));
    keep({ stop: () => rm(folder, { recursive: true }) });
    const fifo = path.join(folder, "stdout");
    execFileSync("mkfifo", [fifo]);
    // Open, so that the router can open it too, but nothing reads from it yet.
    const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
    const fields = Array.from({ length: 32 }, (_, at) => ({ name: `f${at}`, value: "request.headers['x-long']" }));
    const command = ["/bin/sh", "-c", 'exec "$STARLING_BIN" "$@" > "$0"', fifo];
    const router = await start({ fields }, { command });
    const dropped = async () => (await scrape(router)).value("starling_access_log_lines_dropped_total");
    assert.equal(await dropped(), 0);
    // A line of 32 KiB for each request; 8 MiB may wait.
    const headers = { "x-long": "x".repeat(1024) };
    await eventually(async () => {
      await Promise.all(Array.from({ length: 20 }, () => send(router, "Long", headers)));
      return (await dropped()) > 0;
    }, "a line that is dropped");

    const stdout = keep(new net.Socket({ fd: reader, readable: true, writable: false }));
    stdout.stop = () => stdout.destroy();
    let text = "";
    stdout.setEncoding("utf8").on("data", (piece) => {
      text += piece;
    });
    // The lines that have waited come first. The queue has room again once some of them are read.
    await eventually(async () => {
      await send(router, "Later");
      return text.includes('"operation":"Later"');
    }, "a line after the pause");
    const whole = text.slice(0, text.lastIndexOf("\n")).split("\n").map(JSON.parse);
    assert.ok(whole.length > 200 && whole.every((it) => it.event === "request"), `${whole.length} lines`);
    await eventually(() => router.output().includes("lines of the access log were dropped"), "the warning");
  });
});

describe("request ids", () => {
  const keep = closeAfterEach();
  let shop, supergraph, seen;
  before(async () => {
    shop = await startSubgraph((body, request) => {
      seen.push(request.headers["x-request-id"]);
      return { name: "shop" };
    });
    supergraph = await compose({ shop: { sdl: "type Query { name: String }", url: shop.url } });
  });
  after(() => shop?.stop());

  async function open(requestId = {}) {
    seen = [];
    const config = { request_id: { enabled: true, ...requestId }, sharing: { operations: false } };
    return keep(await startServe({ supergraph, config }));
  }
  async function ask(router, headers = {}) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query: "{ name }" }),
    });
    assert.equal((await response.json()).data.name, "shop");
    return response.headers.get("x-request-id");
  }

  it("go from the client to the subgraph and back", async () => {
    const router = await open();
    assert.equal(await ask(router, { "x-request-id": "support-4711" }), "support-4711");
    const made = await ask(router);
    assert.match(made, HEX_ID);
    const replaced = await ask(router, { "x-request-id": "not plain" });
    assert.match(replaced, HEX_ID);
    assert.deepEqual(seen, ["support-4711", made, replaced]);
  });

  it("are made by the router if clients may not name them", async () => {
    const router = await open({ accept: false });
    const made = await ask(router, { "x-request-id": "support-4711" });
    assert.match(made, HEX_ID);
    assert.deepEqual(seen, [made]);
  });

  it("are those of each operation on a WebSocket", async () => {
    const router = await open();
    const socket = openSocket(router);
    for (let count = 0; count < 2; count++) await socket.subscribe("{ name }").next();
    assert.ok(seen.every((id) => HEX_ID.test(id)) && seen[0] !== seen[1], JSON.stringify(seen));
    await socket.dispose();
  });
});

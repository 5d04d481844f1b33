// The memory budget: bodies, responses and slow clients that want eight times as much as the router may take, and
// thousands of idle connections. The process survives, small queries are served all the time, refusals are counted, and
// afterwards nothing is held.
// Runs alone: it measures memory and has a heavy load.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { after, before, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { compose } from "../composition.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const MIB = 1024 * 1024;
/** The reason to skip the tests on a system without `/proc`. */
const NO_PROC = process.platform === "linux" ? false : "it reads /proc";
const BUDGET = 128 * MIB;
/**
 * What the measurement may miss between two readings, and pages that the kernel counts for the process: 13 MiB at most
 * in six runs beside other tests, and 17 MiB in another one.
 */
const TOLERANCE = 24 * MIB;

/** Clients that send a large body and stop before its end, and its size. */
const BODY_CLIENTS = 24;
const BODY_BYTES = 16 * MIB;
/** Clients that request a large response, and its size. Half of them read nothing. */
const RESPONSE_CLIENTS = 80;
const RESPONSE_BYTES = 8 * MIB;
const WANTED = BODY_CLIENTS * BODY_BYTES + RESPONSE_CLIENTS * RESPONSE_BYTES;
assert.ok(WANTED >= 1024 * MIB);

const LARGE = Buffer.from(JSON.stringify({ data: { large: "x".repeat(RESPONSE_BYTES) } }));
const LARGE_REQUEST = {
  query: "query($text: String) { length(text: $text) }",
  variables: { text: "y".repeat(BODY_BYTES) },
};
const BODY = Buffer.from(JSON.stringify(LARGE_REQUEST));

/** A subgraph with small and large values. */
async function startSubgraph() {
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const { query } = JSON.parse(Buffer.concat(parts));
    response.writeHead(200, { "content-type": "application/json" });
    if (query.includes("large")) {
      response.end(LARGE);
    } else if (query.includes("length")) {
      response.end(JSON.stringify({ data: { length: 1 } }));
    } else {
      response.end(JSON.stringify({ data: { small: "small" } }));
    }
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

/** The resident memory of a process without the pages of files, in bytes. */
async function privateBytes(pid) {
  const [, resident, shared] = (await readFile(`/proc/${pid}/statm`, "utf8")).split(" ").map(Number);
  return (resident - shared) * 4096;
}

/** The head of a request with a body of `length` bytes. */
const head = (length) =>
  "POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
  + `content-length: ${length}\r\n\r\n`;

/** Opens a connection to the router. What it receives is kept in `text` if `reads`. */
async function connect(router, reads = true) {
  const { port } = new URL(router.url);
  const socket = net.connect({ host: "127.0.0.1", port: Number(port) });
  // A connection that the router closes while it is written to fails, which is no failure of the test.
  socket.on("error", () => {});
  const client = { socket, text: "", isClosed: new Promise((resolve) => { socket.on("close", resolve); }) };
  if (reads) {
    socket.setEncoding("latin1");
    socket.on("data", (text) => {
      client.text = (client.text + text).slice(0, 2000);
    });
  } else {
    socket.pause();
  }
  await within(Promise.race([new Promise((resolve) => { socket.on("connect", resolve); }), client.isClosed]), "a connection");
  return client;
}

/** Writes to a connection until the other side has it, or has closed the connection. */
async function write(client, data) {
  if (!client.socket.writable || client.socket.write(data)) return;
  const drained = new Promise((resolve) => { client.socket.once("drain", resolve); });
  await within(Promise.race([drained, client.isClosed]), "the router to read");
}

/** Sends a large body without its last byte: the router holds the rest. */
async function sendMostOfABody(router) {
  const client = await connect(router);
  await write(client, head(BODY.length));
  for (let at = 0; at < BODY.length - 1; at += MIB) {
    await write(client, BODY.subarray(at, Math.min(at + MIB, BODY.length - 1)));
  }
  return client;
}

/** Requests a large response. */
async function requestLarge(router, number, reads) {
  const body = JSON.stringify({ query: `query Q${number} { large }` });
  const client = await connect(router, reads);
  await write(client, head(body.length) + body);
  return client;
}

describe("a memory budget of 128 MiB", { skip: NO_PROC }, () => {
  let subgraph, router;

  before(async () => {
    subgraph = await startSubgraph();
    router = await startServe({
      supergraph: await compose({
        values: { sdl: "type Query { small: String large: String length(text: String): Int }", url: subgraph.url },
      }),
      config: {
        limits: { memory: "128MiB", body: "32MiB" },
        sharing: { operations: false, subgraph_queries: false },
        workers: 2,
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraph?.stop();
  });

  const held = async (kind) => (await scrape(router)).value("starling_memory_held_bytes", { kind });
  const refusals = async () => (await scrape(router)).sum("starling_memory_refused_total");

  /** Sends bodies without an end, and requests for large responses that many clients do not read. */
  async function overload(clients) {
    const keep = async (client) => {
      clients.push(await client);
      return client;
    };
    const first = await keep(sendMostOfABody(router));
    await eventually(async () => await held("request_bodies") > BODY_BYTES / 2, "a body to be held");
    const others = Array.from({ length: BODY_CLIENTS - 1 }, () => keep(sendMostOfABody(router)));
    const bodies = [first, ...await Promise.all(others)];
    const refused = await eventually(() => {
      const answered = bodies.filter(({ text }) => text !== "");
      return answered.length > 0 && answered;
    }, "bodies to be refused");
    for (const { text } of refused) {
      assert.match(text, /^HTTP\/1\.1 503 /);
      assert.match(text, /\r\nretry-after: \d+\r\n/);
      assert.match(text, /"code":"OVERLOADED"/);
    }
    for (const { socket } of bodies) socket.destroy();

    // Clients that read nothing hold responses, so that there is no room for those of other clients.
    const request = (reads) => (_, number) => keep(requestLarge(router, `${reads}${number}`, reads));
    await Promise.all(Array.from({ length: RESPONSE_CLIENTS / 2 }, request(false)));
    await eventually(async () => await held("responses") > 0, "responses to wait for clients that read nothing");
    const reading = await Promise.all(Array.from({ length: RESPONSE_CLIENTS / 2 }, request(true)));
    await eventually(() => reading.every(({ text }) => text !== ""), "each large query to be answered");
    for (const { text } of reading) assert.match(text, /^HTTP\/1\.1 (200|503) /);
    const metrics = await scrape(router);
    assert.ok(metrics.value("starling_memory_refused_total", { kind: "request_bodies" }) > 0);
    const large = ["subgraph_responses", "response_trees"]
      .map((kind) => metrics.value("starling_memory_refused_total", { kind }));
    assert.ok(large[0] + large[1] > 0, "large responses are refused");

    // They are disconnected when others are refused, and others are served.
    const evicted = await eventually(async () => {
      await keep(requestLarge(router, `late${clients.length}`, false));
      return (await scrape(router)).value("starling_http_response_queue_evictions_total");
    }, "clients that read nothing to be disconnected");
    assert.ok(evicted <= clients.length);
    await eventually(async () => (await router.query("{ large }")).status === 200, "a large response to be served");
  }

  it("is shown with what is used of it", async () => {
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_memory_budget_bytes"), BUDGET);
    const used = await eventually(
      async () => (await scrape(router)).value("starling_memory_used_bytes"),
      "the memory to be measured",
    );
    assert.ok(used > MIB && used < BUDGET / 2, `${used}`);
  });

  it("survives work that wants 1 GiB, and serves small queries meanwhile", async () => {
    let isOver = false;
    const served = { count: 0, refused: [], peak: 0 };
    const neighbour = (async () => {
      while (!isOver) {
        const { status, body } = await within(router.query("{ small }"), "a small query");
        if (status === 200 && body.data?.small === "small") served.count += 1;
        else served.refused.push(JSON.stringify(body));
        served.peak = Math.max(served.peak, await privateBytes(router.pid));
      }
    })();

    const sockets = [];
    try {
      await overload(sockets);
      await eventually(() => served.count + served.refused.length > 50, "many small queries to be served");
    } finally {
      isOver = true;
      for (const { socket } of sockets) socket.destroy();
      await neighbour;
    }
    assert.ok(router.isRunning(), router.output());
    assert.deepEqual(served.refused, [], `of ${served.count} small queries`);
    assert.ok(served.peak < BUDGET + TOLERANCE, `${(served.peak / MIB).toFixed(1)} MiB`);
  });

  it("holds nothing afterwards, and serves large bodies and responses again", async () => {
    await eventually(
      async () => (await scrape(router)).sum("starling_memory_held_bytes") === 0,
      "the memory of all work to be released",
    );
    const answered = async (request, key, expected) => {
      const { status, body } = await router.query(request);
      return status === 200 && body.data?.[key] === expected;
    };
    // The allocator returns free memory within a second or so.
    await eventually(
      () => answered(LARGE_REQUEST, "length", 1),
      "a large body to be served",
    );
    await eventually(
      () => answered("{ large }", "large", "x".repeat(RESPONSE_BYTES)),
      "a large response to be served",
    );
    const before = await refusals();
    for (let number = 0; number < 100; number += 1) {
      const { body } = await router.query("{ small }");
      assert.deepEqual(body, { data: { small: "small" } });
    }
    assert.equal(await refusals(), before);
    await eventually(
      async () => (await scrape(router)).sum("starling_memory_held_bytes") === 0,
      "the memory of all work to be released",
    );
  });
});

describe("a memory budget of 64 MiB and idle connections", { skip: NO_PROC }, () => {
  /** A small budget, of which connections are always served that take a sixteenth. */
  const SMALL_BUDGET = 64 * MIB;
  /** Connections that are opened at a time, and at most. Each keeps a buffer for its head: together over 200 MiB. */
  const BATCH = 100;
  const BATCHES_MAX = 80;
  const PADDING = `x-padding: ${"x".repeat(24 * 1024)}\r\n`;
  const SMALL = JSON.stringify({ query: "{ small }" });
  let subgraph, router;

  before(async () => {
    subgraph = await startSubgraph();
    router = await startServe({
      supergraph: await compose({ values: { sdl: "type Query { small: String }", url: subgraph.url } }),
      config: { limits: { memory: "64MiB" }, admission: { enabled: false }, workers: 2 },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraph?.stop();
  });

  /** Sends a small query on a connection, with further headers. */
  const request = (client, headers = "") =>
    write(client, head(SMALL.length).replace("\r\n\r\n", `\r\n${headers}\r\n`) + SMALL);

  it("closes idle connections and refuses new ones, and serves those in use", async () => {
    const clients = [];
    const served = { count: 0, failed: [], peak: 0 };
    let isOver = false;
    const neighbour = (async () => {
      const client = await connect(router);
      while (!isOver) {
        client.text = "";
        await request(client);
        await eventually(() => client.text.includes("}}") || client.socket.destroyed, "a response for the neighbour");
        if (/^HTTP\/1\.1 200 /.test(client.text)) served.count += 1;
        else served.failed.push(client.text);
        if (client.socket.destroyed) break;
        served.peak = Math.max(served.peak, await privateBytes(router.pid));
        await pause(20);
      }
      client.socket.destroy();
    })();

    const counted = async () => {
      const metrics = await scrape(router);
      return ["starling_http_connections_refused_memory_total", "starling_http_connections_closed_idle_total"]
        .map((name) => metrics.value(name));
    };
    // Requests on other connections may be refused as well, and these stay open.
    const isRefused = ({ text }) => /^HTTP\/1\.1 503 [^]*\r\nconnection: close\r\n/.test(text);
    const hasEnded = (client) => isRefused(client) || client.socket.destroyed;
    try {
      let [refused, closed] = await counted();
      assert.deepEqual([refused, closed], [0, 0]);
      for (let batch = 0; batch < BATCHES_MAX && !(closed > 0 && refused > 0); batch += 1) {
        const opened = await Promise.all(Array.from({ length: BATCH }, () => connect(router)));
        clients.push(...opened);
        // A refused connection gets its response before it has sent anything. One that sends a request may lose it.
        [refused] = await counted();
        await eventually(() => clients.filter(hasEnded).length >= refused, "the responses to refused connections");
        await Promise.all(opened.filter(({ text }) => text === "").map((client) => request(client, PADDING)));
        [refused, closed] = await counted();
      }
      assert.ok(refused > 0, `refused of ${clients.length} connections`);
      assert.ok(closed > 0, `closed of ${clients.length} connections`);
      const { text } = await eventually(() => clients.find(isRefused), "a refusal");
      assert.match(text, /\r\nretry-after: \d+\r\n/);
      assert.match(text, /limits\.memory.*"code":"OVERLOADED"/);
    } finally {
      isOver = true;
      for (const { socket } of clients) socket.destroy();
      await neighbour;
    }
    assert.ok(router.isRunning(), router.output());
    assert.deepEqual(served.failed, [], `of ${served.count} queries`);
    assert.ok(served.count > 0);
    assert.ok(served.peak < SMALL_BUDGET + TOLERANCE, `${(served.peak / MIB).toFixed(1)} MiB`);
  });

  it("accepts connections again when the memory is free", async () => {
    await eventually(async () => {
      const client = await connect(router);
      await request(client);
      await eventually(() => client.text !== "" || client.socket.destroyed, "a response");
      client.socket.destroy();
      return /^HTTP\/1\.1 200 /.test(client.text);
    }, "a new connection to be served");
  });
});

// Shares of slow subgraphs: operations that need one hold a part of the work in flight, and others continue.
// Runs alone: it measures times.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, afterEach, before, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

/** The data for a query of root fields, with or without aliases: each is "done". */
function dataFor(query) {
  const fields = query.slice(query.indexOf("{") + 1, query.lastIndexOf("}"));
  const keys = fields.replace(/:\s*\w+/g, "").match(/\w+/g);
  return Object.fromEntries(keys.map((key) => [key, "done"]));
}

/** A subgraph that can stop responding, until `release()`. */
async function startSubgraph() {
  const subgraph = { holds: false, open: new Map() };
  const respond = (response, query) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ data: dataFor(query) }));
  };
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const { query } = JSON.parse(Buffer.concat(parts));
    if (!subgraph.holds) {
      respond(response, query);
      return;
    }
    subgraph.open.set(response, query);
    response.on("close", () => subgraph.open.delete(response));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  subgraph.url = `http://127.0.0.1:${server.address().port}/graphql`;
  subgraph.release = () => {
    subgraph.holds = false;
    for (const [response, query] of subgraph.open) respond(response, query);
  };
  subgraph.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return subgraph;
}

const LIMIT = 40;
const SHARE = 50;

/** The configuration of a router with a limit that stays as it is and no queue. */
const CONFIG = {
  sharing: { operations: true, subgraph_queries: false },
  traffic: { all: { max_in_flight_share: SHARE } },
  admission: {
    enabled: true,
    limit: { initial: LIMIT, min: LIMIT, max: LIMIT },
    queue: { max_waiting: 0 },
    priority: [{ when: "request.headers['x-class'] == 'critical'", class: "critical" }],
  },
};

/** Starts a router with one subgraph that responds and one that can hang. */
async function startStage() {
  const fast = await startSubgraph();
  const slow = await startSubgraph();
  const router = await startServe({
    supergraph: await compose({
      fast: { sdl: "type Query { fast: String }", url: fast.url },
      slow: { sdl: "type Query { slow: String strict: String! }", url: slow.url },
    }),
    config: CONFIG,
  });
  let number = 0;
  const stage = { slow, router, held: [] };
  /** Sends a query that no other one is equal to. */
  stage.send = async (fields, headers = {}) => {
    number += 1;
    const query = typeof fields === "string" ? fields : `{ ${fields.map((it) => `${it}${number}: ${it}`).join(" ")} }`;
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query }),
    });
    const body = await response.json();
    return { status: response.status, retryAfter: response.headers.get("retry-after"), body };
  };
  stage.metric = async (name) => {
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    const line = text.split("\n").find((it) => it.startsWith(`${name} `));
    assert.ok(line, `${name} is not in:\n${text}`);
    return Number(line.slice(name.length));
  };
  /** Sends operations until one does without the subgraph, and returns its response. */
  stage.exceed = async (fields, headers) => {
    slow.holds = true;
    let response;
    await eventually(async () => {
      const before = slow.open.size;
      // Most operations do not need it.
      await Promise.all([stage.send(["fast"]), stage.send(["fast"])]);
      const sent = stage.send(fields, headers);
      const waits = eventually(() => slow.open.size > before, "a request to the subgraph");
      const first = await Promise.race([sent, waits.catch(() => undefined)]);
      if (first?.status !== undefined) {
        response = first;
        return true;
      }
      stage.held.push(sent);
      return false;
    }, "an operation to do without the subgraph");
    return response;
  };
  stage.stop = async () => {
    await router.stop();
    await slow.stop();
    await fast.stop();
  };
  return stage;
}

describe("a subgraph that hangs", () => {
  let stage, slow, held, send, metric, exceed;

  before(async () => {
    stage = await startStage();
    ({ slow, held, send, metric, exceed } = stage);
  });
  // The router learns how long the subgraph usually takes, and which part of the operations needs it.
  before(async () => {
    const started = performance.now();
    for (let count = 0; count < 100 || performance.now() - started < 1500; count += 1) {
      await Promise.all([send(["slow"]), send(["fast"]), send(["fast"])]);
    }
  });
  after(() => stage?.stop());

  afterEach(async () => {
    slow.release();
    for (const response of await Promise.all(held.splice(0))) assert.equal(response.status, 200);
    await eventually(async () => (await metric('starling_subgraph_share_held{subgraph="slow"}')) === 0, "no operation");
    await eventually(async () => (await send(["slow"])).body.errors === undefined, "the subgraph to be used again");
  });

  it("has the whole limit as long as it is fast", async () => {
    // More than its share would be.
    const all = await Promise.all(Array.from({ length: LIMIT * 0.75 }, () => send(["slow"])));
    assert.ok(all.every(({ body }) => body.errors === undefined), JSON.stringify(all.find(({ body }) => body.errors)));
    assert.equal(await metric('starling_subgraph_share_exceeded_total{subgraph="slow"}'), 0);
  });

  it("holds its share, and operations that do not need it continue", async () => {
    const response = await exceed(["fast", "slow"]);
    const key = Object.keys(response.body.data).find((it) => it.startsWith("slow"));
    assert.equal(response.status, 200);
    assert.equal(response.body.data[key], null);
    assert.equal(response.body.data[key.replace("slow", "fast")], "done");
    assert.deepEqual(response.body.errors.map(({ extensions, path }) => [extensions.code, path]), [["OVERLOADED", [key]]]);
    assert.equal(await metric('starling_subgraph_slow{subgraph="slow"}'), 1);
    assert.ok((await metric('starling_subgraph_share_exceeded_total{subgraph="slow"}')) >= 1);
    // Weights of operations differ a little from each other.
    const share = await metric('starling_subgraph_share_held{subgraph="slow"}');
    assert.ok(share > 1 && share <= (LIMIT * SHARE) / 100, `${share}`);
    const others = await Promise.all(Array.from({ length: 10 }, () => send(["fast"])));
    for (const { status, body } of others) assert.equal(status, 200, JSON.stringify(body));
  });

  it("fails operations at once that are nothing without it, with 503 and a time to come back", async () => {
    await exceed(["slow"]);
    const started = performance.now();
    const response = await send(["strict"]);
    assert.equal(response.status, 503, JSON.stringify(response.body));
    assert.match(response.retryAfter, /^[1-5]$/);
    assert.deepEqual(response.body.errors.map(({ extensions }) => extensions.code), ["OVERLOADED"]);
    assert.ok(performance.now() - started < 5000);
  });

  it("counts operations that wait for the same response", async () => {
    slow.holds = true;
    // All of them are equal, so that one request to the subgraph serves them.
    const equal = "{ same: slow }";
    let response;
    await eventually(async () => {
      await Promise.all([send(["fast"]), send(["fast"])]);
      const before = await metric('starling_subgraph_share_held{subgraph="slow"}');
      const sent = send(equal);
      const hasPlace = async () => (await metric('starling_subgraph_share_held{subgraph="slow"}')) > before;
      const waits = eventually(hasPlace, "an operation that waits for the subgraph");
      const first = await Promise.race([sent, waits.catch(() => undefined)]);
      if (first?.status === undefined) {
        held.push(sent);
        return false;
      }
      response = first;
      return true;
    }, "an operation to do without the subgraph");
    assert.equal(response.body.errors[0].extensions.code, "OVERLOADED");
    assert.ok(held.length > 1 && slow.open.size === 1, `${held.length} ${slow.open.size}`);
    assert.equal((await send(["fast"])).status, 200);
  });

  it("serves critical operations beside the others", async () => {
    await exceed(["slow"]);
    const before = slow.open.size;
    held.push(send(["slow"], { "x-class": "critical" }));
    await eventually(() => slow.open.size === before + 1, "the request of the critical operation");
  });
});

describe("a subgraph that hangs while the router starts", () => {
  let stage;

  before(async () => {
    stage = await startStage();
  });
  after(() => stage?.stop());

  it("is compared with the others, and what waits for it leaves them the whole limit", async () => {
    const { slow, held, send, metric, exceed } = stage;
    const response = await exceed(["slow"]);
    assert.equal(response.body.errors[0].extensions.code, "OVERLOADED");
    assert.equal(await metric('starling_subgraph_slow{subgraph="slow"}'), 1);
    // Weights of operations differ a little from each other.
    const uncounted = await metric("starling_admission_uncounted");
    assert.ok(uncounted > 1 && uncounted <= (LIMIT * SHARE) / 100, `${uncounted}`);
    // With those that wait, these would be more than the limit.
    const others = await Promise.all(Array.from({ length: LIMIT * 0.75 }, () => send(["fast"])));
    for (const { status, body } of others) assert.equal(status, 200, JSON.stringify(body));
    slow.release();
    for (const { status } of await Promise.all(held)) assert.equal(status, 200);
    await eventually(async () => (await metric("starling_admission_uncounted")) === 0, "all work to count again");
    await eventually(async () => (await send(["slow"])).body.errors === undefined, "the subgraph to be used");
  });
});

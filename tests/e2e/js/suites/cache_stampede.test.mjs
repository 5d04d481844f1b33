// Many clients at the moment at which an entry expires: the subgraph gets one request.
// Runs alone: ten thousand clients keep the processors busy.
import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])';
const CATALOGUE = `${LINK}
type Query { product: Product! }
type Product @key(fields: "id") { id: ID! name: String! }`;
const STOCK = `${LINK}
type Product @key(fields: "id") { id: ID! inStock: Int }`;

/** 10,000 requests in flight: connections, and streams of each. */
const CONNECTIONS = 10;
const STREAMS = 1000;

let catalogue, stock, supergraph;
/** Called for each request to `stock`, with its number from 1; the response waits for its result. */
let beforeResponse = () => {};

before(async () => {
  catalogue = await startSubgraph(() => ({ product: { __typename: "Product", id: "1", name: "a".repeat(1000) } }));
  stock = await startSubgraph(async (body) => {
    const number = stock.requests.length;
    await beforeResponse(number);
    return { _entities: representations(body).map(() => ({ __typename: "Product", inStock: number })) };
  });
  supergraph = await compose({
    catalogue: { sdl: CATALOGUE, url: catalogue.url },
    stock: { sdl: STOCK, url: stock.url },
  });
});

after(async () => {
  await catalogue?.stop();
  await stock?.stop();
});

beforeEach(() => {
  beforeResponse = () => {};
  catalogue.headers = { "cache-control": "max-age=1000" };
  Object.assign(stock, { requests: [], headers: { "cache-control": "max-age=1" } });
});

const startRouter = (cache = {}) =>
  startServe({
    supergraph,
    config: {
      cache: { enabled: true, jitter: 0, ...cache },
      // Equal operations that are in flight are one; here only the cache joins them.
      sharing: { operations: false, subgraph_queries: false },
      http: { http2: { max_concurrent_streams: STREAMS } },
      // Of 10,000 operations that wait for one response at once, it would refuse most.
      admission: { enabled: false },
    },
  });

/** A promise with its `open`, for responses that wait. */
function newGate() {
  let open;
  const opened = new Promise((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** The value of a counter of the cache, by a label that only it has. */
async function counter(router, name, label) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(`starling_cache_${name}_total{`));
  const own = lines.filter((line) => line.includes(label));
  assert.equal(own.length, 1, text);
  return Number(own[0].split(" ").at(-1));
}

/** The number of lookups of whole responses that found nothing of use. Every request begins with a lookup. */
async function misses(router) {
  const counters = ["misses", "misses_invalidated"].map((name) => counter(router, name, 'level="response"'));
  return (await Promise.all(counters)).reduce((sum, count) => sum + count);
}

const BODY = JSON.stringify({ query: "{ product { name inStock } }" });

async function ask(router) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(router.graphql, { method: "POST", headers, body: BODY });
  return (await response.json()).data.product.inStock;
}

/** Sends a request on a connection of HTTP/2; returns what is in stock. */
async function askOn(session) {
  const stream = session.request({ ":method": "POST", ":path": "/graphql", "content-type": "application/json" });
  stream.setEncoding("utf8");
  stream.end(BODY);
  let text = "";
  for await (const part of stream) text += part;
  return JSON.parse(text).data.product.inStock;
}

for (const [level, cache] of [
  ["whole response", {}],
  // No room for a whole response with its name.
  ["entity", { response_memory: "1KiB" }],
]) {
  describe(`a stampede for an expired ${level}`, () => {
    let router;
    before(async () => {
      router = await startRouter(cache);
    });
    after(() => router?.stop());

    it("of 10,000 clients causes one request to the subgraph", async () => {
      const sessions = Array.from({ length: CONNECTIONS }, () => http2.connect(router.url));
      try {
        await Promise.all(sessions.map((session) => once(session, "connect")));
        stock.headers = { "cache-control": "max-age=1000" };
        assert.equal(await ask(router), 1);
        // The router serves more requests of a connection at the same time when it has read responses.
        const askAll = () => sessions.flatMap((session) => Array.from({ length: STREAMS }, () => askOn(session)));
        assert.deepEqual(new Set(await within(Promise.all(askAll()), "warm responses")), new Set([1]));
        assert.equal(stock.requests.length, 1);

        const gate = newGate();
        beforeResponse = () => gate.opened;
        const earlier = await misses(router);
        await fetch(`${router.admin}/admin/invalidate`, {
          method: "POST",
          body: JSON.stringify({ kind: "type", type: "Product", subgraph: "stock" }),
        });
        const all = askAll();
        const wanted = CONNECTIONS * STREAMS;
        await eventually(async () => (await misses(router)) - earlier >= wanted, "all requests to wait");
        gate.open();
        const values = await within(Promise.all(all), "the responses");
        assert.deepEqual([values.length, new Set(values)], [wanted, new Set([2])]);
        assert.equal(stock.requests.length, 2);
      } finally {
        for (const session of sessions) session.destroy();
      }
    });

    it("waits for a refresh that began before the entry expired", async () => {
      // A slow response makes an early refresh likely: it begins within about this time before the end.
      const gate = newGate();
      beforeResponse = (number) => (number === 1 ? pause(1_000) : gate.opened);
      await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify({ kind: "all" }) });
      stock.headers = { "cache-control": "max-age=5" };
      assert.equal(await ask(router), 1);
      await eventually(async () => {
        assert.equal(await within(ask(router), "a fresh response"), 1);
        return stock.requests.length === 2;
      }, "a refresh before the end");
      // From here on the refresh waits, and at the end of the entry so does each request.
      const expired = () => counter(router, "misses_expired", 'subgraph="stock"');
      const earlier = await expired();
      const asked = [];
      await eventually(async () => {
        asked.push(ask(router));
        return (await expired()) > earlier;
      }, "the entry to expire");
      asked.push(...Array.from({ length: 100 }, () => ask(router)));
      assert.equal(stock.requests.length, 2);
      // The refresh took long, so the next one would begin early too, were this entry not valid for so long.
      stock.headers = { "cache-control": "max-age=1000" };
      gate.open();
      const values = new Set(await within(Promise.all(asked), "the responses"));
      assert.ok([...values].every((value) => value === 1 || value === 2), JSON.stringify([...values]));
    });
  });
}

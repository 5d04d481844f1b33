// Hedging: a query with a late response is sent a second time, the first complete response counts, and the other
// request ends.
// Runs alone: late responses must be late by a certain time.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { after, afterEach, before, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** The time without a response after which a request is sent again: longer than an ordinary response takes. */
const AFTER = "400ms";

const PRODUCTS = `
  type Query { product: Product slow: String }
  type Mutation { change: String }
  type Product @key(fields: "id") { id: ID! }`;
const NAMES = 'type Product @key(fields: "id") { id: ID! name: String }';

/**
 * A subgraph that lets its test decide about each request: `hold(number, query)` says for the requests since `reset()`,
 * from 1, whether the response waits. Held requests are in `held`, as `{query, socket, respond(data), fail(status), closed}`.
 */
class HeldSubgraph {
  constructor(data) {
    this.data = data;
    this.handler = (request, response) => this.#handle(request, response);
    this.reset();
  }

  reset() {
    this.requests = [];
    this.held = [];
    this.hold = () => false;
  }

  async #handle(request, response) {
    const parts = [];
    for await (const part of request) parts.push(part);
    const text = Buffer.concat(parts).toString();
    const { query } = JSON.parse(text);
    this.requests.push(text);
    const send = (status, body) => {
      if (response.writableEnded || response.destroyed) return;
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    if (!this.hold(this.requests.length, query)) {
      send(200, { data: this.data });
      return;
    }
    const held = {
      query,
      socket: request.socket,
      respond: (data) => send(200, { data }),
      fail: (status) => send(status, {}),
      closed: once(response, "close"),
      response,
    };
    this.held.push(held);
  }

  /** Waits until so many requests are held. */
  waitForHeld(count) {
    return eventually(() => this.held.length >= count, `${count} held requests`);
  }

  release() {
    this.hold = () => false;
    for (const request of this.held) request.respond(this.data);
  }
}

async function startHttp1(data) {
  const subgraph = new HeldSubgraph(data);
  const server = http.createServer(subgraph.handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  subgraph.url = `http://127.0.0.1:${server.address().port}/graphql`;
  subgraph.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return subgraph;
}

/** Starts a router that sends late requests to these subgraphs again. */
async function startRouter({ products, names }, hedge, more = {}) {
  return startServe({
    supergraph: await compose({
      products: { sdl: PRODUCTS, url: products.url },
      names: { sdl: NAMES, url: names.url },
    }),
    config: {
      trace: { enabled: true },
      include_subgraph_errors: { all: true },
      traffic: { all: { timeout: "20s", retry: { retries: 0 }, hedge: { enabled: true, ...hedge } }, ...more },
    },
  });
}

const send = (router, query) => fetch(router.graphql, {
  method: "POST",
  headers: { "content-type": "application/json", "starling-trace": "1" },
  body: JSON.stringify({ query }),
}).then((response) => response.json());

/** The counters of one subgraph. */
async function counters(router, subgraph) {
  const metrics = await scrape(router);
  const value = (name, labels = {}) => metrics.value(`starling_subgraph_${name}`, { subgraph, ...labels });
  return {
    requests: value("requests_total"),
    sent: value("hedges_total"),
    won: value("hedges_won_total"),
    budget: value("hedges_refused_total", { reason: "budget" }),
    overloaded: value("hedges_refused_total", { reason: "overloaded" }),
    failures: metrics.sum("starling_subgraph_failures_total", { subgraph }),
    inFlight: value("requests_in_flight"),
  };
}

/** The growth of each counter since `before`. */
const growth = (now, before) => Object.fromEntries(Object.keys(now).map((key) => [key, now[key] - before[key]]));

const DATA = { product: { __typename: "Product", id: "1" }, slow: "usual" };
const ENTITIES = { _entities: [{ __typename: "Product", name: "Tea" }] };

describe("hedging", () => {
  let products, names, router, before_;

  before(async () => {
    products = await startHttp1(DATA);
    names = await startHttp1(ENTITIES);
    router = await startRouter({ products, names }, { after: AFTER, budget_percent: 100 });
    before_ = await counters(router, "products");
  });
  afterEach(async () => {
    for (const subgraph of [products, names]) {
      subgraph.release();
      subgraph.reset();
    }
    await eventually(async () => (await counters(router, "products")).inFlight === 0, "no requests in flight");
    before_ = await counters(router, "products");
  });
  after(async () => {
    await router?.stop();
    await Promise.all([products?.stop(), names?.stop()]);
  });

  const grown = async () => growth(await counters(router, "products"), before_);

  it("sends a late query again, uses the first response, and closes the connection of the other request", async () => {
    products.hold = (number) => number === 1;
    const body = await within(send(router, "{ slow }"), "the response to the second request");
    assert.deepEqual(body.data, { slow: "usual" });
    assert.equal(body.extensions.trace.fetches[0].hedge, "won");
    assert.equal(products.requests.length, 2);
    assert.equal(products.requests[0], products.requests[1]);
    await within(products.held[0].closed, "the end of the first request");
    assert.equal(products.held[0].socket.destroyed, true);
    // One request, as far as clients are concerned, and the one that was ended is no failure.
    assert.deepEqual(
      await grown(), { requests: 1, sent: 1, won: 1, budget: 0, overloaded: 0, failures: 0, inFlight: 0 });
  });

  it("waits for the first response, and closes the connection of the second request", async () => {
    products.hold = () => true;
    const response = send(router, "{ slow }");
    await products.waitForHeld(2);
    assert.notEqual(products.held[0].socket, products.held[1].socket, "the second request has its own connection");
    products.held[0].respond({ slow: "first" });
    const body = await within(response, "the response to the first request");
    assert.deepEqual(body.data, { slow: "first" });
    assert.equal(body.extensions.trace.fetches[0].hedge, "lost");
    await within(products.held[1].closed, "the end of the second request");
    assert.equal(products.held[1].socket.destroyed, true);
    const { sent, won, failures } = await grown();
    assert.deepEqual({ sent, won, failures }, { sent: 1, won: 0, failures: 0 });
  });

  it("sends a late fetch of entities again", async () => {
    names.hold = (number) => number === 1;
    const body = await within(send(router, "{ product { name } }"), "the response");
    assert.deepEqual(body.data, { product: { name: "Tea" } });
    assert.equal(names.requests.length, 2);
    const outcomes = body.extensions.trace.fetches.map(({ subgraph, hedge }) => [subgraph, hedge]);
    assert.deepEqual(outcomes, [["products", undefined], ["names", "won"]]);
  });

  it("never sends a mutation again", async () => {
    products.hold = (_, query) => query.includes("change") || products.held.length < 2;
    const changed = send(router, "mutation { change }");
    await products.waitForHeld(1);
    // A query that begins later is late later, too.
    const body = await within(send(router, "{ slow }"), "the response to the query");
    assert.equal(body.extensions.trace.fetches[0].hedge, "won");
    assert.deepEqual(products.requests.map((it) => it.includes("change")), [true, false, false]);
    products.held[0].respond({ change: "done" });
    assert.deepEqual((await within(changed, "the mutation")).data, { change: "done" });
  });

  it("waits for the other request if one fails, and reports the failure of the first one", async () => {
    products.hold = () => true;
    const response = send(router, "{ slow }");
    await products.waitForHeld(2);
    products.held[1].fail(418);
    await within(products.held[1].closed, "the response to the second request");
    products.held[0].respond({ slow: "in the end" });
    assert.deepEqual((await within(response, "the first response")).data, { slow: "in the end" });

    products.reset();
    products.hold = () => true;
    const failing = send(router, "{ slow }");
    await products.waitForHeld(2);
    products.held[0].fail(500);
    await within(products.held[0].closed, "the response to the first request");
    products.held[1].fail(418);
    const body = await within(failing, "two failures");
    assert.equal(body.data.slow, null);
    assert.match(JSON.stringify(body.errors), /500/);
    assert.doesNotMatch(JSON.stringify(body.errors), /418/);
    assert.equal((await grown()).failures, 1, "two responses are one failure");
  });

  it("uses the second response if the first request fails while both are in flight", async () => {
    products.hold = () => true;
    const response = send(router, "{ slow }");
    await products.waitForHeld(2);
    products.held[0].fail(500);
    await within(products.held[0].closed, "the response to the first request");
    products.held[1].respond({ slow: "second" });
    assert.deepEqual((await within(response, "the second response")).data, { slow: "second" });
    const { won, failures } = await grown();
    assert.deepEqual({ won, failures }, { won: 1, failures: 0 });
  });

  it("sends a request that several operations share again once", async () => {
    products.hold = () => true;
    const responses = Array.from({ length: 5 }, () => send(router, "{ slow }"));
    await products.waitForHeld(2);
    products.held[1].respond({ slow: "shared" });
    for (const body of await within(Promise.all(responses), "all responses")) {
      assert.deepEqual(body.data, { slow: "shared" });
    }
    const { requests, sent } = await grown();
    assert.deepEqual({ requests, sent }, { requests: 1, sent: 1 });
  });

  it("ends both requests when the client goes", async () => {
    products.hold = () => true;
    const gone = new AbortController();
    const sent = fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ query: "{ slow }" }),
      signal: gone.signal,
    });
    await products.waitForHeld(2);
    gone.abort();
    await assert.rejects(sent, { name: "AbortError" });
    await within(Promise.all(products.held.map(({ closed }) => closed)), "the end of both requests");
    assert.equal((await grown()).failures, 0);
  });
});

describe("the budget of hedging", () => {
  let products, names, router;

  before(async () => {
    products = await startHttp1(DATA);
    names = await startHttp1(ENTITIES);
    router = await startRouter({ products, names }, { after: AFTER, budget_percent: 10 });
  });
  after(async () => {
    products?.release();
    await router?.stop();
    await Promise.all([products?.stop(), names?.stop()]);
  });

  it("is a share of the requests", async () => {
    for (let number = 0; number < 9; number += 1) {
      assert.deepEqual((await send(router, "{ slow }")).data, { slow: "usual" });
    }
    products.reset();
    products.hold = (number) => number !== 2;
    // The tenth request has earned one.
    const body = await within(send(router, "{ slow }"), "the response to the second request");
    assert.equal(body.extensions.trace.fetches[0].hedge, "won");
    // The eleventh has none.
    const late = send(router, "{ slow }");
    await eventually(async () => (await counters(router, "products")).budget === 1, "a refused second request");
    products.held.at(-1).respond({ slow: "late" });
    const alone = await within(late, "the late response");
    assert.deepEqual(alone.data, { slow: "late" });
    assert.equal("hedge" in alone.extensions.trace.fetches[0], false);
    const { sent, won } = await counters(router, "products");
    assert.deepEqual({ sent, won }, { sent: 1, won: 1 });
  });
});

describe("hedging by percentile", () => {
  let products, names, router;

  before(async () => {
    products = await startHttp1(DATA);
    names = await startHttp1(ENTITIES);
    const off = { subgraphs: { names: { hedge: { enabled: false } } } };
    router = await startRouter({ products, names }, { after: "p50", budget_percent: 100 }, off);
  });
  after(async () => {
    for (const subgraph of [products, names]) subgraph?.release();
    await router?.stop();
    await Promise.all([products?.stop(), names?.stop()]);
  });

  it("begins when enough responses are known, and not where it is turned off", async () => {
    products.hold = () => true;
    const first = send(router, "{ slow }");
    await products.waitForHeld(1);
    // Nothing is known, so only this response can end the request.
    products.release();
    assert.equal("hedge" in (await first).extensions.trace.fetches[0], false);
    for (let number = 0; number < 40; number += 1) await send(router, "{ slow }");
    await eventually(async () => {
      products.reset();
      products.hold = (number) => number === 1;
      const response = send(router, "{ slow }");
      const isSentAgain = await within(response, "the response to the second request", 5000);
      return isSentAgain.extensions.trace.fetches[0].hedge === "won";
    }, "a request that is sent again");
    assert.equal((await counters(router, "names")).sent, 0);
  });
});

describe("hedging over HTTP/2", () => {
  let products, names, router, sessions;

  before(async () => {
    products = new HeldSubgraph(DATA);
    sessions = new Set();
    const server = http2.createServer(products.handler);
    server.on("session", (session) => {
      sessions.add(session);
      session.on("close", () => sessions.delete(session));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    products.url = `http://127.0.0.1:${server.address().port}/graphql`;
    products.stop = () => {
      for (const session of sessions) session.destroy();
      server.close();
    };
    names = await startHttp1(ENTITIES);
    const protocol = { subgraphs: { products: { protocol: "http2" } } };
    router = await startRouter({ products, names }, { after: AFTER, budget_percent: 100 }, protocol);
  });
  after(async () => {
    products?.release();
    await router?.stop();
    products?.stop();
    await names?.stop();
  });

  it("resets the stream of the other request, and keeps the connection", async () => {
    products.hold = (number) => number === 1;
    const body = await within(send(router, "{ slow }"), "the response to the second request");
    assert.deepEqual(body.data, { slow: "usual" });
    const { stream } = products.held[0].response;
    await eventually(() => stream.closed, "the end of the stream");
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
    products.hold = () => false;
    const open = sessions.size;
    assert.deepEqual((await send(router, "{ slow }")).data, { slow: "usual" });
    assert.equal(sessions.size, open);
    assert.equal((await counters(router, "products")).failures, 0);
  });
});

describe("a subgraph without room", () => {
  let products, names, router;

  before(async () => {
    products = await startHttp1(DATA);
    names = await startHttp1(ENTITIES);
    const room = { subgraphs: { products: { max_connections: 1 } } };
    router = await startRouter({ products, names }, { after: AFTER, budget_percent: 100 }, room);
  });
  after(async () => {
    products?.release();
    await router?.stop();
    await Promise.all([products?.stop(), names?.stop()]);
  });

  it("gets no second request", async () => {
    products.hold = () => true;
    const response = send(router, "{ slow }");
    await eventually(async () => (await counters(router, "products")).overloaded === 1, "a refused second request");
    assert.equal(products.requests.length, 1);
    products.release();
    assert.deepEqual((await within(response, "the response")).data, { slow: "usual" });
  });
});

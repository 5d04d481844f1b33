// Live queries: the result now, and again whenever something that it was made of is invalidated or expires.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { ApolloClient, InMemoryCache, gql } from "@apollo/client";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import { connect } from "nats";
import WebSocket from "ws";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key", "@shareable"])';
const CATALOGUE = `${LINK}
type Query { products: [Product!]! }
type Product @key(fields: "id") { id: ID! }`;
const STOCK = `${LINK}
type Product @key(fields: "id") { id: ID! inStock(of: String): Int mine: String }`;
const QUERY = "query @live { products { id inStock } }";
const PRIVATE = "query @live { products { mine } }";

let catalogue, stock, supergraph;
/** What the subgraph says about each product. */
let levels = {};
let users = {};

before(async () => {
  catalogue = await startSubgraph(() => ({
    products: ["1", "2", "3"].map((id) => ({ __typename: "Product", id })),
  }));
  stock = await startSubgraph((body, request) => ({
    _entities: representations(body).map(({ id }) => ({
      __typename: "Product",
      inStock: levels[id] ?? 0,
      mine: `${id} of ${request.headers["x-user"]}, ${users[request.headers["x-user"]] ?? 0}`,
    })),
  }));
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
  levels = {};
  users = {};
  for (const subgraph of [catalogue, stock]) Object.assign(subgraph, { requests: [], headers: {}, fails: false });
});

const config = {
  cache: { enabled: true, jitter: 0, private_by: { headers: ["x-user"] }, subgraphs: { all: { ttl: "1h" } } },
  live_queries: { enabled: true, throttle_min: "0s" },
  headers: { all: { request: [{ propagate: { named: "x-user" } }] } },
  websocket: { init_payload_headers: ["x-user"] },
};

/** Returns a function that reads the body of a response until it contains a text. */
function readerOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return async (part) => {
    while (!text.includes(part)) {
      const { value, done } = await within(reader.read(), `${part} in ${text}`);
      assert.ok(!done, `the stream ended: ${text}`);
      text += value;
    }
  };
}

/** The result of `QUERY` with these numbers. */
const result = (...inStock) => ({
  data: { products: inStock.map((number, index) => ({ id: `${index + 1}`, inStock: number })) },
});
const product = (id) => ({ kind: "entity", type: "Product", key: { id } });

async function invalidate(router, ...all) {
  const response = await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify(all) });
  assert.equal(response.status, 200);
}

async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  return Number(text.match(new RegExp(`^${name} (\\S+)$`, "m"))?.[1]);
}

const executions = (router) => metric(router, "starling_live_query_executions_total");

describe("live queries", () => {
  let router;
  before(async () => {
    router = await startServe({ supergraph, config });
  });
  beforeEach(() => invalidate(router, { kind: "all" }));
  after(() => router?.stop());

  /** Waits until nothing is watched any more, so that tests do not see the queries of others. */
  const forgotten = () => eventually(async () => await metric(router, "starling_live_queries") === 0, "no live query");

  /** Changes a product and tells the router. */
  async function change(id, level) {
    levels[id] = level;
    await invalidate(router, product(id));
  }

  it("send the result and then each change, fetched once and only where something changed", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    Object.assign(stock, { requests: [] });
    catalogue.requests = [];
    await change("2", 5);
    assert.deepEqual(await live.next(), result(0, 5, 0));
    assert.deepEqual(stock.requests.map((body) => representations(body).map(({ id }) => id)), [["2"]]);
    assert.equal(catalogue.requests.length, 0);
    await invalidate(router, { kind: "subgraph", subgraph: "stock" });
    levels["1"] = 7;
    await invalidate(router, { kind: "type", type: "Product", subgraph: "stock" });
    assert.deepEqual(await live.next(), result(7, 5, 0));
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("do not send a result that has not changed, nor hear of what they do not select", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    await live.next();
    const [before, unchanged] = [await executions(router), await metric(router, "starling_live_query_results_unchanged_total")];
    await invalidate(router, product("1"));
    await eventually(async () => await metric(router, "starling_live_query_results_unchanged_total") === unchanged + 1, "the execution");
    await invalidate(router, { kind: "cache_tag", cache_tag: "other" }, { kind: "entity", type: "Product", key: { id: "9" } });
    await change("3", 1);
    assert.deepEqual(await live.next(), result(0, 0, 1));
    assert.equal(live.results.length, 2);
    assert.equal(await executions(router), before + 2);
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("execute once for a thousand watchers, who all get the same", async () => {
    const sockets = Array.from({ length: 10 }, () => openSocket(router));
    const first = sockets[0].subscribe(QUERY);
    await first.next();
    const watchers = sockets.flatMap((socket) => Array.from({ length: 100 }, () => socket.subscribe(QUERY)));
    for (const watcher of watchers) assert.deepEqual(await watcher.next(), result(0, 0, 0));
    assert.equal(await metric(router, "starling_live_queries"), 1);
    const known = await executions(router);
    stock.requests = [];
    for (const level of [1, 2, 3]) {
      await change("1", level);
      for (const watcher of watchers) assert.deepEqual(await watcher.next(), result(level, 0, 0));
    }
    assert.equal(stock.requests.length, 3);
    assert.equal(await executions(router), known + 3);
    assert.ok(watchers.every((watcher) => watcher.results.length === 4));
    await Promise.all(sockets.map((socket) => socket.dispose()));
    await forgotten();
  });

  it("keep the time between two results that the client asks for, and send the latest state", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe({
      query: "query ($time: Int) @live(throttle: $time) { products { id inStock } }",
      variables: { time: 2000 },
    });
    await live.next();
    const began = Date.now();
    for (let level = 1; level <= 20; level += 1) await change("1", level);
    await live.find(({ data }) => data.products[0].inStock === 20, "the latest state");
    // One may have been due at once, on a machine that is so slow.
    assert.ok(live.results.length - 1 <= 1 + (Date.now() - began) / 2000, JSON.stringify(live.results));
    assert.deepEqual(live.results.at(-1), result(20, 0, 0));
    assert.ok(await metric(router, "starling_live_query_invalidations_throttled_total") > 0);
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("are executed again when a part expires", async () => {
    stock.headers = { "cache-control": "max-age=1" };
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    levels["2"] = 9;
    assert.deepEqual(await live.next(), result(0, 9, 0));
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("watch also what is not stored", async () => {
    stock.headers = { "cache-control": "no-store" };
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    await change("3", 4);
    assert.deepEqual(await live.next(), result(0, 0, 4));
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("share nothing between users with private data", async () => {
    stock.headers = { "cache-control": "private, max-age=600" };
    const sockets = ["ann", "bob"].map((user) => openSocket(router, { "x-user": user }));
    const lives = sockets.map((socket) => socket.subscribe(PRIVATE));
    const mine = async (live) => (await live.next()).data.products[0].mine;
    assert.deepEqual([await mine(lives[0]), await mine(lives[1])], ["1 of ann, 0", "1 of bob, 0"]);
    assert.equal(await metric(router, "starling_live_queries"), 2);
    users.bob = 1;
    await invalidate(router, product("1"), product("2"), product("3"));
    assert.equal(await mine(lives[1]), "1 of bob, 1");
    assert.equal(lives[0].results.length, 1);
    await Promise.all(sockets.map((socket) => socket.dispose()));
    await forgotten();
  });

  it("send errors like a query, and continue when the subgraph is back", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    stock.fails = true;
    await invalidate(router, product("1"));
    const failed = await live.next();
    assert.equal(failed.data.products[0].inStock, null);
    assert.equal(failed.data.products[1].inStock, 0, "the others are known");
    assert.ok(failed.errors.length > 0);
    stock.fails = false;
    levels["1"] = 3;
    assert.deepEqual(await live.next(), result(3, 0, 0), "without another invalidation");
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("come over event streams, in both modes", async () => {
    const streams = openStreams(router);
    const live = streams.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    const results = [];
    const single = createSseClient({ url: router.graphql, retryAttempts: 0, singleConnection: true });
    const stop = single.subscribe({ query: QUERY }, { next: (it) => results.push(it), error() {}, complete() {} });
    await eventually(() => results.length === 1, "the first result");
    await change("1", 2);
    assert.deepEqual(await live.next(), result(2, 0, 0));
    await eventually(() => results.length === 2, "the second result");
    assert.deepEqual(results, [result(0, 0, 0), result(2, 0, 0)]);
    stop();
    single.dispose();
    live.stop();
    streams.dispose();
    await forgotten();
  });

  it("come by GET, as a browser's EventSource sends it", async () => {
    const url = new URL(router.graphql);
    url.searchParams.set("query", QUERY);
    const abort = new AbortController();
    const response = await fetch(url, { headers: { accept: "text/event-stream" }, signal: abort.signal });
    assert.equal(response.status, 200);
    const until = readerOf(response);
    await until(JSON.stringify(result(0, 0, 0)));
    await change("1", 6);
    await until(JSON.stringify(result(6, 0, 0)));
    abort.abort();
    await forgotten();
  });

  it("come as multipart responses", async () => {
    const abort = new AbortController();
    const response = await fetch(router.graphql, {
      method: "POST", signal: abort.signal, body: JSON.stringify({ query: QUERY }),
      headers: { "content-type": "application/json", accept: "multipart/mixed;subscriptionSpec=1.0" },
    });
    assert.match(response.headers.get("content-type"), /^multipart\/mixed/);
    const until = readerOf(response);
    await until(`{"payload":${JSON.stringify(result(0, 0, 0))}}`);
    await change("3", 8);
    await until(`{"payload":${JSON.stringify(result(0, 0, 8))}}`);
    abort.abort();
    await forgotten();
  });

  it("update a query of Apollo Client", async () => {
    const link = new GraphQLWsLink(createSocketClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 }));
    const client = new ApolloClient({ link, cache: new InMemoryCache() });
    const results = [];
    const query = gql`query Watched @live { products { id inStock } }`;
    const watched = client.watchQuery({ query, fetchPolicy: "network-only" }).subscribe(({ data, dataState }) => {
      if (dataState === "complete") results.push(data.products.map(({ inStock }) => inStock));
    });
    await eventually(() => results.length > 0, "the first result");
    await change("2", 4);
    await eventually(() => results.at(-1)[1] === 4, "the second result");
    watched.unsubscribe();
    client.stop();
    await forgotten();
  });

  it("continue on the next graph, without a loss and without a repeated result", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), result(0, 0, 0));
    const generation = await metric(router, "starling_graph_generation");
    const file = path.join(router.folder, "supergraph.graphql");
    await writeFile(file, `# another text\n${await readFile(file, "utf8")}`);
    await eventually(async () => await metric(router, "starling_graph_generation") === generation + 1, "the next graph");
    await eventually(async () => {
      await change("1", (levels["1"] ?? 0) + 1);
      return live.results.length > 1;
    }, "a change on the next graph");
    for (const { data, extensions } of live.results) {
      assert.ok(data.products.length === 3 && extensions === undefined);
    }
    assert.deepEqual(live.results[0], result(0, 0, 0));
    assert.notDeepEqual(live.results[1], result(0, 0, 0));
    await eventually(async () => await metric(router, "starling_live_queries") === 1, "the end of the old query");
    live.stop();
    await socket.dispose();
    await forgotten();
  });

  it("are refused with the reason where they cannot be served", async () => {
    const { status, body } = await router.query(QUERY);
    assert.equal(status, 406);
    assert.match(body.errors[0].message, /^a live query needs a stream: send it with `Accept: text\/event-stream`/);
    const messages = {
      "mutation @live { x }": /@live|mutation/i,
      "query @live(throttle: -1) { products { id } }": /must be a number of milliseconds between 0 and 3600000/,
      'query @live(throttle: "5") { products { id } }': /Int/,
      "query @live(times: 5) { products { id } }": /times/,
    };
    for (const [query, message] of Object.entries(messages)) {
      const refused = await router.query(query);
      assert.equal(refused.status, 400, query);
      assert.match(refused.body.errors[0].message, message);
    }
    const socket = openSocket(router);
    const wrong = socket.subscribe({ query: "query ($t: Int) @live(throttle: $t) { products { id } }", variables: { t: -1 } });
    const { error } = await wrong.ended();
    assert.match(error[0].message, /between 0 and 3600000/);
    await socket.dispose();
    const once = await fetch(`${router.graphql}?once`, {
      method: "POST", body: JSON.stringify({ query: QUERY }), headers: { "content-type": "application/json" },
    });
    assert.deepEqual(await once.json(), result(0, 0, 0));
    await forgotten();
  });
});

it("are refused where they are turned off", async () => {
  const router = await startServe({ supergraph, config: { cache: config.cache } });
  try {
    const { status, body } = await router.query(QUERY);
    assert.equal(status, 400);
    assert.match(body.errors[0].message, /live queries are turned off on this router \(`live_queries.enabled`\)/);
  } finally {
    await router.stop();
  }
});

it("are shared by clients whose headers differ for other subgraphs only", async () => {
  const toStock = { subgraphs: { stock: { request: [{ propagate: { named: "x-user" } }] } } };
  const shared = { ...config, cache: { ...config.cache, private_by: {} }, headers: toStock };
  const router = await startServe({ supergraph, config: shared });
  const sockets = ["ann", "bob"].map((user) => openSocket(router, { "x-user": user }));
  try {
    for (const [query, groups] of [["query @live { products { id } }", 1], [QUERY, 2]]) {
      const lives = sockets.map((socket) => socket.subscribe(query));
      for (const live of lives) assert.equal((await live.next()).data.products.length, 3);
      assert.equal(await metric(router, "starling_live_queries"), groups, query);
      lives.forEach((live) => live.stop());
      await eventually(async () => await metric(router, "starling_live_queries") === 0, "no live query");
    }
  } finally {
    await Promise.all(sockets.map((socket) => socket.dispose()));
    await router.stop();
  }
});

it("are limited in number", async () => {
  const limited = { ...config, live_queries: { enabled: true, max_queries: 1 } };
  const router = await startServe({ supergraph, config: limited });
  const socket = openSocket(router);
  try {
    const first = socket.subscribe(QUERY);
    await first.next();
    assert.deepEqual(await socket.subscribe(QUERY).next(), result(0, 0, 0), "an equal one is the same");
    const { error } = await socket.subscribe("query @live { products { id } }").ended();
    assert.equal(error[0].extensions.code, "OVERLOADED");
  } finally {
    await socket.dispose();
    await router.stop();
  }
});

describe("live queries over events of a broker", { skip: skipWithout(natsServer, "nats-server") }, () => {
  const TOPIC = "catalogue.changed";
  let nats, publisher, router;
  const publish = (id) => publisher.publish(TOPIC, JSON.stringify({ __typename: "Product", id }));

  before(async () => {
    nats = await startNats();
    router = await startServe({
      supergraph,
      config: {
        ...config,
        cache: { ...config.cache, invalidate: [{ provider: "nats/default", topic: TOPIC }] },
        events: { providers: { nats: [{ id: "default", url: nats.url, retry: { initial: "50ms", max: "200ms" } }] } },
      },
    });
    publisher = await connect({ servers: nats.url });
    const heard = 'starling_cache_invalidation_messages_total{source="event"}';
    await eventually(async () => {
      publish("9");
      const text = await (await fetch(`${router.admin}/metrics`)).text();
      return Number(text.split("\n").find((it) => it.startsWith(heard)).split(" ").at(-1)) > 0;
    }, "the router to follow the topic");
  });
  after(async () => {
    await publisher?.close();
    await router?.stop();
    await nats?.stop();
  });

  it("send each change to all watchers", async () => {
    const sockets = [openSocket(router), openStreams(router)];
    const lives = sockets.map((socket) => socket.subscribe(QUERY));
    for (const live of lives) assert.deepEqual(await live.next(), result(0, 0, 0));
    stock.requests = [];
    levels["2"] = 5;
    publish("2");
    for (const live of lives) assert.deepEqual(await live.next(), result(0, 5, 0));
    assert.equal(stock.requests.length, 1);
    lives.forEach((live) => live.stop());
    await Promise.all(sockets.map((socket) => socket.dispose()));
  });

  it("survive the loss of the broker, and send what has changed meanwhile", async () => {
    const socket = openSocket(router);
    const live = socket.subscribe(QUERY);
    const known = await live.next();
    const { port } = nats;
    await publisher.close();
    await nats.stop();
    levels["3"] = 7;
    nats = await startNats(port);
    const seen = await live.next();
    assert.equal(known.data.products[2].inStock, 0);
    assert.equal(seen.data.products[2].inStock, 7);
    publisher = await connect({ servers: nats.url });
    levels["1"] = 2;
    await eventually(() => {
      publish("1");
      return live.results.at(-1).data.products[0].inStock === 2;
    }, "a change after the loss");
    assert.ok(live.results.every(({ extensions }) => extensions === undefined));
    assert.equal(socket.opened(), 1);
    live.stop();
    await socket.dispose();
  });
});

// Live queries as JSON Patch (`@live(patch: true)`), read by the npm package with that format.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { applyLiveQueryJSONPatch } from "@n1ru4l/graphql-live-query-patch-json-patch";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import WebSocket from "ws";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key", "@shareable"])';
const CATALOGUE = `${LINK}
type Query { products: [Product!]! text: String }
type Product @key(fields: "id") { id: ID! name: String! }`;
const STOCK = `${LINK}
type Product @key(fields: "id") { id: ID! inStock: Int }`;
const FIELDS = "{ products { id name inStock } }";
const QUERY = `query @live(patch: true) ${FIELDS}`;
const IDS = Array.from({ length: 10 }, (_, index) => `${index + 1}`);

/** `SEQUENCES_MAX` of the router: so many different revisions make the next result complete. */
const SEQUENCES_MAX = 8;

let catalogue, stock, supergraph;
/** The products, the number of each, and a long text. */
let ids, levels, text;

before(async () => {
  catalogue = await startSubgraph(() => ({
    products: ids.map((id) => ({ __typename: "Product", id, name: `product ${id}` })), text,
  }));
  stock = await startSubgraph((body) => ({
    _entities: representations(body).map(({ id }) => ({ __typename: "Product", inStock: levels[id] ?? 0 })),
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
  [ids, levels, text] = [IDS, {}, ""];
  for (const subgraph of [catalogue, stock]) subgraph.fails = false;
});

const config = {
  cache: { enabled: true, jitter: 0, subgraphs: { all: { ttl: "1h" } } },
  live_queries: { enabled: true, throttle_min: "0s" },
};

/** The data of `FIELDS` at present. */
const present = () => ({
  products: ids.map((id) => ({ id, name: `product ${id}`, inStock: levels[id] ?? 0 })),
});

const socketClient = (router, sockets = []) => createSocketClient({
  url: router.socket, retryAttempts: 0,
  webSocketImpl: class extends WebSocket {
    constructor(...given) {
      super(...given);
      sockets.push(this);
    }
  },
});
const streamClient = (router) => createSseClient({ url: router.graphql, retryAttempts: 0 });
const singleStreamClient = (router) =>
  createSseClient({ url: router.graphql, retryAttempts: 0, singleConnection: true });

/** Sends a live query. `raw` are the messages of the router, `results` what the package makes of them. */
function watch(client, request = QUERY) {
  const [raw, results] = [[], []];
  let [taken, failure] = [0, undefined];
  const messages = client.iterate(typeof request === "string" ? { query: request } : request);
  async function* record() {
    for await (const message of messages) {
      raw.push(message);
      yield message;
    }
  }
  (async () => {
    for await (const result of applyLiveQueryJSONPatch(record())) results.push(result);
  })().catch((error) => {
    failure = error;
  });
  return {
    raw, results,
    failure: () => failure,
    stop: () => messages.return(),
    async next() {
      await eventually(() => {
        if (failure) throw Object.assign(new Error(`it has failed: ${failure.message ?? failure.code}`), { fatal: true });
        return results.length > taken;
      }, "a result");
      return results[taken++];
    },
  };
}

async function invalidate(router, ...all) {
  const response = await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify(all) });
  assert.equal(response.status, 200);
}

async function metric(router, name) {
  const lines = await (await fetch(`${router.admin}/metrics`)).text();
  return Number(lines.match(new RegExp(`^${name} (\\S+)$`, "m"))?.[1]);
}

const product = (id) => ({ kind: "entity", type: "Product", key: { id } });
const replace = (place, value) => ({ op: "replace", path: `/products/${place}/inStock`, value });

describe("live queries with patches", () => {
  let router, clients;
  before(async () => {
    router = await startServe({ supergraph, config });
  });
  beforeEach(async () => {
    clients = [];
    await invalidate(router, { kind: "all" });
  });
  after(() => router?.stop());

  const open = (create = socketClient) => {
    const client = create(router);
    clients.push(client);
    return client;
  };

  /** Closes the connections of a test, and waits until the router watches nothing any more. */
  async function close() {
    await Promise.all(clients.map((client) => client.dispose()));
    await eventually(async () => await metric(router, "starling_live_queries") === 0, "no live query");
  }

  /** Changes products and tells the router. */
  async function change(...changes) {
    for (const [id, level] of changes) levels[id] = level;
    await invalidate(router, ...changes.map(([id]) => product(id)));
  }

  it("send the first result and then what changes, over every transport", async () => {
    const watchers = [socketClient, streamClient, singleStreamClient].map((create) => watch(open(create)));
    const first = present();
    for (const watcher of watchers) assert.deepEqual(await watcher.next(), { data: first });
    const patches = await metric(router, "starling_live_query_patches_total");
    await change(["2", 5]);
    for (const watcher of watchers) assert.deepEqual(await watcher.next(), { data: present() });
    await change(["1", 7], ["10", 8]);
    for (const watcher of watchers) assert.deepEqual(await watcher.next(), { data: present() });
    for (const { raw } of watchers) {
      assert.deepEqual(raw, [
        { revision: 1, data: first },
        { revision: 2, patch: [replace(1, 5)] },
        { revision: 3, patch: [replace(0, 7), replace(9, 8)] },
      ]);
    }
    assert.equal(await metric(router, "starling_live_query_patches_total"), patches + 2, "one for all of them");
    await close();
  });

  it("are complete where nobody asks for patches", async () => {
    const query = `query ($patch: Boolean) @live(patch: $patch) ${FIELDS}`;
    const watchers = [true, false].map((patch) => watch(open(), { query, variables: { patch } }));
    for (const watcher of watchers) await watcher.next();
    await change(["3", 1]);
    for (const watcher of watchers) assert.deepEqual(await watcher.next(), { data: present() });
    assert.deepEqual(watchers[0].raw[1], { revision: 2, patch: [replace(2, 1)] });
    assert.deepEqual(watchers[1].raw[1], { data: present() });
    await close();
  });

  it("begin with a complete result for later clients, and are the same for all after many of those", async () => {
    const watchers = [];
    let level = 0;
    for (let joined = 1; joined <= SEQUENCES_MAX; joined += 1) {
      watchers.push(watch(open()));
      assert.deepEqual(await watchers.at(-1).next(), { data: present() });
      await change(["4", level += 1]);
      for (const [place, watcher] of watchers.entries()) {
        assert.deepEqual(await watcher.next(), { data: present() });
        assert.deepEqual(watcher.raw.at(-1), { revision: joined - place + 1, patch: [replace(3, level)] });
      }
    }
    for (const revision of [1, 2, 3]) {
      await change(["4", level += 1]);
      for (const watcher of watchers) {
        assert.deepEqual(await watcher.next(), { data: present() });
        const complete = { revision, data: present() };
        const patch = { revision, patch: [replace(3, level)] };
        assert.deepEqual(watcher.raw.at(-1), revision === 1 ? complete : patch);
      }
    }
    // They are one group, like those who come between two results.
    const later = [watch(open()), watch(open(streamClient))];
    for (const watcher of later) assert.deepEqual(await watcher.next(), { data: present() });
    const patches = await metric(router, "starling_live_query_patches_total");
    await change(["4", level += 1]);
    for (const watcher of [...watchers, ...later]) assert.deepEqual(await watcher.next(), { data: present() });
    assert.equal(await metric(router, "starling_live_query_patches_total"), patches + 2);
    await close();
  });

  it("send nothing if nothing has changed", async () => {
    const watcher = watch(open());
    await watcher.next();
    const unchanged = await metric(router, "starling_live_query_results_unchanged_total");
    await invalidate(router, product("1"));
    await eventually(async () => await metric(router, "starling_live_query_results_unchanged_total") === unchanged + 1, "the execution");
    await change(["3", 1]);
    assert.deepEqual(await watcher.next(), { data: present() });
    assert.deepEqual(watcher.raw.slice(1), [{ revision: 2, patch: [replace(2, 1)] }]);
    await close();
  });

  it("send new elements of lists without those behind them", async () => {
    const watcher = watch(open());
    await watcher.next();
    ids = ["20", ...IDS.slice(0, -1)];
    levels["1"] = 4;
    await invalidate(router, { kind: "subgraph", subgraph: "catalogue" }, product("1"));
    assert.deepEqual(await watcher.next(), { data: present() });
    const added = { id: "20", name: "product 20", inStock: 0 };
    assert.deepEqual(watcher.raw[1], {
      revision: 2,
      patch: [
        { op: "add", path: "/products/0", value: added }, { op: "remove", path: "/products/10" }, replace(1, 4),
      ],
    });
    await close();
  });

  it("are complete where a patch would not be smaller", async () => {
    const watcher = watch(open());
    await watcher.next();
    const replaced = await metric(router, "starling_live_query_patches_replaced_total");
    await change(...IDS.map((id) => [id, 100]));
    assert.deepEqual(await watcher.next(), { data: present() });
    assert.deepEqual(watcher.raw.at(-1), { revision: 1, data: present() });
    assert.equal(await metric(router, "starling_live_query_patches_replaced_total"), replaced + 1);
    await change(["1", 1]);
    assert.deepEqual(await watcher.next(), { data: present() });
    assert.deepEqual(watcher.raw.at(-1), { revision: 2, patch: [replace(0, 1)] });
    await close();
  });

  it("have the errors of each result, and continue after them", async () => {
    const watcher = watch(open());
    await watcher.next();
    stock.fails = true;
    await invalidate(router, product("1"));
    const failed = await watcher.next();
    assert.equal(failed.data.products[0].inStock, null);
    assert.equal(failed.data.products[1].inStock, 0);
    assert.equal(failed.errors.length, 1);
    assert.deepEqual(watcher.raw[1], { revision: 2, patch: [replace(0, null)], errors: failed.errors });
    stock.fails = false;
    levels["1"] = 3;
    assert.deepEqual(await watcher.next(), { data: present() }, "without another invalidation");
    assert.deepEqual(watcher.raw[2], { revision: 3, patch: [replace(0, 3)] });
    catalogue.fails = true;
    await invalidate(router, { kind: "subgraph", subgraph: "catalogue" });
    const nothing = await watcher.next();
    assert.equal(nothing.data, null);
    assert.deepEqual(watcher.raw[3], nothing, "without a revision");
    catalogue.fails = false;
    assert.deepEqual(await watcher.next(), { data: present() });
    assert.deepEqual(watcher.raw[4], { revision: 1, data: present() });
    await change(["2", 2]);
    assert.deepEqual(await watcher.next(), { data: present() });
    assert.equal(watcher.raw[5].revision, 2);
    await close();
  });

  it("skip what the throttle skips", async () => {
    const watcher = watch(open(), `query @live(throttle: 1000, patch: true) ${FIELDS}`);
    await watcher.next();
    for (let level = 1; level <= 20; level += 1) await change(["1", level]);
    let last;
    do last = await watcher.next(); while (last.data.products[0].inStock !== 20);
    assert.deepEqual(last, { data: present() });
    assert.deepEqual(watcher.raw.map(({ revision }) => revision), watcher.raw.map((_, index) => index + 1));
    assert.ok(watcher.raw.length < 20);
    await close();
  });

  it("continue on the next graph", async () => {
    const early = watch(open());
    await early.next();
    await change(["1", 1]);
    await early.next();
    const late = watch(open(streamClient));
    await late.next();
    const generation = await metric(router, "starling_graph_generation");
    const file = path.join(router.folder, "supergraph.graphql");
    await writeFile(file, `# another text\n${await readFile(file, "utf8")}`);
    await eventually(async () => await metric(router, "starling_graph_generation") === generation + 1, "the next graph");
    await eventually(async () => await metric(router, "starling_live_queries") === 1, "the end of the old query");
    await eventually(async () => {
      await change(["1", levels["1"] + 1]);
      return early.raw.length > 3 && late.raw.length > 2;
    }, "changes on the next graph");
    for (const watcher of [early, late]) {
      const isPresent = () => watcher.results.at(-1).data.products[0].inStock === levels["1"];
      await eventually(isPresent, "the latest state");
      assert.deepEqual(watcher.results.at(-1), { data: present() });
      assert.deepEqual(watcher.raw.map(({ revision }) => revision), watcher.raw.map((_, index) => index + 1));
      assert.equal(watcher.failure(), undefined);
    }
    await close();
  });

  it("are large, too", async () => {
    const query = "query @live(patch: true) { text products { id inStock } }";
    text = "t".repeat(500_000);
    const watcher = watch(open(), query);
    assert.equal((await watcher.next()).data.text, text);
    await change(["9", 9]);
    assert.equal((await watcher.next()).data.products[8].inStock, 9);
    assert.deepEqual(watcher.raw[1], { revision: 2, patch: [replace(8, 9)] });
    // More than the router parses for a patch.
    text = "t".repeat(5_000_000);
    await invalidate(router, { kind: "subgraph", subgraph: "catalogue" });
    assert.equal((await watcher.next()).data.text, text);
    await change(["9", 10]);
    assert.equal((await watcher.next()).data.products[8].inStock, 10);
    assert.deepEqual(watcher.raw.slice(2).map(({ revision, data }) => [revision, data.text.length]), [[1, text.length], [1, text.length]]);
    await close();
  });

  it("are complete as a plain response", async () => {
    const once = await fetch(`${router.graphql}?once`, {
      method: "POST", body: JSON.stringify({ query: QUERY }), headers: { "content-type": "application/json" },
    });
    assert.deepEqual(await once.json(), { revision: 1, data: present() });
    const { status, body } = await router.query("query @live(patch: 1) { products { id } }");
    assert.equal(status, 400);
    assert.match(body.errors[0].message, /Boolean/);
    await close();
  });
});

describe("live queries with patches on other routers", () => {
  const keep = closeAfterEach();

  it("disconnect a client that reads too slowly, whatever the policy, and continue when it is back", async () => {
    const router = keep(await startServe({
      supergraph, config: { ...config, subscriptions: { policy: "latest", queue_events: 2 } },
    }));
    const sockets = [];
    const client = keep(socketClient(router, sockets));
    const query = "query @live(patch: true) { text products { id } }";
    text = "0".repeat(1_000_000);
    const slow = watch(client, query);
    assert.equal((await slow.next()).data.text.length, text.length);
    sockets[0].pause();
    let changes = 0;
    await eventually(async () => {
      // Each change is most of the data, until the socket takes no more.
      changes += 1;
      text = `${changes}`.padEnd(text.length, `${changes % 10}`);
      await invalidate(router, { kind: "subgraph", subgraph: "catalogue" });
      return await metric(router, 'starling_subscribers_slow_total\\{policy="latest"\\}') > 0;
    }, "a full queue");
    sockets[0].resume();
    await eventually(() => slow.failure(), "the end of the connection");
    assert.equal(slow.failure().code, 4410);
    for (const { data } of slow.results) assert.equal(data.text.length, text.length);
    const again = watch(client, query);
    assert.equal((await again.next()).data.text, text);
    assert.equal(again.raw[0].revision, 1);
  });

  it("end when a renewed token leads to another group", async () => {
    const issuer = keep(await startIssuer());
    const forwarding = {
      headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
      websocket: { init_payload_headers: ["authorization"] },
    };
    const jwt = { required: true, issuers: [{ ...issuer.configuration, leeway: "0s" }] };
    const router = keep(await startServe({ supergraph, config: { ...config, ...forwarding, authentication: { jwt } } }));
    const bearer = (jti) => ({ authorization: `Bearer ${issuer.issue({ sub: "ann", jti })}` });
    const socket = keep(openSocket(router, bearer("1")));
    const live = socket.subscribe(QUERY);
    assert.deepEqual(await live.next(), { revision: 1, data: present() });
    socket.ping(bearer("2"));
    const { error } = await live.ended();
    assert.equal(error[0].extensions.code, "TOKEN_RENEWED");
    assert.deepEqual(await socket.subscribe(QUERY).next(), { revision: 1, data: present() });
    assert.equal(socket.opened(), 1);
  });
});

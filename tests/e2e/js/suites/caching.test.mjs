// Responses from memory: entities, root fields and whole responses, what clients are told, and invalidation.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import zlib from "node:zlib";
import { after, before, beforeEach, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { GraphqlResponse, representations, startSubgraph } from "../counting_subgraph.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key", "@shareable"])';
const CATALOGUE = `${LINK}
type Query { products(first: Int): [Product!]! missing: Product me: Account clock(zone: String!): String }
type Product @key(fields: "id") { id: ID! name: String! }
type Account { id: ID! name: String! }`;
const STOCK = `${LINK}
type Product @key(fields: "id") { id: ID! inStock: Int }`;

let catalogue, stock, supergraph;
let level = 0;
/** Responses of `stock` wait for this. */
let held;

before(async () => {
  catalogue = await startSubgraph((body, request) => {
    if (/[{}]me[{}]/.test(body.query)) return { me: { id: "1", name: request.headers["x-user"] ?? "nobody" } };
    if (/[{}]missing[{}]/.test(body.query)) return { missing: null };
    if (body.query.includes("clock")) return clocks(body);
    const first = body.variables.first ?? Object.values(body.variables)[0] ?? 3;
    const ids = Array.from({ length: first }, (_, index) => String(index + 1));
    return { products: ids.map((id) => ({ __typename: "Product", id, name: `product ${id}` })) };
  });
  stock = await startSubgraph(async (body) => {
    const current = level;
    await held;
    const entity = ({ id }) => ({ __typename: "Product", inStock: Number(id) * 10 + current });
    return { _entities: representations(body).map(entity) };
  });
  supergraph = await compose({
    catalogue: { sdl: CATALOGUE, url: catalogue.url },
    stock: { sdl: STOCK, url: stock.url },
  });
});

/** The number of times that the clocks were asked. */
let ticks = 0;

/** The response to a request for clocks; a zone that does not exist has an error. */
function clocks(body) {
  ticks += 1;
  const asked = [...body.query.matchAll(/(?:(\w+):)?clock\(zone: ?\$(\w+)\)/g)];
  const data = asked.map(([, alias = "clock", name]) => [alias, body.variables[name]]);
  const errors = data.filter(([, zone]) => zone === "none").map(([key]) => ({ message: "no such zone", path: [key] }));
  const value = (zone) => (zone === "none" ? null : `${zone} ${ticks}`);
  return new GraphqlResponse(Object.fromEntries(data.map(([key, zone]) => [key, value(zone)])), errors);
}

after(async () => {
  await catalogue?.stop();
  await stock?.stop();
});

beforeEach(() => {
  level = 0;
  held = undefined;
  for (const subgraph of [catalogue, stock]) Object.assign(subgraph, { requests: [], headers: {}, fails: false });
});

const startRouter = (cache, more = {}) =>
  startServe({ supergraph, config: { cache: { enabled: true, jitter: 0, ...cache }, ...more } });

async function ask(router, query, { method = "POST", headers = {}, variables } = {}) {
  const url = method === "GET" ? `${router.graphql}?query=${encodeURIComponent(query)}` : router.graphql;
  const body = method === "GET" ? undefined : JSON.stringify({ query, variables });
  const type = method === "GET" ? { accept: "application/json" } : { "content-type": "application/json" };
  const response = await fetch(url, { method, headers: { ...type, ...headers }, body });
  const text = await response.text();
  const { data, errors } = text ? JSON.parse(text) : {};
  return { status: response.status, data, errors, headers: response.headers };
}

const inStock = ({ data }) => data?.products.map((product) => product.inStock);
const askedFor = (subgraph) => subgraph.requests.map((body) => representations(body).map(({ id }) => id).join(" "));

async function invalidate(router, body) {
  const response = await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, text: await response.text() };
}

describe("entities and root fields", () => {
  let router;
  // Without room for whole responses, the entities are what is asked for.
  before(async () => {
    router = await startRouter({ response_memory: "1KiB", subgraphs: { subgraphs: { stock: { ttl: "60s" } } } });
  });
  after(() => router?.stop());

  it("asks a subgraph only for entities that are not stored", async () => {
    const query = "query ($first: Int) { products(first: $first) { id inStock } }";
    assert.deepEqual(inStock(await ask(router, query, { variables: { first: 2 } })), [10, 20]);
    level = 1;
    assert.deepEqual(inStock(await ask(router, query, { variables: { first: 4 } })), [10, 20, 31, 41]);
    assert.deepEqual(inStock(await ask(router, query, { variables: { first: 3 } })), [10, 20, 31]);
    assert.deepEqual(askedFor(stock), ["1 2", "3 4"]);
    assert.equal(catalogue.requests.length, 3, "nothing says how long root fields may be stored");
  });

  it("does not let a request join one that was sent before an invalidation", async () => {
    const query = "{ products(first: 9) { inStock } }";
    let release;
    held = new Promise((resolve) => {
      release = resolve;
    });
    const first = ask(router, query);
    await eventually(() => stock.requests.length === 1, "the first request");
    await invalidate(router, { kind: "type", type: "Product" });
    held = undefined;
    level = 5;
    assert.equal(inStock(await ask(router, query))[8], 95);
    release();
    assert.equal(inStock(await first)[8], 90);
    assert.equal(inStock(await ask(router, query))[8], 95, "the older response was not stored");
    await invalidate(router, { kind: "all" });
  });

  it("makes stale what an invalidation names, and nothing else", async () => {
    const query = "{ products(first: 3) { inStock } }";
    await ask(router, query);
    stock.requests = [];
    level = 5;
    const one = { kind: "entity", type: "Product", key: { id: "2" } };
    assert.deepEqual(await invalidate(router, one), { status: 200, text: '{"invalidations":1}\n' });
    const [first, second, third] = inStock(await ask(router, query));
    assert.equal(second, 25);
    assert.deepEqual(askedFor(stock), ["2"]);
    assert.ok(first < 15 && third < 35, `${first} ${third}`);
    for (const [body, count] of [
      [{ kind: "type", type: "Product" }, 1],
      [{ kind: "type", type: "Product", subgraph: "catalogue" }, 0],
      [[{ kind: "subgraph", subgraph: "stock" }], 1],
      [{ kind: "cache_tag", cache_tag: "unknown", subgraphs: ["stock"] }, 0],
      [{ kind: "all" }, 1],
    ]) {
      stock.requests = [];
      await invalidate(router, body);
      assert.deepEqual(inStock(await ask(router, query)), [15, 25, 35]);
      assert.equal(stock.requests.length, count, JSON.stringify(body));
    }
  });

  it("refuses an invalidation that it does not understand, with the place of the mistake", async () => {
    const { status, text } = await invalidate(router, [{ kind: "all" }, { kind: "entity", type: "Product", key: {} }]);
    assert.equal(status, 400);
    assert.match(text, /^invalidation 1: the key has no fields/);
  });
});

describe("root fields", () => {
  let router;
  before(async () => {
    router = await startRouter({ response_memory: "1KiB", subgraphs: { subgraphs: { catalogue: { ttl: "60s" } } } });
  });
  after(() => router?.stop());

  const zones = () => catalogue.requests.map((body) => Object.values(body.variables).join(" "));

  it("are requested only if they are not stored, whatever an operation calls them", async () => {
    const first = await ask(router, 'query A { berlin: clock(zone: "berlin") paris: clock(zone: "paris") }');
    assert.deepEqual(first.data, { berlin: "berlin 1", paris: "paris 1" });
    const second = await ask(router, 'query B($zone: String!) { p: clock(zone: $zone) rome: clock(zone: "rome") }', {
      variables: { zone: "paris" },
    });
    assert.deepEqual(second.data, { p: "paris 1", rome: "rome 2" });
    const third = await ask(router, '{ clock(zone: "rome") b: clock(zone: "berlin") }');
    assert.deepEqual(third.data, { clock: "rome 2", b: "berlin 1" });
    assert.deepEqual(zones(), ["berlin paris", "rome"]);
  });

  it("are not stored if the subgraph reports an error for them, and the others are", async () => {
    const query = 'query ($zone: String!) { rio: clock(zone: "rio") other: clock(zone: $zone) }';
    const failing = await ask(router, query, { variables: { zone: "none" } });
    assert.deepEqual([failing.data.other, failing.errors.length], [null, 1]);
    assert.equal(failing.headers.get("cache-control"), "no-store");
    assert.deepEqual((await ask(router, query, { variables: { zone: "none" } })).data.rio, failing.data.rio);
    assert.deepEqual(zones(), ["none rio", "none"]);
  });

  it("follow the conditions of the client", async () => {
    const query = `query ($lima: Boolean!) {
      lima: clock(zone: "lima") @include(if: $lima)
      oslo: clock(zone: "oslo")
    }`;
    const without = await ask(router, query, { variables: { lima: false } });
    assert.deepEqual(Object.keys(without.data), ["oslo"]);
    const both = await ask(router, query, { variables: { lima: true } });
    assert.deepEqual([Object.keys(both.data), both.data.oslo], [["lima", "oslo"], without.data.oslo]);
    assert.equal(catalogue.requests.length, 2);
    assert.ok(!catalogue.requests[1].query.includes("oslo"), catalogue.requests[1].query);
    assert.deepEqual((await ask(router, '{ lima: clock(zone: "lima") }')).data, { lima: both.data.lima });
    assert.equal(catalogue.requests.length, 2);
  });
});

describe("times to live", () => {
  it("follows the subgraph, then a header of the operator, then the configuration", async () => {
    const router = await startRouter({ ttl_header: "x-ttl", subgraphs: { all: { ttl: "100s" } } });
    try {
      let first = 0;
      const told = async (headers) => {
        catalogue.headers = headers;
        const { headers: got } = await ask(router, `{ products(first: ${++first}) { id } }`);
        // Milliseconds have passed, and whole seconds are told.
        return got.get("cache-control").replace(/\d+/, (seconds) => Math.round(Number(seconds) / 10) * 10);
      };
      assert.equal(await told({ "cache-control": "max-age=60", "x-ttl": "20" }), "public, max-age=60");
      assert.equal(await told({ "cache-control": "max-age=60", age: "50" }), "public, max-age=10");
      assert.equal(await told({ "x-ttl": "20" }), "public, max-age=20");
      assert.equal(await told({}), "public, max-age=100");
      assert.equal(await told({ "cache-control": "no-store" }), "no-store");
      assert.equal(await told({ "cache-control": "private, max-age=60" }), "private, max-age=60");
      assert.equal(await told({ vary: "*" }), "no-store");
      catalogue.fails = true;
      assert.equal(await told({ "cache-control": "max-age=60" }), "no-store");
    } finally {
      await router.stop();
    }
  });

  it("takes the minimum over all parts of a response", async () => {
    const router = await startRouter({ subgraphs: { all: { ttl: "100s" } } });
    try {
      stock.headers = { "cache-control": "max-age=30, stale-while-revalidate=5" };
      const { headers } = await ask(router, "{ products { inStock } }");
      assert.match(headers.get("cache-control"), /^public, max-age=(2\d|30), stale-while-revalidate=5$/);
      const introspection = await ask(router, "{ __schema { queryType { name } } }");
      assert.equal(introspection.headers.get("cache-control"), "no-store");
    } finally {
      await router.stop();
    }
  });
});

describe("hints of schemas", () => {
  const link = LINK.replace("v2.9", "v2.12").replace('"@key"', '"@key", "@cacheTag"');
  let shelves, router;

  before(async () => {
    shelves = await startSubgraph((body) => ({
      _entities: representations(body).map(({ id }) => ({ __typename: "Product", stored: Number(id) + level, taken: 0 })),
    }));
    const hinted = await compose({
      catalogue: {
        sdl: `${link}
          type Query {
            products(first: Int = 3): [Product!]! @cacheControl(maxAge: 60) @cacheTag(format: "first-{$args.first}")
            missing: Product
            me: Account
          }
          type Product @key(fields: "id") { id: ID! name: String! }
          type Account @cacheControl(maxAge: 50, scope: PRIVATE) { id: ID! name: String! }`,
        url: catalogue.url,
      },
      shelves: {
        sdl: `${link}
          type Product @key(fields: "id") @cacheControl(maxAge: 30) @cacheTag(format: "shelf-{$key.id}") {
            id: ID!
            stored: Int
            taken: Int @cacheControl(maxAge: 10)
          }`,
        url: shelves.url,
      },
    });
    router = await startServe({
      supergraph: hinted,
      config: {
        headers: { all: { request: [{ propagate: { named: "x-user" } }] } },
        cache: { enabled: true, jitter: 0, private_by: { headers: ["x-user"] } },
      },
    });
  });
  beforeEach(async () => {
    shelves.requests = [];
    await invalidate(router, { kind: "all" });
  });
  after(async () => {
    await router?.stop();
    await shelves?.stop();
  });

  const stored = ({ data }) => data.products.map((product) => product.stored);

  it("gives responses the shortest time of their fields and types", async () => {
    for (const [query, seconds] of [
      ["{ products(first: 1) { name } }", 60],
      ["{ products(first: 1) { stored } }", 30],
      ["{ products(first: 1) { stored taken } }", 10],
    ]) {
      const { headers, errors } = await ask(router, query);
      assert.equal(errors, undefined);
      const told = /^public, max-age=(\d+)$/.exec(headers.get("cache-control"));
      // Seconds may have passed since an earlier query stored a part.
      assert.ok(told && told[1] <= seconds && told[1] > seconds - 10, `${query}: ${headers.get("cache-control")}`);
    }
    const { headers } = await ask(router, "{ missing { name } }");
    assert.match(headers.get("cache-control"), /^(no-store|public, max-age=[0-5])$/, "nothing gives it a time");
  });

  it("keeps clients apart where the schema says PRIVATE", async () => {
    const me = (user) => ask(router, "{ me { name } }", { headers: { "x-user": user } });
    for (const user of ["alice", "bob", "alice"]) {
      const { data, headers } = await me(user);
      assert.equal(data.me.name, user);
      assert.match(headers.get("cache-control"), /^private, max-age=(4\d|50)$/);
    }
    assert.equal(catalogue.requests.length, 2);
  });

  it("makes stale the entity with a tag, and no other one", async () => {
    const query = "{ products(first: 3) { stored } }";
    assert.deepEqual(stored(await ask(router, query)), [1, 2, 3]);
    shelves.requests = [];
    level = 10;
    await invalidate(router, { kind: "cache_tag", cache_tag: "shelf-2" });
    assert.deepEqual(stored(await ask(router, query)), [1, 12, 3]);
    assert.deepEqual(askedFor(shelves), ["2"]);
    await invalidate(router, { kind: "cache_tag", cache_tag: "shelf-4" });
    assert.deepEqual(stored(await ask(router, query)), [1, 12, 3]);
    assert.equal(shelves.requests.length, 1);
  });

  it("makes stale the root field with a tag, by its arguments", async () => {
    const literal = "{ products(first: 2) { name } }";
    const asked = async () => {
      catalogue.requests = [];
      await ask(router, literal);
      await ask(router, "query ($count: Int) { products(first: $count) { name } }", { variables: { count: 1 } });
      await ask(router, "{ products { name } }");
      return catalogue.requests.length;
    };
    assert.equal(await asked(), 3);
    assert.equal(await asked(), 0);
    for (const tag of ["first-1", "first-2", "first-3"]) {
      await invalidate(router, { kind: "cache_tag", cache_tag: tag });
      assert.equal(await asked(), 1, tag);
    }
    await invalidate(router, { kind: "cache_tag", cache_tag: "first-4" });
    assert.equal(await asked(), 0);
  });
});

describe("whole responses", () => {
  let router;
  before(async () => {
    const headers = { all: { request: [{ propagate: { named: "x-user" } }] } };
    const cache = { private_by: { headers: ["x-user"] }, subgraphs: { all: { ttl: "100s" } } };
    router = await startRouter(cache, { headers });
  });
  after(() => router?.stop());

  it("serves a second request without any subgraph, and says 304 to a client that has it", async () => {
    const query = "{ products(first: 1) { id name } }";
    const first = await ask(router, query, { method: "GET" });
    const second = await ask(router, query, { method: "GET" });
    assert.deepEqual(second.data, first.data);
    assert.equal(catalogue.requests.length, 1);
    const etag = first.headers.get("etag");
    assert.equal(second.headers.get("etag"), etag);
    const conditional = await ask(router, query, { method: "GET", headers: { "if-none-match": etag } });
    assert.deepEqual([conditional.status, conditional.data], [304, undefined]);
    assert.match(conditional.headers.get("cache-control"), /^public, max-age=(9\d|100)$/);
    assert.match(conditional.headers.get("vary"), /x-user/);
    await invalidate(router, { kind: "type", type: "Product" });
    await ask(router, query, { method: "GET" });
    assert.equal(catalogue.requests.length, 2);
  });

  it("keeps private responses of clients apart", async () => {
    catalogue.headers = { "cache-control": "private, max-age=60" };
    const name = async (user) => (await ask(router, "{ me { name } }", { headers: user && { "x-user": user } })).data.me.name;
    assert.equal(await name("alice"), "alice");
    assert.equal(await name("bob"), "bob");
    assert.equal(await name("alice"), "alice");
    assert.equal(catalogue.requests.length, 2);
    assert.deepEqual([await name(undefined), await name(undefined)], ["nobody", "nobody"]);
    assert.equal(catalogue.requests.length, 4, "a client without the header has no part of the cache");
  });

  it("remembers for a short time that there is nothing", async () => {
    for (let times = 0; times < 2; times++) {
      const { data, headers } = await ask(router, "{ missing { id } }");
      assert.deepEqual(data, { missing: null });
      assert.match(headers.get("cache-control"), /^public, max-age=[1-5]$/);
    }
    assert.equal(catalogue.requests.length, 1);
  });
});

describe("compressed whole responses", () => {
  const BOUND = 1 << 20;
  const CODINGS = { gzip: zlib.gunzipSync, br: zlib.brotliDecompressSync, zstd: zlib.zstdDecompressSync };
  let router;
  let queries = 0;
  /** A query that no other test sends. */
  const newQuery = (first) => `query Compressed${++queries} { products(first: ${first}) { id name } }`;
  before(async () => {
    const trace = { enabled: true };
    router = await startRouter({ response_memory: "1MiB", subgraphs: { all: { ttl: "100s" } } }, { trace });
  });
  after(() => router?.stop());

  /** Sends a GET, and returns the response as it came. */
  async function raw(query, coding, headers = {}) {
    const url = `${router.graphql}?query=${encodeURIComponent(query)}`;
    const request = http.get(url, { headers: { accept: "application/json", "accept-encoding": coding, ...headers } });
    const [response] = await once(request, "response");
    const parts = [];
    for await (const part of response) parts.push(part);
    return { status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) };
  }

  async function metrics() {
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    const value = (name) => {
      const line = text.split("\n").find((it) => it.startsWith(`${name} `));
      assert.ok(line, name);
      return Number(line.split(" ").at(-1));
    };
    return {
      copies: value('starling_cache_copies_total{level="response"}'),
      reused: value("starling_http_compression_reused_total"),
      compressed: value("starling_http_compression_in_bytes_total"),
      bytes: value('starling_cache_bytes{level="response",subgraph=""}'),
    };
  }

  it("are compressed once in each coding, with the headers of a response that is compressed now", async () => {
    const query = newQuery(1000);
    const plain = await raw(query, "identity");
    assert.equal(JSON.parse(plain.body).data.products.length, 1000);
    for (const [coding, expand] of Object.entries(CODINGS)) {
      const before = await metrics();
      const sent = await Promise.all([1, 2, 3, 4].map(() => raw(query, coding)));
      sent.push(await raw(query, coding));
      for (const { status, headers, body } of sent) {
        assert.deepEqual([status, headers["content-encoding"]], [200, coding]);
        assert.equal(Number(headers["content-length"]), body.length);
        assert.ok(body.length < plain.body.length / 4, `${body.length} of ${plain.body.length}`);
        assert.match(headers.vary, /accept-encoding/);
        assert.match(headers["cache-control"], /^public, max-age=\d+$/);
        assert.equal(headers.etag, plain.headers.etag);
        // Older versions of Node.js do not know zstd.
        if (expand) assert.ok(expand(body).equals(plain.body));
      }
      const after = await metrics();
      assert.equal(after.copies, before.copies + 1, coding);
      assert.equal(after.compressed, before.compressed + plain.body.length, coding);
      assert.equal(after.reused, before.reused + sent.length - 1, coding);
      assert.ok(after.bytes > before.bytes, `${after.bytes} after ${before.bytes}`);
    }
    const { etag } = plain.headers;
    const before = await metrics();
    const known = await raw(query, "gzip", { "if-none-match": etag });
    assert.deepEqual([known.status, known.body.length, known.headers.etag], [304, 0, etag]);
    assert.match(known.headers.vary, /accept-encoding/);
    assert.deepEqual(await metrics(), before);
  });

  it("have no copies of what was before an invalidation, with a trace, or below the size for compression", async () => {
    const query = newQuery(500);
    const first = await raw(query, "gzip");
    await raw(query, "gzip");
    const before = await metrics();
    const traced = await raw(query, "gzip", { "starling-trace": "1" });
    assert.ok(JSON.parse(zlib.gunzipSync(traced.body)).extensions.trace);
    assert.deepEqual((await metrics()).copies, before.copies);
    await invalidate(router, { kind: "all" });
    const fresh = await raw(query, "gzip");
    const hit = await raw(query, "gzip");
    assert.deepEqual([fresh.body, hit.body].map((it) => zlib.gunzipSync(it)), [first.body, first.body].map((it) => zlib.gunzipSync(it)));
    assert.equal((await metrics()).copies, before.copies + 1);
    const small = newQuery(1);
    await raw(small, "gzip");
    assert.equal((await raw(small, "gzip")).headers["content-encoding"], undefined);
    assert.equal((await metrics()).copies, before.copies + 1);
  });

  it("stay within the memory of whole responses", async () => {
    for (let number = 0; number < 40; number += 1) {
      const query = newQuery(1000 - number);
      for (const coding of ["identity", ...Object.keys(CODINGS)]) await raw(query, coding);
      const { bytes } = await metrics();
      assert.ok(bytes <= BOUND, `${bytes} bytes`);
    }
  });
});

it("serves what has expired while the subgraph fails", async () => {
  const router = await startRouter({ stale_if_error: "60s" });
  try {
    catalogue.headers = { "cache-control": "max-age=1" };
    const query = "{ products(first: 1) { name } }";
    const { data } = await ask(router, query);
    catalogue.fails = true;
    const requests = catalogue.requests.length;
    // The entry expires after a second; until then the subgraph is not asked.
    while (catalogue.requests.length === requests) assert.deepEqual((await ask(router, query)).data, data);
    const { headers, ...stale } = await ask(router, query);
    assert.deepEqual([stale.data, stale.errors], [data, undefined]);
    assert.match(headers.get("cache-control"), /max-age=0/);
  } finally {
    await router.stop();
  }
});

it("sends one request for an entity that many clients miss at the same time", async () => {
  const router = await startRouter({ response_memory: "1KiB" });
  try {
    stock.headers = { "cache-control": "max-age=60" };
    const query = (first) => `{ products(first: ${first}) { inStock } }`;
    await Promise.all(Array.from({ length: 200 }, (_, index) => ask(router, query(1 + (index % 5)))));
    const all = askedFor(stock).flatMap((ids) => ids.split(" "));
    assert.deepEqual(all.sort(), ["1", "2", "3", "4", "5"]);
  } finally {
    await router.stop();
  }
});

describe("traces", () => {
  const QUERY = "query ($first: Int) { products(first: $first) { id inStock } }";
  const settings = { subgraphs: { subgraphs: { stock: { ttl: "60s" } } } };
  let router;
  before(async () => {
    router = await startRouter(settings, { trace: { enabled: true } });
  });
  after(() => router?.stop());

  async function traced(first, value = "1") {
    const headers = { "content-type": "application/json", "starling-trace": value };
    const body = JSON.stringify({ query: QUERY, variables: { first } });
    const response = await fetch(router.graphql, { method: "POST", headers, body });
    const { data, extensions } = await response.json();
    return { data, trace: extensions.trace, headers: response.headers };
  }

  it("say for each fetch what was stored and what was sent, and how old it was", async () => {
    const first = await traced(1);
    assert.equal(first.trace.cache.response, "miss");
    const requested = { fresh: 0, stale: 0, awaited: 0, sent: 1, staleIfError: 0, refreshed: 0, oldestAge: null };
    assert.deepEqual(first.trace.cache.fetches, [
      { fetch: 0, subgraph: "catalogue", level: "subgraph", unit: "rootFields", ...requested },
      { fetch: 1, subgraph: "stock", level: "subgraph", unit: "entities", ...requested },
    ]);
    const second = await traced(3);
    const { fresh, sent, oldestAge } = second.trace.cache.fetches[1];
    assert.deepEqual({ fresh, sent }, { fresh: 1, sent: 2 });
    assert.ok(oldestAge >= 0 && oldestAge < 60_000_000, `${oldestAge}`);
    assert.deepEqual(inStock(second), [10, 20, 30]);
    assert.equal(first.headers.get("cache-control"), "no-store", "others would get the trace from a cache");
  });
});

it("a trace has the texts of requests without values, and variables only if the configuration says so", async () => {
  const fetchesOf = async (fetches) => {
    const router = await startRouter({ enabled: false }, { trace: { enabled: true, ...(fetches && { fetches }) } });
    try {
      const headers = { "content-type": "application/json", "starling-trace": "1" };
      const fetches = [];
      for (const query of ['{ clock(zone: "hunter2") }', "{ products(first: 2) { inStock } }"]) {
        const response = await fetch(router.graphql, { method: "POST", headers, body: JSON.stringify({ query }) });
        fetches.push(...(await response.json()).extensions.trace.fetches);
      }
      return fetches;
    } finally {
      await router.stop();
    }
  };
  const redacted = await fetchesOf();
  assert.deepEqual(redacted.map(({ subgraph }) => subgraph), ["catalogue", "catalogue", "stock"]);
  assert.match(redacted[0].text, /clock\(zone:/);
  assert.match(redacted[2].text, /_entities\(representations:/);
  assert.ok(!JSON.stringify(redacted).includes("hunter2"), JSON.stringify(redacted));
  assert.ok(redacted.every((it) => !("variables" in it)));
  const full = await fetchesOf({ text: "full", variables: true });
  assert.match(JSON.stringify(full[0]), /hunter2/);
  assert.deepEqual(Object.values(full[2].variables)[0].map(({ id }) => id), ["1", "2"]);
  const none = await fetchesOf({ text: "none" });
  assert.ok(none.every((it) => !("text" in it) && !("variables" in it)));
});

it("a client that trace.when does not name gets the same response from memory, without a trace", async () => {
  const trace = { enabled: true, when: "client.name == 'studio' && operation.kind == 'query'" };
  const router = await startRouter({ subgraphs: { all: { ttl: "60s" } } }, { trace });
  try {
    const query = "{ products(first: 2) { name } }";
    const traced = async (name, value) => {
      const headers = { "content-type": "application/json", "starling-trace": value, "graphql-client-name": name };
      const response = await fetch(router.graphql, { method: "POST", headers, body: JSON.stringify({ query }) });
      return [await response.json(), response.headers];
    };
    const [first] = await traced("studio", "1");
    assert.equal(first.extensions.trace.cache.response, "miss");
    for (const value of ["1", "execute"]) {
      const [response, headers] = await traced("web", value);
      assert.deepEqual(response, { data: first.data });
      assert.notEqual(headers.get("cache-control"), "no-store");
    }
    assert.equal(catalogue.requests.length, 1);
  } finally {
    await router.stop();
  }
});

it("a trace says that the whole response came from memory, unless the client wants its execution", async () => {
  const router = await startRouter({ subgraphs: { all: { ttl: "60s" } } }, { trace: { enabled: true } });
  try {
    const traced = async (value) => {
      const headers = { "content-type": "application/json", ...(value && { "starling-trace": value }) };
      const body = JSON.stringify({ query: "{ products(first: 2) { name } }" });
      const response = await fetch(router.graphql, { method: "POST", headers, body });
      return (await response.json()).extensions?.trace;
    };
    assert.equal(await traced(), undefined);
    const stored = await traced("1");
    assert.equal(stored.cache.response, "fresh");
    assert.ok(stored.cache.age < 60_000_000, JSON.stringify(stored));
    assert.deepEqual([stored.fetches, stored.cache.fetches], [[], []]);
    const executed = await traced("execute");
    assert.equal(executed.cache.response, "skipped");
    const [{ unit, fresh, sent }] = executed.cache.fetches;
    assert.deepEqual({ unit, fresh, sent }, { unit: "rootFields", fresh: 1, sent: 0 });
    assert.equal(catalogue.requests.length, 1);
  } finally {
    await router.stop();
  }
});

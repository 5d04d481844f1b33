// Entities that mutations return with `@openfed__cachePopulate`: stored in the router, and shared by two through Redis.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { GraphqlResponse, representations, startSubgraph } from "../counting_subgraph.mjs";
import { redisServer, skipWithout } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.12", import: ["@key", "@cacheTag"])';
const CATALOGUE = `${LINK}
type Query { products(ids: [ID!]!): [Product!]! }
type Product @key(fields: "id") { id: ID! }`;
const STOCK = `${LINK}
type Mutation {
  setLevel(id: ID!): Product @openfed__cachePopulate
  setBriefly(id: ID!): Product @openfed__cachePopulate(maxAge: 0)
  setAll(ids: [ID!]!): [Product!]! @openfed__cachePopulate(maxAge: 60)
  look(id: ID!): Product
}
type Product @key(fields: "id") @cacheTag(format: "product-{$key.id}") { id: ID! level: Int name(short: Boolean): String }`;

let catalogue, stock, supergraph;
/** The number of changes of the stock. */
let level = 0;
/** Called while a mutation is executed. */
let during = async () => {};
/** Returns the errors of a mutation. */
let errorsOf = () => undefined;

/** The object with the fields that the selections of a request name; the router selects keys under names of its own. */
function product(id, query) {
  const [, key] = query.match(/(\w+):id\b/) ?? [];
  const short = query.match(/(\w+):name\b/)?.[1];
  return { __typename: "Product", id, level, name: `${id} at ${level}`, ...(key && { [key]: id }), ...(short && { [short]: id }) };
}

before(async () => {
  catalogue = await startSubgraph((body) => {
    const [ids] = Object.values(body.variables);
    return { products: ids.map((id) => ({ __typename: "Product", id })) };
  });
  stock = await startSubgraph(async (body) => {
    if (!body.query.startsWith("mutation")) {
      return { _entities: representations(body).map(({ id }) => product(id, body.query)) };
    }
    level += 1;
    const named = Object.values(body.variables).flat().filter((it) => typeof it === "string");
    // Root fields under their response keys, in the order in which they are written.
    const fields = [...body.query.matchAll(/(?:(\w+):)?(setLevel|setBriefly|setAll|look)\(/g)];
    const value = (name, index) =>
      name === "setAll" ? named.map((id) => product(id, body.query)) : product(named[index] ?? named[0], body.query);
    const data = Object.fromEntries(fields.map(([, alias, name], index) => [alias ?? name, value(name, index)]));
    await during();
    const errors = errorsOf(data);
    return errors ? new GraphqlResponse(data, errors) : data;
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
  during = async () => {};
  errorsOf = () => undefined;
  for (const subgraph of [catalogue, stock]) {
    Object.assign(subgraph, { requests: [], headers: {}, extensions: () => undefined });
  }
});

const cache = {
  enabled: true, jitter: 0, private_by: { headers: ["x-user"] },
  subgraphs: { all: { ttl: "1h", ignore_headers: ["x-user"] } },
};
const headers = { all: { request: [{ propagate: { named: "x-user" } }] } };

/** Tests use products of their own, so that none finds those of another. */
let lastProduct = 0;
const newProduct = () => String(++lastProduct);

async function send(router, query, variables, user) {
  const response = await fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json", ...(user && { "x-user": user }) },
    body: JSON.stringify({ query, variables }),
  });
  return response.json();
}

/** Asks for products, and returns their levels with the ids that the stock was asked for. */
async function levels(router, ids, { fields = "level", user } = {}) {
  stock.requests = [];
  const query = `query ($ids: [ID!]!) { products(ids: $ids) { id ${fields} } }`;
  const { data, errors } = await send(router, query, { ids }, user);
  assert.equal(errors, undefined, JSON.stringify(errors));
  const asked = stock.requests.flatMap((body) => representations(body).map((it) => it.id));
  return { levels: data.products.map((it) => it.level), asked };
}

const SET = "mutation ($id: ID!) { setLevel(id: $id) { id level } }";

async function set(router, id, { mutation = SET, user, expected = undefined } = {}) {
  const { data, errors } = await send(router, mutation, { id, ids: [id] }, user);
  assert.deepEqual(errors?.length, expected, JSON.stringify(errors));
  return data;
}

async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name} `) || it.startsWith(`${name}{`));
  return Number(line?.split(" ").at(-1));
}

async function invalidate(router, body) {
  const response = await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify(body) });
  assert.ok(response.ok, `${response.status}`);
}

const entity = (id) => ({ kind: "entity", type: "Product", key: { id } });

describe("an entity that a mutation returns", () => {
  let router;
  before(async () => {
    router = await startServe({ supergraph, config: { cache, headers } });
  });
  after(() => router?.stop());

  it("is not requested by the query after it, which shows the new value", async () => {
    const id = newProduct();
    const before = await levels(router, [id]);
    assert.deepEqual(before, { levels: [level], asked: [id] });
    const { setLevel } = await set(router, id);
    assert.deepEqual(setLevel, { id, level: before.levels[0] + 1 });
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [] });
    level += 1;
    await invalidate(router, { kind: "cache_tag", cache_tag: `product-${id}` });
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [id] });
  });

  it("is stored for equal selections only, with their arguments", async () => {
    const id = newProduct();
    const fields = "level short: name(short: true)";
    await set(router, id, { mutation: `mutation ($id: ID!) { setLevel(id: $id) { ${fields} } }` });
    assert.deepEqual((await levels(router, [id], { fields })).asked, []);
    assert.deepEqual((await levels(router, [id], { fields: "level short: name(short: false)" })).asked, [id]);
    assert.deepEqual((await levels(router, [id])).asked, [id]);
  });

  it("is stored for each element of a list", async () => {
    const ids = [newProduct(), newProduct()];
    const mutation = "mutation ($ids: [ID!]!) { setAll(ids: $ids) { level } }";
    const { errors } = await send(router, mutation, { ids });
    assert.equal(errors, undefined);
    assert.deepEqual(await levels(router, ids), { levels: [level, level], asked: [] });
  });

  it("is stale, and not stored, without a time or against the will of the subgraph", async () => {
    const ids = [newProduct(), newProduct(), newProduct()];
    await levels(router, ids);
    await set(router, ids[0], { mutation: "mutation ($id: ID!) { setBriefly(id: $id) { level } }" });
    stock.headers = { "cache-control": "no-store" };
    await set(router, ids[1]);
    stock.headers = {};
    assert.deepEqual((await levels(router, ids)).asked, ids.slice(0, 2));
  });

  it("is stale, and not stored, if its part of the response has an error", async () => {
    const [id, other] = [newProduct(), newProduct()];
    await levels(router, [id, other]);
    errorsOf = () => [{ message: "half done", path: ["setLevel", "level"] }];
    await set(router, id, { expected: 1 });
    assert.deepEqual((await levels(router, [id, other])).asked, [id]);
    errorsOf = () => [{ message: "something is wrong" }];
    await set(router, id, { expected: 1 });
    assert.deepEqual((await levels(router, [id, other])).asked, [id]);
    // An error of another field makes no difference.
    errorsOf = (data) => {
      data.look = null;
      return [{ message: "not found", path: ["look"] }];
    };
    const mutation = "mutation ($id: ID!) { setLevel(id: $id) { level } look(id: $id) { level } }";
    await set(router, id, { mutation, expected: 1 });
    assert.deepEqual((await levels(router, [id, other])).asked, []);
  });

  it("is stale, and not stored, if two fields of the mutation return it", async () => {
    const id = newProduct();
    await levels(router, [id]);
    await set(router, id, { mutation: "mutation ($id: ID!) { a: setLevel(id: $id) { level } b: setLevel(id: $id) { level } }" });
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [id] });
  });

  it("is stored for one client if it is private", async () => {
    const id = newProduct();
    stock.headers = { "cache-control": "private, max-age=60" };
    await set(router, id, { user: "alice" });
    assert.deepEqual((await levels(router, [id], { user: "bob" })).asked, [id]);
    assert.deepEqual((await levels(router, [id], { user: "alice" })).asked, []);
    const other = newProduct();
    await set(router, other);
    assert.deepEqual((await levels(router, [other])).asked, [other], "a client without a part of the cache");
  });

  it("is not stored if it was invalidated between the request and the response", async () => {
    const id = newProduct();
    during = () => invalidate(router, entity(id));
    await set(router, id);
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [id] });
    during = () => invalidate(router, { kind: "cache_tag", cache_tag: `product-${id}` });
    await set(router, id);
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [id] });
    during = () => invalidate(router, entity("another"));
    await set(router, id);
    assert.deepEqual(await levels(router, [id]), { levels: [level], asked: [] });
  });

  it("is not stored if the response to another mutation of it has come meanwhile", async () => {
    const id = newProduct();
    let inner = true;
    during = async () => {
      if (!inner) return;
      inner = false;
      await set(router, id);
    };
    await set(router, id);
    assert.deepEqual((await levels(router, [id])).asked, [id]);
  });
});

describe("a Redis that two routers share", { skip: skipWithout(redisServer, "redis-server") }, () => {
  let redis, routers;
  before(async () => {
    redis = await startRedis();
    const config = {
      headers,
      // Without room for whole responses, the entities are what is asked for.
      cache: { ...cache, store: "shared", response_memory: "1KiB" },
      storage_providers: { redis: [{ id: "shared", urls: [redis.url], timeout: "500ms" }] },
    };
    routers = await Promise.all([1, 2].map(() => startServe({ supergraph, config })));
    await eventually(async () => {
      for (const router of routers) {
        if (await metric(router, "starling_cache_log_current") !== 1) return false;
        if (await metric(router, "starling_cache_log_routers") < routers.length) return false;
      }
      return true;
    }, "both routers to follow the log");
  });
  after(async () => {
    for (const router of routers ?? []) await router.stop();
    await redis?.stop();
  });

  const stores = (router) => metric(router, "starling_cache_shared_stores_total");
  const dropped = (router) => metric(router, "starling_cache_shared_dropped_total");

  it("has the new value for the other router", async () => {
    const id = newProduct();
    const [first, second] = routers;
    assert.deepEqual((await levels(second, [id])).asked, [id]);
    const [stored, old] = [await stores(first), level];
    await set(first, id);
    await eventually(async () => (await stores(first)) > stored, "Redis to have the new value");
    // The other router hears of the invalidation meanwhile.
    const asked = [];
    await eventually(async () => {
      const found = await levels(second, [id]);
      asked.push(...found.asked);
      return found.levels[0] > old;
    }, "the other router to show the new value");
    assert.deepEqual(asked, []);
    assert.deepEqual(await levels(first, [id]), { levels: [level], asked: [] });
  });

  it("does not have it if the other router has invalidated it meanwhile", async () => {
    const id = newProduct();
    const [first, second] = routers;
    await levels(second, [id]);
    const count = await dropped(first);
    // The response of the admin listener comes when both routers have applied it.
    during = () => invalidate(second, entity(id));
    await set(first, id);
    assert.deepEqual((await levels(first, [id])).asked, [id]);
    assert.equal(await dropped(first), count + 1);
  });
});

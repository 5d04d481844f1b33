// Invalidation by events of a broker, at two routers on one topic, by events of the graph's subscriptions, and by
// mutations: their responses, and the entities that they return.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { connect } from "nats";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key", "@shareable"])';
const CATALOGUE = `${LINK}
type Query { products: [Product!]! }
type Product @key(fields: "id") { id: ID! }`;
const STOCK = `${LINK}
type Mutation {
  restock: Boolean
  restockOne(id: ID!): Product @openfed__cacheInvalidate
  restockAll: [Product!]! @openfed__cachePopulate(maxAge: 60)
}
type Product @key(fields: "id") { id: ID! inStock: Int }`;
const EVENTS = `type Subscription {
  moved: Product @events__subscribe(topics: ["stock.moved"], providerId: "nats/default", invalidate: true)
  movedOne(id: ID!): Product
    @events__subscribe(topics: ["stock.one.{{ args.id }}"], providerId: "nats/default", invalidate: true)
  movedSilently: Product @events__subscribe(topics: ["stock.silent"], providerId: "nats/default")
}
type Product @key(fields: "id", resolvable: false) { id: ID! }`;
const QUERY = "{ products { id inStock } }";
const TOPIC = "catalogue.changed";

/** Room in `inStock` for the number of changes. */
const STEP = 1000;

let catalogue, stock, supergraph, withEvents;
/** The number of changes of the stock. */
let level = 0;

before(async () => {
  catalogue = await startSubgraph(() => ({
    products: ["1", "2", "3"].map((id) => ({ __typename: "Product", id })),
  }));
  stock = await startSubgraph((body) => {
    if (body.query.includes("restock")) {
      level += 1;
      if (!body.query.includes("restockOne") && !body.query.includes("restockAll")) return { restock: true };
      // The router selects the key under a name of its own.
      const [, key] = body.query.match(/(\w+):id\b/);
      const one = (id) => ({ [key]: id, inStock: Number(id) * STEP + level });
      if (body.query.includes("restockAll")) return { restockAll: [one("1"), one("3")] };
      return { restockOne: one(Object.values(body.variables)[0]) };
    }
    return {
      _entities: representations(body).map(({ id }) => ({ __typename: "Product", inStock: Number(id) * STEP + level })),
    };
  });
  const servers = {
    catalogue: { sdl: CATALOGUE, url: catalogue.url },
    stock: { sdl: STOCK, url: stock.url },
  };
  supergraph = await compose(servers);
  withEvents = await compose({ ...servers, events: { sdl: EVENTS } });
});

after(async () => {
  await catalogue?.stop();
  await stock?.stop();
});

beforeEach(() => {
  for (const subgraph of [catalogue, stock]) {
    Object.assign(subgraph, { requests: [], headers: {}, extensions: () => undefined });
  }
});

/** The numbers of changes that a router has seen of each product. */
async function levels(router) {
  const { body } = await router.query(QUERY);
  assert.equal(body.errors, undefined);
  return body.data.products.map(({ id, inStock }) => inStock - Number(id) * STEP);
}

async function metric(router, name, source) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name}{source="${source}"} `));
  return Number(line.split(" ").at(-1));
}

const cache = { enabled: true, jitter: 0, subgraphs: { all: { ttl: "1h" } } };

describe("events of a broker", { skip: skipWithout(natsServer, "nats-server") }, () => {
  let nats, publisher, routers;
  const event = (id) => JSON.stringify({ __typename: "Product", id, price: 5 });
  const ofBoth = (name) => Promise.all(routers.map((router) => metric(router, name, "event")));
  const messages = () => ofBoth("starling_cache_invalidation_messages_total");

  /** Publishes an event, and waits until both routers have acknowledged it. */
  async function publish(payload, name = "starling_cache_invalidation_messages_total") {
    const counts = await ofBoth(name);
    publisher.publish(TOPIC, payload);
    const isHeard = async () => (await ofBoth(name)).every((count, index) => count > counts[index]);
    await eventually(isHeard, `both routers to count ${payload} in ${name}`);
  }

  before(async () => {
    nats = await startNats();
    const config = {
      cache: { ...cache, invalidate: [{ provider: "nats/default", topic: TOPIC }] },
      events: { providers: { nats: [{ id: "default", url: nats.url, retry: { initial: "50ms", max: "200ms" } }] } },
    };
    routers = await Promise.all([1, 2].map(() => startServe({ supergraph, config })));
    publisher = await connect({ servers: nats.url });
    // Both have opened the topic when they hear an event.
    await eventually(async () => {
      publisher.publish(TOPIC, event("1"));
      return (await messages()).every((count) => count > 0);
    }, "both routers to follow the topic");
  });
  after(async () => {
    await publisher?.close();
    for (const router of routers ?? []) await router.stop();
    await nats?.stop();
  });

  it("make stale what they name, at every router, and nothing else", async () => {
    const old = level;
    for (const router of routers) assert.deepEqual(await levels(router), [old, old, old]);
    stock.requests = [];
    level += 1;
    for (const router of routers) assert.deepEqual(await levels(router), [old, old, old]);
    assert.equal(stock.requests.length, 0);
    await publish(event("2"));
    for (const router of routers) assert.deepEqual(await levels(router), [old, level, old]);
    assert.deepEqual(stock.requests.map((body) => representations(body).map(({ id }) => id)), [["2"], ["2"]]);
    await publish(JSON.stringify([{ kind: "type", type: "Product", subgraph: "stock" }]));
    for (const router of routers) assert.deepEqual(await levels(router), [level, level, level]);
    for (const router of routers) {
      assert.ok((await metric(router, "starling_cache_invalidation_duration_seconds_count", "event")) >= 3);
    }
  });

  it("leave no stale response after both routers have acknowledged them, under load", async () => {
    let acknowledged = level, isOver = false, requests = 0;
    const load = routers.flatMap((router) => [1, 2, 3, 4].map(async () => {
      while (!isOver) {
        const least = acknowledged;
        const [, second] = await levels(router);
        assert.ok(second >= least, `${second} after ${least} was acknowledged`);
        requests += 1;
      }
    }));
    const rounds = (async () => {
      for (let round = 0; round < 20; round += 1) {
        level += 1;
        await publish(event("2"));
        acknowledged = level;
        for (const router of routers) assert.equal((await levels(router))[1], level);
      }
    })().finally(() => {
      isOver = true;
    });
    await Promise.all([rounds, ...load]);
    assert.ok(requests > 40, `${requests} requests`);
  });

  it("are ignored and counted if they say nothing", async () => {
    for (const router of routers) await levels(router);
    const malformed = "starling_cache_invalidation_messages_malformed_total";
    stock.requests = [];
    catalogue.requests = [];
    const payloads = ["{", "5", '{"__typename":"Car","id":"1"}', '{"__typename":"Product","price":5}', '{"kind":"host"}'];
    for (const payload of payloads) await publish(payload, malformed);
    for (const router of routers) await levels(router);
    assert.deepEqual([stock.requests.length, catalogue.requests.length], [0, 0]);
    for (const router of routers) {
      assert.match(router.output(), /an event does not say what is stale/);
      assert.equal(router.output().match(/an event does not say what is stale/g).length, 1, "the log is limited");
    }
    level += 1;
    await publish(event("3"));
    for (const router of routers) assert.equal((await levels(router))[2], level);
  });

  it("may be lost with the broker: then everything is stale, once, when it is back", async () => {
    const gaps = () => ofBoth("starling_cache_invalidation_gaps_total");
    const known = await Promise.all(routers.map(levels));
    assert.deepEqual(await gaps(), [0, 0]);
    const { port } = nats;
    await publisher.close();
    await nats.stop();
    level += 1;
    stock.requests = [];
    assert.deepEqual(await Promise.all(routers.map(levels)), known, "without the broker the caches serve on");
    assert.equal(stock.requests.length, 0);
    nats = await startNats(port);
    await eventually(async () => (await gaps()).every((count) => count > 0), "both routers to be back");
    for (const router of routers) assert.deepEqual(await levels(router), [level, level, level]);
    assert.deepEqual(await gaps(), [1, 1]);
    publisher = await connect({ servers: nats.url });
    level += 1;
    await publish(event("1"));
    for (const router of routers) assert.deepEqual(await levels(router), [level, level - 1, level - 1]);
    assert.deepEqual(await gaps(), [1, 1]);
  });
});

describe("fields of event subgraphs with invalidate: true", { skip: skipWithout(natsServer, "nats-server") }, () => {
  let nats, publisher, router;
  const count = () => metric(router, "starling_cache_invalidation_messages_total", "event");
  const malformed = () => metric(router, "starling_cache_invalidation_messages_malformed_total", "event");

  async function publish(topic, payload) {
    const before = await count();
    publisher.publish(topic, JSON.stringify(payload));
    await eventually(async () => (await count()) > before, `the router to count an event of ${topic}`);
  }

  before(async () => {
    nats = await startNats();
    const events = { providers: { nats: [{ id: "default", url: nats.url }] } };
    router = await startServe({ supergraph: withEvents, config: { cache, events } });
    publisher = await connect({ servers: nats.url });
    // A topic is open when an event of it is counted, and earlier ones are counted when the next kind is.
    for (const topic of ["stock.moved", "stock.one.1"]) {
      const opened = await count();
      await eventually(async () => {
        publisher.publish(topic, '{"id":"1"}');
        return (await count()) > opened;
      }, `the router to follow ${topic}`);
      const wrong = await malformed();
      publisher.publish(topic, "5");
      await eventually(async () => (await malformed()) > wrong, `the router to read all events of ${topic}`);
    }
  });
  after(async () => {
    await publisher?.close();
    await router?.stop();
    await nats?.stop();
  });

  it("make stale what their events name, without a subscriber, also where the topic depends on arguments", async () => {
    const old = level;
    assert.deepEqual(await levels(router), [old, old, old]);
    level += 1;
    // Without a name the object is of the type of the field.
    await publish("stock.moved", { id: "2", inStock: 7 });
    assert.deepEqual(await levels(router), [old, level, old]);
    await publish("stock.one.3", { __typename: "Product", id: "3" });
    assert.deepEqual(await levels(router), [old, level, level]);
    level += 1;
    publisher.publish("stock.silent", '{"id":"1"}');
    await publish("stock.moved", [{ id: "2" }, null]);
    assert.deepEqual(await levels(router), [old, level, level - 1]);
  });
});

describe("entities that mutations return", () => {
  let router;
  before(async () => {
    router = await startServe({ supergraph, config: { cache } });
  });
  after(() => router?.stop());

  it("are stale if the schema says that the mutation has changed them, whatever the client selects", async () => {
    const old = level;
    assert.deepEqual(await levels(router), [old, old, old]);
    const { body } = await router.query('mutation { restockOne(id: "2") { inStock } }');
    assert.deepEqual(body, { data: { restockOne: { inStock: 2 * STEP + level } } });
    assert.deepEqual(await levels(router), [old, level, old]);
    await router.query("mutation { restockAll { inStock } }");
    assert.deepEqual(await levels(router), [level, level - 1, level]);
    assert.equal(await metric(router, "starling_cache_invalidations_received_total", "mutation"), 3);
  });
});

describe("responses to mutations", () => {
  let router;
  const tagsOf = (body) => ({ apolloEntityCacheTags: representations(body).map(({ id }) => [`stock-${id}`]) });
  const restock = async () => {
    const { body } = await router.query("mutation { restock }");
    assert.deepEqual(body, { data: { restock: true } });
  };
  before(async () => {
    router = await startServe({ supergraph, config: { cache } });
  });
  after(() => router?.stop());

  it("make stale what their header names, before the client gets them", async () => {
    stock.extensions = tagsOf;
    // A header of another response has no effect.
    stock.headers = { "starling-cache-invalidate": "stock-3, stock-1" };
    const old = level;
    assert.deepEqual(await levels(router), [old, old, old]);
    await restock();
    assert.deepEqual(await levels(router), [level, old, level]);
    stock.headers = {};
    await restock();
    assert.deepEqual(await levels(router), [level - 1, old, level - 1]);
    assert.equal(await metric(router, "starling_cache_invalidations_received_total", "mutation"), 2);
  });

  it("make stale what their extensions name, and skip what they cannot read", async () => {
    const seen = await levels(router);
    stock.extensions = (body) => body.query.includes("restock")
      ? { cacheInvalidation: { keys: [{ typename: "Product", key: { id: "1" } }, { typename: 5 }] } }
      : tagsOf(body);
    await restock();
    assert.deepEqual(await levels(router), [level, seen[1], seen[2]]);
    stock.extensions = (body) => body.query.includes("restock")
      ? { invalidation: [{ kind: "type", type: "Product" }] }
      : tagsOf(body);
    await restock();
    assert.deepEqual(await levels(router), [level, level, level]);
    assert.equal(await metric(router, "starling_cache_invalidation_messages_malformed_total", "mutation"), 1);
  });
});

// Three routers that share entities and root fields through a real Redis, and tell each other what is stale.
// Runs alone: it measures times.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { performance } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";
import { createClient } from "redis";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { redisServer, skipWithout } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key", "@shareable"])';
const CATALOGUE = `${LINK}
type Query { products(ids: [ID!]!): [Product!]! }
type Product @key(fields: "id") { id: ID! }`;
const STOCK = `${LINK}
type Mutation { restock: Boolean }
type Query { account: Account }
type Account { name: String! }
type Product @key(fields: "id") { id: ID! level: Int }`;
const QUERY = "query ($ids: [ID!]!) { products(ids: $ids) { id level } }";

/** The time limit of an access to Redis. It is long, so that nothing is missed on a busy machine. */
const STORE_TIMEOUT_MS = 3_000;

/** How long a subgraph takes where requests are meant to meet. */
const SLOW_MS = 50;

/** The longest response while Redis is away: some accesses until the circuit breaker is open. */
const AWAY_MS = 10_000;

let catalogue, stock, supergraph;
/** The number of changes of the stock. */
let level = 0;
/** How long the subgraph of the stock takes. */
let delay = 0;

before(async () => {
  catalogue = await startSubgraph((body) => {
    const [ids] = Object.values(body.variables);
    return { products: ids.map((id) => ({ __typename: "Product", id })) };
  });
  stock = await startSubgraph(async (body, request) => {
    if (body.query.includes("restock")) {
      level += 1;
      return { restock: true };
    }
    if (body.query.includes("account")) return { account: { name: request.headers["x-user"] } };
    const entities = representations(body).map(() => ({ __typename: "Product", level }));
    if (delay > 0) await pause(delay);
    return { _entities: entities };
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
  delay = 0;
  for (const subgraph of [catalogue, stock]) {
    Object.assign(subgraph, { requests: [], headers: {}, extensions: () => undefined });
  }
});

function startRouter(redis, { cache = {}, config = {}, store = {} } = {}) {
  return startServe({
    supergraph,
    config: {
      // Without room for whole responses, the entities are what is asked for.
      cache: {
        enabled: true, jitter: 0, response_memory: "1KiB", store: "shared", lock_wait: "5s",
        subgraphs: { all: { ttl: "1h" } }, ...cache,
      },
      storage_providers: {
        redis: [{
          id: "shared", urls: [redis.url], timeout: `${STORE_TIMEOUT_MS}ms`,
          retry: { initial: "50ms", max: "200ms" }, ...store,
        }],
      },
      ...config,
    },
  });
}

async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name} `) || it.startsWith(`${name}{source="router"} `));
  return Number(line.split(" ").at(-1));
}

/** Waits until each router follows the log, and knows the others. */
const joined = (routers) => eventually(async () => {
  for (const router of routers) {
    if (await metric(router, "starling_cache_log_current") !== 1) return false;
    if (await metric(router, "starling_cache_log_routers") < routers.length) return false;
  }
  return true;
}, `${routers.length} routers to follow the log`);

async function levels(router, ids) {
  const { body } = await router.query({ query: QUERY, variables: { ids } });
  assert.equal(body.errors, undefined, JSON.stringify(body.errors));
  return body.data.products.map((product) => product.level);
}

/** Has one router fetch entities, and waits until Redis has them. */
async function share(router, ids, expected = ids.map(() => level)) {
  const stored = await metric(router, "starling_cache_shared_stores_total");
  assert.deepEqual(await levels(router, ids), expected);
  // The list of products is an entry, too.
  const isStored = async () => await metric(router, "starling_cache_shared_stores_total") > stored + ids.length;
  await eventually(isStored, `Redis to have ${ids}`);
}

async function invalidate(router, body) {
  const response = await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, ...await response.json() };
}

const product = (id) => ({ kind: "entity", type: "Product", key: { id } });
const askedFor = () => stock.requests.map((body) => representations(body).map(({ id }) => id).join(" "));
const CONFIRMED = { status: 200, invalidations: 1, routers: 3, unconfirmed: 0, pending: false };

/** Invalidates until all routers have confirmed it: one that stalls for two seconds confirms late. */
const confirm = (router, body, expected = CONFIRMED) => eventually(async () => {
  assert.deepEqual(await invalidate(router, body), expected);
  return true;
}, "all routers to confirm an invalidation");

/** Tests use products of their own, so that none finds those of another. */
let lastProduct = 0;
const newProducts = (count) => Array.from({ length: count }, () => String(++lastProduct));

describe("a Redis that routers share", { skip: skipWithout(redisServer, "redis-server") }, () => {
  let redis, routers, client;

  async function connect() {
    client = createClient({ url: redis.url, socket: { reconnectStrategy: false } });
    client.on("error", () => {});
    await client.connect();
  }

  before(async () => {
    redis = await startRedis();
    routers = await Promise.all([1, 2, 3].map(() => startRouter(redis)));
    await connect();
    await joined(routers);
  });
  after(async () => {
    client?.destroy();
    for (const router of routers ?? []) await router.stop();
    await redis?.stop();
  });

  describe("entries", () => {
    it("are fetched by one router and found by all", async () => {
      const ids = newProducts(3);
      await share(routers[0], ids);
      level += 1;
      for (const router of routers) assert.deepEqual(await levels(router, ids), ids.map(() => level - 1));
      assert.deepEqual(askedFor(), [ids.join(" ")]);
      assert.equal(catalogue.requests.length, 1, "root fields are entries, too");
      const more = newProducts(1);
      assert.deepEqual(await levels(routers[1], [...ids, ...more]), [...ids.map(() => level - 1), level]);
      assert.deepEqual(askedFor(), [ids.join(" "), more[0]], "only what is missing is requested");
    });

    it("keep their age", async () => {
      const ids = newProducts(1);
      const told = async (router) => {
        const response = await fetch(router.graphql, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ query: QUERY, variables: { ids } }),
        });
        await response.text();
        return Number(/max-age=(\d+)/.exec(response.headers.get("cache-control"))[1]);
      };
      await share(routers[0], ids);
      // An hour as the router that fetched it counts it, so the others have as much or less left.
      const first = await told(routers[0]);
      await eventually(async () => await told(routers[0]) < first, "a second to pass");
      assert.ok(await told(routers[1]) < first);
      assert.deepEqual(askedFor(), ids);
    });

    it("are fetched once by many clients of all routers", async () => {
      delay = SLOW_MS;
      const ids = newProducts(2);
      const clients = routers.flatMap((router) => Array.from({ length: 20 }, () => levels(router, ids)));
      for (const found of await Promise.all(clients)) assert.deepEqual(found, [level, level]);
      assert.deepEqual(askedFor(), [ids.join(" ")]);
    });

    it("are fetched again once by all routers when they have expired and may be served meanwhile", async () => {
      // Expires soon, and is served while it is fetched again.
      stock.headers = { "cache-control": "max-age=4, stale-while-revalidate=3600" };
      const ids = newProducts(1);
      await share(routers[0], ids);
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level]);
      assert.deepEqual(askedFor(), ids);
      level += 1;
      delay = SLOW_MS;
      stock.headers = { "cache-control": "max-age=3600" };
      await eventually(async () => {
        for (const router of routers) {
          if ((await levels(router, ids))[0] !== level) return false;
        }
        return true;
      }, "all routers to have the new value");
      assert.deepEqual(askedFor(), [ids[0], ids[0]]);
    });

    it("are fetched by another router if the one that has the right to fetch fails", async () => {
      const ids = newProducts(1);
      stock.fails = true;
      const { body } = await routers[0].query({ query: QUERY, variables: { ids } });
      assert.equal(body.data.products[0].level, null);
      stock.fails = false;
      const start = performance.now();
      assert.deepEqual(await levels(routers[1], ids), [level]);
      assert.ok(performance.now() - start < 5_000, "the right was given back");
    });
  });

  describe("private entries", () => {
    let others;
    const config = { headers: { all: { request: [{ propagate: { named: "x-user" } }] } } };
    const cache = {
      private_by: { headers: ["x-user"] },
      subgraphs: { all: { ttl: "1h", ignore_headers: ["x-user"] } },
    };
    before(async () => {
      others = await Promise.all([1, 2].map(() => startRouter(redis, { cache, config })));
      await joined(others);
    });
    after(async () => {
      for (const router of others ?? []) await router.stop();
    });

    it("are shared by routers and not by clients", async () => {
      stock.headers = { "cache-control": "private, max-age=3600" };
      const name = async (router, user) => {
        const response = await fetch(router.graphql, {
          method: "POST",
          headers: { "content-type": "application/json", "x-user": user },
          body: JSON.stringify({ query: "{ account { name } }" }),
        });
        return (await response.json()).data.account.name;
      };
      const users = ["alice", "bob", "carol"];
      for (const user of users) assert.equal(await name(others[0], user), user);
      const stored = () => metric(others[0], "starling_cache_shared_stores_total");
      await eventually(async () => await stored() >= 3, "Redis to have all entries");
      assert.equal(stock.requests.length, 3);
      // The other router learns by one request that these entries are private.
      for (const user of ["dave", ...users]) assert.equal(await name(others[1], user), user);
      assert.equal(stock.requests.length, 4);
    });
  });

  describe("invalidations", () => {
    /** Prints how long invalidations took until all routers had confirmed them. */
    function report(t, times, load) {
      times.sort((left, right) => left - right);
      const at = (share) => times[Math.floor(times.length * share)].toFixed(1);
      t.diagnostic(`${load}: ${times.length} invalidations took effect at all routers within ${at(0.5)} ms (p50), ` +
        `${at(0.99)} ms (p99)`);
    }

    it("take effect at every router before they are acknowledged", async (t) => {
      const ids = newProducts(2);
      await share(routers[0], ids);
      for (const router of routers) await levels(router, ids);
      level += 1;
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level - 1, level - 1]);
      await confirm(routers[2], product(ids[0]));
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level, level - 1]);
      await confirm(routers[1], { kind: "type", type: "Product", subgraph: "stock" });
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level, level]);
      assert.ok(await metric(routers[0], "starling_cache_invalidation_messages_total") >= 2);
      const times = [];
      for (let round = 0; round < 100; round += 1) {
        const sent = performance.now();
        await confirm(routers[round % 3], product(ids[0]));
        times.push(performance.now() - sent);
      }
      report(t, times, "without load");
    });

    it("reach a router that starts later through the log", async () => {
      const ids = newProducts(2);
      await share(routers[0], ids);
      level += 1;
      await confirm(routers[0], product(ids[0]));
      const late = await startRouter(redis);
      try {
        await eventually(async () => await metric(late, "starling_cache_log_current") === 1, "the router to follow");
        assert.deepEqual(await levels(late, ids), [level, level - 1]);
      } finally {
        await late.stop();
      }
      // It has said that it leaves, so that nothing waits for it.
      await confirm(routers[0], product("0"));
    });

    it("by a mutation reach the other routers", async () => {
      const ids = newProducts(1);
      await share(routers[0], ids);
      for (const router of routers) await levels(router, ids);
      stock.extensions = () => ({ invalidation: [product(ids[0])] });
      const { body } = await routers[0].query("mutation { restock }");
      assert.deepEqual(body.data, { restock: true });
      stock.extensions = () => undefined;
      assert.deepEqual(await levels(routers[0], ids), [level]);
      for (const router of routers) {
        await eventually(async () => (await levels(router, ids))[0] === level, "the router to hear of it");
      }
    });

    it("leave no stale response after their acknowledgement, under load", async (t) => {
      const ids = newProducts(5);
      const [changed] = ids;
      await levels(routers[0], ids);
      let acknowledged = level, isOver = false, requests = 0;
      const load = routers.flatMap((router) => Array.from({ length: 8 }, async () => {
        while (!isOver) {
          const least = acknowledged;
          const [found] = await levels(router, ids);
          assert.ok(found >= least, `${found} after ${least} was acknowledged`);
          requests += 1;
        }
      }));
      const times = [];
      const start = performance.now();
      const rounds = (async () => {
        for (let round = 0; round < 200; round += 1) {
          level += 1;
          const sent = performance.now();
          await confirm(routers[round % 3], product(changed));
          times.push(performance.now() - sent);
          acknowledged = level;
          const found = await Promise.all(routers.map((router) => levels(router, [changed])));
          for (const [one] of found) assert.equal(one, level);
        }
      })().finally(() => {
        isOver = true;
      });
      await Promise.all([rounds, ...load]);
      const seconds = (performance.now() - start) / 1000;
      report(t, times, `${(requests / seconds).toFixed(0)} requests/s`);
      assert.ok(requests > 100, `${requests} requests`);
    });
  });

  describe("events of a broker", () => {
    const TOPIC = "stock.changed";
    let others;
    const start = () => startRouter(redis, {
      cache: { invalidate: [{ provider: "redis/default", topic: TOPIC }] },
      config: { events: { providers: { redis: [{ id: "default", urls: [redis.url] }] } } },
      // Routers of their own, which follow a log of their own.
      store: { namespace: "events" },
    });
    const heard = async (router) => {
      const text = await (await fetch(`${router.admin}/metrics`)).text();
      return Number(/^starling_cache_invalidation_messages_total\{source="event"\} (\d+)/m.exec(text)[1]);
    };
    const publish = (id) => client.publish(TOPIC, JSON.stringify({ __typename: "Product", id }));
    before(async () => {
      others = await Promise.all([start(), start()]);
      await joined(others);
      await eventually(async () => {
        await publish("0");
        return (await Promise.all(others.map(heard))).every((count) => count > 0);
      }, "both routers to follow the topic");
    });
    after(async () => {
      for (const router of others ?? []) await router.stop();
    });

    it("make entries in Redis stale for the routers that hear them, and for those that start later", async () => {
      const ids = newProducts(2);
      await share(others[0], ids);
      for (const router of others) await levels(router, ids);
      const counts = await Promise.all(others.map(heard));
      const appended = await metric(others[1], "starling_cache_log_appended_total");
      level += 1;
      await publish(ids[0]);
      for (const [index, router] of others.entries()) {
        await eventually(async () => await heard(router) > counts[index], "the router to count the event");
        assert.deepEqual(await levels(router, ids), [level, level - 1]);
      }
      const isInLog = async () => await metric(others[1], "starling_cache_log_appended_total") > appended;
      await eventually(isInLog, "the log to have the event");
      const late = await start();
      try {
        await eventually(async () => await metric(late, "starling_cache_log_current") === 1, "the router to follow");
        assert.deepEqual(await levels(late, ids), [level, level - 1]);
      } finally {
        await late.stop();
      }
      for (const router of others) assert.deepEqual(await levels(router, ids), [level, level - 1]);
    });
  });

  describe("a cluster", () => {
    let server, admin, others;
    before(async () => {
      server = await startRedis(undefined, { options: ["--cluster-enabled", "yes"] });
      admin = createClient({ url: server.url, socket: { reconnectStrategy: false } });
      admin.on("error", () => {});
      await admin.connect();
      // One node that has all slots: keys of different slots in one command are refused as in a larger cluster.
      await admin.sendCommand(["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
      await eventually(async () => (await admin.sendCommand(["CLUSTER", "INFO"])).includes("cluster_state:ok"), "slots");
      others = await Promise.all([1, 2].map(() => startRouter(server, { store: { cluster_enabled: true } })));
      await joined(others);
    });
    after(async () => {
      admin?.destroy();
      for (const router of others ?? []) await router.stop();
      await server?.stop();
    });

    it("has entries and the log", async () => {
      const ids = newProducts(5);
      await share(others[0], ids);
      assert.deepEqual(await levels(others[1], ids), ids.map(() => level));
      assert.deepEqual(askedFor(), [ids.join(" ")]);
      level += 1;
      await confirm(others[1], product(ids[0]), { ...CONFIRMED, routers: 2 });
      for (const router of others) assert.deepEqual(await levels(router, ids.slice(0, 2)), [level, level - 1]);
    });
  });

  describe("disturbances", () => {
    /** Asks all routers for new products, and checks values and times. */
    async function answersFrom(all, limit = AWAY_MS) {
      for (const router of all) {
        const start = performance.now();
        assert.deepEqual(await levels(router, newProducts(2)), [level, level]);
        const took = performance.now() - start;
        assert.ok(took < limit, `${took} ms`);
      }
    }

    /** Checks that entries are shared, and that invalidations are acknowledged. */
    async function works() {
      await joined(routers);
      const ids = newProducts(1);
      await eventually(async () => {
        const [id] = newProducts(1);
        return (await invalidate(routers[0], product(id))).status === 200;
      }, "invalidations to be acknowledged");
      await share(routers[0], ids);
      stock.requests = [];
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level]);
      assert.deepEqual(askedFor(), []);
      level += 1;
      await confirm(routers[1], product(ids[0]));
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level]);
    }

    const epochs = () => Promise.all(routers.map((it) => metric(it, "starling_cache_log_epochs_total")));
    const grown = (counts, least) => eventually(
      async () => (await epochs()).every((count, index) => count >= counts[index] + least),
      "every router to see a new log",
    );

    it("a Redis that is killed costs nothing but the sharing, and is used again when it is back, empty", async () => {
      const ids = newProducts(2);
      await share(routers[0], ids);
      for (const router of routers) await levels(router, ids);
      const before = await epochs();
      const { port } = redis;
      client.destroy();
      await redis.stop();
      await answersFrom(routers);
      level += 1;
      const { status, pending } = await invalidate(routers[0], product(ids[0]));
      assert.deepEqual([status, pending], [202, true]);
      assert.deepEqual(await levels(routers[0], ids), [level, level - 1], "it has taken effect here");
      redis = await startRedis(port);
      await connect();
      await grown(before, 1);
      // The others were not told. Everything that they have is stale, because they cannot know.
      await joined(routers);
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level, level]);
      await works();
    });

    it("a Redis that hangs delays some requests by its time limit, and is used again when it continues", async () => {
      redis.signal("SIGSTOP");
      try {
        await answersFrom(routers);
        await eventually(async () => {
          const current = await Promise.all(routers.map((it) => metric(it, "starling_cache_log_current")));
          return current.every((it) => it === 0);
        }, "the routers to notice");
        await answersFrom(routers);
        level += 1;
        assert.equal((await invalidate(routers[0], product("0"))).status, 202);
      } finally {
        redis.signal("SIGCONT");
      }
      await works();
    });

    it("FLUSHALL begins a new log, and nothing of the old one is used", async () => {
      const ids = newProducts(1);
      const others = new Set(await client.keys("starling:cache:entry:*"));
      await share(routers[0], ids);
      const keys = (await client.keys("starling:cache:entry:*")).filter((key) => !others.has(key));
      const dump = (key) => client.sendCommand(["DUMP", key], { typeMapping: { 36: Buffer } });
      const old = await Promise.all(keys.map(dump));
      assert.equal(old.length, 2);
      const before = await epochs();
      await client.flushAll();
      await grown(before, 1);
      await joined(routers);
      for (const [index, key] of keys.entries()) await client.sendCommand(["RESTORE", key, "0", old[index]]);
      level += 1;
      const stale = await metric(routers[0], "starling_cache_shared_misses_stale_total");
      for (const router of routers) assert.deepEqual(await levels(router, ids), [level]);
      assert.equal(await metric(routers[0], "starling_cache_shared_misses_stale_total"), stale + 2);
      await works();
    });

    it("a full Redis costs nothing but the sharing", async () => {
      const ids = newProducts(1);
      await share(routers[0], ids);
      for (const router of routers) await levels(router, ids);
      await client.configSet({ "maxmemory": "1", "maxmemory-policy": "noeviction" });
      try {
        await answersFrom(routers);
        level += 1;
        const { status, pending } = await invalidate(routers[0], product(ids[0]));
        assert.deepEqual([status, pending], [202, true]);
        assert.deepEqual(await levels(routers[0], ids), [level]);
      } finally {
        await client.configSet("maxmemory", "0");
      }
      // What could not be told is told now.
      for (const router of routers) {
        await eventually(async () => (await levels(router, ids))[0] === level, "the router to hear of it");
      }
      await works();
    });

    it("foreign values under the keys of entries are counted, and nothing else", async () => {
      const ids = newProducts(5);
      const before = new Set(await client.keys("starling:cache:entry:*"));
      await share(routers[0], ids);
      const keys = (await client.keys("starling:cache:entry:*")).filter((key) => !before.has(key));
      assert.equal(keys.length, 6);
      level += 1;
      await client.rename(keys[0], keys[1]);
      await client.set(keys[0], "foreign");
      await client.del(keys[2]);
      await client.rPush(keys[2], ["a", "list"]);
      await client.append(keys[3], "x");
      await client.set(keys[4], "x".repeat(1 << 20));
      await client.setRange(keys[5], 20, "x");
      const invalid = await metric(routers[1], "starling_cache_shared_misses_invalid_total");
      // The list of products is one of the keys, and the products are looked up after it.
      assert.deepEqual(await levels(routers[1], ids), ids.map(() => level));
      assert.ok(await metric(routers[1], "starling_cache_shared_misses_invalid_total") >= invalid + 6);
      await works();
    });

    it("foreign values under the keys of the log begin a new one", async () => {
      const [state, messages, members] = ["state", "messages", "routers"].map((it) => `starling:cache:{log}:${it}`);
      for (const damage of [
        () => client.set(state, "foreign"),
        () => client.hSet(state, "number", "many"),
        () => client.hSet(state, "number", "1"),
      ]) {
        const before = await epochs();
        await damage();
        await grown(before, 1);
        await works();
      }
      await client.set(members, "foreign");
      await works();
      await client.set(messages, "foreign");
      await works();
      await client.del(messages);
      await works();
    });
  });
});

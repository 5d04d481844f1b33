// Caches between users and the router: a browser's HTTP cache, Apollo Client with persisted documents over it, and nginx
// as a caching proxy. What reaches the router is counted there, by its metrics.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { generatePersistedQueryIdsFromManifest } from "@apollo/persisted-query-lists";
import { chromium } from "playwright-core";
import { compose } from "../composition.mjs";
import { startSubgraph } from "../counting_subgraph.mjs";
import { startCachingProxy } from "../nginx.mjs";
import * as programs from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const SCHEMA = `
extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])
type Query { tenant: String! me: String! volatile: Int! products(first: Int!): [Product!]! }
type Product { id: ID! name: String! }`;

const BROWSER_FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

/**
 * The seconds for which the subgraph allows storing a response that a test sees expire. Milliseconds of them have passed
 * when the router responds, and it tells clients whole seconds, so one second would be none. A browser counts up to one
 * second more, because `date` has whole seconds.
 */
const SHORT = 4;

const LONG = "max-age=1000";

let subgraph, supergraph, folder;
let version = 0;

before(async () => {
  subgraph = await startSubgraph((body, { headers }) => {
    const count = Number(/first: ?(\d+)/.exec(body.query)?.[1] ?? Object.values(body.variables ?? {})[0] ?? 0);
    return {
      tenant: headers["x-tenant"] ?? "none",
      me: headers.authorization ?? "nobody",
      volatile: version,
      products: Array.from({ length: count }, (_, id) => ({ id: `${id}`, name: `product ${id}` })),
    };
  });
  supergraph = await compose({ shop: { sdl: SCHEMA, url: subgraph.url } });
  folder = await mkdtemp(path.join(tmpdir(), "starling-client-caching-"));
});

after(async () => {
  await subgraph?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

beforeEach(() => {
  version = 0;
  Object.assign(subgraph, { requests: [], headers: { "cache-control": LONG }, fails: false });
});

const startRouter = (config = {}) => {
  const propagated = ["x-tenant", "authorization"].map((named) => ({ propagate: { named } }));
  return startServe({
    supergraph,
    config: { headers: { all: { request: propagated } }, cache: { enabled: true, jitter: 0 }, ...config },
  });
};

/** Empties the caches of the router: operations with other names share its entries. */
const forget = (router) =>
  fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify({ kind: "all" }) });

/**
 * The numbers of operations of the router so far, from memory or not, and of its responses with status 304. A browser
 * also requests an icon at any time, so requests are not counted.
 */
async function operations(router) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const sum = (pattern) => [...text.matchAll(pattern)].reduce((total, [, count]) => total + Number(count), 0);
  return {
    all: sum(/^starling_operations_total\{kind="query".*\} (\d+)$/gm),
    notModified: sum(/^starling_http_answers_total\{status="304"\} (\d+)$/gm),
  };
}

/** Counts the operations of the router while `act` runs. */
async function counted(router, act) {
  const earlier = await operations(router);
  const result = await act();
  const now = await operations(router);
  return { result, all: now.all - earlier.all, notModified: now.notModified - earlier.notModified };
}

/** The path and query of a GET for an operation. */
const getOf = (query) => `/graphql?query=${encodeURIComponent(query)}`;

/** A query that no other test sends, so that no cache has it. */
let queries = 0;
const uniqueQuery = (fields) => `query Q${++queries} { ${fields} }`;

describe("a browser's HTTP cache", { skip: programs.skipWithout(programs.chromium, "chromium") }, () => {
  let router, browser, page;

  before(async () => {
    router = await startRouter();
    browser = await chromium.launch({ executablePath: programs.chromium(), args: BROWSER_FLAGS });
    page = await openPage(router);
  });
  after(async () => {
    await browser?.close();
    await router?.stop();
  });
  beforeEach(() => forget(router));

  /** Opens a page of the router, so that its requests have the router's origin, in a fresh profile. */
  async function openPage(server) {
    const context = await browser.newContext();
    const opened = await context.newPage();
    await opened.goto(`${server.url}/ide/plain`);
    return opened;
  }

  /** Sends a request from the page, through the browser's cache. */
  const ask = (query, headers = {}) => fetchInPage(page, getOf(query), { headers: { accept: "application/json", ...headers } });

  const fetchInPage = (from, url, options) =>
    from.evaluate(async ([target, init]) => {
      const response = await fetch(target, init);
      return { status: response.status, headers: [...response.headers], text: await response.text() };
    }, [url, options]);

  it("has a response until its time is over, and then asks whether it has changed", async () => {
    subgraph.headers = { "cache-control": `max-age=${SHORT}` };
    const query = uniqueQuery("volatile");
    const first = await counted(router, () => ask(query));
    assert.deepEqual([first.all, JSON.parse(first.result.text)], [1, { data: { volatile: 0 } }]);
    const etag = new Map(first.result.headers).get("etag");
    assert.match(etag, /^W\/"[0-9a-f]{32}"$/);

    const earlier = await operations(router);
    let asked = 0;
    const later = await eventually(async () => {
      const { status, text } = await ask(query);
      assert.deepEqual([status, text], [200, first.result.text]);
      asked += 1;
      const now = await operations(router);
      return now.all > earlier.all && now;
    }, "the time to be over");
    assert.ok(asked > 1, "it was served from the browser's cache meanwhile");
    assert.deepEqual([later.all - earlier.all, later.notModified - earlier.notModified], [1, 1]);

    version = 7;
    await eventually(async () => JSON.parse((await ask(query)).text).data.volatile === 7, "the new value");
  });

  it("keeps apart what depends on a header", async () => {
    const query = uniqueQuery("tenant");
    const tenant = async (name) => JSON.parse((await ask(query, { "x-tenant": name })).text).data.tenant;
    const { result, all } = await counted(router, async () => [
      await tenant("a"), await tenant("a"), await tenant("b"), await tenant("b"),
    ]);
    assert.deepEqual(result, ["a", "a", "b", "b"]);
    assert.equal(all, 2);
  });

  it("stores a private response, for the client with the same token only", async () => {
    const query = uniqueQuery("me");
    const me = async (token) => {
      const { headers, text } = await ask(query, { authorization: token });
      return [JSON.parse(text).data.me, new Map(headers).get("cache-control").replace(/\d+/, "n")];
    };
    const { result, all } = await counted(router, async () => [
      await me("Bearer 1"), await me("Bearer 1"), await me("Bearer 2"),
    ]);
    assert.deepEqual(result, ["Bearer 1", "Bearer 1", "Bearer 2"].map((it) => [it, "private, max-age=n"]));
    assert.equal(all, 2);
  });

  it("stores no errors", async () => {
    subgraph.fails = true;
    const query = uniqueQuery("volatile");
    const { all } = await counted(router, async () => [await ask(query), await ask(query)]);
    assert.equal(all, 2);
  });

  it("stores compressed responses", async () => {
    const query = uniqueQuery("products(first: 200) { id name }");
    const { result, all } = await counted(router, async () => [await ask(query), await ask(query)]);
    assert.equal(all, 1);
    const [first, second] = result;
    assert.equal(JSON.parse(first.text).data.products.length, 200);
    assert.deepEqual(second, first);
    assert.ok(new Map(first.headers).has("content-encoding"));
    assert.match(new Map(first.headers).get("vary"), /accept-encoding/);
  });

  describe("below Apollo Client", () => {
    const PRODUCTS = "query Products { products(first: 2) { id name } volatile }";

    /** A fetch for Apollo Client that is the browser's, with its cache. `sent` gets method and URL of each request. */
    const browserFetch = (from, sent) => async (url, { method, headers, body }) => {
      sent.push([method, url]);
      const { status, headers: received, text } = await fetchInPage(from, url, { method, headers, body });
      return new Response(text, { status, headers: received });
    };

    /** A client without a cache of its own, as after a reload of its page. */
    function newClient(server, from, link) {
      const sent = [];
      const http = new HttpLink({ uri: server.graphql, fetch: browserFetch(from, sent) });
      const client = new ApolloClient({ link: ApolloLink.from([link, http]), cache: new InMemoryCache() });
      const query = async () => (await client.query({ query: gql(PRODUCTS) })).data;
      return { sent, query, stop: () => client.stop() };
    }

    /** Runs the query in a new client each time, until the browser asks the router again. */
    async function untilAskedAgain(server, from, link) {
      const earlier = await operations(server);
      return eventually(async () => {
        const client = newClient(server, from, link());
        const { volatile } = await client.query();
        client.stop();
        assert.ok(client.sent.every(([method]) => method === "GET"), JSON.stringify(client.sent));
        const now = await operations(server);
        return now.all > earlier.all && { volatile, all: now.all - earlier.all, notModified: now.notModified - earlier.notModified };
      }, "the time to be over");
    }

    it("serves persisted queries with hashes from the cache", async () => {
      const sha256 = (text) => createHash("sha256").update(text).digest("hex");
      const link = () => new PersistedQueryLink({ sha256, useGETForHashedQueries: true });
      subgraph.headers = { "cache-control": `max-age=${SHORT}` };
      // The first client says the text of the query, which the router remembers.
      const first = newClient(router, page, link());
      assert.equal((await first.query()).products.length, 2);
      first.stop();
      const [unknown, known] = first.sent.map(([method]) => method);
      assert.equal(unknown, "GET");
      assert.ok(known === "GET" || known === "POST");
      const fromHash = newClient(router, page, link());
      await fromHash.query();
      fromHash.stop();

      const { all, notModified } = await untilAskedAgain(router, page, link);
      assert.deepEqual([all, notModified], [1, 1]);
      version = 3;
      await eventually(async () => (await untilAskedAgain(router, page, link)).volatile === 3, "the new value");
    });

    it("serves registered documents from the cache", async () => {
      const id = createHash("sha256").update(PRODUCTS).digest("hex");
      const operations = [{ id, name: "Products", type: "query", body: PRODUCTS }];
      const manifest = { format: "apollo-persisted-query-manifest", version: 1, operations };
      const file = path.join(folder, "manifest.json");
      await writeFile(file, JSON.stringify(manifest));
      const own = await startRouter({ persisted_documents: { mode: "require_id", manifests: [{ file }] } });
      try {
        const ownPage = await openPage(own);
        const ids = () => generatePersistedQueryIdsFromManifest({ loadManifest: async () => manifest });
        const link = () => new PersistedQueryLink({ ...ids(), useGETForHashedQueries: true });
        const { all } = await counted(own, async () => {
          for (let clients = 0; clients < 3; clients += 1) {
            const client = newClient(own, ownPage, link());
            assert.deepEqual((await client.query()).products.map((it) => it.name), ["product 0", "product 1"]);
            assert.deepEqual(client.sent.map(([method]) => method), ["GET"]);
            client.stop();
          }
        });
        assert.equal(all, 1, "the other two were served by the browser");
      } finally {
        await own.stop();
      }
    });
  });
});

describe("nginx as a caching proxy", { skip: programs.skipWithout(programs.nginx, "nginx") }, () => {
  let router, proxy;

  before(async () => {
    router = await startRouter();
    proxy = await startCachingProxy(router);
  });
  after(async () => {
    await proxy?.stop();
    await router?.stop();
  });
  beforeEach(() => forget(router));

  /** Sends a GET through the proxy: what the proxy did, and the response. */
  async function ask(query, headers = {}) {
    const url = new URL(getOf(query), proxy.graphql);
    const response = await fetch(url, { headers: { accept: "application/json", ...headers } });
    const text = await response.text();
    const cache = response.headers.get("x-cache");
    return { cache, status: response.status, text, data: JSON.parse(text).data, headers: response.headers };
  }

  it("serves GETs without the router until their time is over, and then asks whether they have changed", async () => {
    subgraph.headers = { "cache-control": `max-age=${SHORT}` };
    const query = uniqueQuery("volatile");
    const { result, all } = await counted(router, () => ask(query));
    assert.deepEqual([result.cache, result.data, all], ["MISS", { volatile: 0 }, 1]);
    const after = await counted(router, () =>
      eventually(async () => {
        const { cache, text } = await ask(query);
        assert.equal(text, result.text);
        assert.match(cache, /^(HIT|REVALIDATED)$/);
        return cache === "REVALIDATED";
      }, "the time to be over"));
    assert.deepEqual([after.all, after.notModified], [1, 1]);
    assert.equal((await ask(query)).cache, "HIT", "a 304 begins a new time");
    version = 4;
    await eventually(async () => (await ask(query)).data.volatile === 4, "the new value");
  });

  it("keeps apart what depends on a header, whichever comes last", async () => {
    const query = uniqueQuery("tenant");
    const seen = [];
    for (const tenant of ["a", "b", "a", undefined, "b", undefined]) {
      const { cache, data } = await ask(query, tenant && { "x-tenant": tenant });
      seen.push([cache, data.tenant]);
    }
    assert.deepEqual(seen, [
      ["MISS", "a"], ["MISS", "b"], ["HIT", "a"], ["MISS", "none"], ["HIT", "b"], ["HIT", "none"],
    ]);
  });

  it("keeps apart formats and codings", async () => {
    const query = uniqueQuery("products(first: 200) { id name }");
    const seen = [];
    for (const headers of [
      { "accept-encoding": "gzip" },
      { "accept-encoding": "identity" },
      { "accept-encoding": "gzip" },
      { "accept-encoding": "identity" },
      { "accept-encoding": "identity", accept: "application/graphql-response+json" },
      { "accept-encoding": "identity", accept: "application/graphql-response+json" },
    ]) {
      const { cache, data, headers: received } = await ask(query, headers);
      assert.equal(data.products.length, 200);
      assert.match(received.get("vary"), /(^|, )accept(,|$)/);
      assert.match(received.get("vary"), /accept-encoding/);
      seen.push([cache, received.get("content-encoding"), received.get("content-type").split(";")[0]]);
    }
    const graphql = "application/graphql-response+json";
    assert.deepEqual(seen, [
      ["MISS", "gzip", "application/json"], ["MISS", null, "application/json"],
      ["HIT", "gzip", "application/json"], ["HIT", null, "application/json"],
      ["MISS", null, graphql], ["HIT", null, graphql],
    ]);
  });

  it("still knows after a 304 on which headers a compressed response depends", async () => {
    subgraph.headers = { "cache-control": `max-age=${SHORT}` };
    const query = uniqueQuery("products(first: 200) { id name }");
    const gzip = () => ask(query, { "accept-encoding": "gzip" });
    await gzip();
    const { headers } = await eventually(async () => {
      const response = await gzip();
      return response.cache === "REVALIDATED" && response;
    }, "the time to be over");
    assert.equal(headers.get("content-encoding"), "gzip");
    assert.equal((await ask(query, { "accept-encoding": "identity" })).headers.get("content-encoding"), null);
  });

  it("does not store responses to clients with a token, and gives them to no other client", async () => {
    const query = uniqueQuery("me");
    const { result, all } = await counted(router, async () => {
      const seen = [];
      for (const authorization of ["Bearer 1", "Bearer 1", undefined, undefined]) {
        const { cache, data, headers } = await ask(query, authorization && { authorization });
        seen.push([cache, data.me, headers.get("cache-control").split(",")[0]]);
      }
      return seen;
    });
    assert.deepEqual(result, [
      ["MISS", "Bearer 1", "private"], ["MISS", "Bearer 1", "private"],
      ["MISS", "nobody", "public"], ["HIT", "nobody", "public"],
    ]);
    assert.equal(all, 3);
  });

  it("does not store what the subgraph says is private, or what must not be stored", async () => {
    for (const cacheControl of ["private, max-age=1000", "no-store", ""]) {
      await forget(router);
      subgraph.headers = cacheControl ? { "cache-control": cacheControl } : {};
      const query = uniqueQuery("tenant");
      const seen = [(await ask(query)).cache, (await ask(query)).cache];
      assert.deepEqual(seen, ["MISS", "MISS"], cacheControl);
    }
    const invalid = uniqueQuery("nothing");
    assert.deepEqual([(await ask(invalid)).cache, (await ask(invalid)).cache], ["MISS", "MISS"]);
  });

  it("stores nothing that was sent by POST", async () => {
    const query = uniqueQuery("tenant");
    const { result, all } = await counted(router, async () => {
      const tags = [];
      for (let times = 0; times < 2; times += 1) {
        const response = await fetch(proxy.graphql, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ query }),
        });
        assert.deepEqual(await response.json(), { data: { tenant: "none" } });
        tags.push(response.headers.get("etag"));
      }
      return tags;
    });
    assert.deepEqual([result, all], [[null, null], 2]);
    assert.equal(subgraph.requests.length, 1, "the router has it");
  });
});

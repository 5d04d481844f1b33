// The page of the caches on the admin listener: its figures are those of a known load, and its form invalidates.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { browserForTests, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.12", import: ["@key", "@cacheTag"])';
const CATALOGUE = `${LINK}
type Query { products(first: Int): [Product!]! me: Account }
type Product @key(fields: "id") { id: ID! name: String! }
type Account { name: String! }`;
const STOCK = `${LINK}
type Product @key(fields: "id") @cacheTag(format: "product-{$key.id}") { id: ID! inStock: Int }`;

/** Without room for whole responses, the entities are what is asked for. */
const CACHE = {
  enabled: true, jitter: 0, response_memory: "1KiB", subgraphs: { subgraphs: { stock: { ttl: "1h" } } },
};

let catalogue, stock, supergraph, router;

before(async () => {
  catalogue = await startSubgraph((body, request) => {
    if (/[{}]me[{}]/.test(body.query)) return { me: { name: request.headers.authorization ?? "nobody" } };
    const ids = Array.from({ length: Object.values(body.variables)[0] }, (_, index) => String(index + 1));
    return { products: ids.map((id) => ({ __typename: "Product", id, name: `product ${id}` })) };
  });
  stock = await startSubgraph((body) => ({
    _entities: representations(body).map(({ id }) => ({ __typename: "Product", inStock: Number(id) * 10 })),
  }));
  supergraph = await compose({
    catalogue: { sdl: CATALOGUE, url: catalogue.url },
    stock: { sdl: STOCK, url: stock.url },
  });
  router = await startServe({
    supergraph,
    config: {
      // Keys are compared with those of the load.
      admin: { show_values: true },
      cache: { ...CACHE, private_by: { headers: ["authorization"] } },
      trace: { enabled: true },
      headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
    },
  });
});

after(async () => {
  await catalogue?.stop();
  await stock?.stop();
  await router?.stop();
});

async function ask(query, variables, headers = {}, target = router) {
  const body = JSON.stringify({ query, variables });
  const response = await fetch(target.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  const { data, errors } = await response.json();
  assert.equal(errors, undefined);
  return data;
}

const PRODUCTS = "query ($first: Int) { products(first: $first) { inStock } }";
const products = (first) => ask(PRODUCTS, { first });

async function overview(target = router) {
  const response = await fetch(`${target.admin}/admin/cache`);
  assert.equal(response.headers.get("content-type"), "application/json");
  return response.json();
}

async function post(path, body, headers = {}) {
  const response = await fetch(router.admin + path, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: response.status, text: await response.text() };
}

const preview = async (body) => {
  const { status, text } = await post("/admin/cache/preview", body);
  assert.equal(status, 200, text);
  return JSON.parse(text);
};

describe("the figures of the caches", () => {
  it("are those of the load", async () => {
    await products(4);
    for (let times = 0; times < 3; times += 1) await products(4);
    const { windows, stores, largest } = await overview();
    for (const { name, lookups } of windows) {
      const { hits, misses, hitRatio, stores: stored } = lookups.find((it) => it.subgraph === "stock");
      assert.deepEqual({ name, hits, misses, hitRatio, stored }, { name, hits: 12, misses: 4, hitRatio: 0.75, stored: 4 });
    }
    assert.deepEqual(windows.map(({ name }) => name), ["1 minute", "5 minutes", "start"]);
    const [entities, responses] = stores;
    const { entries, bytes } = entities.subgraphs.find((it) => it.subgraph === "stock");
    assert.deepEqual([entities.entries, entries, responses.entries], [4, 4, 0]);
    assert.equal(bytes, entities.bytes);
    assert.deepEqual(largest.map(({ name, key }) => `${name} ${key}`).sort(),
      ["Product id: 1", "Product id: 2", "Product id: 3", "Product id: 4"]);
    const metrics = await (await fetch(`${router.admin}/metrics`)).text();
    assert.match(metrics, new RegExp(`starling_cache_bytes{level="subgraph",subgraph="stock"} ${bytes}\n`));
  });

  it("name the entry that is found most often", async () => {
    const [hottest] = await eventually(async () => {
      for (let times = 0; times < 50; times += 1) await products(1);
      const { hottest } = await overview();
      return hottest.length > 0 && hottest[0].hits >= 3 * 64 && hottest;
    }, "a hot entry");
    const { level, subgraph, name, key, isPrivate } = hottest;
    assert.deepEqual({ level, subgraph, name, key, isPrivate },
      { level: "subgraph", subgraph: "stock", name: "Product", key: "id: 1", isPrivate: false });
    assert.ok(hottest.perSecond > 0 && hottest.bytes > 100, JSON.stringify(hottest));
  });

  it("show no keys of private entries", async () => {
    catalogue.headers = { "cache-control": "private, max-age=60" };
    await ask("{ me { name } }", {}, { authorization: "Bearer secret-token" });
    catalogue.headers = {};
    const text = JSON.stringify(await overview());
    const { largest } = JSON.parse(text);
    const entry = largest.find(({ subgraph }) => subgraph === "catalogue");
    assert.deepEqual([entry.name, entry.key, entry.isPrivate], ["me{name}", null, true]);
    assert.ok(!text.includes("secret-token"));
  });
});

describe("the keys of a router that shows no values", () => {
  const keep = closeAfterEach();

  it("have fingerprints of the values, and are found by the values", async () => {
    const target = keep(await startServe({ supergraph, config: { cache: CACHE } }));
    const keys = async () => (await overview(target)).largest.map(({ name, key }) => `${name} ${key}`).sort();
    await ask(PRODUCTS, { first: 4 }, {}, target);
    const shown = await keys();
    for (const key of shown) assert.match(key, /^Product id: #[0-9a-f]{8}$/);
    assert.equal(new Set(shown).size, 4, "they differ");
    await ask(PRODUCTS, { first: 5 }, {}, target);
    const later = new Set(await keys());
    assert.deepEqual([later.size, shown.filter((key) => later.has(key)).length], [5, 4], "they stay");
    const body = JSON.stringify({ kind: "entity", type: "Product", key: { id: "3" } });
    const found = await fetch(`${target.admin}/admin/cache/preview`, { method: "POST", body });
    assert.equal((await found.json()).entries, 1);
  });
});

describe("a preview", () => {
  it("counts what an invalidation makes stale, and changes nothing", async () => {
    await products(6);
    const counts = {};
    for (const [name, body] of Object.entries({
      tag: { kind: "cache_tag", cache_tag: "product-2" },
      entity: { kind: "entity", type: "Product", key: { id: "3" } },
      type: { kind: "type", type: "Product" },
      typeElsewhere: { kind: "type", type: "Product", subgraph: "catalogue" },
      subgraph: { kind: "subgraph", subgraph: "stock" },
      unknown: { kind: "cache_tag", cache_tag: "product-99" },
      several: [{ kind: "cache_tag", cache_tag: "product-2" }, { kind: "entity", type: "Product", key: { id: "3" } }],
    })) {
      const { entries, bytes, isComplete } = await preview(body);
      assert.equal(isComplete, true);
      assert.equal(bytes > 0, entries > 0);
      counts[name] = entries;
    }
    assert.deepEqual(counts, { tag: 1, entity: 1, type: 6, typeElsewhere: 0, subgraph: 6, unknown: 0, several: 2 });
    stock.requests = [];
    await products(6);
    assert.equal(stock.requests.length, 0);
    await post("/admin/invalidate", { kind: "entity", type: "Product", key: { id: "3" } });
    assert.equal((await preview({ kind: "type", type: "Product" })).entries, 5);
    await products(6);
    assert.deepEqual(stock.requests.map((body) => representations(body).map(({ id }) => id)), [["3"]]);
  });

  it("is refused with the place of a mistake, and to pages of other origins", async () => {
    const { status, text } = await post("/admin/cache/preview", [{ kind: "cache_tag" }]);
    assert.equal(status, 400);
    assert.match(text, /^invalidation 0: the member `cache_tag` must be a text/);
    for (const target of ["/admin/cache/preview", "/admin/invalidate"]) {
      const foreign = await post(target, { kind: "all" }, { origin: "https://evil.example" });
      assert.equal(foreign.status, 403);
    }
  });
});

describe("the page", { skip: skipWithoutBrowser() }, () => {
  const browser = browserForTests();

  async function open(options, origin = router.admin, address = "/admin/cache") {
    const opened = await browser.openPage(origin, address, options);
    await opened.page.locator("main").waitFor();
    return opened;
  }

  const rowOf = (page, table, text) => page.locator(`#${table} tbody tr`).filter({ hasText: text }).first();

  it("shows the figures, and invalidates what was previewed by keyboard only", async () => {
    await products(6);
    const { page, problems, close } = await open({ width: 1280 });
    await rowOf(page, "stores", "stock").waitFor();
    const { windows, stores } = await overview();
    const { lookups } = windows[0].lookups.find((it) => it.subgraph === "stock");
    const cells = await rowOf(page, "lookups", "stock").locator("td").allTextContents();
    assert.equal(cells[3], lookups.toLocaleString("en"));
    const entries = stores[0].subgraphs.find((it) => it.subgraph === "stock").entries;
    assert.equal((await rowOf(page, "stores", "stock").locator("td").allTextContents())[4], String(entries));
    await rowOf(page, "hottest", "id: 1").waitFor();

    // By keyboard: choose the kind, fill in the fields, preview with Enter, and press the button.
    await page.locator("#kind").focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Tab");
    await page.keyboard.type("Product");
    await page.keyboard.press("Tab");
    await page.keyboard.type('{"id": "2"}');
    assert.equal(await page.locator("#apply").isDisabled(), true, "nothing was previewed");
    await page.keyboard.press("Enter");
    await page.getByText(/^1 entry \(\d+ B\) would become stale\.$/).waitFor();
    stock.requests = [];
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("Invalidated.").waitFor();
    assert.equal(await page.locator("#apply").isDisabled(), true, "each invalidation is previewed first");
    await products(6);
    assert.deepEqual(stock.requests.map((body) => representations(body).map(({ id }) => id)), [["2"]]);
    const admin = rowOf(page, "invalidations", "admin");
    const { messages } = (await overview()).windows[0].invalidations.find((it) => it.source === "admin");
    await admin.filter({ hasText: `admin${messages}` }).waitFor();

    await page.locator("#key").fill("{");
    await page.locator("#preview").click();
    await page.getByText('The key must be JSON, such as {"id": "1"}.').waitFor();
    assert.deepEqual(problems, []);
    await close();
  });

  it("of the tools on the console invalidates a tag, and counts what became stale", async () => {
    await products(6);
    const { page, problems, close } = await open({ width: 1280 }, router.admin, "/console/#tools");
    await page.getByLabel("Cache tag").fill("product-4");
    await page.locator("#invalidate button").press("Enter");
    await page.getByText("Invalidated. 1 entry of this router became stale.").waitFor();
    stock.requests = [];
    await products(6);
    assert.deepEqual(stock.requests.map((body) => representations(body).map(({ id }) => id)), [["4"]]);
    await page.getByLabel("Cache tag").fill("product-99");
    await page.locator("#invalidate button").press("Enter");
    await page.getByText("Invalidated. 0 entries of this router became stale.").waitFor();
    assert.deepEqual(problems, []);
    await close();
  });

  for (const width of [1280, 390]) {
    for (const colorScheme of ["light", "dark"]) {
      it(`fits into ${width} pixels in ${colorScheme} colours`, async () => {
        const { page, problems, close } = await open({ width, colorScheme });
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(overflow <= 0, `${overflow} pixels too wide`);
        await takePicture(page, `cache-${width}-${colorScheme}`);
        assert.deepEqual(problems, []);
        await close();
      });
    }
  }

  it("of operations shows what came from memory", async () => {
    await products(3);
    const { page, problems, close } = await open({ width: 1280 }, router.url, "/ide/plain");
    await page.locator("#query").fill("{ products(first: 8) { inStock } }");
    await page.locator("#trace").check();
    await page.locator("#run").click();
    const lines = page.locator("#results .trace li");
    await lines.filter({ hasText: /^stock, entities: \d from memory, \d requested; the oldest .* old$/ }).waitFor();
    await lines.filter({ hasText: /^stock, request: status 200, \d+ bytes in .* after / }).waitFor();
    await takePicture(page, "trace");
    await page.locator("#trace").uncheck();
    await page.locator("#run").click();
    await page.locator("#results pre").first().waitFor();
    assert.equal(await lines.count(), 0);
    assert.deepEqual(problems, []);
    await close();
  });
});

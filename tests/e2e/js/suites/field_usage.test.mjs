// The use of fields and arguments by client: a known load gives known counts, and `starling diff --usage` breaks only
// for fields that were used.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { startSubgraph } from "../counting_subgraph.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";

const OLD = `
  type Query { product(id: ID, region: String): Product prices: [Int] stock: Int retired: Int }
  type Product { id: ID name(short: Boolean): String weight: Int }`;
const NEW = `
  type Query { product(id: ID): Product prices: [Int] }
  type Product { id: ID name: String }`;

describe("the use of fields", () => {
  const keep = closeAfterEach();
  let subgraph, supergraph, folder;
  before(async () => {
    subgraph = await startSubgraph(() => ({ product: { id: "1", name: "Table" }, prices: [1], stock: 4 }));
    const sources = (sdl) => ({ shop: { sdl, url: subgraph.url } });
    supergraph = await compose(sources(OLD));
    folder = await mkdtemp(path.join(tmpdir(), "starling-usage-"));
    await writeFile(path.join(folder, "old.graphql"), supergraph);
    await writeFile(path.join(folder, "new.graphql"), await compose(sources(NEW)));
  });
  after(async () => {
    await subgraph?.stop();
    if (folder) await rm(folder, { recursive: true });
  });

  const open = async (config = {}) => keep(await startServe({ supergraph, config }));

  /** Sends a query `times` times as an application. */
  async function send(router, query, [name, version] = [], times = 1) {
    const headers = { "content-type": "application/json" };
    if (name) headers["graphql-client-name"] = name;
    if (version) headers["graphql-client-version"] = version;
    for (let count = 0; count < times; count += 1) {
      const response = await fetch(router.graphql, { method: "POST", headers, body: JSON.stringify({ query }) });
      await response.text();
    }
  }

  const usageUrl = (router) => `${router.admin}/admin/usage`;
  const usage = async (router) => (await fetch(usageUrl(router))).json();

  /** The requests as lines: coordinate, application, number. */
  const lines = ({ uses }) => uses.map(({ coordinate, client, clientVersion, requests }) =>
    `${coordinate} ${client} ${clientVersion} ${requests}`.replace("  ", " "));

  /** Runs `starling diff`; returns its exit code and its JSON. */
  const diff = (...words) => new Promise((resolve) => {
    const files = ["old.graphql", "new.graphql"].map((name) => path.join(folder, name));
    execFile(process.env.STARLING_BIN, ["diff", ...files, "--format", "json", ...words], (error, output) => {
      resolve({ code: error?.code ?? 0, ...JSON.parse(output || "{}") });
    });
  });

  it("is counted by client, once for each request", async () => {
    const router = await open();
    await send(router, "query Top { product(id: 1) { name(short: true) } prices }", ["web", "2"], 3);
    await send(router, "{ prices again: prices }", ["app"], 2);
    await send(router, "{ ...Part } fragment Part on Query { stock @skip(if: true) }", [], 1);
    await send(router, "{ unknown }", ["web", "2"], 5);
    const report = await usage(router);
    assert.deepEqual(lines(report), [
      "Product.name web 2 3",
      "Product.name(short:) web 2 3",
      "Query unnamed 1",
      "Query.prices app 2",
      "Query.prices web 2 3",
      "Query.product web 2 3",
      "Query.product(id:) web 2 3",
      "Query.stock unnamed 1",
    ]);
    assert.deepEqual([report.requests, report.lost], [6, 0]);
    assert.ok(report.since <= report.uses[0].firstUsed && report.uses[0].lastUsed <= report.until);
    await send(router, "{ prices }", ["app"]);
    const again = await usage(router);
    assert.ok(lines(again).includes("Query.prices app 3"), "later requests are added");
    assert.equal((await scrape(router)).value("starling_field_usage_counters"), 8);
  });

  it("counts operations on WebSockets", async () => {
    const router = await open();
    const socket = openSocket(router);
    await socket.subscribe("query Top { prices }").next();
    await socket.dispose();
    assert.deepEqual(lines(await usage(router)), ["Query.prices unnamed 1"]);
  });

  it("keeps each field when there are more clients than counters", async () => {
    const router = await open({ metrics: { fields: { max: 3 } } });
    for (let client = 0; client < 6; client += 1) await send(router, "{ prices }", [`client-${client}`]);
    // Workers count for themselves until the use is read, so that any three of the clients have counters.
    await usage(router);
    await send(router, "{ stock }", ["late"]);
    const named = lines(await usage(router)).map((line) => line.replace(/client-\d/, "client"));
    assert.deepEqual(named, [
      "Query.prices client 1", "Query.prices client 1", "Query.prices client 1", "Query.prices other other 3",
      "Query.stock other other 1",
    ]);
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_field_usage_counters_max"), 3);
    assert.equal(metrics.value("starling_field_usage_lost_total"), 0);
  });

  it("can be turned off", async () => {
    const router = await open({ metrics: { fields: { max: 0 } } });
    await send(router, "{ prices }");
    const response = await fetch(usageUrl(router));
    assert.equal(response.status, 404);
    assert.match(await response.text(), /`metrics.fields.max` is 0/);
  });

  it("decides which changes break, against the router that serves", async () => {
    const router = await open();
    await send(router, "query Top { product(id: 1) { name(short: true) } prices }", ["web", "2"], 3);
    await send(router, "{ stock }", ["app"], 2);
    assert.equal((await diff()).counts.breaking, 5, "without usage all of them break");
    const { code, ok, changes, usage: covered } = await diff("--usage", usageUrl(router));
    assert.deepEqual([code, ok], [1, false]);
    const byPath = Object.fromEntries(changes.filter(({ code: name }) => name.endsWith("_REMOVED"))
      .map(({ path: place, criticality, usage: found }) => [place, [criticality, found.requests]]));
    assert.deepEqual(byPath, {
      "Product.name(short:)": ["breaking", 3],
      "Query.stock": ["breaking", 2],
      "Product.weight": ["safe", 0],
      "Query.product(region:)": ["safe", 0],
      "Query.retired": ["safe", 0],
    });
    const stock = changes.find((it) => it.path === "Query.stock");
    assert.deepEqual(stock.usage.clients.map(({ client, requests }) => [client, requests]), [["app", 2]]);
    assert.equal(covered.requests, 5);
    const unused = changes.find((it) => it.path === "Query.retired");
    assert.equal(unused.reason, "not used by any of 5 requests");

    const above = await diff("--usage", usageUrl(router), "--usage-threshold", "4");
    assert.deepEqual([above.code, above.counts.breaking], [0, 0]);
    const young = await diff("--usage", usageUrl(router), "--usage-days", "30");
    assert.deepEqual([young.code, young.counts.breaking], [1, 5]);
    assert.equal(young.usage.incomplete, "the usage covers 0 of 30 days");

    const saved = path.join(folder, "usage.json");
    await writeFile(saved, JSON.stringify(await usage(router)));
    const both = await diff("--usage", saved, "--usage", usageUrl(router));
    assert.equal(both.changes.find((it) => it.path === "Query.stock").usage.requests, 4);

    const now = Math.floor(Date.now() / 1000);
    const day = 24 * 60 * 60;
    const report = async (name, from, to) => {
      const file = path.join(folder, `${name}.json`);
      await writeFile(file, JSON.stringify({ ...(await usage(router)), since: now - from * day, until: now - to * day }));
      return ["--usage", file];
    };
    const old = await report("old", 40, 12);
    const recent = await report("recent", 10, 0);
    const withGap = await diff(...old, ...recent, "--usage-days", "30");
    assert.deepEqual([withGap.code, withGap.counts.breaking], [1, 5], "nothing is known about two days");
    assert.equal(withGap.usage.incomplete, "the usage covers 28 of 30 days");
    const time = (days) => new Date((now - days * day) * 1000).toISOString().replace(".000", "");
    assert.deepEqual(withGap.usage.gaps, [{ since: time(12), until: time(10) }]);
    const afterIt = await diff(...old, ...recent, "--usage-days", "10");
    assert.deepEqual([afterIt.counts.breaking, afterIt.usage.gaps.length, afterIt.usage.incomplete], [2, 1, null]);
    const filled = await diff(...old, ...recent, ...(await report("between", 12, 10)), "--usage-days", "30");
    assert.deepEqual([filled.counts.breaking, filled.usage.gaps, filled.usage.incomplete], [2, [], null]);

    const none = await diff("--usage", `${router.admin}/metrics`);
    assert.equal(none.code, 2);
  });
});

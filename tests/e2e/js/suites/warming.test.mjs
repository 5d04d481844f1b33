// The start of a router that takes load from others: it prepares operations before it is ready, from another router or
// a file, whatever that responds, and takes its full share of the load after a while.
// Runs alone: it has a load over time.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { startSubgraph } from "../counting_subgraph.mjs";
import { scrape } from "../metrics.mjs";
import { freePort, startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const SDL = "type Query { name: String price(currency: String): Int }";

/** The text of the readiness check. */
async function readiness(admin) {
  const response = await fetch(`${admin}/health/ready`);
  return { status: response.status, text: await response.text() };
}

/** The counts of a router's preparations and of its start. */
async function counts(router) {
  const metrics = await scrape(router);
  return {
    hits: metrics.value("starling_operations_prepared_hits_total"),
    misses: metrics.value("starling_operations_prepared_misses_total"),
    prepared: metrics.value("starling_warming_operations_total", { result: "prepared" }),
    invalid: metrics.value("starling_warming_operations_total", { result: "invalid" }),
    failures: metrics.value("starling_warming_source_failures_total"),
    warming: metrics.value("starling_warming"),
  };
}

/** A server that other routers ask for operations; `respond(request, response)` is up to the test. */
async function startPeer() {
  const peer = { requests: [] };
  const server = http.createServer((request, response) => {
    peer.requests.push({ url: request.url, headers: request.headers });
    peer.respond(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  peer.url = `http://127.0.0.1:${server.address().port}/admin/operations`;
  peer.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return peer;
}

describe("warming", () => {
  let subgraph, supergraph, folder;
  const routers = [];

  before(async () => {
    subgraph = await startSubgraph(() => ({ name: "Tea", price: 3 }));
    supergraph = await compose({ shop: { sdl: SDL, url: subgraph.url } });
    folder = await mkdtemp(path.join(tmpdir(), "starling-warming-"));
  });
  afterEach(async () => {
    await Promise.all(routers.splice(0).map((router) => router.stop()));
  });
  after(async () => {
    await subgraph?.stop();
    if (folder) await rm(folder, { recursive: true });
  });

  const start = async (config, more = {}) => {
    const router = await startServe({ supergraph, config, ...more });
    routers.push(router);
    return router;
  };

  it("prepares the operations that another router uses most before it is ready", async () => {
    const first = await start({});
    const top = { query: "query Top { name }", operationName: "Top" };
    const prices = "query Prices($in: String) { price(currency: $in) }";
    for (const request of [top, top, top, prices, prices, "{ name }"]) {
      assert.equal((await first.query(request)).status, 200);
    }
    const url = `${first.admin}/admin/operations`;
    const listed = await (await fetch(url)).json();
    assert.deepEqual(listed.operations.map(({ name, type, uses, body }) => ({ name, type, uses, body })), [
      { name: "Top", type: "query", uses: 2, body: top.query },
      { name: undefined, type: "query", uses: 1, body: prices },
    ], "operations that were used once are no part of it");

    const second = await start({ warming: { operations: { url } } });
    const warm = await counts(second);
    assert.deepEqual(warm, { hits: 0, misses: 2, prepared: 2, invalid: 0, failures: 0, warming: 0 });
    assert.match(second.output(), /the router is warm/);
    assert.deepEqual((await second.query(top)).body.data, { name: "Tea" });
    const used = await counts(second);
    assert.deepEqual([used.hits, used.misses], [1, 2], "the first client finds the operation prepared");
    // A third router could ask this one.
    const passedOn = await (await fetch(`${second.admin}/admin/operations`)).json();
    assert.deepEqual(passedOn.operations.map(({ body }) => body), [top.query, prices]);
  });

  it("lists as many operations as it is asked for", async () => {
    const router = await start({});
    for (let number = 0; number < 5; number += 1) {
      for (let times = 0; times < 2; times += 1) await router.query(`{ n${number}: name }`);
    }
    const url = `${router.admin}/admin/operations`;
    assert.equal((await (await fetch(`${url}?limit=3`)).json()).operations.length, 3);
    for (const limit of ["0", "-1", "many", "10001"]) {
      const response = await fetch(`${url}?limit=${limit}`);
      assert.equal(response.status, 400, limit);
      assert.equal(await response.text(), "`limit` must be a number from 1 to 10000\n");
    }
    assert.equal((await fetch(url, { method: "POST" })).status, 405);
  });

  it("is not ready until the operations are prepared, and serves", async () => {
    const peer = await startPeer();
    let release;
    peer.respond = (request, response) => {
      release = () => response.end(JSON.stringify({ a: "{ name }" }));
    };
    const ports = { graphql: await freePort(), admin: await freePort() };
    const admin = `http://127.0.0.1:${ports.admin}`;
    const headers = [{ name: "authorization", value: "Bearer s3cret" }];
    const starting = start({ warming: { operations: { url: peer.url, headers }, timeout: "30s" } }, { ports });
    try {
      await eventually(() => release, "the request for operations");
      assert.equal(peer.requests[0].headers.authorization, "Bearer s3cret");
      assert.deepEqual(await readiness(admin), { status: 503, text: "warming: 0 of 0 operations are prepared\n" });
      assert.equal((await fetch(`${admin}/health/live`)).status, 200);
      const served = await fetch(`http://127.0.0.1:${ports.graphql}/graphql`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ query: "{ n: name }" }),
      });
      assert.equal(served.status, 200, "a client that comes nevertheless is served");
      release();
      const router = await starting;
      assert.deepEqual(await readiness(admin), { status: 200, text: "ready\n" });
      assert.equal((await counts(router)).prepared, 1);
      assert.doesNotMatch(router.output(), /s3cret/);
    } finally {
      release?.();
      await starting;
      await peer.stop();
    }
  });

  describe("with a bad source", () => {
    let peer;
    before(async () => {
      peer = await startPeer();
    });
    after(() => peer?.stop());

    const cases = {
      "that hangs": () => {},
      "that fails": (_, response) => response.writeHead(500).end("broken"),
      "that moved": (_, response) => response.writeHead(302, { location: "/elsewhere" }).end(),
      "that sends garbage": (_, response) => response.end("<html>"),
      "that sends something else": (_, response) => response.end('{"operations": 7}'),
      "that sends too much": (_, response) => response.end(`{"a": "${"x".repeat(11_000_000)}"}`),
      "that breaks off": (_, response) => {
        response.writeHead(200, { "content-length": "1000" }).write('{"a": "{');
        setImmediate(() => response.destroy());
      },
    };
    for (const [name, respond] of Object.entries(cases)) {
      it(`${name}, the router starts without it`, async () => {
        peer.respond = respond;
        const headers = [{ name: "x-key", value: "s3cret" }];
        const router = await start({ warming: { operations: { url: peer.url, headers }, timeout: "4s" } });
        const { prepared, failures } = await counts(router);
        assert.deepEqual({ prepared, failures }, { prepared: 0, failures: 1 });
        assert.equal(router.output().match(/`warming.operations` cannot be read/g).length, 1, router.output());
        assert.doesNotMatch(router.output(), /s3cret/);
        assert.deepEqual((await router.query("{ name }")).body.data, { name: "Tea" });
      });
    }

    it("that is not there, the router starts without it", async () => {
      const url = `http://127.0.0.1:${await freePort()}/admin/operations`;
      for (const source of [{ url }, { file: path.join(folder, "missing.json") }]) {
        const router = await start({ warming: { operations: source } });
        assert.equal((await counts(router)).failures, 1);
        assert.match(router.output(), /`warming.operations` cannot be read/);
      }
    });
  });

  it("skips the operations of another graph", async () => {
    const file = path.join(folder, "operations.json");
    const operations = { a: "{ name }", b: "{ unknown }", c: "query {", d: "{ price }" };
    await writeFile(file, JSON.stringify(operations));
    const router = await start({ warming: { operations: { file } } });
    const { prepared, invalid, failures } = await counts(router);
    assert.deepEqual({ prepared, invalid, failures }, { prepared: 2, invalid: 2, failures: 0 });
    assert.match(router.output(), /not valid on this graph/);
  });

  it("prepares the first operations only, and persisted documents if the configuration says so", async () => {
    const documents = path.join(folder, "documents.json");
    const operations = path.join(folder, "many.json");
    await writeFile(documents, JSON.stringify({ a: "{ a: name }", b: "{ b: name }", c: "{ c: name }" }));
    await writeFile(operations, JSON.stringify({ d: "{ d: name }", e: "{ e: name }", f: "{ f: name }" }));
    const router = await start({
      warming: { operations: { file: operations, max: 2 }, persisted_documents: true },
      persisted_documents: { manifests: [{ file: documents }] },
    });
    const { misses, prepared } = await counts(router);
    assert.deepEqual({ misses, prepared }, { misses: 5, prepared: 2 });
  });

  it("ends when its time is over", async () => {
    const file = path.join(folder, "thousands.json");
    const operations = Array.from({ length: 5000 }, (_, number) => [`n${number}`, `{ n${number}: name price }`]);
    await writeFile(file, JSON.stringify(Object.fromEntries(operations)));
    const router = await start({ warming: { operations: { file, max: 5000 }, timeout: "100ms" } });
    const { prepared } = await counts(router);
    assert.ok(prepared < 5000, `${prepared}`);
    assert.match(router.output(), /ready before all operations are prepared/);
  });
});

describe("the ramp of a start", () => {
  let subgraph, router, held;

  before(async () => {
    held = [];
    subgraph = await startSubgraph(() => new Promise((resolve) => {
      held.push(() => resolve({ name: "Tea" }));
    }));
    router = await startServe({
      supergraph: await compose({ shop: { sdl: "type Query { name: String }", url: subgraph.url } }),
      config: {
        sharing: { operations: false, subgraph_queries: false },
        admission: { enabled: true, limit: { initial: 20, min: 1, max: 20 }, queue: { max_waiting: 0 } },
        http: { load_report: { send: "always", format: "json" } },
        // So long that the share hardly grows while the test runs.
        warming: { ramp: "100h" },
      },
    });
  });
  after(async () => {
    for (const respond of held) respond();
    await router?.stop();
    await subgraph?.stop();
  });

  it("begins with a tenth of the limit, and load reports say that the router is busy", async () => {
    assert.deepEqual(await readiness(router.admin), { status: 200, text: "ready\n" });
    const metrics = await scrape(router);
    // A tenth of 20, and next to nothing more.
    assert.ok(Math.abs(metrics.value("starling_admission_limit") - 2) < 0.1);
    assert.ok(Math.abs(metrics.value("starling_warming_share") - 0.1) < 0.01);
    const admitted = [router.query("{ a: name }"), router.query("{ b: name }")];
    await eventually(() => held.length === 2, "two requests to the subgraph");
    const refused = await within(router.query("{ c: name }"), "a third request");
    assert.equal(refused.status, 503);
    assert.equal(refused.body.errors[0].extensions.code, "OVERLOADED");
    const report = await eventually(async () => {
      const response = await fetch(router.graphql, { method: "POST", body: "{}" });
      const value = response.headers.get("endpoint-load-metrics");
      const figures = value && JSON.parse(value.slice("JSON ".length));
      return figures?.application_utilization > 0.5 && figures;
    }, "a report of the load");
    assert.ok(report.application_utilization > report.cpu_utilization);
    for (const respond of held) respond();
    for (const { status } of await within(Promise.all(admitted), "the responses")) assert.equal(status, 200);
  });
});

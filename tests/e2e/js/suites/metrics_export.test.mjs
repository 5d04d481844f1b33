// The export of metrics by OTLP: what the collector gets, exemplars, and what a collector that fails costs.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { startCollector, startGrpcCollector } from "../collector.mjs";
import { compose } from "../composition.mjs";
import { startSubgraph } from "../counting_subgraph.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const REQUESTS = "starling_named_operation_requests";
const DURATIONS = "starling_operation_duration_seconds";
const TOP = { operation: "Top", kind: "query" };

describe("the export of metrics", () => {
  const keep = closeAfterEach();
  let products, supergraph;
  before(async () => {
    products = await startSubgraph(() => ({ product: "one" }));
    supergraph = await compose({ products: { sdl: "type Query { product: String }", url: products.url } });
  });
  after(() => products?.stop());

  /** Starts a router that exports to a collector; `otlp` replaces settings. */
  async function open(otlp = {}, config = {}) {
    const collector = keep(await (otlp.protocol === "grpc" ? startGrpcCollector() : startCollector()));
    const metrics = { otlp: { enabled: true, endpoint: collector.metricsEndpoint, interval: "50ms", ...otlp } };
    return { collector, router: keep(await startServe({ supergraph, config: { metrics, ...config } })) };
  }

  async function send(router, query = "query Top { product }") {
    const headers = { "content-type": "application/json" };
    const response = await fetch(router.graphql, { method: "POST", headers, body: JSON.stringify({ query }) });
    assert.equal(response.status, 200);
    await response.text();
  }

  for (const protocol of ["http", "grpc"]) {
    it(`has the totals, types and buckets of Prometheus, by ${protocol}`, async () => {
      const headers = [{ name: "x-key", value: "secret" }];
      const tracing = { service_name: "shop", resource: { region: "eu" } };
      const { collector, router } = await open({ protocol, headers }, { tracing });
      await send(router);
      await send(router);
      const requests = await collector.value(REQUESTS, TOP, ({ value }) => value === 2);
      assert.deepEqual([requests.type, requests.temporality, requests.isMonotonic], ["sum", "cumulative", true]);
      assert.ok(requests.since < requests.at);
      assert.match(requests.description, /^Requests for an operation that ended: /);
      const { "service.instance.id": instance, "service.version": version, ...resource } = requests.resource;
      assert.match(`${instance} ${version}`, /^[0-9a-f]{32} \d+\.\d+\.\d+/);
      assert.deepEqual(resource, { "service.name": "shop", region: "eu" });
      const [{ path, headers: sent }] = collector.requests;
      const method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
      assert.deepEqual([path, sent["x-key"]], [protocol === "grpc" ? method : "/v1/metrics", "secret"]);
      // The next export has what the text had.
      const scraped = await scrape(router);
      const durations = await collector.value(DURATIONS, { kind: "query" }, ({ value }) => value === 2);
      let total = 0;
      const cumulative = durations.buckets.map((count) => (total += count));
      const bounds = [...durations.bounds, Infinity];
      const lines = scraped.all(`${DURATIONS}_bucket`, { kind: "query" });
      assert.deepEqual(
        lines.map(({ labels, value }) => [labels.le === "+Inf" ? Infinity : Number(labels.le), value]),
        bounds.map((bound, index) => [bound, cumulative[index]]),
      );
      assert.equal(durations.sum, scraped.value(`${DURATIONS}_sum`, { kind: "query" }));
    });
  }

  it("has the growth on demand, each request once", async () => {
    const { collector, router } = await open({ temporality: "delta" });
    for (let count = 0; count < 5; count += 1) await send(router);
    const points = () => collector.values(REQUESTS, TOP);
    const sum = () => points().reduce((total, { value }) => total + value, 0);
    await eventually(() => sum() >= 5, "all requests");
    await send(router);
    await eventually(() => sum() >= 6, "the last request");
    assert.equal(sum(), 6);
    const all = points();
    assert.ok(all.every(({ temporality }) => temporality === "delta"));
    for (const [index, { since }] of all.entries()) {
      assert.ok(index === 0 || since === all[index - 1].at, "each growth begins where the one before ended");
    }
  });

  it("has each request once in the growth when an operation loses its metrics to another one", async () => {
    const operations = { max: 1 };
    const collector = keep(await startCollector());
    const otlp = {
      enabled: true, endpoint: collector.metricsEndpoint, interval: "50ms", temporality: "delta",
    };
    const router = keep(await startServe({ supergraph, config: { metrics: { otlp, operations } } }));
    const sum = (labels) => collector.values(REQUESTS, labels).reduce((total, { value }) => total + value, 0);
    for (let count = 0; count < 20; count += 1) await send(router, "query First { product }");
    await eventually(() => sum({ operation: "First" }) === 20, "the requests for the first operation");
    // Some of them count as `other`, until the second operation is used more than the first one.
    for (let count = 0; count < 60; count += 1) await send(router, "query Second { product }");
    const replaced = (await scrape(router)).value("starling_metrics_names_replaced_total", { table: "operations" });
    assert.equal(replaced, 1);
    await eventually(() => sum({}) >= 80, "the requests for the second operation");
    // The last export of the router has whatever is left.
    assert.equal(await router.stop(), 0);
    assert.equal(sum({}), 80);
    assert.equal(sum({ operation: "First" }), 20);
    assert.ok(sum({ operation: "Second" }) > 30, `${sum({ operation: "Second" })}`);
  });

  it("has growth that the collector did not take later", async () => {
    const { collector, router } = await open({ temporality: "delta" });
    let isAway = true;
    collector.respond = () => (isAway ? 400 : 200);
    await send(router);
    await eventually(async () => (await scrape(router)).value("starling_metric_export_failures_total") > 1, "failures");
    assert.deepEqual(collector.values(REQUESTS, TOP), []);
    isAway = false;
    const { value } = await collector.value(REQUESTS, TOP, (it) => it.value > 0);
    assert.equal(value, 1);
  });

  it("is sent for the last time at the end of the router", async () => {
    const { collector, router } = await open({ interval: "1h" });
    await send(router);
    assert.deepEqual(collector.points, []);
    assert.equal(await router.stop(), 0);
    const [{ value }] = collector.values(REQUESTS, TOP);
    assert.equal(value, 1);
  });

  it("does not delay requests if the collector never responds", async () => {
    const { collector, router } = await open({ timeout: "1h" });
    collector.respond = () => null;
    await eventually(() => collector.requests.length > 0, "an export");
    for (let count = 0; count < 20; count += 1) await send(router);
    assert.equal(collector.requests.length, 1, "the next one waits for it");
    assert.equal((await scrape(router)).value("starling_named_operation_requests_total", TOP), 20);
    collector.respond = () => 200;
  });

  it("says why a collector does not take metrics, without secrets", async () => {
    const { collector, router } = await open({ headers: [{ name: "authorization", value: "Bearer hidden-token" }] });
    collector.respond = () => 401;
    const line = await eventually(
      () => router.output().split("\n").find((it) => it.includes("metrics cannot be exported")), "a line in the log",
    );
    assert.match(line, /HTTP status 401/);
    assert.ok(!router.output().includes("hidden-token"));
  });

  describe("exemplars", () => {
    const exemplarOf = (text) =>
      new RegExp(
        `^${DURATIONS}_bucket\\{[^}]*kind="query"\\} \\d+ `
        + '# \\{trace_id="(\\w+)",span_id="(\\w+)"\\} (\\S+) (\\S+)$',
        "m",
      ).exec(text);
    const openMetrics = async (router) => {
      const response = await fetch(`${router.admin}/metrics`, { headers: { accept: "application/openmetrics-text" } });
      assert.match(response.headers.get("content-type"), /^application\/openmetrics-text/);
      return response.text();
    };

    it("name the trace of a request in OTLP and in OpenMetrics", async () => {
      const collector = keep(await startCollector());
      const otlp = { endpoint: collector.endpoint, interval: "20ms" };
      const tracing = { enabled: true, sample: { ratio: "100%" }, otlp };
      const { router, collector: metrics } = await open({}, { tracing });
      await send(router);
      const [operation] = await collector.named("query Top");
      const [, trace, span, value, at] = exemplarOf(await openMetrics(router));
      assert.deepEqual([trace, span], [operation.trace, operation.id]);
      assert.ok(Number(value) > 0 && Math.abs(Date.now() / 1000 - Number(at)) < 600, `${value} ${at}`);
      const point = await metrics.value(DURATIONS, { kind: "query" }, ({ exemplars }) => exemplars.length > 0);
      assert.deepEqual(point.exemplars, [{ trace, span, value: Number(value) }]);
      const named = await metrics.value(
        "starling_named_operation_duration_seconds", TOP, (it) => it.exemplars.length > 0,
      );
      assert.equal(named.exemplars[0].trace, trace);
      const [fetched] = await collector.named("POST products");
      const subgraph = await metrics.value(
        "starling_subgraph_request_duration_seconds", { subgraph: "products" }, (it) => it.exemplars.length > 0,
      );
      assert.deepEqual([subgraph.exemplars[0].trace, subgraph.exemplars[0].span], [trace, fetched.id]);
      assert.ok(!(await scrape(router)).text.includes("trace_id"), "the older format has none");
    });

    it("are of traces that are exported only", async () => {
      const collector = keep(await startCollector());
      const sample = { ratio: "0%", slow: "0s", failed: false };
      const tracing = { enabled: true, sample, otlp: { endpoint: collector.endpoint } };
      const { router } = await open({}, { tracing });
      await send(router);
      assert.equal((await scrape(router)).value(`${DURATIONS}_count`, { kind: "query" }), 1);
      assert.equal(exemplarOf(await openMetrics(router)), null);
    });

    it("are of slow requests, which are selected at their end", async () => {
      const collector = keep(await startCollector());
      const sample = { ratio: "0%", slow: "1ms", failed: false };
      const tracing = { enabled: true, sample, otlp: { endpoint: collector.endpoint, interval: "20ms" } };
      const { router } = await open({}, { tracing });
      const found = await eventually(async () => {
        await send(router);
        return exemplarOf(await openMetrics(router));
      }, "a slow request");
      const operations = () => collector.spans.filter(({ name }) => name === "query Top");
      await eventually(() => operations().some(({ trace }) => trace === found[1]), "its trace");
    });
  });
});

// Traces: what a collector gets of requests, what subgraphs get of the trace, which traces are selected, and what a
// collector that fails costs.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { closeAfterEach } from "../closing.mjs";
import { startCollector, startGrpcCollector, treeOf } from "../collector.mjs";
import { compose } from "../composition.mjs";
import { GraphqlResponse } from "../counting_subgraph.mjs";
import { slowerThan } from "../latencies.mjs";
import { openSocket } from "../live_client.mjs";
import { freePort, startServe } from "../router.mjs";
import { checkTrace } from "../trace_snapshots.mjs";
import {
  PARENT, ROUTER_IDENTITY, TOP, TOP_TREE, TRACE, product, startTracedProducts,
} from "../traced_products.mjs";
import { eventually } from "../waiting.mjs";

const PRODUCTS = `
  type Query { products: [Product!] slow: String broken: String }
  type Mutation { rename(id: ID!): Product }
  type Product @key(fields: "id") { id: ID! name: String }`;
const NOTICES = `
  type Mutation {
    announce(text: String!): edfs__PublishResult!
      @events__publish(topic: "notices.{{ args.text }}", providerId: "memory/default")
  }
  type edfs__PublishResult { success: Boolean! }`;

const parentHeader = (flags) => `00-${TRACE}-${PARENT}-${flags}`;

/** The headers of a sampled trace in each format, and what a subgraph gets for a span. */
const FORMATS = {
  tracecontext: {
    sent: { traceparent: `00-${TRACE}-${PARENT}-01` }, received: (span) => ({ traceparent: `00-${TRACE}-${span}-01` }),
  },
  b3: { sent: { b3: `${TRACE}-${PARENT}-1` }, received: (span) => ({ b3: `${TRACE}-${span}-1` }) },
  b3multi: {
    sent: { "x-b3-traceid": TRACE, "x-b3-spanid": PARENT, "x-b3-sampled": "1" },
    received: (span) => ({ "x-b3-traceid": TRACE, "x-b3-spanid": span, "x-b3-sampled": "1" }),
  },
  jaeger: {
    sent: { "uber-trace-id": `${TRACE}:${PARENT}:0:1` }, received: (span) => ({ "uber-trace-id": `${TRACE}:${span}:0:1` }),
  },
  datadog: {
    sent: {
      "x-datadog-trace-id": `${BigInt(`0x${TRACE.slice(16)}`)}`, "x-datadog-parent-id": `${BigInt(`0x${PARENT}`)}`,
      "x-datadog-sampling-priority": "1", "x-datadog-tags": `_dd.p.tid=${TRACE.slice(0, 16)}`,
    },
    received: (span) => ({
      "x-datadog-trace-id": `${BigInt(`0x${TRACE.slice(16)}`)}`, "x-datadog-parent-id": `${BigInt(`0x${span}`)}`,
      "x-datadog-sampling-priority": "1", "x-datadog-tags": `_dd.p.tid=${TRACE.slice(0, 16)}`,
    }),
  },
};

describe("traces", () => {
  const keep = closeAfterEach();
  let subgraphs, products, reviews, supergraph, seen;

  before(async () => {
    const respond = async ({ query }) => {
      if (query.includes("slow")) {
        await pause(400);
        return { slow: "done" };
      }
      if (query.includes("broken")) return new GraphqlResponse({ broken: null }, [{ message: "hidden reason" }]);
      return { products: ["1", "2"].map(product) };
    };
    const onRequest = (name, request) => seen.push([name, request.headers]);
    subgraphs = await startTracedProducts({ sdl: PRODUCTS, respond, onRequest });
    ({ products, reviews } = subgraphs);
    supergraph = await compose(subgraphs.sources);
  });
  beforeEach(() => {
    seen = [];
  });
  after(async () => {
    await subgraphs?.stop();
  });

  /** Starts a router that exports to a collector; `tracing` replaces settings. */
  async function open(tracing = {}, config = {}, graph = supergraph) {
    const isGrpc = tracing.otlp?.protocol === "grpc";
    const collector = keep(await (isGrpc ? startGrpcCollector() : startCollector()));
    const router = keep(await startServe({
      supergraph: graph,
      config: {
        tracing: {
          enabled: true,
          sample: { ratio: "100%" },
          ...tracing,
          otlp: { endpoint: collector.endpoint, interval: "20ms", ...tracing.otlp },
        },
        ...config,
      },
    }));
    return { collector, router };
  }

  async function send(router, body, headers = {}) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(typeof body === "string" ? { query: body } : body),
    });
    return { status: response.status, body: await response.json() };
  }

  async function metrics(router) {
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    return (name) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
  }

  for (const protocol of ["http", "grpc"]) {
    it(`have the steps of a query over three subgraphs, by ${protocol}`, async () => {
      const { collector, router } = await open({ ...ROUTER_IDENTITY, otlp: { protocol } });
      await send(router, TOP, { "user-agent": "tests" });
      const [server] = await collector.named("POST /graphql");
      const spans = collector.trace(server.trace);
      await checkTrace(spans, "query_over_three_subgraphs");
      // What the placeholders of the snapshot stand for.
      const one = (name) => spans.find((it) => it.name === name);
      const [operation, fetched] = [one("query Top"), one("POST reviews")];
      assert.match(server.resource["service.instance.id"], /^[0-9a-f]{32}$/);
      assert.equal(server.attributes["server.port"], Number(new URL(router.graphql).port));
      assert.equal(server.attributes["starling.operation.id"], operation.attributes["starling.operation.id"]);
      assert.equal(fetched.attributes["url.full"], reviews.url);
      assert.equal(fetched.attributes["server.port"], Number(new URL(reviews.url).port));
      for (const span of spans) {
        const parent = spans.find((it) => it.id === span.parent);
        assert.ok(span.began <= span.ended, span.name);
        assert.ok(!parent || (parent.began <= span.began && span.ended <= parent.ended), span.name);
      }
      assert.ok(one("POST products").ended <= fetched.began, "the second wave follows the first");
      const second = one("wave 2");
      const inSecond = [fetched, one("POST stock")];
      assert.equal(second.began, inSecond.map(({ began }) => began).reduce((a, b) => (a < b ? a : b)));
      assert.equal(second.ended, inSecond.map(({ ended }) => ended).reduce((a, b) => (a > b ? a : b)));

      await send(router, TOP);
      const [, again] = await collector.named("query Top", 2);
      assert.equal(again.attributes["starling.plan.cached"], true);
      assert.ok(!treeOf(collector.trace(again.trace)).join().includes("parse"));
    });
  }

  it("continue at subgraphs, with the span of their request as the parent", async () => {
    const forwards = { headers: { all: { request: [{ propagate: { matching: "^trace" } }] } } };
    const { collector, router } = await open({}, forwards);
    await send(router, TOP, { traceparent: parentHeader("01"), tracestate: "vendor=1" });
    const [server] = await collector.named("POST /graphql");
    assert.deepEqual([server.trace, server.parent, server.state], [TRACE, PARENT, "vendor=1"]);
    const spans = collector.trace(TRACE);
    assert.equal(seen.length, 3);
    for (const [name, headers] of seen) {
      const { id } = spans.find((it) => it.name === `POST ${name}`);
      assert.equal(headers.traceparent, `00-${TRACE}-${id}-01`);
      assert.equal(headers.tracestate, "vendor=1");
    }
  });

  it("go to a gRPC collector with the configured headers, the last ones at the end of the router", async () => {
    const { collector, router } = await open({
      otlp: { protocol: "grpc", headers: [{ name: "x-key", value: "secret" }] },
    });
    await send(router, TOP);
    await collector.named("POST /graphql");
    const [{ path, headers }] = collector.requests;
    assert.equal(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert.equal(headers["x-key"], "secret");
    await send(router, "query Later { products { id } }");
    assert.equal(await router.stop(), 0);
    await collector.named("query Later");
  });

  for (const [format, { sent, received }] of Object.entries(FORMATS)) {
    it(`are read and written as ${format}`, async () => {
      const sample = { ratio: "0%", slow: "0s", failed: false };
      const { collector, router } = await open({ sample, propagation: [format, "baggage"] });
      await send(router, "query One { products { id } }", { ...sent, baggage: "user=7" });
      const [span] = await collector.named("POST products");
      const [server] = await collector.named("POST /graphql");
      assert.deepEqual([server.trace, server.parent], [TRACE, PARENT]);
      const [[, headers]] = seen;
      const expected = { ...received(span.id), baggage: "user=7" };
      assert.deepEqual(Object.fromEntries(Object.keys(expected).map((name) => [name, headers[name]])), expected);
      assert.equal(headers.traceparent, expected.traceparent);
    });
  }

  it("are not exported if the client or the ratio says so, and continue at subgraphs all the same", async () => {
    const sample = { ratio: "0%", slow: "0s", failed: false };
    const { collector, router } = await open({ sample });
    await send(router, TOP, { traceparent: parentHeader("00") });
    assert.match(seen[0][1].traceparent, new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    assert.notEqual(seen[0][1].traceparent.slice(36, 52), PARENT);
    await send(router, TOP);
    assert.match(seen[3][1].traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    await send(router, "query Selected { products { id } }", { traceparent: parentHeader("01") });
    await collector.named("query Selected");
    assert.deepEqual(collector.spans.filter(({ kind }) => kind === "server").length, 1);
    const alone = await open({ sample: { ...sample, parent: false } });
    await send(alone.router, TOP, { traceparent: parentHeader("01") });
    assert.match(seen.at(-1)[1].traceparent, /-00$/);
    await alone.router.stop();
    assert.deepEqual(alone.collector.spans, []);
  });

  it("are selected by conditions on the request and its operation", async () => {
    const rules = [
      { when: "operation.name == 'Unwanted'", ratio: "0%" },
      { when: "request.headers['x-debug'] == 'yes'", ratio: "100%" },
      { when: "operation.name.startsWith('Wanted')", ratio: "100%" },
    ];
    const { collector, router } = await open({ sample: { ratio: "0%", slow: "0s", failed: false, rules } });
    const flags = () => seen.at(-1)[1].traceparent.slice(-2);
    const cases = [
      ["WantedOne", {}, "01"], ["Other", {}, "00"], ["Other", { "x-debug": "yes" }, "01"],
      ["Unwanted", { "x-debug": "yes" }, "00"], ["WantedTwo", { traceparent: parentHeader("00") }, "00"],
    ];
    for (const [name, headers, expected] of cases) {
      await send(router, `query ${name} { products { id } }`, headers);
      assert.equal(flags(), expected, name);
    }
    const socket = openSocket(router);
    await socket.subscribe("query WantedThree { products { id } }").next();
    assert.equal(flags(), "01");
    await socket.dispose();
    const value = await metrics(router);
    // The header is absent from most of the requests.
    assert.equal(value("starling_expression_trace_failures_total"), 4);
    assert.equal(value("starling_traces_sampled_total"), 3);
    await router.stop();
    const names = collector.spans.map(({ name }) => name).filter((name) => name.startsWith("query "));
    assert.deepEqual(names, ["query WantedOne", "query Other", "query WantedThree"]);
  });

  it("of slow and failed requests are exported whatever the ratio is", async () => {
    const { collector, router } = await open({ sample: { ratio: "0%", slow: "300ms" } });
    await send(router, "query Fast { products { id } }");
    await send(router, "query Slow { slow }");
    await send(router, "query Broken { broken }");
    await send(router, "query Invalid { nothing }");
    const [slow] = await collector.named("query Slow");
    const [broken] = await collector.named("query Broken");
    assert.ok(slow.ended - slow.began >= 300_000_000n);
    assert.equal(broken.error, "the response has errors");
    assert.equal(broken.attributes["starling.response.errors"], 1);
    await router.stop();
    const names = collector.spans.map(({ name }) => name);
    assert.ok(!names.includes("query Fast") && !names.includes("GraphQL Operation"), names.join());
    assert.ok(!collector.requests.some(({ text }) => text.includes("hidden reason")));
  });

  it("say why a request to a subgraph failed, and how often it was repeated", async () => {
    const traffic = { all: { retry: { retries: 2, initial: "1ms", max: "1ms" } } };
    const away = `http://127.0.0.1:${await freePort()}/graphql`;
    const { collector, router } = await open({}, { traffic, subgraphs: { products: { url: away } } });
    await send(router, TOP);
    const [failed] = await collector.named("POST products");
    assert.match(failed.error, /^connection failed: /);
    assert.equal(failed.attributes["error.type"], "connect");
    assert.equal(failed.attributes["http.request.resend_count"], 2);
    assert.equal(failed.attributes["url.full"], away);
  });

  it("say which requests were shared, and what came from memory", async () => {
    const cache = { enabled: true, subgraphs: { all: { ttl: "1m" } } };
    const { collector, router } = await open({}, { cache });
    const slow = "query Slow { slow }";
    await Promise.all([send(router, slow), send(router, slow)]);
    const operations = await collector.named("query Slow", 2);
    const roles = operations.map(({ attributes }) => attributes["starling.operation.sharing"]).sort();
    assert.deepEqual(roles, ["follower", "leader"]);
    const others = "query Others { products { name reviews } }";
    await send(router, others);
    const [first] = await collector.named("query Others");
    assert.equal(first.attributes["starling.response.cache"], "miss");
    await send(router, others);
    const [, second] = await collector.named("query Others", 2);
    assert.equal(second.attributes["starling.response.cache"], "hit");
    await send(router, "query Parts { products { name reviews } __typename }");
    const [parts] = await collector.named("query Parts");
    const tree = treeOf(collector.trace(parts.trace)).map((line) => line.trim());
    assert.ok(tree.includes("cache products") && tree.includes("cache reviews"), tree.join());
    const [stored] = await collector.named("cache reviews");
    assert.equal(stored.attributes["starling.cache.fresh"], 2);
  });

  it("have each operation of a batch", async () => {
    const { collector, router } = await open({}, { http: { batching: { enabled: true } } });
    await send(router, [{ query: "query One { products { id } }" }, { query: "query Two { broken }" }]);
    const [one] = await collector.named("query One");
    const [two] = await collector.named("query Two");
    assert.deepEqual([one.trace, one.parent], [two.trace, two.parent]);
    assert.ok(two.error && !one.error);
  });

  it("have each operation on a WebSocket", async () => {
    const { collector, router } = await open();
    const socket = openSocket(router);
    await socket.subscribe(TOP).next();
    await socket.subscribe("query Invalid { nothing }").ended();
    const [top] = await collector.named("query Top");
    const [invalid] = await collector.named("GraphQL Operation");
    assert.equal(invalid.error, "GRAPHQL_VALIDATION_FAILED");
    assert.notEqual(top.trace, invalid.trace);
    assert.deepEqual(treeOf(collector.trace(top.trace)), ["WebSocket operation (server)", ...TOP_TREE.slice(1)]);
    assert.equal(seen[0][1].traceparent.slice(3, 35), top.trace);
    await socket.dispose();
  });

  it("continue the trace that an operation on a WebSocket names", async () => {
    const { collector, router } = await open({ sample: { ratio: "0%", slow: "0s", failed: false } });
    const socket = openSocket(router);
    for (const traceparent of ["nonsense", parentHeader("00"), parentHeader("01")]) {
      await socket.subscribe({ query: TOP, extensions: { traceparent } }).next();
    }
    const [top] = await collector.named("query Top");
    const [message] = await collector.named("WebSocket operation");
    assert.deepEqual([message.trace, message.parent, top.trace, top.parent], [TRACE, PARENT, TRACE, message.id]);
    assert.equal(seen.at(-1)[1].traceparent.slice(3, 35), TRACE);
    const selected = collector.spans.filter(({ name }) => name === "query Top");
    assert.equal(selected.length, 1, "only the one that was selected");
    await socket.dispose();
  });

  it("contain no secret of a request", async () => {
    const { collector, router } = await open({
      otlp: { headers: [{ name: "authorization", value: "Bearer collector-secret" }] },
    });
    const query = "query Renamed($id: ID!) { products { id } slow: __typename @skip(if: true) alias: products { id(x: 1) } }";
    const secret = { authorization: "Bearer hidden-token", cookie: "c=hidden-cookie", "x-key": "hidden-header" };
    await send(router, { query, variables: { id: "hidden-variable" } }, secret);
    await send(router, { query: "query Secret { products(hidden: \"hidden-literal\") { id } }" }, secret);
    await fetch(`${router.graphql}?query=${encodeURIComponent("{ products { id } }")}&variables=${encodeURIComponent('{"a":"hidden-url"}')}`, {
      headers: { ...secret, "apollo-require-preflight": "1" },
    });
    await collector.named("POST /graphql", 2);
    await collector.named("GET /graphql");
    assert.ok(collector.requests.every(({ text }) => !text.includes("hidden")));
    assert.ok(collector.requests.every(({ headers }) => headers.authorization === "Bearer collector-secret"));
    assert.doesNotMatch(router.output(), /collector-secret/);
  });

  it("have the events that mutations publish", async () => {
    const graph = await compose({
      products: { sdl: PRODUCTS, url: products.url }, notices: { sdl: NOTICES },
    });
    const config = { events: { providers: { memory: [{ id: "default" }] } } };
    const { collector, router } = await open({}, config, graph);
    await send(router, "mutation Announce { announce(text: \"late\") { success } }");
    const [message] = await collector.named("send announce");
    assert.equal(message.kind, "producer");
    assert.deepEqual(message.attributes, {
      "messaging.system": "memory", "messaging.operation.type": "send", "messaging.operation.name": "send",
      "messaging.destination.template": "notices.{{args.text}}", "starling.field": "announce",
      "starling.provider": "memory/default",
    });
  });

  it("are all exported at the end of the router", async () => {
    const { collector, router } = await open({ otlp: { interval: "1h" } });
    for (let count = 0; count < 20; count++) await send(router, TOP);
    assert.equal(collector.requests.length, 0);
    assert.equal(await router.stop(), 0);
    assert.equal(collector.spans.filter(({ kind }) => kind === "server").length, 20);
  });

  for (const protocol of ["http", "grpc"]) {
    it(`of all requests that were served are exported if the router ends meanwhile, by ${protocol}`, async () => {
      const unshared = { sharing: { operations: false, subgraph_queries: false } };
      const { collector, router } = await open({ otlp: { protocol, interval: "1h" } }, unshared);
      const served = [];
      let isOver = false;
      const client = async (number) => {
        for (let count = 0; !isOver; count += 1) {
          const name = `Client${number}Request${count}`;
          // The router ends between two requests of a client, or during one.
          const response = await send(router, `query ${name} { products { name reviews stock } }`).catch(() => null);
          if (response?.status !== 200) return;
          served.push(name);
        }
      };
      const clients = Array.from({ length: 6 }, (_, number) => client(number));
      await eventually(() => served.length > 60, "some requests");
      assert.equal(await router.stop(), 0);
      isOver = true;
      await Promise.all(clients);
      const names = new Set(collector.spans.map(({ name }) => name));
      assert.deepEqual(served.filter((name) => !names.has(`query ${name}`)), []);
      // Each of their traces is complete.
      for (const { trace } of collector.spans.filter(({ name }) => served.includes(name.replace("query ", "")))) {
        assert.deepEqual(treeOf(collector.trace(trace)).map((line) => line.replace(/query .*/, "query Top")), TOP_TREE);
      }
    });
  }

  it("cost requests no time, and bounded memory, if the collector is slow or absent", async () => {
    const exports = (endpoint) => ({
      metrics: { otlp: { enabled: true, endpoint, interval: "500ms", timeout: "1h" } },
    });
    const away = `http://127.0.0.1:${await freePort()}/v1`;
    const plain = keep(await startServe({ supergraph }));
    const hangingCollector = keep(await startCollector());
    hangingCollector.respond = () => null;
    const { router: hanging } = await open(
      { queue: "16KiB", otlp: { endpoint: hangingCollector.endpoint, timeout: "1h" } },
      exports(hangingCollector.metricsEndpoint),
    );
    const { router: absent } = await open(
      { queue: "16KiB", otlp: { endpoint: `${away}/traces` } }, exports(`${away}/metrics`),
    );
    await send(hanging, TOP);
    const pathsOfExports = () => hangingCollector.requests.map(({ path }) => path).sort();
    await eventually(() => pathsOfExports().length === 2, "the exports that the collector does not respond to");
    await send(absent, TOP);
    for (const name of ["starling_trace_export_failures_total", "starling_metric_export_failures_total"]) {
      await eventually(async () => (await metrics(absent))(name) > 0, name);
    }

    const request = (router) => async () => assert.equal((await send(router, TOP)).status, 200);
    const sides = { "no collector": request(plain), hanging: request(hanging), absent: request(absent) };
    // A request that waited for the collector that hangs would take an hour. Spans cost some time in a build without
    // optimisation.
    const bounds = { median: { times: 1.5, more: 2 }, p99: { times: 2, more: 20 } };
    assert.deepEqual(await slowerThan("no collector", sides, { count: 200, bounds, attempts: 3 }), []);

    assert.deepEqual(pathsOfExports(), ["/v1/metrics", "/v1/traces"], "the next export waits for the first one");
    for (const router of [hanging, absent]) {
      const value = await metrics(router);
      assert.ok(value("starling_traces_dropped_total") > 0);
      assert.ok(value("starling_trace_queue_bytes") <= 16 << 10);
    }
    hangingCollector.respond = () => 200;
  });

  it("wait for a collector that is away or busy, and no request waits", async () => {
    const { collector, router } = await open();
    collector.respond = (number) => [429, { status: 503, headers: { "retry-after": "0" } }][number - 1] ?? 200;
    await send(router, TOP);
    await collector.named("query Top");
    assert.ok(collector.requests.length >= 3);
    await collector.stop();
    const { status } = await send(router, "query Later { products { id } }");
    assert.equal(status, 200);
    await eventually(async () => (await metrics(router))("starling_trace_export_failures_total") >= 3, "a failure");
    assert.match(router.output(), /traces cannot be exported: the collector does not take them/);
    const back = keep(await startCollector(collector.port));
    await back.named("query Later");
    assert.equal((await metrics(router))("starling_trace_spans_lost_total"), 0);
  });

  it("are dropped and counted while a collector hangs, and no request waits", async () => {
    const { collector, router } = await open({ queue: "16KiB" });
    collector.respond = () => null;
    await send(router, TOP);
    await eventually(() => collector.requests.length === 1, "the first export");
    for (let count = 0; count < 100; count++) assert.equal((await send(router, TOP)).status, 200);
    const value = await metrics(router);
    assert.ok(value("starling_traces_dropped_total") > 50);
    assert.ok(value("starling_trace_queue_bytes") <= 16 << 10);
    assert.equal(value("starling_trace_spans_exported_total"), 0);
    assert.equal(await router.stop(), 0);
  });
});

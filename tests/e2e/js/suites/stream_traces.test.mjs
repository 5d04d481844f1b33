// Traces of what outlives a request: operations that subgraphs serve as streams, requests over their WebSockets, the
// executions of live queries, and the initial states of subscriptions.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { startCollector, treeOf } from "../collector.mjs";
import { compose } from "../composition.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { SERVERS } from "../subgraphs/servers.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { PARENT, TRACE } from "../traced_products.mjs";
import { eventually } from "../waiting.mjs";

const CLIENT = { traceparent: `00-${TRACE}-${PARENT}-01`, baggage: "user=7" };
const FORMATS = ["tracecontext", "baggage", "b3", "b3multi", "jaeger", "datadog"];
const ALWAYS = { ratio: "100%" };

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])';
const STOCKED = `${LINK}
type Query { product: Product }
type Product @key(fields: "id") { id: ID! name: String }`;
const CHANGES = `${LINK}
type Subscription {
  changed(id: ID!): Product
    @events__subscribe(topics: ["products.{{ args.id }}"], providerId: "memory/default", initial: ENTITY)
}
type Product @key(fields: "id", resolvable: false) { id: ID! }`;
const changed = (id) => `subscription Changed { changed(id: "${id}") { id name } }`;

describe("traces of streams", () => {
  const keep = closeAfterEach();

  /** Starts a router that exports all traces, in front of the reviews with the server that `start` begins. */
  async function open({ start = startGraphqlWs, more, config }) {
    const reviews = createReviews();
    const [server, products, collector] = await Promise.all([start(reviews), startProducts(), startCollector()]);
    [server, products, collector].forEach(keep);
    const tracing = {
      enabled: true, sample: ALWAYS, propagation: FORMATS,
      otlp: { endpoint: collector.endpoint, interval: "20ms" },
    };
    const router = keep(await startRouter(
      { reviews: { ...server, sdl: reviews.sdl, more }, products }, { tracing, ...config },
    ));
    return { reviews, products, collector, router };
  }

  /** The span that these headers, or members of `extensions`, name as the parent, once the collector has it. */
  async function parentOf(collector, { traceparent }) {
    const [, trace, id] = traceparent.split("-");
    return eventually(() => collector.spans.find((it) => it.trace === trace && it.id === id), "the span");
  }

  /** Checks that all formats name the same span. */
  function checkFormats(sent, { trace, id }) {
    const decimal = (digits) => `${BigInt(`0x${digits}`)}`;
    const expected = {
      traceparent: `00-${trace}-${id}-01`, b3: `${trace}-${id}-1`,
      "x-b3-traceid": trace, "x-b3-spanid": id, "x-b3-sampled": "1", "uber-trace-id": `${trace}:${id}:0:1`,
      "x-datadog-trace-id": decimal(trace.slice(16)), "x-datadog-parent-id": decimal(id),
      "x-datadog-sampling-priority": "1", "x-datadog-tags": `_dd.p.tid=${trace.slice(0, 16)}`,
    };
    assert.deepEqual(Object.fromEntries(Object.keys(expected).map((name) => [name, sent[name]])), expected);
  }

  for (const { name, start, isSocket } of SERVERS) {
    it(`continue at the subgraph of a subscription, from its first client: ${name}`, async () => {
      const { reviews, collector, router } = await open({ start });
      const request = { query: REVIEW_ADDED, variables: { product: "kettle" } };
      const socket = keep(openSocket(router));
      socket.subscribe(request);
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      keep(openStreams(router, CLIENT)).subscribe(request);
      await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 2, "both clients");
      const [{ headers, extensions }, ...others] = reviews.started;
      assert.deepEqual(others, [], "both clients share the operation");
      const sent = isSocket ? extensions : headers;
      const operation = await parentOf(collector, sent);
      assert.equal(operation.name, "subscription ReviewAdded");
      assert.notEqual(operation.trace, TRACE, "an operation on a WebSocket has a trace of its own");
      checkFormats(sent, operation);
      // The operations of a WebSocket share its handshake.
      if (isSocket) assert.equal(headers.traceparent, undefined);
    });
  }

  it("continue at a subgraph that gets its queries over a WebSocket", async () => {
    const { reviews, collector, router } = await open({ more: { queries_over: "websocket" } });
    const response = await fetch(router.graphql, {
      method: "POST", headers: { "content-type": "application/json", ...CLIENT },
      body: JSON.stringify({ query: 'mutation Add { addReview(id: "9", product: "kettle") { id } }' }),
    });
    assert.deepEqual(await response.json(), { data: { addReview: { id: "9" } } });
    const [{ headers, extensions }] = reviews.queried;
    const request = await parentOf(collector, extensions);
    assert.deepEqual([request.name, request.trace], ["POST reviews", TRACE]);
    checkFormats(extensions, request);
    assert.equal(extensions.baggage, "user=7");
    assert.equal(headers.traceparent, undefined);
  });

  it("of a live query are one for each execution, linked to the operation that began it", async () => {
    const { products, collector, router } = await open({
      config: {
        cache: { enabled: true, subgraphs: { all: { ttl: "1h" } } },
        live_queries: { enabled: true, throttle_min: "0s" },
      },
    });
    const live = keep(openSocket(router)).subscribe('query Watched @live { product(upc: "kettle") { name } }');
    assert.deepEqual(await live.next(), { data: { product: { name: "Name of kettle" } } });
    await fetch(`${router.admin}/admin/invalidate`, { method: "POST", body: JSON.stringify([{ kind: "all" }]) });
    await eventually(() => products.requests.length === 2, "the second execution");
    const [operation] = await collector.named("query Watched");
    const traces = new Set();
    for (const { headers } of products.requests) {
      const request = await parentOf(collector, headers);
      checkFormats(headers, request);
      const spans = collector.trace(request.trace);
      assert.deepEqual(treeOf(spans), ["live query Watched", "  print", "  wave 1", "    POST products (client)"]);
      const root = spans.find(({ name }) => name === "live query Watched");
      assert.deepEqual(root.links, [{ trace: operation.trace, span: operation.id }]);
      const { "starling.operation.id": id, ...attributes } = root.attributes;
      assert.match(id, /^[0-9a-f]{32}$/);
      assert.deepEqual(attributes, { "graphql.operation.type": "query", "graphql.operation.name": "Watched" });
      traces.add(request.trace);
    }
    assert.equal(traces.size, 2);
    assert.ok(!traces.has(operation.trace));
  });

  /**
   * Starts a router for subscriptions with an initial state. The subgraph with the states keeps the `headers` of its
   * requests, and responds when `respond` is called.
   */
  async function openWithStates(sample) {
    const headers = [];
    let respond;
    const wait = new Promise((resolve) => {
      respond = resolve;
    });
    const products = keep(await startSubgraph(async (body, request) => {
      headers.push(request.headers);
      await wait;
      return {
        _entities: representations(body).map(({ id }) => ({ __typename: "Product", id, name: `Product ${id}` })),
      };
    }));
    const collector = keep(await startCollector());
    const router = keep(await startServe({
      supergraph: await compose({ products: { sdl: STOCKED, url: products.url }, changes: { sdl: CHANGES } }),
      config: {
        events: { providers: { memory: [{ id: "default" }] } },
        tracing: {
          enabled: true, sample, propagation: FORMATS, otlp: { endpoint: collector.endpoint, interval: "20ms" },
        },
      },
    }));
    return { headers, respond, collector, router };
  }

  it("of an initial state are one for all that share it, linked to the operation of the first client", async () => {
    const { headers, respond, collector, router } = await openWithStates(ALWAYS);
    const first = keep(openSocket(router)).subscribe(changed("7"));
    await eventually(() => headers.length === 1, "the request for the state");
    const second = keep(openStreams(router, CLIENT)).subscribe(changed("7"));
    const shared = () => readMetric(router, "starling_hub_states_shared_total");
    await eventually(async () => await shared() === 1, "the client that shares the state");
    respond();
    for (const client of [first, second]) {
      const { data } = await client.next();
      assert.deepEqual(data, { changed: { id: "7", name: "Product 7" } });
    }
    const [state] = await collector.named("initial state changed");
    const spans = collector.trace(state.trace);
    assert.deepEqual(treeOf(spans), [
      "initial state changed",
      "  subscription Changed",
      "    broadcast",
      "    print",
      "    wait",
      "    wave 1",
      "      POST products (client)",
    ]);
    const { "starling.operation.id": id, ...attributes } = state.attributes;
    assert.match(id, /^[0-9a-f]{32}$/);
    assert.deepEqual(attributes, {
      "starling.field": "changed", "graphql.operation.type": "subscription", "graphql.operation.name": "Changed",
    });
    const one = (name) => spans.find((it) => it.name === name);
    assert.equal(one("subscription Changed").attributes["starling.subscribers"], 2);
    assert.equal(headers.length, 1, "both clients share the state");
    checkFormats(headers[0], one("POST products"));
    assert.equal(headers[0].baggage, undefined, "the baggage of one client concerns no other one");
    const [message] = await collector.named("WebSocket operation");
    const operation = collector.spans.find(({ parent }) => parent === message.id);
    assert.equal(operation.name, "subscription Changed");
    assert.deepEqual(state.links, [{ trace: operation.trace, span: operation.id }]);
    assert.notEqual(state.trace, operation.trace);
  });

  it("of initial states follow the decision about the operation", async () => {
    const { headers, respond, collector, router } = await openWithStates({ ratio: "0%", slow: "0s", failed: false });
    respond();
    for (const [id, flags] of [["8", "00"], ["7", "01"]]) {
      const streams = keep(openStreams(router, { traceparent: `00-${TRACE}-${PARENT}-${flags}` }));
      const { data } = await streams.subscribe(changed(id)).next();
      assert.equal(data.changed.id, id);
    }
    const [state] = await collector.named("initial state changed");
    assert.deepEqual(headers.map(({ traceparent }) => traceparent.slice(-2)), ["00", "01"]);
    assert.equal(headers[1].traceparent.slice(3, 35), state.trace);
    const [link] = state.links;
    const operation = await eventually(() => collector.spans.find((it) => it.id === link.span), "the operation");
    assert.deepEqual([operation.name, operation.trace, link.trace], ["subscription Changed", TRACE, TRACE]);
    assert.equal(collector.spans.filter(({ name }) => name === state.name).length, 1);
  });
});

// Traces and metrics at a real OpenTelemetry collector, over both of its protocols.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { connect, headers as natsHeaders } from "nats";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { representations } from "../counting_subgraph.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { startNats } from "../nats.mjs";
import { startOpenTelemetryCollector } from "../opentelemetry_collector.mjs";
import { natsServer, openTelemetryCollector, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { checkTrace } from "../trace_snapshots.mjs";
import { PARENT, ROUTER_IDENTITY, TOP, TRACE, product, startTracedProducts } from "../traced_products.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])';
const PRODUCTS = `
type Query { products: [Product!] }
type Product @key(fields: "id") { id: ID! name: String }`;
const TOPIC = "products.changed";
const CHANGES = `${LINK}
type Subscription {
  changed: Product @events__subscribe(topics: ["${TOPIC}"], providerId: "nats/default")
}
type Product @key(fields: "id", resolvable: false) { id: ID! }`;

describe("a real OpenTelemetry collector", { skip: skipWithout(openTelemetryCollector, "otelcol") }, () => {
  const keep = closeAfterEach();
  let subgraphs, supergraph, eventGraph, collector;

  before(async () => {
    const respond = (body) => {
      if (body.query.includes("_entities")) {
        return { _entities: representations(body).map(({ id }) => product(id)) };
      }
      return { products: ["1", "2"].map(product) };
    };
    subgraphs = await startTracedProducts({ sdl: PRODUCTS, link: LINK, respond });
    const { sources } = subgraphs;
    [supergraph, eventGraph, collector] = await Promise.all([
      compose(sources), compose({ ...sources, changes: { sdl: CHANGES } }), startOpenTelemetryCollector(),
    ]);
  });
  after(async () => {
    await collector?.stop();
    await subgraphs?.stop();
  });

  /** Starts a router that exports by `protocol`, as an instance with this name. With `events` it has subscriptions. */
  async function open(protocol, name, { events, metrics } = {}) {
    const { traces, metrics: metricsUrl } = collector.endpoints[protocol];
    return keep(await startServe({
      supergraph: events ? eventGraph : supergraph,
      config: {
        ...(events && { events }),
        tracing: {
          enabled: true, sample: { ratio: "100%" },
          ...ROUTER_IDENTITY, resource: { ...ROUTER_IDENTITY.resource, "service.instance.id": name },
          otlp: { protocol, endpoint: traces, interval: "20ms" },
        },
        metrics: { otlp: { enabled: true, protocol, endpoint: metricsUrl, interval: "100ms", ...metrics } },
      },
    }));
  }

  async function send(router, query) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", "graphql-client-name": "shop", "user-agent": "tests" },
      body: JSON.stringify({ query }),
    });
    return response.json();
  }

  const of = (name) => (it) => it.resource["service.instance.id"] === name;

  for (const protocol of ["http", "grpc"]) {
    it(`gets the spans of a query over three subgraphs, by ${protocol}`, async () => {
      const name = `query-${protocol}`;
      const router = await open(protocol, name);
      await send(router, TOP);
      const server = await eventually(
        () => collector.spans.find((it) => of(name)(it) && it.kind === "server"), "the trace",
      );
      await checkTrace(collector.trace(server.trace), "query_over_three_subgraphs");
    });

    it(`gets the metrics that Prometheus gets, by ${protocol}`, async () => {
      const name = `metrics-${protocol}`;
      const router = await open(protocol, name);
      for (let count = 0; count < 3; count += 1) await send(router, TOP);
      const labels = { operation: "Top", kind: "query" };
      const mine = (condition) => (it) => of(name)(it) && condition(it);
      const requests = await collector.value(
        "starling_named_operation_requests", labels, mine(({ value }) => value === 3),
      );
      assert.deepEqual([requests.type, requests.isMonotonic, requests.temporality], ["sum", true, "cumulative"]);
      const durations = await collector.value(
        "starling_named_operation_duration_seconds", labels, mine(({ value }) => value === 3),
      );
      assert.deepEqual(durations.bounds, [0.005, 0.025, 0.1, 0.25, 1, 2.5, 10]);
      assert.equal(durations.buckets.reduce((sum, count) => sum + count, 0), 3);
      assert.equal(durations.unit, "s");
      const client = await collector.value("starling_client_requests", { client: "shop" }, of(name));
      assert.ok(client.value >= 1);
      const connections = await collector.value("starling_http_connections", {}, of(name));
      assert.equal(connections.type, "gauge");
      // Every sample of the text is a value of the collector.
      const scraped = await scrape(router);
      const suffix = /_(total|sum|count|bucket)$/;
      const families = new Set([...scraped.types.keys()].map((it) => it.replace(/_total$/, "")));
      const listed = new Set(scraped.samples.map((it) =>
        (families.has(it.name) ? it.name : it.name.replace(suffix, ""))));
      const exported = new Set(collector.points.filter(of(name)).map((it) => it.name));
      assert.deepEqual([...exported].sort(), [...listed].sort());
      // An exemplar leads to its trace.
      const [exemplar] = collector.values("starling_operation_duration_seconds", { kind: "query" })
        .filter(of(name)).flatMap(({ exemplars }) => exemplars);
      const operation = collector.trace(exemplar.trace).find(({ id }) => id === exemplar.span);
      assert.equal(operation.name, "query Top");
    });

    it(`gets the last traces and metrics at the end of the router, by ${protocol}`, async () => {
      const name = `end-${protocol}`;
      const router = await open(protocol, name, { metrics: { interval: "1h" } });
      await send(router, TOP);
      assert.deepEqual(collector.points.filter(of(name)), []);
      assert.equal(await router.stop(), 0);
      const labels = { operation: "Top" };
      const [requests] = collector.values("starling_named_operation_requests", labels).filter(of(name));
      assert.equal(requests.value, 1);
      assert.ok(collector.spans.some((it) => of(name)(it) && it.name === "query Top"));
    });
  }

  describe("with NATS", { skip: skipWithout(natsServer, "nats-server") }, () => {
    let nats, publisher;
    before(async () => {
      nats = await startNats();
      publisher = await connect({ servers: nats.url });
    });
    after(async () => {
      await publisher?.close();
      await nats?.stop();
    });

    for (const protocol of ["http", "grpc"]) {
      it(`gets the spans of an event from NATS to a WebSocket, by ${protocol}`, async () => {
        const name = `event-${protocol}`;
        const events = { providers: { nats: [{ id: "default", url: nats.url }] } };
        const router = await open(protocol, name, { events });
        const publish = (id, traceparent) => {
          const headers = natsHeaders();
          if (traceparent) headers.set("traceparent", traceparent);
          publisher.publish(TOPIC, JSON.stringify({ id }), { headers });
        };
        const socket = openSocket(router);
        const changes = socket.subscribe("subscription Changes { changed { id name } }");
        await repeatUntil(changes.next(), () => publish("0"), "the first event");
        // Those before it must not wait with the event, because waiting events are resolved together.
        publish("1");
        await changes.find(({ data }) => data.changed.id === "1", "the event before");
        publish("7", `00-${TRACE}-${PARENT}-01`);
        await changes.find(({ data }) => data.changed.id === "7", "the event");
        const event = await eventually(() => collector.spans.find((it) => of(name)(it) && it.kind === "consumer"
          && it.links.some(({ span }) => span === PARENT)), "the trace of the event");
        await checkTrace(collector.trace(event.trace), "event_from_nats_to_websocket", [TRACE, PARENT]);
        await socket.dispose();
      });
    }
  });
});

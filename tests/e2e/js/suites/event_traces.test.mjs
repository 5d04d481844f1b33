// Traces of events: the spans from the receipt of a message to the sockets, what subgraphs get of the trace, the links
// to publishers, and which events are exported.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { connect, headers as natsHeaders } from "nats";
import { closeAfterEach } from "../closing.mjs";
import { startCollector, startGrpcCollector, treeOf } from "../collector.mjs";
import { compose } from "../composition.mjs";
import { GraphqlResponse, representations, startSubgraph } from "../counting_subgraph.mjs";
import { startKafka } from "../kafka.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { startNats } from "../nats.mjs";
import { kafkaJars, natsServer, redisServer, skipWithout } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { startServe } from "../router.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, review } from "../subgraphs/reviews.mjs";
import { startRouter } from "../subgraphs/router.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { checkTrace } from "../trace_snapshots.mjs";
import { PARENT, ROUTER_IDENTITY, TRACE } from "../traced_products.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])';
const PRODUCTS = `${LINK}
type Query { product: Product }
type Product @key(fields: "id") { id: ID! name: String }`;
const TOPIC = "products.changed";
const changesOf = (provider, more = "", subscribed = more) => `${LINK}
type Mutation {
  change(id: ID!): edfs__PublishResult! @events__publish(topic: "${TOPIC}", providerId: "${provider}/default"${more})
}
type Subscription {
  changed: Product @events__subscribe(topics: ["${TOPIC}"], providerId: "${provider}/default"${subscribed})
}
type Product @key(fields: "id", resolvable: false) { id: ID! }
type edfs__PublishResult { success: Boolean! }`;

const parentHeader = (flags) => `00-${TRACE}-${PARENT}-${flags}`;
const CHANGES = "subscription Changes { changed { id name } }";
const CHANGE = "mutation Change($id: ID!) { change(id: $id) { success } }";

const ALWAYS = { ratio: "100%" };
const NEVER = { ratio: "0%", slow: "0s", failed: false };

/** Starts a router that exports to a collector. */
async function open(keep, { supergraph, provider, settings, sample = ALWAYS, otlp = {}, tracing = {} }) {
  const collector = keep(await (otlp.protocol === "grpc" ? startGrpcCollector() : startCollector()));
  const router = keep(await startServe({
    supergraph,
    config: {
      events: { providers: { [provider]: [{ id: "default", ...settings }] } },
      tracing: {
        enabled: true, sample, ...tracing, otlp: { endpoint: collector.endpoint, interval: "20ms", ...otlp },
      },
    },
  }));
  return { collector, router };
}

async function send(router, body, headers = {}) {
  const response = await fetch(router.graphql, {
    method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body),
  });
  return response.json();
}

async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
}

/** The span of an event that is linked to a span, once it has come. */
const linkedEvent = (collector, link) => eventually(() => collector.spans.find(({ kind, links }) =>
  kind === "consumer" && links.some(({ trace, span }) => trace === link.trace && span === link.span)), "the event");

describe("traces of events", () => {
  const keep = closeAfterEach();
  let products, seen;
  before(async () => {
    products = await startSubgraph((body, request) => {
      const entities = representations(body).map(({ id }) => ({ __typename: "Product", id, name: `Product ${id}` }));
      seen.push({ ids: entities.map(({ id }) => id), traceparent: request.headers.traceparent });
      const isBroken = entities.some(({ id }) => id === "broken");
      return isBroken ? new GraphqlResponse({ _entities: [null] }, [{ message: "broken" }]) : { _entities: entities };
    });
  });
  beforeEach(() => {
    seen = [];
  });
  after(() => products?.stop());

  const supergraphOf = (provider, ...more) => compose({
    products: { sdl: PRODUCTS, url: products.url }, changes: { sdl: changesOf(provider, ...more) },
  });

  /** The header that the subgraph got with the request for a product. */
  const headerOf = (id) => seen.find(({ ids }) => ids.includes(id)).traceparent;

  const withId = (id) => ({ data }) => Object.values(data)[0]?.id === id;

  describe("of NATS", { skip: skipWithout(natsServer, "nats-server") }, () => {
    let nats, publisher, supergraph;
    before(async () => {
      [nats, supergraph] = await Promise.all([startNats(), supergraphOf("nats")]);
      publisher = await connect({ servers: nats.url });
    });
    after(async () => {
      await publisher?.close();
      await nats?.stop();
    });

    const openHere = (more) => open(keep, { supergraph, provider: "nats", settings: { url: nats.url }, ...more });

    function publish(id, sent = {}) {
      const headers = natsHeaders();
      for (const [name, value] of Object.entries(sent)) headers.set(name, value);
      publisher.publish(TOPIC, JSON.stringify({ id }), { headers });
    }

    /** Subscribes, and returns the subscription once events reach it. */
    async function subscribe(client, query = CHANGES) {
      const changes = client.subscribe(query);
      await repeatUntil(changes.next(), () => publish("0"), "the first event");
      return changes;
    }

    for (const protocol of ["http", "grpc"]) {
      it(`have the steps from the message to the socket, by ${protocol}`, async () => {
        const { collector, router } = await openHere({ otlp: { protocol }, tracing: ROUTER_IDENTITY });
        const socket = openSocket(router);
        const changes = await subscribe(socket);
        // Those before it must not wait with the event, because waiting events are resolved together.
        publish("1");
        await changes.find(withId("1"), "the event before");
        publish("7", { traceparent: parentHeader("01") });
        await changes.find(withId("7"), "the event");
        const event = await linkedEvent(collector, { trace: TRACE, span: PARENT });
        const spans = collector.trace(event.trace);
        await checkTrace(spans, "event_from_nats_to_websocket", [TRACE, PARENT]);
        const one = (name) => spans.find((it) => it.name === name);
        assert.equal(headerOf("7"), `00-${event.trace}-${one("POST products").id}-01`);
        for (const span of spans) {
          const parent = spans.find((it) => it.id === span.parent);
          assert.ok(span.began <= span.ended, span.name);
          assert.ok(!parent || (parent.began <= span.began && span.ended <= parent.ended), span.name);
        }
        assert.ok(one("print").ended <= one("broadcast").began, "the broadcast follows the printing");
        await socket.dispose();
      });
    }

    it("have each group, and its requests once", async () => {
      const { collector, router } = await openHere({});
      const [socket, streams] = [openSocket(router), openStreams(router)];
      const first = await subscribe(socket);
      // The subgraph gets the same request for another group, which has another result.
      const others = [await subscribe(streams), await subscribe(socket, CHANGES.replace("changed", "again: changed")),
        await subscribe(socket, "subscription Ids { changed { id } }")];
      publish("7", { traceparent: parentHeader("01") });
      for (const changes of [first, ...others]) await changes.find(withId("7"), "the event");
      const event = await linkedEvent(collector, { trace: TRACE, span: PARENT });
      const spans = collector.trace(event.trace);
      const groups = spans.filter(({ name }) => name.startsWith("subscription "));
      const members = groups.map(({ name, attributes }) => [name, attributes["starling.subscribers"]]);
      assert.deepEqual(members.sort(), [
        ["subscription Changes", 1], ["subscription Changes", 2], ["subscription Ids", 1],
      ]);
      const fetches = spans.filter(({ name }) => name === "POST products");
      const kinds = fetches.map(({ kind, attributes }) => [kind, attributes["starling.fetch.sharing"]]);
      assert.deepEqual(kinds.sort(), [["client", "leader"], ["internal", "follower"]]);
      assert.equal(seen.filter(({ ids }) => ids.includes("7")).length, 1);
      assert.equal(event.attributes["starling.event.groups"], 3);
      await socket.dispose();
      streams.dispose();
    });

    it("are linked to the mutations that publish them, and follow their decision", async () => {
      const { collector, router } = await openHere({ sample: NEVER });
      const socket = openSocket(router);
      const changes = await subscribe(socket);
      await send(router, { query: CHANGE, variables: { id: "8" } }, { traceparent: parentHeader("00") });
      await changes.find(withId("8"), "the event that is not selected");
      assert.match(headerOf("8"), /-00$/);
      await send(router, { query: CHANGE, variables: { id: "7" } }, { traceparent: parentHeader("01") });
      await changes.find(withId("7"), "the event");
      const [message] = await collector.named("send change");
      const event = await linkedEvent(collector, { trace: message.trace, span: message.id });
      assert.deepEqual([message.trace, event.trace === TRACE], [TRACE, false]);
      assert.equal(headerOf("7").slice(3, 35), event.trace);
      assert.equal(collector.spans.filter(({ kind }) => kind === "consumer").length, 1);
      await socket.dispose();
    });

    it("of failed events are exported whatever the ratio is", async () => {
      const { collector, router } = await openHere({ sample: { ...NEVER, failed: true } });
      const socket = openSocket(router);
      const changes = await subscribe(socket);
      publish("broken");
      publish("7");
      await changes.find(withId("7"), "the event behind it");
      const [group] = await collector.named("subscription Changes");
      assert.equal(group.error, "the result has errors");
      assert.match(headerOf("broken"), /-00$/);
      await socket.dispose();
      await router.stop();
      assert.equal(collector.spans.filter(({ kind }) => kind === "consumer").length, 1);
    });

    it("have a limit, and what is left out is counted", async () => {
      const { collector, router } = await openHere({ tracing: { max_spans: 16 } });
      const socket = openSocket(router);
      const queries = ["a", "b", "c", "d", "e", "f"].map((name) => `subscription { ${name}: changed { id name } }`);
      const all = [];
      for (const query of queries) all.push(await subscribe(socket, query));
      publish("7", { traceparent: parentHeader("01") });
      for (const changes of all) await changes.find(withId("7"), "the event");
      const event = await linkedEvent(collector, { trace: TRACE, span: PARENT });
      // Itself, its filters, and for each group itself, the wait, the request, the printing and the broadcast.
      assert.equal(collector.trace(event.trace).length, 16);
      assert.ok(await metric(router, "starling_trace_spans_left_out_total") >= 2 + 6 * 5 - 16);
      await socket.dispose();
    });

    it("are neither made nor passed on if they are off", async () => {
      const router = keep(await startServe({
        supergraph, config: { events: { providers: { nats: [{ id: "default", url: nats.url }] } } },
      }));
      const socket = openSocket(router);
      const changes = await subscribe(socket);
      publish("7");
      await changes.find(withId("7"), "the event");
      assert.ok(seen.length >= 2 && seen.every(({ traceparent }) => traceparent === undefined));
      await socket.dispose();
    });
  });

  it("of a subscription that a subgraph serves name the subgraph", async () => {
    const reviews = createReviews();
    const [server, stock, collector] = await Promise.all([startGraphqlWs(reviews), startProducts(), startCollector()]);
    [server, stock, collector].forEach(keep);
    const tracing = { enabled: true, sample: ALWAYS, otlp: { endpoint: collector.endpoint, interval: "20ms" } };
    const router = keep(await startRouter(
      { reviews: { ...server, sdl: reviews.sdl, subscription: server.subscription }, products: stock }, { tracing },
    ));
    const socket = openSocket(router);
    const added = socket.subscribe({ query: REVIEW_ADDED, variables: { product: "kettle" } });
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    reviews.publish(review(1, "kettle"));
    await added.next();
    const [event] = await collector.named("process reviewAdded");
    assert.deepEqual([event.kind, event.links], ["consumer", []]);
    assert.equal(event.attributes["starling.subgraph"], "reviews");
    assert.equal(event.attributes["messaging.system"], undefined);
    const names = treeOf(collector.trace(event.trace)).map((line) => line.trim());
    assert.ok(names.includes("broadcast") && names.includes("POST products (client)"), names.join());
    await socket.dispose();
  });

  const withoutNats = skipWithout(natsServer, "nats-server");
  it("of JetStream that are read again with a cursor have these steps, and say so", { skip: withoutNats }, async () => {
    const [nats, supergraph] = await Promise.all([
      startNats(-1, { stores: true }), supergraphOf("nats", "", ', stream: {name: "PRODUCTS"}'),
    ]);
    keep(nats);
    const publisher = await connect({ servers: nats.url });
    keep({ stop: () => publisher.close() });
    const manager = await publisher.jetstreamManager();
    await manager.streams.add({ name: "PRODUCTS", subjects: ["products.>"] });
    /** Returns when the event is stored. */
    const publish = (id, traceparent) => {
      const headers = natsHeaders();
      if (traceparent) headers.set("traceparent", traceparent);
      return publisher.jetstream().publish(TOPIC, JSON.stringify({ id }), { headers });
    };
    const { collector, router } = await open(keep, { supergraph, provider: "nats", settings: { url: nats.url } });
    const first = openSocket(router);
    const changes = first.subscribe(CHANGES);
    await repeatUntil(changes.next(), () => publish("0"), "the first event");
    await publish("1");
    const { extensions: { cursor } } = await changes.find(withId("1"), "the event before the cursor");
    await first.dispose();
    await publish("7", parentHeader("01"));
    const second = openSocket(router);
    const again = second.subscribe({ query: CHANGES, extensions: { cursor } });
    await again.find(withId("7"), "the event that was missed");
    const isReadAgain = ({ attributes }) => attributes["starling.event.catching_up"] === true;
    const isOfPublisher = ({ links }) => links.some(({ trace, span }) => trace === TRACE && span === PARENT);
    // The router may have delivered the event to the first client before it noticed that the client was gone.
    const event = await eventually(
      () => collector.spans.find((it) => isReadAgain(it) && isOfPublisher(it)), "the event that was read again");
    assert.deepEqual([event.name, event.kind, event.trace === TRACE], ["process changed", "consumer", false]);
    assert.equal(event.attributes["starling.event.groups"], 1);
    const spans = collector.trace(event.trace);
    const names = spans.filter(({ id }) => id !== event.id).map(({ name }) => name);
    assert.deepEqual(names.sort(), ["POST products", "broadcast", "print", "subscription Changes", "wait", "wave 1"]);
    const fetched = spans.find(({ name }) => name === "POST products");
    const sent = seen.filter(({ ids }) => ids.includes("7")).map(({ traceparent }) => traceparent);
    assert.ok(sent.includes(`00-${event.trace}-${fetched.id}-01`), sent.join());
    assert.equal(collector.spans.filter(isReadAgain).length, 1, "the others were new");
    await second.dispose();
  });

  /** Publishes by mutations until an event comes, and checks that events are linked to messages. */
  async function checkLinks(supergraph, provider, settings) {
    const { collector, router } = await open(keep, { supergraph, provider, settings, sample: NEVER });
    const socket = openSocket(router);
    const changes = socket.subscribe(CHANGES);
    await repeatUntil(changes.next(), async (number) => {
      await send(router, { query: CHANGE, variables: { id: `${number}` } }, { traceparent: parentHeader("01") });
    }, "the first event");
    const [message] = await collector.named("send change");
    assert.equal(message.attributes["messaging.system"], provider);
    const linked = () => collector.spans.filter(({ kind }) => kind === "consumer").map(({ links }) => links[0]);
    await eventually(() => linked().length > 0, "the event");
    const isSent = ({ trace, span }) => trace === TRACE
      && collector.spans.some(({ name, id }) => name === "send change" && id === span);
    await eventually(() => linked().every(isSent), "the messages of the events");
    await socket.dispose();
  }

  it("of Kafka are linked by the headers of records", { skip: skipWithout(kafkaJars, "a Kafka broker") }, async () => {
    const [broker, supergraph] = await Promise.all([startKafka(), supergraphOf("kafka")]);
    keep(broker);
    await broker.topics("--create", "--topic", TOPIC, "--partitions", "1");
    await checkLinks(supergraph, "kafka", { brokers: [broker.address] });
  });

  const withoutRedis = skipWithout(redisServer, "redis-server");
  it("of Redis Streams are linked by the fields of entries", { skip: withoutRedis }, async () => {
    const [redis, supergraph] = await Promise.all([startRedis(), supergraphOf("redis", ", stream: {}")]);
    keep(redis);
    await checkLinks(supergraph, "redis", { urls: [redis.url] });
  });
});

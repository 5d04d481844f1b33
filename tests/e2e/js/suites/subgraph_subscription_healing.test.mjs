// Subscriptions that subgraphs serve themselves, while the subgraph fails: what heals, and what clients see of it.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startMultipart } from "../subgraphs/multipart.mjs";
import { startProcess } from "../subgraphs/process.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEWS_SDL, REVIEW_ADDED, createReviews, expectedReview, review } from "../subgraphs/reviews.mjs";
import { FAST_RETRY, readMetric, startRouter } from "../subgraphs/router.mjs";
import { SERVERS } from "../subgraphs/servers.mjs";
import { VISITED, createVisits } from "../subgraphs/visits.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

/** Attempts that run out soon. */
const FEW_ATTEMPTS = { initial: "10ms", max: "20ms", attempts: 3 };

/** Waits until the router has noticed that the connection to `reviews` does not work. */
const untilLost = (router) =>
  eventually(
    () => readMetric(router, "starling_subgraph_subscription_connections_lost_total", "reviews"), "the router to notice");

/** The result for `review(number)` after a gap. */
const afterGap = (number) => ({ data: { reviewAdded: expectedReview(number) }, extensions: { gap: true } });

const id = ({ data }) => Number(data?.reviewAdded?.id);

describe("healing of subgraphs' subscriptions", () => {
  let products;
  const keep = closeAfterEach();
  before(async () => {
    products = await startProducts();
  });
  after(() => products?.stop());

  /** Starts a router for `reviews` at `server`, with `visits` beside it. */
  async function open(server, { sdl = createReviews().sdl, subscription = {}, config = {} } = {}) {
    const visits = createVisits();
    const neighbour = keep(await startGraphqlWs(visits));
    const settings = { ...server.subscription, ...subscription };
    const router = keep(await startRouter({
      reviews: { ...server, sdl, subscription: settings }, products,
      visits: { ...neighbour, sdl: visits.sdl },
    }, config));
    return { router, visits, client: () => keep(openSocket(router)) };
  }

  for (const { name, start, isSocket } of SERVERS.filter((server) => !server.name.endsWith("fixed"))) {
    it(`${name}: events after a lost connection arrive, and the first one says that some may be missing`, async () => {
      const reviews = createReviews();
      const server = keep(await start(reviews));
      const { client } = await open(server);
      const subscription = client().subscribe(REVIEW_ADDED);
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      reviews.publish(review(1));
      assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview(1) } });
      // The negotiation of the subprotocol may take a WebSocket.
      const accepted = server.accepted?.();
      await server.kill();
      if (!/callback/.test(name)) {
        const hasBegun = () => reviews.started.length === 2 && reviews.operations() === 1;
        await eventually(hasBegun, "the operation to begin again");
        reviews.publish(review(2));
        assert.deepEqual(await subscription.next(), afterGap(2));
        reviews.publish(review(3));
        assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview(3) } });
        if (isSocket) assert.equal(server.accepted(), accepted + 1);
      } else {
        // No connection belongs to a subscription by callback, so nothing was lost.
        reviews.publish(review(2));
        assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview(2) } });
      }
    });
  }

  it("a subgraph that restarts continues its subscriptions", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { client } = await open(server);
    const subscription = client().subscribe(REVIEW_ADDED);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    await server.stop();
    await eventually(() => reviews.operations() === 0, "the operation to end");
    await server.restart();
    await eventually(() => reviews.operations() === 1, "the operation to begin again");
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), afterGap(1));
  });

  for (const [name, start] of [
    ["graphql-ws", startGraphqlWs], ["graphql-sse", startGraphqlSse], ["multipart", startMultipart],
  ]) {
    it(`${name}: a subgraph with another schema ends only the subscriptions that it refuses`, async () => {
      const reviews = createReviews();
      const server = keep(await start(reviews));
      const { client } = await open(server);
      const socket = client();
      const stays = socket.subscribe("subscription { reviewAdded { id } }");
      const ends = socket.subscribe("subscription { reviewAdded { id text } }");
      await eventually(() => reviews.operations() === 2, "the operations to begin");
      await server.stop();
      // The router still has the schema with the field.
      const changed = createReviews({ sdl: REVIEWS_SDL.replace("text: String!", "") });
      keep(await start(changed, { port: server.port }));
      const { results, error } = await ends.ended();
      assert.equal(error, undefined);
      assert.equal(results.length, 1);
      assert.ok(results[0].errors.length > 0);
      await eventually(() => changed.operations() === 1, "the other operation to begin again");
      changed.publish(review(1));
      assert.deepEqual(await stays.next(), { data: { reviewAdded: { id: "1" } }, extensions: { gap: true } });
      assert.equal(socket.opened(), 1);
    });
  }

  it("losses that are far apart do not use up the attempts, also without an event between them", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const retry = { initial: "1ms", max: "1ms", attempts: 2 };
    const { client } = await open(server, { subscription: { retry } });
    const subscription = client().subscribe(REVIEW_ADDED);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    for (let loss = 1; loss <= 3 * retry.attempts; loss++) {
      await server.kill();
      const hasBegun = () => reviews.started.length === loss + 1 && reviews.operations() === 1;
      await eventually(hasBegun, `the operation to begin again after loss ${loss}`);
    }
    assert.equal(subscription.hasEnded(), false);
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), afterGap(1));
  });

  it("when the attempts have run out, subscriptions end with an error and the client's WebSocket stays", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { client, visits } = await open(server, { subscription: { retry: FEW_ATTEMPTS } });
    const socket = client();
    const subscription = socket.subscribe(REVIEW_ADDED);
    const neighbour = socket.subscribe(VISITED);
    await eventually(() => reviews.operations() === 1 && visits.operations() === 1, "the operations to begin");
    await server.stop();
    const { error } = await subscription.ended();
    assert.equal(error.length, 1);
    assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.match(error[0].message, /^The subscription at subgraph "reviews" ended: ./);

    const refused = await socket.subscribe(REVIEW_ADDED).ended();
    assert.equal(refused.error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.match(refused.error[0].message, /^Subscribing to subgraph "reviews" failed: ./);

    const { results } = await socket.subscribe('{ product(upc: "kettle") { name } }').ended();
    assert.deepEqual(results, [{ data: { product: { name: "Name of kettle" } } }]);
    visits.publish(1);
    assert.deepEqual(await neighbour.next(), { data: { visited: { number: 1 } } });

    await server.restart();
    const again = socket.subscribe(REVIEW_ADDED);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    reviews.publish(review(1));
    assert.deepEqual(await again.next(), { data: { reviewAdded: expectedReview(1) } });
    assert.equal(socket.opened(), 1);
  });

  it("a connection that takes bytes but is not served is replaced", async () => {
    const server = keep(await startProcess());
    const { client, router, visits } = await open(server, {
      subscription: {
        ping_interval: "1s", ack_timeout: "300ms", connect_timeout: "300ms", retry: { ...FAST_RETRY, attempts: 1_000 },
      },
    });
    const socket = client();
    const subscription = socket.subscribe(REVIEW_ADDED);
    const neighbour = socket.subscribe(VISITED);
    await eventually(async () => await server.operations() === 1, "the operation to begin");
    await server.publish(review(1));
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview(1) } });
    server.signal("SIGSTOP");
    // The neighbour goes on meanwhile.
    await eventually(() => visits.operations() === 1, "the other operation to begin");
    for (let number = 0; number < 20; number++) {
      visits.publish(number);
      assert.deepEqual(await neighbour.next(), { data: { visited: { number } } });
    }
    await untilLost(router);
    await server.kill();
    const successor = keep(await startProcess(server.port));
    await eventually(async () => await successor.operations() === 1, "the operation to begin again");
    await successor.publish(review(2));
    assert.deepEqual(await subscription.next(), afterGap(2));
  });

  it("a stopped process that continues serves its subscriptions again", async () => {
    const server = keep(await startProcess());
    const { client, router } = await open(server, {
      subscription: { ping_interval: "1s", ack_timeout: "300ms", retry: { ...FAST_RETRY, attempts: 1_000 } },
    });
    const subscription = client().subscribe(REVIEW_ADDED);
    await eventually(async () => await server.operations() === 1, "the operation to begin");
    server.signal("SIGSTOP");
    try {
      await untilLost(router);
    } finally {
      server.signal("SIGCONT");
    }
    let published = 0;
    const arrived = eventually(async () => {
      await server.publish(review(published += 1));
      return subscription.results.length > 0;
    }, "an event after the pause");
    await arrived;
    const first = await subscription.next();
    assert.equal(first.extensions?.gap, true);
    assert.equal(subscription.hasEnded(), false);
  });

  it("a message over the limit ends its subscription, and not another one on the same connection", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { client } = await open(server, { subscription: { max_message_size: "16KiB" } });
    const socket = client();
    const large = socket.subscribe("subscription { reviewAdded { id text } }");
    const small = socket.subscribe("subscription { reviewAdded { id } }");
    await eventually(() => reviews.operations() === 2, "the operations to begin");
    reviews.publish({ ...review(1), text: "x".repeat(100_000) });
    const { error } = await large.ended();
    assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.match(error[0].message, /a result of more than 16384 bytes/);
    assert.deepEqual(await small.next(), { data: { reviewAdded: { id: "1" } } });
    await eventually(() => reviews.operations() === 1, "the operation to end at the subgraph");
    reviews.publish(review(2));
    assert.deepEqual(await small.next(), { data: { reviewAdded: { id: "2" } } });
    assert.equal(reviews.started.length, 2);
  });

  it("a flood of events reaches clients or is announced as lost, and delays no other subgraph", async () => {
    const FLOOD = 10_000;
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    // A client that cannot take a flood loses events, but not its connection.
    const { client, router, visits } = await open(server, { config: { subscriptions: { policy: "drop_oldest" } } });
    const flooded = client().subscribe("subscription { reviewAdded { id } }");
    const neighbour = client().subscribe(VISITED);
    await eventually(() => reviews.operations() === 1 && visits.operations() === 1, "the operations to begin");
    for (let number = 1; number <= FLOOD; number++) reviews.publish(review(number));
    for (let number = 1; number <= 50; number++) {
      visits.publish(number);
      assert.deepEqual(await neighbour.next(), { data: { visited: { number } } });
    }
    let last = 0;
    let isAnnounced = false;
    const isLast = (result) => {
      assert.ok(id(result) > last, "events are in order");
      isAnnounced ||= result.extensions?.gap === true || result.extensions?.lost > 0;
      if (id(result) !== last + 1) assert.ok(isAnnounced, `events before ${id(result)} are missing without a word`);
      last = id(result);
      return last > FLOOD;
    };
    // Events that are dropped at the end of the flood are announced with the next one.
    let number = FLOOD;
    const done = flooded.find(isLast, "an event after the flood");
    let isDone = false;
    done.then(() => { isDone = true; }, () => { isDone = true; });
    await eventually(() => {
      reviews.publish(review(number += 1));
      return isDone;
    }, "an event after the flood");
    await done;
    assert.equal((await router.query("{ visits }")).body.data.visits, 7);
    assert.equal(router.isRunning(), true);
  });
});

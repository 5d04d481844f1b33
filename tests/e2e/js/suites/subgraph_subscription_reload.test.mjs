// Subscriptions that subgraphs serve themselves, while the graph is replaced: by another schema, and by another URL or
// protocol of the subgraph.
import assert from "node:assert/strict";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { writeComposition } from "../composition.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { freePort, startServe } from "../router.mjs";
import { startApolloCallback } from "../subgraphs/apollo_callback.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startMultipart } from "../subgraphs/multipart.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, review } from "../subgraphs/reviews.mjs";
import { FAST_RETRY, readMetric } from "../subgraphs/router.mjs";
import { callbackConfiguration } from "../subgraphs/servers.mjs";
import { startGraphqlWs, startSubscriptionsTransportWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

const MOVES = 100;

/** The servers among which a subgraph moves: to another URL, or also to another protocol. */
const PLACES = [
  startGraphqlWs,
  startGraphqlWs,
  startGraphqlSse,
  startGraphqlSse,
  (subgraph) => startGraphqlSse(subgraph, { protocol: "sse_get" }),
  startSubscriptionsTransportWs,
  startMultipart,
  startApolloCallback,
];

describe("a composed graph that changes under subgraphs' subscriptions", () => {
  const folders = [];
  const keep = closeAfterEach();
  let products;
  before(async () => {
    products = await startProducts();
  });
  after(async () => {
    await products?.stop();
    await Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true })));
  });

  /**
   * Starts a router that composes `reviews` of `server` with `products`, with further configuration of the router;
   * `write` replaces the configuration of the composition. Subgraphs may send callbacks to the router.
   */
  async function open(server, sdl, config = {}) {
    const ports = { graphql: await freePort(), admin: await freePort() };
    const subscriptions = { callback: callbackConfiguration(ports.graphql) };
    const folder = await mkdtemp(path.join(tmpdir(), "starling-composed-"));
    folders.push(folder);
    const subgraphs = (next, text) => ({
      reviews: { sdl: text, url: next.url, more: { subscription: next.subscription } },
      products: { sdl: products.sdl, url: products.url },
    });
    const file = await writeComposition(folder, subgraphs(server, sdl));
    const router = keep(await startServe({
      config: { subscriptions, ...config, supergraph: { compose: file } }, supergraph: "", ports,
    }));
    return {
      router,
      /** As deployments do it: new files replace the old ones. */
      async write(next, text = sdl) {
        const written = await writeComposition(path.join(folder, "next"), subgraphs(next, text));
        await rename(path.join(folder, "next/reviews.graphql"), path.join(folder, "reviews.graphql"));
        await rename(written, file);
      },
    };
  }

  const loads = (router) => readMetric(router, "starling_graph_loads_total", 'result="loaded"');

  it(`${MOVES} changes of URL and protocol drop no client`, async () => {
    const reviews = createReviews();
    const servers = [];
    for (const start of PLACES) servers.push(keep(await start(reviews)));
    const { router, write } = await open(servers[0], reviews.sdl);
    const clients = [keep(openSocket(router)), keep(openStreams(router))];
    const subscriptions = clients.map((client) => client.subscribe(REVIEW_ADDED));
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    let published = 0;
    for (let move = 1; move <= MOVES; move++) {
      const begun = reviews.started.length;
      await write(servers[move % servers.length]);
      await eventually(() => reviews.started.length > begun && reviews.operations() === 1, `move ${move}`);
      published += 1;
      reviews.publish(review(published));
      for (const subscription of subscriptions) {
        const isLast = ({ data }) => data.reviewAdded.id === String(published);
        const result = await subscription.find(isLast, `event ${published}`);
        assert.equal(result.errors, undefined);
      }
    }
    for (const subscription of subscriptions) assert.equal(subscription.hasEnded(), false);
    assert.equal(clients[0].opened(), 1);
  });

  for (const [protocol, start] of [["WebSocket", startGraphqlWs], ["event stream", startGraphqlSse]]) {
    /** Starts clients of a subgraph, and stops the server that the subgraph is to move to. */
    async function openMove(retry) {
      const reviews = createReviews();
      const [server, next] = [keep(await start(reviews)), keep(await start(reviews))];
      await next.stop();
      const config = { subgraphs: { reviews: { subscription: { retry } } } };
      const { router, write } = await open(server, reviews.sdl, config);
      const clients = [keep(openSocket(router)), keep(openSocket(router))];
      const subscriptions = clients.map((client) => client.subscribe("subscription { reviewAdded { id } }"));
      await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 2, "the clients");
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      return { reviews, next, router, write, clients, subscriptions };
    }

    it(`${protocol}: subscriptions move to a server that starts after the reload`, async () => {
      const { reviews, next, router, write, clients, subscriptions } =
        await openMove({ ...FAST_RETRY, attempts: 1_000 });
      await write(next);
      const failures = () => readMetric(router, "starling_subgraph_subscription_connect_failures_total", "reviews");
      await eventually(async () => await failures() > 0, "an attempt that fails");
      await next.restart();
      const hasMoved = () => reviews.started.length === 2 && reviews.operations() === 1;
      await eventually(hasMoved, "the operation to begin at the new place");
      for (const [id, extensions] of [["1", { extensions: { gap: true } }], ["2", {}]]) {
        reviews.publish(review(id));
        for (const subscription of subscriptions) {
          assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id } }, ...extensions });
        }
      }
      assert.deepEqual(clients.map((client) => client.opened()), [1, 1]);
    });

    it(`${protocol}: subscriptions end, and sockets stay, if the server does not start`, async () => {
      const { next, write, clients, subscriptions } =
        await openMove({ initial: "10ms", max: "20ms", attempts: 3 });
      await write(next);
      for (const subscription of subscriptions) {
        const { error } = await subscription.ended();
        assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
        assert.match(error[0].message, /^The subscription at subgraph "reviews" ended: connection failed/);
      }
      assert.ok(clients.every((client) => client.isOpen()));
      assert.deepEqual(clients.map((client) => client.opened()), [1, 1]);
    });
  }

  it("a move has the token of the client that came last", async () => {
    const reviews = createReviews();
    const [server, next] = [keep(await startGraphqlWs(reviews)), keep(await startGraphqlWs(reviews))];
    const { router, write } = await open(server, reviews.sdl, {
      subgraphs: { reviews: { subscription: { share_by: { headers: [] } } } },
      headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
      websocket: { init_payload_headers: ["authorization"] },
    });
    const subscriptions = [];
    for (const authorization of ["Bearer ada", "Bearer bob"]) {
      subscriptions.push(keep(openSocket(router, { authorization })).subscribe("subscription { reviewAdded { id } }"));
      const subscribers = () => readMetric(router, "starling_hub_subscribers");
      await eventually(async () => await subscribers() === subscriptions.length, authorization);
    }
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    await write(next);
    const hasMoved = () => reviews.started.length === 2 && reviews.operations() === 1;
    await eventually(hasMoved, "the operation to begin at the new place");
    assert.deepEqual(reviews.started.map(({ init }) => init.authorization), ["Bearer ada", "Bearer bob"]);
    reviews.publish(review(1));
    for (const subscription of subscriptions) assert.equal((await subscription.next()).data.reviewAdded.id, "1");
  });

  it("a new field changes nothing, and a removed one ends the subscriptions that select it", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { router, write } = await open(server, reviews.sdl);
    const client = keep(openSocket(router));
    const stays = client.subscribe("subscription { reviewAdded { id } }");
    const ends = client.subscribe("subscription { reviewAdded { id author } }");
    await eventually(() => reviews.operations() === 2, "the operations to begin");
    const loaded = await loads(router);
    await write(server, reviews.sdl.replace("stars: Int!", "stars: Int! likes: Int"));
    await eventually(async () => await loads(router) > loaded, "the graph with the new field");
    reviews.publish(review(1));
    for (const subscription of [stays, ends]) assert.equal((await subscription.next()).data.reviewAdded.id, "1");

    await write(server, reviews.sdl.replace(/"Always fails\."\s*author: String/, ""));
    const { error } = await ends.ended();
    assert.equal(error[0].extensions.code, "GRAPH_RELOADED");
    assert.match(error[0].message, /author/);
    await eventually(() => reviews.operations() === 1, "the operation to end");
    reviews.publish(review(2));
    assert.equal((await stays.next()).data.reviewAdded.id, "2");
    assert.equal(client.opened(), 1);
  });
});

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
import { startServe } from "../router.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startMultipart } from "../subgraphs/multipart.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, review } from "../subgraphs/reviews.mjs";
import { readMetric } from "../subgraphs/router.mjs";
import { startGraphqlWs, startSubscriptionsTransportWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

const MOVES = 100;

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

  /** Starts a router that composes `reviews` of `server` with `products`; `write` replaces the configuration. */
  async function open(server, sdl) {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-composed-"));
    folders.push(folder);
    const subgraphs = (next, text) => ({
      reviews: { sdl: text, url: next.url, more: { subscription: next.subscription } },
      products: { sdl: products.sdl, url: products.url },
    });
    const file = await writeComposition(folder, subgraphs(server, sdl));
    const router = keep(await startServe({ config: { supergraph: { compose: file } }, supergraph: "" }));
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
    for (const start of [startGraphqlWs, startGraphqlSse, startSubscriptionsTransportWs, startMultipart]) {
      servers.push(keep(await start(reviews)));
    }
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
        const result = await subscription.find(({ data }) => data.reviewAdded.id === String(published), `event ${published}`);
        assert.equal(result.errors, undefined);
      }
    }
    for (const subscription of subscriptions) assert.equal(subscription.hasEnded(), false);
    assert.equal(clients[0].opened(), 1);
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

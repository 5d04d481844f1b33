// Subscriptions that subgraphs serve themselves, over every protocol, to clients of two transports.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { openSocket, openStreams } from "../live_client.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import {
  AUTHOR_ERROR, REFUSAL, REVIEW_ADDED, createReviews, expectedReview, review,
} from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { SERVERS } from "../subgraphs/servers.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

/** The text that hides the message of a subgraph's error. */
const HIDDEN = "A subgraph reported an error.";

const forProduct = (product) => ({ query: REVIEW_ADDED, variables: { product } });

const subscribers = (router) => readMetric(router, "starling_hub_subscribers");

for (const { name, start, isSocket } of SERVERS) {
  describe(`a subscription of ${name}`, () => {
    const reviews = createReviews();
    let server;
    let products;
    let router;
    const clients = [];
    before(async () => {
      [server, products] = await Promise.all([start(reviews), startProducts()]);
      const subscription = { close_after: "50ms", ...server.subscription };
      router = await startRouter({ reviews: { ...server, sdl: reviews.sdl, subscription }, products });
    });
    after(async () => {
      await Promise.all(clients.map((client) => client.dispose()));
      await router?.stop();
      await Promise.all([server?.stop(), products?.stop()]);
    });

    function opened(client) {
      clients.push(client);
      return client;
    }

    it("reaches clients in order, joined with another subgraph, and ends with the last client", async () => {
      const subscriptions = [opened(openSocket(router)), opened(openStreams(router))]
        .map((client) => client.subscribe(forProduct("kettle")));
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      // Both clients are in one group as soon as the router has read their requests.
      await eventually(async () => await subscribers(router) === 2, "both clients to be subscribed");
      for (let id = 1; id <= 20; id++) {
        reviews.publish(review(id, "kettle", id % 5));
        reviews.publish(review(100 + id, "teapot"));
      }
      for (const subscription of subscriptions) {
        for (let id = 1; id <= 20; id++) {
          assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview(id, "kettle", id % 5) } });
        }
      }
      assert.equal(reviews.started.length, 1);
      // The key of the joined entity, and the field that `verdict` requires.
      assert.match(reviews.started[0].query, /\bid\b[^]*\bstars\b/);
      subscriptions[0].stop();
      await eventually(async () => await subscribers(router) === 1, "one client to be left");
      reviews.publish(review(21));
      assert.deepEqual(await subscriptions[1].next(), { data: { reviewAdded: expectedReview(21) } });
      assert.equal(reviews.operations(), 1);
      subscriptions[1].stop();
      await eventually(() => reviews.operations() === 0, "the operation to end");
      if (isSocket) await eventually(() => server.connections() === 0, "the connection to be closed");
    });

    it("completes for clients when the subgraph completes it", async () => {
      const client = opened(openSocket(router));
      const subscription = client.subscribe(forProduct("kettle"));
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      reviews.publish(review(1));
      reviews.complete();
      const { results, error } = await subscription.ended();
      assert.equal(error, undefined);
      assert.deepEqual(results, [{ data: { reviewAdded: expectedReview(1) } }]);
      assert.equal(client.isOpen(), true);
    });

    it("reports the subgraph's errors without their messages", async () => {
      const client = opened(openSocket(router));
      const refused = await client.subscribe(forProduct("refused")).ended();
      assert.equal(refused.error, undefined);
      assert.equal(refused.results.length, 1);
      const [{ data, errors }] = refused.results;
      assert.equal(data?.reviewAdded ?? null, null);
      assert.deepEqual(errors.map(({ message, extensions }) => [message, extensions.code]), [[HIDDEN, "NO_REVIEWS"]]);

      const partial = client.subscribe("subscription { reviewAdded { id author } }");
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      reviews.publish(review(1));
      assert.deepEqual(await partial.next(), {
        data: { reviewAdded: { id: "1", author: null } },
        errors: [{ message: HIDDEN, path: ["reviewAdded", "author"], extensions: { code: "SECRET" } }],
      });
      assert.equal(partial.hasEnded(), false);
      partial.stop();
      await eventually(() => reviews.operations() === 0, "the operation to end");
    });
  });
}

describe("errors of a subgraph's subscription that clients may see", () => {
  it("have their messages", async () => {
    const reviews = createReviews();
    const [server, products] = await Promise.all([startGraphqlWs(reviews), startProducts()]);
    const router = await startRouter({ reviews: { ...server, sdl: reviews.sdl }, products }, {
      include_subgraph_errors: { all: false, subgraphs: { reviews: true } },
    });
    const client = openSocket(router);
    try {
      const { results } = await client.subscribe(forProduct("refused")).ended();
      assert.equal(results[0].errors[0].message, REFUSAL);
      const partial = client.subscribe("subscription { reviewAdded { author } }");
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      reviews.publish(review(1));
      assert.equal((await partial.next()).errors[0].message, AUTHOR_ERROR);
    } finally {
      await client.dispose();
      await router.stop();
      await Promise.all([server.stop(), products.stop()]);
    }
  });
});

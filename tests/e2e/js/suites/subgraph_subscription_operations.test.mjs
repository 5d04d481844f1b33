// What clients select in subscriptions that subgraphs serve, and what remains of them after they have ended.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { openSocket } from "../live_client.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, expectedReview, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { SERVERS } from "../subgraphs/servers.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

describe("operations of subgraphs' subscriptions", () => {
  const reviews = createReviews();
  let server;
  let products;
  let router;
  let client;
  before(async () => {
    [server, products] = await Promise.all([startGraphqlWs(reviews), startProducts()]);
    router = await startRouter({ reviews: { ...server, sdl: reviews.sdl }, products });
    client = openSocket(router);
  });
  after(async () => {
    await client?.dispose();
    await router?.stop();
    await Promise.all([server?.stop(), products?.stop()]);
  });

  /** Subscribes, publishes `event` and returns the result. */
  async function resultOf(request, event) {
    const subscription = client.subscribe(request);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    reviews.publish(event);
    const result = await subscription.next();
    subscription.stop();
    await eventually(() => reviews.operations() === 0, "the operation to end");
    return result;
  }

  it("aliases, fragments and conditions are those of the client", async () => {
    const query = `subscription Added($full: Boolean!) {
      added: reviewAdded { ...Key again: text @include(if: $full) product { ... on Product { title: name } } }
    }
    fragment Key on Review { key: id __typename }`;
    for (const full of [true, false]) {
      assert.deepEqual(await resultOf({ query, variables: { full } }, review(1)), {
        data: {
          added: {
            key: "1", __typename: "Review", ...(full && { again: "review 1" }), product: { title: "Name of kettle" },
          },
        },
      });
    }
  });

  it("a required field and a key that the client does not select are not in its result", async () => {
    const result = await resultOf("subscription { reviewAdded { verdict } }", review(1, "kettle", 1));
    assert.deepEqual(result, { data: { reviewAdded: { verdict: "bad" } } });
    assert.match(reviews.started.at(-1).query, /\bstars\b/);
    assert.doesNotMatch(reviews.started.at(-1).query, /\bverdict\b/);
  });

  it("fields of the subgraph alone need no other request", async () => {
    const before = products.requests.length;
    const result = await resultOf("subscription { reviewAdded { id stars product { upc } } }", review(1));
    assert.deepEqual(result, { data: { reviewAdded: { id: "1", stars: 5, product: { upc: "kettle" } } } });
    assert.equal(products.requests.length, before);
  });

  it("variables are coerced to their types, and defaults count", async () => {
    const query = 'subscription ($product: ID = "teapot") { reviewAdded(product: $product) { id } }';
    assert.deepEqual(await resultOf({ query }, review(1, "teapot")), { data: { reviewAdded: { id: "1" } } });
    assert.deepEqual(await resultOf({ query, variables: { product: 7 } }, review(2, "7")), { data: { reviewAdded: { id: "2" } } });
  });

  it("a subgraph that is not there is an error at its fields only", async () => {
    await products.stop();
    const result = await resultOf(REVIEW_ADDED, review(1));
    // The missing fields may not be null.
    assert.equal(result.data.reviewAdded, null);
    assert.ok(result.errors.every(({ extensions }) => extensions.code === "SUBGRAPH_REQUEST_FAILED"), JSON.stringify(result));
    await products.restart();
    assert.deepEqual(await resultOf(REVIEW_ADDED, review(2)), { data: { reviewAdded: expectedReview(2) } });
  });
});

/** How many subscriptions come and go at the same time. */
const HASTY = 40;

/** subscriptions-transport-ws takes no notice of a `stop` that comes while the operation begins. */
const ENDS_OPERATIONS = SERVERS.filter(({ name }) => !/fixed|subscriptions-transport-ws/.test(name));

describe("subscriptions that come and go", () => {
  for (const { name, start } of ENDS_OPERATIONS) {
    it(`leave nothing behind at ${name}`, async () => {
      const reviews = createReviews();
      const [server, products] = await Promise.all([start(reviews), startProducts()]);
      const subscription = { close_after: "0s", ...server.subscription };
      const router = await startRouter({ reviews: { ...server, sdl: reviews.sdl, subscription }, products });
      const client = openSocket(router);
      try {
        const request = (at) => ({ query: REVIEW_ADDED, variables: { product: `p${at % 7}` } });
        for (let at = 0; at < HASTY; at++) {
          const hasty = client.subscribe(request(at));
          // Some leave before the request was sent, some before the response, some after it.
          if (at % 3 > 0) await eventually(() => reviews.started.length > at / 8 || at % 3 === 1, "an operation");
          hasty.stop();
        }
        const last = client.subscribe({ query: REVIEW_ADDED, variables: { product: "last" } });
        await eventually(() => reviews.started.some(({ variables }) => variables.product === "last"), "the last operation to begin");
        const isOver = async () => reviews.operations() === 1 && await readMetric(router, "starling_hub_triggers") === 1;
        await eventually(isOver, "all but one operation to end");
        reviews.publish(review(1, "last"));
        assert.deepEqual(await last.next(), { data: { reviewAdded: expectedReview(1, "last") } });
        last.stop();
        await eventually(() => reviews.operations() === 0, "the last operation to end");
        for (const gauge of ["starling_hub_triggers", "starling_subgraph_subscription_operations", "starling_subgraph_subscription_connections"]) {
          await eventually(async () => await readMetric(router, gauge) === 0, `${gauge} to be zero`);
        }
      } finally {
        await client.dispose();
        assert.equal(await router.stop(), 0);
        await Promise.all([server.stop(), products.stop()]);
      }
    });
  }
});

// Subscriptions that subgraphs serve themselves: what is shared between clients, and what is forwarded for them.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, expectedReview, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually } from "../waiting.mjs";

const CLIENTS = 50;
const NAMES = "subscription ($product: ID) { reviewAdded(product: $product) { id product { name } } }";
const IDS = "subscription { reviewAdded { id } }";

/** Headers that the router forwards. */
const FORWARDED = ["authorization", "x-tenant"];
const FORWARDING = {
  headers: { all: { request: FORWARDED.map((named) => ({ propagate: { named } })) } },
  websocket: { init_payload_headers: FORWARDED },
};

const user = (name, tenant) => ({ authorization: `Bearer ${name}`, "x-tenant": tenant });

const subscribers = (router) => readMetric(router, "starling_hub_subscribers");

describe("sharing of subgraphs' subscriptions", () => {
  const keep = closeAfterEach();
  /** Starts everything, with the subgraph's settings `subscription` and further configuration of the router. */
  async function open({ subscription = {}, more = {}, config = {}, start = startGraphqlWs } = {}) {
    const reviews = createReviews();
    const [server, products] = await Promise.all([start(reviews), startProducts()]);
    keep(server);
    keep(products);
    const settings = { close_after: "50ms", ...server.subscription, ...subscription };
    const router = await startRouter(
      { reviews: { ...server, sdl: reviews.sdl, subscription: settings, more }, products }, config,
    );
    keep(router);
    const client = (init) => keep(openSocket(router, init));
    return { reviews, server, products, router, client };
  }

  it("clients with equal operations share one operation, and one fetch for each event", async () => {
    const { reviews, server, products, router, client } = await open();
    const request = { query: NAMES, variables: { product: "kettle" } };
    const subscriptions = Array.from({ length: CLIENTS }, () => client().subscribe(request));
    await eventually(async () => await subscribers(router) === CLIENTS, "all clients to be subscribed");
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    const before = products.requests.length;
    for (let id = 1; id <= 3; id++) {
      reviews.publish(review(id));
      for (const subscription of subscriptions) {
        assert.deepEqual(await subscription.next(), {
          data: { reviewAdded: { id: String(id), product: { name: "Name of kettle" } } },
        });
      }
      assert.equal(products.requests.length - before, id);
    }
    assert.equal(reviews.started.length, 1);
    assert.equal(server.accepted(), 1);
    for (const subscription of subscriptions) subscription.stop();
    await eventually(() => server.connections() === 0, "the connection to be closed");
  });

  it("distinct operations share one WebSocket, which is dialled once", async () => {
    const { reviews, server, client } = await open();
    const products = ["a", "b", "c", "d", "e"];
    const subscriptions = products.flatMap((product) =>
      Array.from({ length: CLIENTS / 5 }, () => client().subscribe({ query: NAMES, variables: { product } })));
    await eventually(() => reviews.operations() === products.length, "the operations to begin");
    for (const product of products) reviews.publish(review(product, product));
    for (const [at, subscription] of subscriptions.entries()) {
      const product = products[Math.floor(at / (CLIENTS / 5))];
      assert.equal((await subscription.next()).data.reviewAdded.id, product);
    }
    assert.equal(reviews.started.length, products.length);
    assert.equal(server.accepted(), 1);
    // The others go on when one ends.
    for (const subscription of subscriptions.slice(0, CLIENTS / 5)) subscription.stop();
    await eventually(() => reviews.operations() === products.length - 1, "one operation to end");
    reviews.publish(review("again", "e"));
    assert.equal((await subscriptions.at(-1).next()).data.reviewAdded.id, "again");
    assert.equal(server.connections(), 1);
  });

  it("without `share_by`, each value of a forwarded header has a WebSocket of its own", async () => {
    const { reviews, server, client } = await open({ config: FORWARDING });
    const users = [user("ada", "red"), user("bob", "red"), user("ada", "red")];
    for (const init of users) client(init).subscribe(IDS);
    await eventually(() => reviews.operations() === 2, "one operation for each user");
    assert.equal(server.accepted(), 2);
    for (const { headers, init } of reviews.started) {
      for (const name of FORWARDED) assert.equal(init[name], headers[name], name);
    }
    const seen = reviews.started.map(({ headers }) => headers.authorization).sort();
    assert.deepEqual(seen, ["Bearer ada", "Bearer bob"]);
  });

  it("with `share_by`, only its headers decide", async () => {
    const { reviews, server, router, client } = await open({
      subscription: { share_by: { headers: ["x-tenant"] } }, config: FORWARDING,
    });
    const subscriptions = [["ada", "red"], ["bob", "red"], ["cem", "blue"]]
      .map(([name, tenant]) => client(user(name, tenant)).subscribe(IDS));
    await eventually(async () => await subscribers(router) === 3, "all clients to be subscribed");
    await eventually(() => reviews.operations() === 2, "one operation for each tenant");
    reviews.publish(review(1));
    for (const subscription of subscriptions) {
      assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } } });
    }
    assert.equal(server.accepted(), 2);
    assert.deepEqual(reviews.started.map(({ headers }) => headers["x-tenant"]).sort(), ["blue", "red"]);
  });

  it("with `share_by`, only its claims decide", async () => {
    const issuer = keep(await startIssuer());
    const { reviews, server, router, client } = await open({
      subscription: { share_by: { claims: ["org"] } },
      config: { ...FORWARDING, authentication: { jwt: { required: true, issuers: [issuer.configuration] } } },
    });
    const subscriptions = [["ada", "red"], ["bob", "red"], ["cem", "blue"]]
      .map(([sub, org]) => client({ authorization: `Bearer ${issuer.issue({ sub, org })}` }).subscribe(IDS));
    await eventually(async () => await subscribers(router) === 3, "all clients to be subscribed");
    await eventually(() => reviews.operations() === 2, "one operation for each organisation");
    reviews.publish(review(1));
    for (const subscription of subscriptions) {
      assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } } });
    }
    assert.deepEqual([reviews.started.length, server.accepted()], [2, 2]);
  });

  it("with `share_by`, a lost connection begins again with the token of the client that came last", async () => {
    let expired;
    const onConnect = ({ connectionParams }) => connectionParams.authorization !== expired;
    const { reviews, server, router, client } = await open({
      subscription: { share_by: { headers: ["x-tenant"] } }, config: FORWARDING,
      start: (subgraph) => startGraphqlWs(subgraph, { onConnect }),
    });
    const subscriptions = [];
    for (const name of ["ada", "bob"]) {
      subscriptions.push(client(user(name, "red")).subscribe(IDS));
      await eventually(async () => await subscribers(router) === subscriptions.length, `${name} to be subscribed`);
    }
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    expired = "Bearer ada";
    await server.stop();
    await eventually(() => reviews.operations() === 0, "the operation to end");
    await server.restart();
    await eventually(() => reviews.operations() === 1, "the operation to begin again");
    reviews.publish(review(1));
    for (const subscription of subscriptions) {
      assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } }, extensions: { gap: true } });
    }
    assert.deepEqual(reviews.started.map(({ headers }) => headers.authorization), ["Bearer ada", "Bearer bob"]);
  });

  it("headers are not sent in the payload of `connection_init` if the configuration says so", async () => {
    const { reviews, client } = await open({ subscription: { init_payload: false }, config: FORWARDING });
    client(user("ada", "red")).subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    const [{ headers, init }] = reviews.started;
    assert.equal(headers["x-tenant"], "red");
    assert.deepEqual(init ?? {}, {});
  });

  it("headers reach servers of event streams", async () => {
    const { reviews, router } = await open({ config: FORWARDING, start: startGraphqlSse });
    const streams = keep(openStreams(router, user("ada", "red")));
    const subscription = streams.subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    assert.equal(reviews.started[0].headers.authorization, "Bearer ada");
    assert.equal(reviews.started[0].headers["x-tenant"], "red");
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } } });
  });

  it("members of `extensions` are forwarded if they are listed, and tell operations apart", async () => {
    const { reviews, server, client } = await open({ subscription: { extensions: ["audience"] } });
    for (const [audience, trace] of [["staff", 1], ["staff", 2], ["public", 3]]) {
      client().subscribe({ query: IDS, extensions: { audience, trace } });
    }
    await eventually(() => reviews.operations() === 2, "one operation for each audience");
    const sent = reviews.started.map(({ extensions }) => extensions.audience).sort();
    assert.deepEqual(sent, ["public", "staff"]);
    assert.ok(reviews.started.every(({ extensions }) => extensions.trace === undefined));
    assert.equal(server.accepted(), 1);
  });

  it("queries and mutations go over the WebSocket where `queries_over` says so", async () => {
    const { reviews, server, router, client } = await open({ more: { queries_over: "websocket" }, config: FORWARDING });
    const subscription = client(user("ada", "red")).subscribe(REVIEW_ADDED);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...user("ada", "red") },
      body: JSON.stringify({ query: 'mutation { addReview(id: "9", product: "kettle") { id product { name } } }' }),
    });
    assert.deepEqual(await response.json(), { data: { addReview: { id: "9", product: { name: "Name of kettle" } } } });
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: expectedReview("9") } });
    // Requests over HTTP have no payload of `connection_init`.
    assert.equal(reviews.queried[0].init.authorization, "Bearer ada");
    assert.equal(server.accepted(), 1);
  });

  it("a mutation over a WebSocket that is lost is an error, and is not repeated", async () => {
    const { reviews, server, router } = await open({ more: { queries_over: "websocket" } });
    const release = reviews.hold();
    const response = router.query('mutation { addReview(id: "9", product: "kettle") { id } }');
    await eventually(() => reviews.queried.length === 1, "the mutation to begin");
    await server.kill();
    const { body } = await response;
    assert.equal(body.data.addReview, null);
    assert.equal(body.errors[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    release();
    const query = await router.query('{ review(id: "9") { id } }');
    assert.deepEqual(query.body, { data: { review: { id: "9" } } });
    // The mutation and the query.
    assert.equal(reviews.queried.length, 2);
    await eventually(() => server.connections() === 0, "the unused connection to be closed");
  });
});

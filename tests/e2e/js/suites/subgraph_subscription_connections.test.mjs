// The WebSockets on which subgraphs serve subscriptions: acknowledgement, tokens, pings, limits, and the view
// of operators.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { createReviews, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { startScriptedSocket } from "../subgraphs/scripted.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

const IDS = "subscription { reviewAdded { id } }";
const TEXTS = "subscription { reviewAdded { text } }";

/** All users of a tenant share a connection. */
const BY_TENANT = { share_by: { headers: ["x-tenant"] } };

const FORWARDED = ["authorization", "x-tenant"];
const FORWARDING = {
  headers: { all: { request: FORWARDED.map((named) => ({ propagate: { named } })) } },
  websocket: { init_payload_headers: FORWARDED },
};

const user = (token, tenant = "red") => ({ authorization: `Bearer ${token}`, "x-tenant": tenant });

describe("WebSockets to subgraphs", () => {
  const keep = closeAfterEach();
  let products;
  before(async () => {
    products = await startProducts();
  });
  after(() => products?.stop());

  async function open(server, subscription = {}, config = {}) {
    const settings = { ...server.subscription, ...subscription };
    const { sdl } = createReviews();
    const router = keep(await startRouter({ reviews: { ...server, sdl, subscription: settings }, products }, config));
    return { router, client: (init) => keep(openSocket(router, init)) };
  }

  /** Checks that the subscription ends with one error with this text. */
  async function assertFails(subscription, reason) {
    const { error } = await subscription.ended();
    assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.match(error[0].message, reason);
  }

  it("a slow acknowledgement is awaited, and a missing one is an error", async () => {
    const reviews = createReviews();
    let acknowledge;
    const server = keep(await startGraphqlWs(reviews, {
      onConnect: () => new Promise((resolve) => {
        acknowledge = resolve;
      }),
    }));
    const { client } = await open(server, { ack_timeout: "2s" });
    const slow = client().subscribe(IDS);
    await eventually(() => acknowledge, "the connection");
    acknowledge(true);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    slow.stop();
    await server.kill();
    await assertFails(client().subscribe(IDS), /did not acknowledge the connection within 2 s/);
  });

  it("a refused token is an error at once, and another one is tried", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews, {
      onConnect: ({ connectionParams }) => connectionParams.authorization !== "Bearer old",
    }));
    const { client } = await open(server, BY_TENANT, FORWARDING);
    await assertFails(client(user("old")).subscribe(IDS), /4403/);
    assert.equal(server.accepted(), 1);
    const subscription = client(user("new")).subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } } });
  });

  it("a new connection has the token that came last", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { client } = await open(server, BY_TENANT, FORWARDING);
    client(user("first")).subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the first operation to begin");
    client(user("second")).subscribe(TEXTS);
    await eventually(() => reviews.operations() === 2, "the second operation to begin");
    assert.equal(server.accepted(), 1);
    await server.kill();
    await eventually(() => reviews.started.length === 4, "the operations to begin again");
    for (const { init } of reviews.started.slice(2)) assert.equal(init.authorization, "Bearer second");
  });

  it("pings of the subprotocol get a pong", async () => {
    const types = [];
    const server = keep(await startScriptedSocket(createReviews(), {
      onSubscribe: ({ send }) => send({ type: "ping" }),
      onMessage: ({ type }) => types.push(type),
    }));
    const { client } = await open(server);
    client().subscribe(IDS);
    await eventually(() => types.includes("pong"), "the pong");
  });

  it("a silent server gets pings of the subprotocol", async () => {
    let pings = 0;
    const server = keep(await startScriptedSocket(createReviews(), {
      onSubscribe() {},
      onMessage({ type, send }) {
        if (type !== "ping") return;
        pings += 1;
        send({ type: "pong" });
      },
    }));
    const { client } = await open(server, { ping_interval: "1s" });
    const subscription = client().subscribe(IDS);
    await eventually(() => pings === 2, "two pings");
    assert.equal(server.accepted(), 1);
    assert.equal(subscription.hasEnded(), false);
  });

  it("a server that does not know pings of the subprotocol gets frames from the next connection on", async () => {
    const operations = [];
    let [refused, frames] = [0, 0];
    const server = keep(await startScriptedSocket(createReviews(), {
      onSubscribe(operation) {
        frames = 0;
        operation.socket.on("ping", () => { frames += 1; });
        operations.push(operation);
      },
      onMessage({ type, socket }) {
        if (type !== "ping") return;
        refused += 1;
        socket.close(4400, "Invalid message");
      },
    }));
    const { client } = await open(server, { ping_interval: "1s" });
    const subscription = client().subscribe(IDS);
    await eventually(() => operations.length === 2, "the operation to begin again");
    await eventually(() => frames === 2, "two ping frames");
    const { id, send } = operations[1];
    send({ type: "next", id, payload: { data: { reviewAdded: { id: "1" } } } });
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } }, extensions: { gap: true } });
    assert.deepEqual([refused, server.accepted()], [1, 2]);
  });

  it("the heartbeats of the legacy subprotocol are no results", async () => {
    const server = keep(await startScriptedSocket(createReviews(), {
      accept: () => "graphql-ws",
      onSubscribe({ id, send }) {
        for (let beat = 0; beat < 3; beat++) send({ type: "ka" });
        send({ type: "data", id, payload: { data: { reviewAdded: { id: "1" } } } });
        send({ type: "ka" });
        send({ type: "complete", id });
      },
    }));
    const { client } = await open(server);
    const { results, error } = await client().subscribe(IDS).ended();
    assert.deepEqual([results, error], [[{ data: { reviewAdded: { id: "1" } } }], undefined]);
  });

  it("a limit on connections refuses the subscription that needs one more, and says so", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { router, client } = await open(server, { ...BY_TENANT, max_connections: 1 }, FORWARDING);
    const subscription = client(user("ada", "red")).subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    await assertFails(client(user("bob", "blue")).subscribe(IDS), /\b1 connections?\b/);
    assert.equal(await readMetric(router, "starling_subgraph_subscription_limit_reached_total", "reviews"), 1);
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } } });
  });

  it("operations over the limit of a connection get another one", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { client } = await open(server, { max_operations: 1, max_connections: 2 });
    const subscriptions = [IDS, TEXTS].map((query) => client().subscribe(query));
    await eventually(() => reviews.operations() === 2, "the operations to begin");
    assert.equal(server.connections(), 2);
    reviews.publish(review(1));
    assert.deepEqual(await Promise.all(subscriptions.map((each) => each.next())), [
      { data: { reviewAdded: { id: "1" } } }, { data: { reviewAdded: { text: "review 1" } } },
    ]);
  });

  it("the admin page and the metrics show subscriptions of subgraphs, and nothing shows their secrets", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const url = `${server.subscription.url}?key=s3cr3t-key`;
    const retry = { initial: "10ms", max: "10ms", attempts: 1 };
    const { router, client } = await open(server, { url, retry }, FORWARDING);
    const subscription = client(user("s3cr3t-token")).subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    const response = await fetch(`${router.admin}/admin/subscriptions`, { headers: { accept: "application/json" } });
    const page = await response.text();
    JSON.parse(page);
    assert.match(page, /"subgraph\/reviews"/);
    assert.match(page, /"Subscription\.reviewAdded"/);
    const metrics = await (await fetch(`${router.admin}/metrics`)).text();
    for (const name of ["connections", "operations"]) {
      assert.equal(await readMetric(router, `starling_subgraph_subscription_${name}`, "reviews"), 1);
    }
    await server.stop();
    const { error } = await subscription.ended();
    assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    await eventually(() => /subgraph\/reviews/.test(router.output()), "the loss to be logged");
    for (const text of [page, metrics, router.output(), error[0].message]) assert.doesNotMatch(text, /s3cr3t/);
  });
});

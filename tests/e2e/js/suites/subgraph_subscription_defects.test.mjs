// Subgraphs that break the protocol of their subscriptions: a clear error for the clients of that subscription, a count
// in the metrics, and nothing for the others.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { startApolloCallback } from "../subgraphs/apollo_callback.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { createReviews, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { startScriptedResponse, startScriptedSocket } from "../subgraphs/scripted.mjs";
import { VISITED, createVisits } from "../subgraphs/visits.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

const IDS = "subscription { reviewAdded { id } }";

/** Attempts that run out soon. */
const FEW_ATTEMPTS = { initial: "10ms", max: "5s", attempts: 2 };

const BEGINNING = /^Subscribing to subgraph "reviews" failed: /;
const RUNNING = /^The subscription at subgraph "reviews" ended: /;

const result = (id) => ({ data: { reviewAdded: { id } } });

/** A text frame of the server with these bytes, up to 125. */
const textFrame = (bytes) => Buffer.concat([Buffer.from([0x81, bytes.length]), bytes]);

describe("subgraphs that break the protocol of their subscriptions", () => {
  const keep = closeAfterEach();
  const reviews = createReviews();
  const visits = createVisits();
  let products;
  let neighbour;
  before(async () => {
    [products, neighbour] = await Promise.all([startProducts(), startGraphqlWs(visits)]);
  });
  after(async () => {
    await Promise.all([products?.stop(), neighbour?.stop()]);
  });

  /**
   * Starts a router for `server`, with a live subscription of another subgraph. `check` at the end of a test shows
   * that it is alive, on the client's only WebSocket.
   */
  async function open(server, subscription = {}) {
    const router = keep(await startRouter({
      reviews: { ...server, sdl: reviews.sdl, subscription: { retry: FEW_ATTEMPTS, ...server.subscription, ...subscription } },
      products, visits: { ...neighbour, sdl: visits.sdl },
    }));
    const client = keep(openSocket(router));
    const other = client.subscribe(VISITED);
    await eventually(() => visits.operations() === 1, "the other operation to begin");
    return {
      router, client,
      count: (name) => readMetric(router, `starling_subgraph_subscription_${name}_total`, "reviews"),
      async check() {
        visits.publish(1);
        assert.deepEqual(await other.next(), { data: { visited: { number: 1 } } });
        assert.equal(client.opened(), 1);
        const { body } = await router.query('{ product(upc: "kettle") { name } }');
        assert.deepEqual(body, { data: { product: { name: "Name of kettle" } } });
        other.stop();
        await eventually(() => visits.operations() === 0, "the other operation to end");
      },
    };
  }

  /** Checks that the subscription ends with one error, with this beginning of its message and this reason. */
  async function assertFails(subscription, beginning, reason) {
    const { error, results } = await subscription.ended();
    assert.equal(error?.length, 1, JSON.stringify({ error, results }));
    assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.match(error[0].message, beginning);
    assert.match(error[0].message, reason);
    return results;
  }

  it("no subprotocol", async () => {
    const server = keep(await startScriptedSocket(reviews, { accept: () => false, onSubscribe() {} }));
    const { client, count, check } = await open(server);
    await assertFails(client.subscribe(IDS), BEGINNING, /none of the WebSocket subprotocols that the router offers: graphql-transport-ws, graphql-ws/);
    assert.equal(await count("connections_lost") + await count("connect_failures"), 1);
    // Another attempt would not help.
    assert.equal(server.accepted(), 1);
    await check();
  });

  for (const [protocol, reason] of [
    ["auto", /refused the upgrade with status 200/],
    ["sse", /one JSON result instead of a stream/],
    ["multipart", /one JSON result instead of a stream/],
  ]) {
    it(`status 200 with JSON for ${protocol}`, async () => {
      const server = keep(await startScriptedResponse(reviews, {
        protocol, status: 200, type: "application/json", body: '{"data":{"reviewAdded":{"id":"1"}}}',
      }));
      const { client, count, check } = await open(server);
      await assertFails(client.subscribe(IDS), BEGINNING, reason);
      assert.equal(await count("operations_failed"), 1);
      await check();
    });
  }

  it("status 200 with JSON that has errors", async () => {
    const body = '{"errors":[{"message":"secret","extensions":{"code":"NO_STREAMS"}}]}';
    const server = keep(await startScriptedResponse(reviews, { protocol: "sse", status: 200, type: "application/json", body }));
    const { client, check } = await open(server);
    const { results, error } = await client.subscribe(IDS).ended();
    // The errors are those of the subgraph, or the response is the reason: the message of the subgraph is hidden.
    assert.doesNotMatch(JSON.stringify([results, error]), /secret/);
    assert.ok(error?.[0].extensions.code === "SUBGRAPH_REQUEST_FAILED" || results[0].errors[0].extensions.code === "NO_STREAMS");
    await check();
  });

  it("status 500 and 404", async () => {
    for (const [protocol, status] of [["auto", 404], ["sse", 404], ["sse", 500], ["multipart", 503]]) {
      const server = keep(await startScriptedResponse(reviews, { protocol, status, type: "text/html", body: "<html>secret</html>" }));
      const { client, check } = await open(server);
      await assertFails(client.subscribe(IDS), BEGINNING, new RegExp(String(status)));
      await check();
    }
  });

  it("results for unknown ids are ignored and counted", async () => {
    const server = keep(await startScriptedSocket(reviews, {
      onSubscribe({ id, send }) {
        send({ type: "next", id: "unknown", payload: result("0") });
        send({ type: "error", id: "another", payload: [{ message: "no" }] });
        send({ type: "complete", id: "third" });
        send({ type: "next", id, payload: result("1") });
      },
    }));
    const { client, count, check } = await open(server);
    const subscription = client.subscribe(IDS);
    assert.deepEqual(await subscription.next(), result("1"));
    assert.equal(await count("messages_ignored"), 3);
    assert.equal(subscription.hasEnded(), false);
    assert.equal(server.accepted(), 1);
    await check();
  });

  it("a second `complete` and results behind it are ignored and counted", async () => {
    let ended = 0;
    const server = keep(await startScriptedSocket(reviews, {
      onSubscribe({ id, send }) {
        send({ type: "next", id, payload: result("1") });
        if (ended++ > 0) return;
        send({ type: "complete", id });
        send({ type: "complete", id });
        send({ type: "next", id, payload: result("2") });
      },
    }));
    const { client, count, check } = await open(server);
    const first = await client.subscribe(IDS).ended();
    assert.deepEqual(first, { results: [result("1")], error: undefined });
    await eventually(async () => await count("messages_ignored") === 2, "the messages to be counted");
    const second = client.subscribe(IDS);
    assert.deepEqual(await second.next(), result("1"));
    assert.equal(server.accepted(), 1);
    await check();
  });

  for (const [name, payload, reason] of [
    ["a list", [], /not .*object|invalid result/],
    ["a text", "none", /not .*object|invalid result/],
  ]) {
    it(`a result that is ${name} ends its own subscription only`, async () => {
      const pending = [];
      const server = keep(await startScriptedSocket(reviews, { onSubscribe: (operation) => pending.push(operation) }));
      const { client, check } = await open(server);
      const good = client.subscribe("subscription { reviewAdded { text } }");
      await eventually(() => pending.length === 1, "the first operation");
      const bad = client.subscribe(IDS);
      await eventually(() => pending.length === 2, "the second operation");
      pending[1].send({ type: "next", id: pending[1].id, payload });
      await assertFails(bad, RUNNING, reason);
      pending[0].send({ type: "next", id: pending[0].id, payload: { data: { reviewAdded: { text: "t" } } } });
      assert.deepEqual(await good.next(), { data: { reviewAdded: { text: "t" } } });
      await check();
    });
  }

  for (const [name, frame, reason] of [
    ["invalid UTF-8", textFrame(Buffer.from([0x22, 0xff, 0xfe, 0x22])), /UTF-8|1007/i],
    ["a binary frame", Buffer.from([0x82, 2, 0x7b, 0x7d]), /binary|1003|invalid message/i],
    ["a masked frame", Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x7b, 0x7d]), /mask|1002/i],
    ["text that is not JSON", textFrame(Buffer.from("oops")), /invalid message|JSON/i],
  ]) {
    it(`${name} ends the connection, and the subscription when it does not get better`, async () => {
      const server = keep(await startScriptedSocket(reviews, { onSubscribe: ({ sendBytes }) => sendBytes(frame) }));
      const { client, count, check } = await open(server);
      await assertFails(client.subscribe(IDS), RUNNING, reason);
      // The first connection and two more attempts.
      assert.equal(server.accepted(), 3);
      assert.equal(await count("connections_lost"), 3);
      await check();
    });

    it(`${name} once is repaired by a new connection`, async () => {
      let begun = 0;
      const server = keep(await startScriptedSocket(reviews, {
        onSubscribe({ id, send, sendBytes }) {
          if (begun++ === 0) sendBytes(frame);
          else send({ type: "next", id, payload: result("1") });
        },
      }));
      const { client, check } = await open(server);
      assert.deepEqual(await client.subscribe(IDS).next(), { ...result("1"), extensions: { gap: true } });
      await check();
    });
  }

  it("a callback with a wrong verifier, id or protocol is refused, and the subscription goes on", async () => {
    const server = keep(await startApolloCallback(reviews));
    const { router, client, count, check } = await open(server);
    const subscription = client.subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    const { url, id, verifier } = server.callbacks[0];
    const send = (target, message) => fetch(target, {
      method: "POST",
      headers: { "content-type": "application/json", "subscription-protocol": "callback/1.0" },
      body: typeof message === "string" ? message : JSON.stringify({ kind: "subscription", action: "next", id, verifier, ...message }),
    });
    const payload = result("forged");
    const forged = [
      await send(url, { verifier: "wrong", payload }),
      await send(url, { verifier: undefined, payload }),
      await send(url, { id: "other", payload }),
      await send(`${url}x`, { payload }),
      await send(url, { action: "complete", verifier: "wrong" }),
      await send(url, "{"),
    ];
    for (const response of forged) {
      assert.ok(response.status >= 400 && response.status < 500, String(response.status));
      assert.doesNotMatch(await response.text(), new RegExp(verifier));
    }
    assert.equal(await readMetric(router, "starling_subgraph_callback_requests_rejected_total"), forged.length);
    // Those with the id of a subscription.
    assert.equal(await count("callbacks_rejected"), 5);
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), result("1"));
    assert.equal(subscription.hasEnded(), false);
    subscription.stop();
    // The next heartbeat tells the subgraph that the subscription is not wanted any more.
    await eventually(() => reviews.operations() === 0, "the operation to end");
    await check();
  });

  it("a server of callbacks that does not know its verifier never begins", async () => {
    const server = keep(await startApolloCallback(reviews, {
      fetcher: (url, request) => fetch(url, { ...request, body: request.body.replace(/"verifier":"[^"]*"/, '"verifier":"wrong"') }),
    }));
    const { client, check } = await open(server);
    const { error, results } = await client.subscribe(IDS).ended();
    assert.ok(error?.[0].extensions.code === "SUBGRAPH_REQUEST_FAILED" || results[0]?.errors.length === 1, JSON.stringify({ error, results }));
    assert.equal(reviews.operations(), 0);
    await check();
  });
});

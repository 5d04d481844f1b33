// How subgraphs that serve subscriptions are reached: over TLS, as `starling check` reports it, and when they
// fall silent.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { createCertificate } from "../certificates.mjs";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { freePort } from "../router.mjs";
import { startApolloCallback } from "../subgraphs/apollo_callback.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startMultipart } from "../subgraphs/multipart.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { startYoga } from "../subgraphs/yoga.mjs";
import { createReviews, review } from "../subgraphs/reviews.mjs";
import { startRouter } from "../subgraphs/router.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually, within } from "../waiting.mjs";

const IDS = "subscription { reviewAdded { id } }";

/** Runs `starling check --online` with the configuration of a router. */
const check = (router) => within(new Promise((resolve) => {
  const words = ["check", "--config", path.join(router.folder, "starling.yaml"), "--online"];
  execFile(process.env.STARLING_BIN, words, (error, output) => resolve({ code: error?.code ?? 0, output }));
}), "the check");

const result = (id) => ({ data: { reviewAdded: { id: String(id) } } });

describe("subgraphs that serve subscriptions", () => {
  const keep = closeAfterEach();
  let products;
  before(async () => {
    products = await startProducts();
  });
  after(() => products?.stop());

  async function open(server, reviews, { subscription, more } = {}) {
    const settings = { ...server.subscription, ...subscription };
    const router = keep(await startRouter({
      reviews: { ...server, sdl: reviews.sdl, subscription: settings, more }, products,
    }));
    return { router, subscribe: () => keep(openSocket(router)).subscribe(IDS) };
  }

  for (const [scheme, start] of [["wss", startGraphqlWs], ["https", startGraphqlSse]]) {
    it(`by ${scheme}, with an authority of their own`, async () => {
      const tls = keep(await createCertificate());
      const reviews = createReviews();
      const server = keep(await start(reviews, { tls }));
      assert.equal(new URL(server.subscription.url).protocol, `${scheme}:`);

      const trusting = await open(server, reviews, { more: { tls: { ca: tls.file } } });
      const subscription = trusting.subscribe();
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      reviews.publish(review(1));
      assert.deepEqual(await subscription.next(), result(1));
      subscription.stop();

      const distrusting = await open(server, reviews);
      const { error } = await distrusting.subscribe().ended();
      assert.equal(error[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
      assert.match(error[0].message, /certificate/);
    });
  }

  it("are part of `starling check --online`", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    const { router } = await open(server, reviews);
    const fine = await check(router);
    assert.match(fine.output, /^ok +subscribe +subgraph reviews, auto at ws:/m);
    assert.equal(fine.code, 0);
    await server.stop();
    const failed = await check(router);
    assert.match(failed.output, /^FAILED +subscribe +subgraph reviews, auto at ws:.*\n +why: .*refused/m);
    assert.equal(failed.code, 1);
  });

  for (const [name, start, protocol] of [
    ["graphql-sse by POST", startGraphqlSse, "sse"],
    ["graphql-sse by GET", startGraphqlSse, "sse_get"],
    ["GraphQL Yoga by POST", startYoga, "sse"],
    ["GraphQL Yoga by GET", startYoga, "sse_get"],
    ["multipart", startMultipart, "multipart"],
  ]) {
    it(`are found to stream by \`starling check --online\`, without a subscription: ${name}`, async () => {
      const reviews = createReviews();
      const server = keep(await start(reviews, { protocol }));
      const { router } = await open(server, reviews);
      const { code, output } = await check(router);
      assert.match(output, new RegExp(`^ok +subscribe +subgraph reviews, ${protocol} at http:`, "m"));
      assert.equal(code, 0);
      assert.equal(reviews.started.length, 0);
    });
  }

  it("are found not to stream by `starling check --online`", async () => {
    const reviews = createReviews();
    const server = keep(await startMultipart(reviews));
    // The URL of queries, where npm's graphql-http serves no event streams.
    const subscription = { protocol: "sse", url: server.url };
    const { router } = await open(server, reviews, { subscription });
    const { code, output } = await check(router);
    assert.match(output, /^FAILED +subscribe +subgraph reviews, sse at http:.*\n +why: .* responded with status 4/m);
    assert.match(output, /^ +do: +check the protocol and the URL .*`subgraphs\.reviews\.subscription`$/m);
    assert.equal(code, 1);
  });

  it("and the URL for their callbacks are part of `starling check --online`", async () => {
    const reviews = createReviews();
    const server = keep(await startApolloCallback(reviews));
    const { router } = await open(server, reviews);
    const running = await check(router);
    assert.match(running.output, /^unknown +subscribe +subgraph reviews, callback at http:.*\n +why: +it responds/m);
    assert.match(running.output, /^ok +callback +URL for callbacks, http:.*\/callback$/m);
    assert.equal(running.code, 0);
    // Apollo Server sends them for the invalid operation, too. The router knows no such subscription.
    await eventually(() => server.callbacks.length === 2, "the callbacks");
    const sent = server.callbacks.map(({ action, status }) => `${action}: ${status}`);
    assert.deepEqual(sent, ["check: 404", "complete: 404"]);
    assert.equal(reviews.started.length, 0);
    await router.stop();
    const stopped = await check(router);
    assert.match(stopped.output, /^unknown +subscribe +subgraph reviews, callback .*\n.*why: .* status 500, as Ap/m);
    assert.match(stopped.output, /^unknown +callback +URL for callbacks, .*\n.*why: .*\n +do: +start the router/m);
    assert.equal(stopped.code, 0);
  });

  it("and cannot send callbacks are found by `starling check --online`", async () => {
    const reviews = createReviews();
    const server = keep(await startApolloCallback(reviews, { fetcher: () => Promise.reject(new Error("cut")) }));
    const { router } = await open(server, reviews);
    const { code, output } = await check(router);
    assert.match(output, /^ok +callback +URL for callbacks/m);
    assert.match(output, /^FAILED +subscribe +subgraph reviews, callback at .*\n.*why: .* status 500, as Apollo/m);
    assert.match(output, /^ +do: +check that the subgraph can reach `subscriptions\.callback\.public_url`/m);
    assert.equal(code, 1);
  });

  it("get the query of `starling check --online` over the WebSocket where `queries_over` says so", async () => {
    const reviews = createReviews();
    const server = keep(await startGraphqlWs(reviews));
    // Nothing responds to queries over HTTP.
    const subgraph = { ...server, url: `http://127.0.0.1:${await freePort()}/` };
    const { router } = await open(subgraph, reviews, { more: { queries_over: "websocket" } });
    const accepted = server.accepted();
    const { code, output } = await check(router);
    assert.match(output, /^ok +connect +subgraph reviews, ws:/m);
    assert.match(output, /^ok +subscribe +subgraph reviews, auto at ws:/m);
    assert.equal(code, 0);
    // Both checks share the probe, which has one connection, and the query has another.
    assert.equal(server.accepted() - accepted, 2);
  });

  it("count as lost after `idle_timeout`, unless they send heartbeats", async () => {
    const [silent, beating] = [createReviews(), createReviews()];
    const servers = await Promise.all([startGraphqlSse(silent), startMultipart(beating)]);
    const settings = { subscription: { idle_timeout: "1s" } };
    const [first, second] = await Promise.all([silent, beating].map(async (reviews, at) =>
      (await open(keep(servers[at]), reviews, settings)).subscribe()));
    await eventually(() => beating.operations() === 1, "the operation with heartbeats to begin");
    // Longer than the idle timeout.
    const hasBegun = () => silent.started.length === 3 && silent.operations() === 1;
    await eventually(hasBegun, "the silent operation to begin again");
    assert.equal(beating.started.length, 1);
    silent.publish(review(1));
    assert.deepEqual(await first.next(), { ...result(1), extensions: { gap: true } });
    beating.publish(review(1));
    assert.deepEqual(await second.next(), result(1));
  });

  it("count as lost without the heartbeats of the callback protocol", async () => {
    const reviews = createReviews();
    let isCut = false;
    const server = keep(await startApolloCallback(reviews, {
      fetcher: (url, request) => (isCut ? Promise.reject(new Error("cut")) : fetch(url, request)),
    }));
    const { subscribe } = await open(server, reviews);
    const subscription = subscribe();
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), result(1));
    isCut = true;
    // The plugin gives up after some heartbeats.
    await eventually(() => reviews.operations() === 0, "the operation to end");
    isCut = false;
    await eventually(() => reviews.started.length === 2 && reviews.operations() === 1, "the operation to begin again");
    reviews.publish(review(2));
    assert.deepEqual(await subscription.next(), { ...result(2), extensions: { gap: true } });
  });
});

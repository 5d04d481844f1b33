// The servers of the other suites about subgraphs' subscriptions, with clients of their own: a defect of a server shows
// here, without a router.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, describe, it } from "node:test";
import { ApolloClient, HttpLink, InMemoryCache, gql } from "@apollo/client";
import { Client, fetchExchange } from "@urql/core";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import { SubscriptionClient } from "subscriptions-transport-ws";
import WebSocket from "ws";
import { startApolloCallback } from "../subgraphs/apollo_callback.mjs";
import { startGraphqlSse } from "../subgraphs/graphql_sse.mjs";
import { startMultipart } from "../subgraphs/multipart.mjs";
import { createReviews, review } from "../subgraphs/reviews.mjs";
import { startGraphqlWs, startSubscriptionsTransportWs } from "../subgraphs/web_sockets.mjs";
import { startYoga } from "../subgraphs/yoga.mjs";
import { eventually, within } from "../waiting.mjs";

const QUERY = "subscription ($product: ID) { reviewAdded(product: $product) { id text product { upc } } }";
const VARIABLES = { product: "kettle" };

/** Calls `next(data)` with the data of each result, and resolves at the end of the operation. */
const viaIterator = (client) => async ({ next }) => {
  for await (const { data } of client.iterate({ query: QUERY, variables: VARIABLES })) next(data);
};

const viaObservable = (observable) => ({ next }) =>
  new Promise((complete, error) => observable.subscribe({ next: ({ data }) => next(data), error, complete }));

const sse = ({ subscription, url }) => viaIterator(createSseClient({ url: subscription.url ?? url, retryAttempts: 0 }));

const CASES = [
  {
    name: "graphql-ws", start: startGraphqlWs,
    run: ({ subscription: { url } }) =>
      viaIterator(createSocketClient({ url, webSocketImpl: WebSocket, retryAttempts: 0 })),
  },
  {
    name: "subscriptions-transport-ws", start: startSubscriptionsTransportWs,
    run: ({ subscription }) => viaObservable(new SubscriptionClient(subscription.url, { reconnect: false }, WebSocket)
      .request({ query: QUERY, variables: VARIABLES })),
  },
  { name: "graphql-yoga by POST", start: startYoga, run: sse },
  { name: "graphql-yoga by GET", start: startYoga, run: eventStreamByGet },
  { name: "graphql-sse by POST", start: startGraphqlSse, run: sse },
  { name: "graphql-sse by GET", start: startGraphqlSse, run: eventStreamByGet },
  {
    name: "multipart with subscriptionSpec, read by Apollo Client", start: startMultipart,
    run({ subscription }) {
      const link = new HttpLink({ uri: subscription.url });
      return viaObservable(new ApolloClient({ link, cache: new InMemoryCache() })
        .subscribe({ query: gql(QUERY), variables: VARIABLES, fetchPolicy: "no-cache" }));
    },
  },
  {
    name: "incremental multipart, read by urql",
    start: (subgraph) => startMultipart(subgraph, { form: "incremental" }),
    run: ({ subscription }) => ({ next }) => new Promise((complete) => {
      const client = new Client({
        url: subscription.url, exchanges: [fetchExchange], fetchSubscriptions: true, preferGetMethod: false,
      });
      // A result with `hasNext: false` is the last one.
      client.subscription(QUERY, VARIABLES).subscribe(({ data, hasNext }) => (hasNext ? next(data) : complete()));
    }),
  },
  { name: "Apollo Server with callbacks", start: startApolloCallback, run: viaCallbacks },
];

/** The body of the response to a GET, read without a client library. */
function eventStreamByGet({ subscription, url }) {
  return async ({ next }) => {
    const target = new URL(subscription.url ?? url);
    target.search = new URLSearchParams({ query: QUERY, variables: JSON.stringify(VARIABLES) });
    const response = await fetch(target, { headers: { accept: "text/event-stream" } });
    let text = "";
    for await (const bytes of response.body) {
      text += Buffer.from(bytes).toString("utf8");
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        if (event.startsWith("event: complete")) return;
        const data = /^data: ?(.+)$/m.exec(event);
        if (data) next(JSON.parse(data[1]).data);
      }
    }
    throw new Error("the stream ended without `complete`");
  };
}

/** A receiver of callbacks that takes all results. */
function viaCallbacks({ url }) {
  return async ({ next }) => {
    let complete;
    const ended = new Promise((resolve) => {
      complete = resolve;
    });
    const receiver = http.createServer(async (request, response) => {
      let body = "";
      for await (const part of request.setEncoding("utf8")) body += part;
      const { action, payload, verifier, id } = JSON.parse(body);
      const isKnown = verifier === "v" && id === "1" && request.url === "/callback/1";
      response.writeHead(isKnown ? 204 : 400, { "subscription-protocol": "callback/1.0" }).end();
      if (action === "next") next(payload.data);
      if (action === "complete") complete();
    });
    receiver.listen(0, "127.0.0.1");
    await once(receiver, "listening");
    const callbackUrl = `http://127.0.0.1:${receiver.address().port}/callback/1`;
    const subscription = { callbackUrl, subscriptionId: "1", verifier: "v", heartbeatIntervalMs: 50 };
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json;callbackSpec=1.0, application/json" },
      body: JSON.stringify({ query: QUERY, variables: VARIABLES, extensions: { subscription } }),
    });
    assert.deepEqual([response.status, await response.json()], [200, { data: null }]);
    await ended;
    receiver.close();
    receiver.closeAllConnections();
  };
}

describe("servers of subscriptions", () => {
  const servers = [];
  after(() => Promise.all(servers.map((server) => server.stop())));

  for (const { name, start, run } of CASES) {
    it(`${name}: events in order, then the end`, async () => {
      const reviews = createReviews();
      const server = await start(reviews);
      servers.push(server);
      const results = [];
      const ended = run(server)({ next: (data) => results.push(data.reviewAdded) });
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      for (const id of [1, 2, 3]) reviews.publish(review(id));
      reviews.publish(review(4, "teapot"));
      await eventually(() => results.length === 3, "three events");
      reviews.complete();
      await within(ended, "the end of the operation");
      const expected = [["1", "kettle"], ["2", "kettle"], ["3", "kettle"]];
      assert.deepEqual(results.map(({ id, product }) => [id, product.upc]), expected);
      assert.equal(reviews.operations(), 0);
      assert.deepEqual(reviews.started.map(({ variables }) => ({ ...variables })), [VARIABLES]);
    });
  }

  it("a stopped server starts again at its address, and a killed one keeps it", async () => {
    const reviews = createReviews();
    const server = await startGraphqlWs(reviews);
    servers.push(server);
    for (const interrupt of [() => server.kill(), () => server.stop().then(() => server.restart())]) {
      const client = createSocketClient({ url: server.subscription.url, webSocketImpl: WebSocket, retryAttempts: 0 });
      const subscription = client.iterate({ query: QUERY });
      const next = subscription.next();
      await eventually(() => reviews.operations() === 1, "the operation to begin");
      const noticed = assert.rejects(within(next, "the client to notice"));
      await interrupt();
      await noticed;
      await eventually(() => reviews.operations() === 0 && server.connections() === 0, "the operation to end");
    }
    assert.equal(server.accepted(), 2);
  });
});

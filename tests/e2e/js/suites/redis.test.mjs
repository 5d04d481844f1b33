// A real redis-server, to which the npm client `redis` publishes.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import { createClient as createRedisClient } from "redis";
import WebSocket from "ws";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, redisSupergraph, startSubgraphs,
} from "../board.mjs";
import { redisServer, skipWithout } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { freePort, startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const config = (url, subgraphs) => ({
  subgraphs,
  events: {
    providers: { redis: [{ id: "default", urls: [url], retry: { initial: "50ms", max: "200ms" } }] },
  },
});

/** An independent client; the errors of a killed server are expected. */
async function connect(url) {
  const client = createRedisClient({ url, socket: { reconnectStrategy: false } });
  client.on("error", () => {});
  return client.connect();
}

describe("redis", { skip: skipWithout(redisServer, "redis-server") }, () => {
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  after(() => subgraphs?.stop());

  describe("with an available broker", () => {
    let redis;
    let router;
    let publisher;
    let socketClient;
    let sseClient;
    const publish = (channel, payload) => publisher.publish(channel, JSON.stringify(payload));
    const start = async (supergraph) => {
      redis = await startRedis();
      router = await startServe({ supergraph, config: config(redis.url, subgraphs.configuration) });
      publisher = await connect(redis.url);
      socketClient = createSocketClient({
        url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
      });
      sseClient = createSseClient({ url: router.graphql, retryAttempts: 0 });
    };
    before(() => start(redisSupergraph()));
    after(async () => {
      await socketClient?.dispose();
      sseClient?.dispose();
      publisher?.destroy();
      await router?.stop();
      await redis?.stop();
    });

    it("an event of any Redis client reaches WebSocket and SSE subscribers with joined fields", async () => {
      const subscriptions = [socketClient, sseClient].map((client) =>
        client.iterate({ query: SUBSCRIPTION }));
      const results = await repeatUntil(
        Promise.all(subscriptions.map((each) => each.next())),
        (number) => publish("flights.moved", event("2", number)),
        "the first event on both",
      );
      for (const { value } of results) {
        const { altitude } = value.data.flightMoved;
        assert.deepEqual(value, { data: { flightMoved: expectedFlight("2", altitude) } });
      }
      await Promise.all(subscriptions.map((each) => each.return()));
    });

    it("a channel is rendered from the arguments, which cannot turn it into a pattern", async () => {
      const subscription = sseClient.iterate({
        query: SUBSCRIPTION_BY_ID, variables: { id: "3" },
      });
      const { value } = await repeatUntil(
        subscription.next(),
        (number) => {
          publish("flights.moved.1", event("1", number));
          publish("flights.moved.3", event("3", number));
        },
        "an event of flight 3",
      );
      assert.equal(value.data.flightMovedById.number, "ST 303");
      await subscription.return();

      const widened = sseClient.iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "*" } });
      const { value: refused } = await within(widened.next(), "the refusal");
      assert.equal(refused.errors[0].extensions.code, "BAD_USER_INPUT");
    });

    it("a mutation publishes to the broker", async () => {
      const subscriber = await connect(redis.url);
      const heard = new Promise((resolve) => {
        subscriber.subscribe("flights.delays.1", resolve);
      });
      // Commands of one connection are executed in order, so the subscription is active.
      await subscriber.ping();
      const { body } = await router.query(
        'mutation { announceDelay(id: "1", minutes: 25) { success } }');
      assert.deepEqual(body, { data: { announceDelay: { success: true } } });
      const payload = JSON.parse(await within(heard, "the published message"));
      assert.equal(payload.id, "1");
      assert.equal(payload.minutes, 25);
      subscriber.destroy();
    });
  });

  it("a pattern in the schema receives the events of every matching channel", async () => {
    const redis = await startRedis();
    const router = await startServe({
      supergraph: redisSupergraph().replace('["flights.moved"]', '["flights.mov*"]'),
      config: config(redis.url, subgraphs.configuration),
    });
    const publisher = await connect(redis.url);
    const client = createSseClient({ url: router.graphql, retryAttempts: 0 });
    try {
      const subscription = client.iterate({ query: SUBSCRIPTION });
      const { value } = await repeatUntil(
        subscription.next(),
        (number) => {
          publisher.publish("flights.landed", JSON.stringify(event("1", number)));
          publisher.publish("flights.moving", JSON.stringify(event("3", number)));
        },
        "an event of a channel that matches",
      );
      assert.equal(value.data.flightMoved.number, "ST 303");
    } finally {
      client.dispose();
      // Waits for events that are being published.
      await publisher.close();
      await router.stop();
      await redis.stop();
    }
  });

  it("the same subscription continues after a broker restart", async () => {
    let redis = await startRedis();
    const router = await startServe({
      supergraph: redisSupergraph(),
      config: config(redis.url, subgraphs.configuration),
    });
    const client = createSocketClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
    });
    const subscription = client.iterate({ query: SUBSCRIPTION });
    try {
      let publisher = await connect(redis.url);
      const publish = (altitude) =>
        publisher.publish("flights.moved", JSON.stringify(event("1", altitude)));
      await repeatUntil(subscription.next(), publish, "an event before the loss");
      publisher.destroy();
      await redis.stop();
      // Queries do not need the broker.
      assert.deepEqual((await router.query("{ __typename }")).body, {
        data: { __typename: "Query" },
      });
      redis = await startRedis(redis.port);
      publisher = await connect(redis.url);
      let gap = false;
      let altitude;
      do {
        const { value } = await repeatUntil(
          subscription.next(), () => publish(100_000), "an event after the return");
        gap ||= value.extensions?.gap === true;
        altitude = value.data?.flightMoved.altitude;
      } while (altitude !== 100_000);
      assert.ok(gap, "the gap is announced");
      publisher.destroy();
    } finally {
      await client.dispose();
      await router.stop();
      await redis.stop();
    }
  });

  it("a broker that is down at the start fails only its own fields", async () => {
    const port = await freePort();
    const router = await startServe({
      supergraph: redisSupergraph(),
      config: config(`redis://127.0.0.1:${port}`, subgraphs.configuration),
    });
    let redis;
    try {
      const { body } = await router.query('{ flight(id: "1") { number } }');
      assert.deepEqual(body, { data: { flight: { number: "ST 101" } } });
      const mutation = await router.query(
        'mutation { announceDelay(id: "1", minutes: 1) { success } }');
      assert.deepEqual(mutation.body, { data: { announceDelay: { success: false } } });
      // The router connects automatically once the broker is available.
      redis = await startRedis(port);
      const publisher = await connect(redis.url);
      const client = createSseClient({ url: router.graphql, retryAttempts: 0 });
      const { value } = await repeatUntil(
        client.iterate({ query: SUBSCRIPTION }).next(),
        (number) => publisher.publish("flights.moved", JSON.stringify(event("3", number))),
        "an event after the broker's start",
      );
      assert.equal(value.data.flightMoved.number, "ST 303");
      client.dispose();
      publisher.destroy();
    } finally {
      await router.stop();
      await redis?.stop();
    }
  });
});

// Subgraphs are paused while events are published to brokers that store them: subscribers miss none of them and
// receive no report of a loss, whether they reconnect or not.
// Runs alone: it has a load that must not fall behind.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { createClient as createSseClient } from "graphql-sse";
import { createClient } from "graphql-ws";
import { connect } from "nats";
import { createClient as createRedisClient } from "redis";
import WebSocket from "ws";
import {
  SUBSCRIPTION, event, expectedFlight, jetStreamSupergraph, kafkaSupergraph, redisStreamsSupergraph,
  startSubgraphs,
} from "../board.mjs";
import { startKafka } from "../kafka.mjs";
import { startNats } from "../nats.mjs";
import { kafkaJars, natsServer, redisServer, skipWithout } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const TOPIC = "flights.moved";

/** More than the groups, the router's memory of the latest events and one batch of a broker hold together. */
const EVENTS = 2_000;

const EVENTS_PER_SECOND = 500;

/** Minimum time for which the subgraphs are paused, after a quarter of the events. */
const PAUSE_MS = 2_000;

/** Time until all events have arrived, on a busy machine. */
const PASSING_MS = 120_000;

const brokers = {
  jetstream: {
    skip: skipWithout(natsServer, "nats-server"),
    supergraph: jetStreamSupergraph,
    async start() {
      const nats = await startNats(-1, { stores: true });
      const publisher = await connect({ servers: nats.url });
      const manager = await publisher.jetstreamManager();
      await manager.streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
      return {
        providers: { nats: [{ id: "default", url: nats.url }] },
        publish: (payload) => publisher.jetstream().publish(TOPIC, JSON.stringify(payload)),
        async stop() {
          await publisher.close();
          await nats.stop();
        },
      };
    },
  },
  "redis streams": {
    skip: skipWithout(redisServer, "redis-server"),
    supergraph: redisStreamsSupergraph,
    async start() {
      const redis = await startRedis();
      const publisher = createRedisClient({ url: redis.url, socket: { reconnectStrategy: false } });
      publisher.on("error", () => {});
      await publisher.connect();
      return {
        providers: { redis: [{ id: "default", urls: [redis.url] }] },
        publish: (payload) => publisher.xAdd(TOPIC, "*", { data: JSON.stringify(payload) }),
        async stop() {
          publisher.destroy();
          await redis.stop();
        },
      };
    },
  },
  kafka: {
    skip: skipWithout(kafkaJars, "a Kafka broker"),
    supergraph: kafkaSupergraph,
    async start() {
      const kafka = await startKafka();
      await kafka.topics("--create", "--topic", TOPIC, "--partitions", "1");
      return {
        providers: { kafka: [{ id: "default", brokers: [kafka.address] }] },
        // The suites have no client of Kafka: the router itself publishes, which needs no subgraph.
        async publish({ id, altitude }, router) {
          const { body } = await router.query({
            query: "mutation($id: ID!, $to: Int!) { moveFlight(id: $id, altitude: $to) { success } }",
            variables: { id, to: altitude },
          });
          assert.equal(body.data.moveFlight.success, true);
        },
        stop: () => kafka.stop(),
      };
    },
  },
};

for (const [name, { skip, supergraph, start }] of Object.entries(brokers)) {
  describe(`falling behind ${name}`, { skip }, () => {
    let subgraphs;
    let broker;
    let router;
    before(async () => {
      [subgraphs, broker] = await Promise.all([startSubgraphs(), start()]);
      router = await startServe({
        supergraph: supergraph(),
        config: {
          subgraphs: subgraphs.configuration,
          cursor: { keys: ["a key of more than 16 bytes"] },
          events: { providers: broker.providers },
        },
      });
    });
    after(async () => {
      await router?.stop();
      await broker?.stop();
      await subgraphs?.stop();
    });

    const sample = async (metric) => {
      const metrics = await (await fetch(new URL("/metrics", router.admin))).text();
      return Number(metrics.match(new RegExp(`^${metric} (\\d+)$`, "m"))?.[1]);
    };

    it("paused subgraphs delay events, and none is missing", async () => {
      const received = { "graphql-ws": [], "graphql-sse": [] };
      const announced = [];
      let last = Infinity;
      const follow = async (client, name) => {
        for await (const result of client.iterate({ query: SUBSCRIPTION })) {
          const { data, errors, extensions } = result;
          assert.equal(errors, undefined, JSON.stringify(errors));
          const { altitude } = data.flightMoved;
          assert.deepEqual(data.flightMoved, expectedFlight("1", altitude));
          if (extensions.lost || extensions.gap) announced.push({ name, altitude, ...extensions });
          received[name].push(altitude);
          if (altitude >= last) return;
        }
      };
      const socket = createClient({
        url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
      });
      const sse = createSseClient({ url: router.graphql, retryAttempts: 0 });
      const following = Promise.all([follow(socket, "graphql-ws"), follow(sse, "graphql-sse")]);
      following.catch(() => {});
      const all = Object.values(received);
      let published = -1;
      await repeatUntil(
        eventually(() => all.every((it) => it.length > 0), "the first event on both"),
        (number) => broker.publish(event("1", published = number), router),
        "the first event on both",
      );
      last = published + EVENTS;
      const began = Date.now();
      const due = () => Math.floor(((Date.now() - began) * EVENTS_PER_SECOND) / 1_000);
      const paused = (async () => {
        await eventually(() => published > last - EVENTS * 0.75, "a quarter of the events", PASSING_MS);
        subgraphs.pause();
        await pause(PAUSE_MS);
        await eventually(
          async () => await sample("starling_hub_groups_fell_behind_total") > 0, "the group to fall behind", PASSING_MS);
        subgraphs.resume();
      })();
      const base = published;
      while (published < last) {
        while (published < last && published - base < due()) {
          await broker.publish(event("1", published += 1), router);
        }
        // Until the next event is due.
        await pause(5);
      }
      await paused;
      await within(
        Promise.race([
          following,
          eventually(() => all.every((it) => it.at(-1) === last), "the last event", PASSING_MS),
        ]),
        "the last event", PASSING_MS,
      );
      const missing = all.map((it) => it.at(-1) - it[0] + 1 - it.length);
      assert.deepEqual(missing, [0, 0]);
      for (const each of all) {
        assert.ok(each.every((altitude, at) => altitude === each[0] + at), "in order");
      }
      assert.deepEqual(announced, []);
      await eventually(
        async () => await sample("starling_hub_groups_catching_up") === 0, "the group to be live again");
      await socket.dispose();
      sse.dispose();
    });
  });
}

// Brokers that store events: starting, killing and restarting each of them, and publishing numbered events in order,
// each exactly once, while the broker is killed.
import { once } from "node:events";
import { connect, nanos } from "nats";
import { createClient } from "redis";
import { event } from "../board.mjs";
import { startKafka } from "../kafka.mjs";
import { startNats } from "../nats.mjs";
import { kafkaJars, natsServer, redisServer } from "../programs.mjs";
import { startRedis } from "../redis.mjs";
import { eventually, within } from "../waiting.mjs";
import { storedSupergraph } from "./supergraph.mjs";

/** Delay before a publisher reconnects. */
const RETRY_MS = 100;

/** Time until a killed broker confirms events again, on a busy machine. */
const CONFIRMED_MS = 120_000;

/** Time after which a publisher to Redis gives up a connection without a reply. */
const ATTEMPT_MS = 5_000;

const text = (number) => JSON.stringify(event("1", number));

/** Repeats `attempt` until it does not throw. */
const untilConfirmed = (attempt) => eventually(async () => {
  await attempt();
  return true;
}, "a broker to confirm what is published", CONFIRMED_MS);

async function startJetStream(stream) {
  let server = await startNats(-1, { stores: true });
  const { port, store } = server;
  const connection = await connect({
    servers: server.url, maxReconnectAttempts: -1, reconnectTimeWait: RETRY_MS, waitOnFirstConnect: true,
  });
  const manager = await connection.jetstreamManager();
  await manager.streams.add({ name: "MOVES", subjects: ["moves.>"], duplicate_window: nanos(600_000) });
  const events = connection.jetstream({ timeout: 2_000 });
  return {
    supergraph: (topic) => storedSupergraph({ providerId: "nats/default", topic, stream }),
    configuration: {
      // A durable consumer belongs to the router that replaces the previous one.
      instance: "resume",
      providers: { nats: [{ id: "default", url: server.url, retry: { initial: "50ms", max: "500ms" } }] },
    },
    createTopic: async () => {},
    /** Numbers that are published twice are stored once. */
    publish: (topic, numbers) => untilConfirmed(() => Promise.all(numbers.map((number) =>
      events.publish(topic, text(number), { msgID: `${topic}/${number}` })))),
    async restart() {
      await server.stop();
      server = await startNats(port, { stores: true, store });
    },
    async stop() {
      await connection.close();
      await server.stop();
    },
  };
}

async function startRedisStreams() {
  let server = await startRedis(undefined, { stores: true });
  const { port, folder } = server;
  let client;
  /** A client for one connection, because a client that reconnects automatically may never settle a command. */
  const connect = async () => {
    const connected = createClient({ url: server.url, socket: { reconnectStrategy: false }, disableOfflineQueue: true });
    connected.on("error", () => {});
    await connected.connect();
    return connected;
  };
  const disconnect = () => {
    if (client?.isOpen) client.destroy();
    client = undefined;
  };
  /** Stores events, unless an attempt whose confirmation was lost has stored them. */
  const store = async (topic, numbers) => {
    // The transaction stores all events or none, so the last entry shows whether it was executed.
    const [last] = await client.xRevRange(topic, "+", "-", { COUNT: 1 });
    if (last && JSON.parse(last.message.data).altitude >= numbers[0] && numbers[0] > 0) return;
    const transaction = client.multi();
    for (const number of numbers) transaction.xAdd(topic, "*", { data: text(number) });
    await transaction.exec();
  };
  return {
    supergraph: (topic) => storedSupergraph({ providerId: "redis/default", topic, stream: "{}" }),
    configuration: {
      providers: { redis: [{ id: "default", urls: [server.url], retry: { initial: "50ms", max: "500ms" } }] },
    },
    createTopic: async () => {},
    publish: (topic, numbers) => untilConfirmed(async () => {
      client ??= await within(connect(), "a connection to Redis", ATTEMPT_MS);
      try {
        await within(store(topic, numbers), "Redis to store events", ATTEMPT_MS);
      } catch (error) {
        disconnect();
        throw error;
      }
    }),
    async restart() {
      await server.stop();
      server = await startRedis(port, { folder });
    },
    async stop() {
      disconnect();
      await server.stop();
    },
  };
}

async function startKafkaBroker() {
  const broker = await startKafka();
  const producers = new Map();
  return {
    supergraph: (topic) => storedSupergraph({ providerId: "kafka/default", topic }),
    configuration: {
      providers: { kafka: [{ id: "default", brokers: [broker.address], retry: { initial: "50ms", max: "500ms" } }] },
    },
    async createTopic(topic) {
      await broker.topics("--create", "--topic", topic, "--partitions", "1");
      producers.set(topic, { child: broker.startProducer(topic), published: 0 });
    },
    async publish(topic, numbers) {
      const producer = producers.get(topic);
      producer.published += numbers.length;
      if (!producer.child.stdin.write(numbers.map((number) => `${text(number)}\n`).join(""))) {
        await within(once(producer.child.stdin, "drain"), "the producer to take events", CONFIRMED_MS);
      }
    },
    /** Waits until the broker has all published events. */
    async finishTopic(topic) {
      const { child, published } = producers.get(topic);
      const ended = once(child, "exit");
      child.stdin.end();
      await within(ended, "the producer to end", CONFIRMED_MS);
      await eventually(async () => (await broker.ends(topic))[0] === published, "all events to be stored", CONFIRMED_MS);
    },
    async restart() {
      await broker.stop();
      await broker.start();
    },
    async stop() {
      for (const { child } of producers.values()) child.kill("SIGKILL");
      await broker.stop();
    },
  };
}

/** The event sources of a soak: name, required program, and start function of the broker. */
export const SOURCES = [
  { name: "jetstream", program: natsServer, start: () => startJetStream('{name: "MOVES"}') },
  { name: "jetstream-durable", program: natsServer, start: () => startJetStream('{name: "MOVES", consumer: "resume"}') },
  { name: "redis-streams", program: redisServer, start: startRedisStreams },
  { name: "kafka", program: kafkaJars, start: startKafkaBroker },
];

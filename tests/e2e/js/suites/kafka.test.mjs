// A real Kafka broker, to which routers publish what they subscribe to.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import process from "node:process";
import { promisify } from "node:util";
import WebSocket from "ws";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, kafkaSupergraph, startSubgraphs,
} from "../board.mjs";
import { startKafka } from "../kafka.mjs";
import { kafkaJars, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

/** Flights, and with them keys of messages. */
const IDS = ["1", "2", "3"];

/** What each of them moves through. */
const MOVES = 1_500;

/** The last one, which is published until it is taken. */
const LAST = MOVES + 1;

/** Mutations in one request. */
const MOVES_AT_ONCE = 10;

/** Until all of that has passed, with a broker that is started anew in between, on a busy machine. */
const PASSING_MS = 150_000;

const TOPICS = { "flights.moved": 3, "flights.moved.1": 1, "flights.moved.2": 1, "flights.delays.1": 1 };

describe("kafka", { skip: skipWithout(kafkaJars, "a Kafka broker") }, () => {
  let subgraphs;
  let broker;
  let router;
  before(async () => {
    [subgraphs, broker] = await Promise.all([startSubgraphs(), startKafka()]);
    await Promise.all(Object.entries(TOPICS).map(([topic, partitions]) =>
      broker.topics("--create", "--topic", topic, "--partitions", `${partitions}`)));
    router = await start();
  });
  after(async () => {
    await router?.stop();
    await broker?.stop();
    await subgraphs?.stop();
  });

  const start = () => startServe({
    supergraph: kafkaSupergraph(),
    config: {
      subgraphs: subgraphs.configuration,
      cursor: { keys: ["a key of more than 16 bytes"] },
      events: {
        publish_timeout: "2s",
        providers: {
          kafka: [{
            id: "default", brokers: [broker.address], metadata_refresh: "300ms",
            retry: { initial: "50ms", max: "200ms" },
          }],
        },
      },
    },
  });

  const connect = (to) =>
    createClient({ url: to.socket, webSocketImpl: WebSocket, retryAttempts: 0 });

  it("what a mutation publishes reaches subscribers, without and with fields of other subgraphs", async () => {
    const client = connect(router);
    const delays = client.iterate({ query: 'subscription { delayAnnounced(id: "1") { id minutes } }' });
    const { value: delay } = await repeatUntil(
      delays.next(),
      async (minutes) => {
        const { body } = await router.query(
          `mutation { announceDelay(id: "1", minutes: ${minutes}) { success } }`);
        assert.deepEqual(body, { data: { announceDelay: { success: true } } });
      },
      "a delay",
    );
    assert.equal(delay.data.delayAnnounced.id, "1");
    assert.equal(typeof delay.extensions.cursor, "string");

    const moves = client.iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } });
    const { value: move } = await repeatUntil(
      moves.next(),
      (number) => router.publish("kafka/default", "flights.moved.1", event("1", number)),
      "a move",
    );
    const { altitude } = move.data.flightMovedById;
    assert.deepEqual(move.data, { flightMovedById: expectedFlight("1", altitude) });
    await client.dispose();
  });

  it("check --online says which topics are there", async () => {
    const { stdout } = await promisify(execFile)(process.env.STARLING_BIN, [
      "check", "--config", path.join(router.folder, "starling.yaml"), "--online", "--format", "json",
    ]);
    const { ok, checks } = JSON.parse(stdout);
    const found = checks
      .filter(({ where }) => where.startsWith("kafka/default"))
      .map(({ verdict, what, where, reason }) => [verdict, what, where, reason].join(" ").trim());
    assert.equal(ok, true, stdout);
    const announced = "its topic depends on arguments";
    assert.deepEqual(found.sort(), [
      "ok connect kafka/default",
      "ok subscribe kafka/default flights.moved, Subscription.flightMoved",
      "unknown publish kafka/default flights.delays.{{…}}, Mutation.announceDelay " + announced,
      "unknown publish kafka/default flights.moved, Mutation.moveFlight the topic exists; " +
        "Kafka reports permission to write only when an event is published",
      "unknown subscribe kafka/default flights.delays.{{…}}, Subscription.delayAnnounced " + announced,
      "unknown subscribe kafka/default flights.moved.{{…}}, Subscription.flightMovedById " + announced,
    ]);
  });

  it("nothing is lost while the broker is killed, and after the router was by a cursor at another", async () => {
    const doomed = await start();
    // Publishes for as long as the other one lives and after.
    const taken = new Map(IDS.map((id) => [id, new Set()]));
    let refused = 0;
    let count = 0;
    const publish = async (id, numbers) => {
      const moves = numbers.map((number) =>
        `m${number}: moveFlight(id: "${id}", altitude: ${number}) { success }`);
      const { body } = await router.query(`mutation { ${moves.join(" ")} }`);
      for (const number of numbers) {
        // What was not confirmed may be there or not.
        if (body.data[`m${number}`].success) taken.get(id).add(number);
        else refused += 1;
      }
      count += numbers.length;
    };

    // Follows the moves at `at`, wherever the connection goes, and keeps them by flight.
    let at = doomed;
    let cursor;
    let connections = 0;
    const heard = new Map(IDS.map((id) => [id, []]));
    const follow = async (isDone) => {
      while (!isDone()) {
        const client = connect(at);
        connections += 1;
        const moves = client.iterate({
          query: SUBSCRIPTION, ...(cursor && { extensions: { cursor } }),
        });
        try {
          for await (const { data, errors, extensions } of moves) {
            assert.equal(errors, undefined, JSON.stringify(errors));
            assert.equal(extensions.gap, undefined);
            // Faster than it can be joined on a busy machine: whoever comes again with the cursor gets it all.
            if (extensions.lost) break;
            const { id, altitude } = data.flightMoved;
            assert.deepEqual(data.flightMoved, expectedFlight(id, altitude));
            ({ cursor } = extensions);
            const before = heard.get(id).at(-1) ?? -1;
            // The first and the last are published until they have come.
            const repeats = altitude === before && (altitude === 0 || altitude === LAST);
            assert.ok(altitude > before || repeats, `${id}: ${altitude} after ${before}`);
            heard.get(id).push(altitude);
            if (isDone()) break;
          }
        } catch (error) {
          if (error instanceof assert.AssertionError || Array.isArray(error)) throw error;
          // The socket was lost.
        }
        client.terminate();
      }
    };
    const isHeard = (id) => heard.get(id).at(-1) === LAST;
    const following = follow(() => IDS.every(isHeard));
    await repeatUntil(
      eventually(() => heard.get("1").length > 0, "the first move"),
      () => publish("1", [0]),
      "the first move",
    );

    const publishing = Promise.all(IDS.map(async (id) => {
      for (let first = 1; first <= MOVES; first += MOVES_AT_ONCE) {
        const numbers = Array.from({ length: MOVES_AT_ONCE }, (_, offset) => first + offset);
        await publish(id, numbers);
      }
      // The last one must be there: it says that all the others were before it.
      await eventually(async () => {
        if (!taken.get(id).has(LAST)) await publish(id, [LAST]);
        return taken.get(id).has(LAST);
      }, "the last move to be taken", PASSING_MS);
    }));
    await eventually(() => count > 1_000, "a thousand moves", PASSING_MS);
    await broker.stop();
    await eventually(() => refused > 0, "a publication to be refused", PASSING_MS);
    await broker.start();
    await eventually(() => count > 3_000, "three thousand moves", PASSING_MS);
    process.kill(doomed.pid, "SIGKILL");
    at = router;
    await within(Promise.all([publishing, following]), "all moves", PASSING_MS);

    assert.ok(connections >= 2, `${connections}`);
    for (const id of IDS) {
      const numbers = new Set(heard.get(id));
      const lost = [...taken.get(id)].filter((number) => !numbers.has(number));
      assert.deepEqual(lost, [], `flight ${id}`);
      assert.ok(taken.get(id).size > MOVES / 2, `${taken.get(id).size}`);
    }
  });

  it("a partition that is added is read, too", async () => {
    const client = connect(router);
    const moves = client.iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "1" } });
    let published = 0;
    const publish = () =>
      router.publish("kafka/default", "flights.moved.1", event("1", published += 1));
    const numbers = [];
    const next = async () => {
      const { value } = await within(moves.next(), "a move");
      assert.equal(value.extensions.gap, undefined);
      numbers.push(value.data.flightMovedById.altitude);
    };
    await repeatUntil(next(), publish, "the first move");
    await broker.topics("--alter", "--topic", "flights.moved.1", "--partitions", "4");
    await eventually(async () => {
      for (let each = 0; each < 100; each += 1) await publish();
      return (await broker.ends("flights.moved.1")).slice(1).some((end) => end > 0);
    }, "events in a new partition", PASSING_MS);
    const [first] = numbers;
    while (numbers.length < published - first + 1) await next();
    numbers.sort((a, b) => a - b);
    assert.deepEqual(numbers, Array.from(numbers, (_, index) => first + index));
    await client.dispose();
  });

  it("subscriptions of a deleted topic end with SOURCE_GONE", async () => {
    const client = connect(router);
    const moves = client.iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "2" } });
    await repeatUntil(
      moves.next(),
      (number) => router.publish("kafka/default", "flights.moved.2", event("2", number)),
      "a move",
    );
    await broker.topics("--delete", "--topic", "flights.moved.2");
    const drained = (async () => {
      for await (const { errors } of moves) {
        if (errors) throw errors;
      }
    })();
    await assert.rejects(within(drained, "the end"), ([error]) => {
      assert.equal(error.extensions.code, "SOURCE_GONE");
      return true;
    });
    await client.dispose();
  });
});

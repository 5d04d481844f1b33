// Events that JetStream stores, published by the npm client `nats`: graphql-ws resumes with its cursor at another
// router.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import { connect } from "nats";
import process from "node:process";
import WebSocket from "ws";
import {
  SUBSCRIPTION, event, expectedFlight, jetStreamSupergraph, startSubgraphs,
} from "../board.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const SUBJECT = "flights.moved";

/** Events before the router is killed, and those after. */
const EVENTS_BEFORE = 500;
const EVENTS = 1_000;

/** Time until all events have arrived, on a busy machine. */
const PASSING_MS = 90_000;

describe("jetstream", { skip: skipWithout(natsServer, "nats-server") }, () => {
  let subgraphs;
  let nats;
  let router;
  let publisher;
  let manager;
  before(async () => {
    [subgraphs, nats] = await Promise.all([startSubgraphs(), startNats(-1, { stores: true })]);
    publisher = await connect({ servers: nats.url });
    manager = await publisher.jetstreamManager();
    await manager.streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
    router = await start();
  });
  after(async () => {
    await publisher?.close();
    await router?.stop();
    await nats?.stop();
    await subgraphs?.stop();
  });

  const start = () => startServe({
    supergraph: jetStreamSupergraph(),
    config: {
      subgraphs: subgraphs.configuration,
      cursor: { keys: ["a key of more than 16 bytes"] },
      events: {
        providers: {
          nats: [{ id: "default", url: nats.url, retry: { initial: "50ms", max: "200ms" } }],
        },
      },
    },
  });

  const clientOf = (to) =>
    createClient({ url: to.socket, webSocketImpl: WebSocket, retryAttempts: 0 });

  /** Returns when the event is stored. */
  const publish = (number) =>
    publisher.jetstream().publish(SUBJECT, JSON.stringify(event("1", number)));

  it("graphql-ws misses nothing when its router is killed and resumes at another router", async () => {
    const doomed = await start();
    let at = doomed;
    let connections = 0;
    let cursor;
    const received = [];
    // Follows the moves at `at`, the address of the current router.
    const follow = async () => {
      while (received.at(-1) !== EVENTS) {
        const client = clientOf(at);
        connections += 1;
        const moves = client.iterate({
          query: SUBSCRIPTION, ...(cursor && { extensions: { cursor } }),
        });
        try {
          for await (const { data, errors, extensions } of moves) {
            assert.equal(errors, undefined, JSON.stringify(errors));
            assert.equal(extensions.gap, undefined);
            assert.equal(extensions.lost, undefined);
            const { altitude } = data.flightMoved;
            assert.deepEqual(data.flightMoved, expectedFlight("1", altitude));
            if (received.length > 0) assert.equal(altitude, received.at(-1) + 1);
            ({ cursor } = extensions);
            assert.equal(typeof cursor, "string");
            received.push(altitude);
            if (altitude === EVENTS) break;
          }
        } catch (error) {
          if (error instanceof assert.AssertionError || Array.isArray(error)) throw error;
          // The socket was lost.
        }
        client.terminate();
      }
    };
    const following = follow();
    following.catch(() => {});
    let published = -1;
    await repeatUntil(
      Promise.race([following, eventually(() => received.length > 0, "the first move")]),
      (number) => publish(published = number),
      "the first move",
    );
    const publishUpTo = async (last) => {
      while (published < last) await publish(published += 1);
    };
    await within(publishUpTo(EVENTS_BEFORE), "the first half to be stored", PASSING_MS);
    await Promise.race([
      following,
      eventually(() => received.length > EVENTS_BEFORE / 2, "half of that", PASSING_MS),
    ]);
    const publishing = publishUpTo(EVENTS);
    process.kill(doomed.pid, "SIGKILL");
    at = router;
    await within(Promise.all([publishing, following]), "all moves", PASSING_MS);
    assert.ok(connections >= 2, `${connections}`);
    assert.equal(received.at(-1) - received[0] + 1, received.length);
  });

  it("tells a client of graphql-ws that the events after its cursor are no longer stored", async () => {
    const first = clientOf(router);
    const moves = first.iterate({ query: SUBSCRIPTION });
    const { value } = await repeatUntil(moves.next(), publish, "a move");
    await first.dispose();
    for (let number = 0; number < 10; number += 1) await publish(number);
    await manager.streams.purge("FLIGHTS");
    // A router without these events in memory.
    const other = await start();
    const second = clientOf(other);
    const resumed = second.iterate({
      query: SUBSCRIPTION, extensions: { cursor: value.extensions.cursor },
    });
    await assert.rejects(within(resumed.next(), "the error"), ([error]) => {
      assert.equal(error.extensions.code, "CURSOR_EXPIRED");
      return true;
    });
    await second.dispose();
    await other.stop();
  });
});

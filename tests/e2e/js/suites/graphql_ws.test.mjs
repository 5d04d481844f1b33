// The npm client graphql-ws, and handwritten messages for errors that it never makes.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROTOCOL = "graphql-transport-ws";
const PROVIDER = "memory/default";

describe("graphql-ws", () => {
  let subgraphs;
  let router;
  const clients = [];
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        websocket: { init_timeout: "500ms", max_message_size: "64KiB" },
      },
    });
  });
  after(async () => {
    await Promise.all(clients.map((client) => client.dispose()));
    await router?.stop();
    await subgraphs?.stop();
  });

  function client() {
    const made = createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 });
    clients.push(made);
    return made;
  }

  /** A socket without a client library: the received messages in order, and how it is closed. */
  async function rawSocket(protocols = PROTOCOL) {
    const socket = new WebSocket(router.socket, protocols);
    const closed = once(socket, "close").then(([code, reason]) => ({ code, reason: `${reason}` }));
    const waiting = [];
    const received = [];
    socket.on("message", (data) => {
      const message = JSON.parse(data);
      const next = waiting.shift();
      if (next) next(message);
      else received.push(message);
    });
    await within(once(socket, "open"), "the socket to open");
    // The close code is more informative than a write after the close.
    socket.on("error", () => {});
    return {
      send: (message) =>
        socket.send(typeof message === "string" ? message : JSON.stringify(message)),
      next: () =>
        within(
          received.length > 0
            ? Promise.resolve(received.shift())
            : new Promise((resolve) => waiting.push(resolve)),
          "a message",
        ),
      closed: () => within(closed, "the socket to be closed"),
      close: () => socket.close(),
    };
  }

  async function initialised() {
    const socket = await rawSocket();
    socket.send({ type: "connection_init" });
    assert.equal((await socket.next()).type, "connection_ack");
    return socket;
  }

  it("sends every subscriber the event with fields joined from two subgraphs", async () => {
    const subscriptions = [client(), client()].map((each) =>
      each.iterate({ query: SUBSCRIPTION }));
    const first = Promise.all(subscriptions.map((each) => each.next()));
    const results = await repeatUntil(
      first,
      (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
      "the first event",
    );
    for (const { value } of results) {
      const { altitude } = value.data.flightMoved;
      assert.equal(typeof altitude, "number");
      assert.deepEqual(value, { data: { flightMoved: expectedFlight("1", altitude) } });
    }
    // From here on both are subscribed: nothing is lost, and results have the order of the events.
    await router.publish(PROVIDER, "flights.moved", event("2", 100_001));
    await router.publish(PROVIDER, "flights.moved", event("3", 100_002));
    for (const subscription of subscriptions) {
      const seen = [];
      while (seen.at(-1) !== 100_002) {
        const { value } = await within(subscription.next(), "the last event");
        seen.push(value.data.flightMoved.altitude);
      }
      assert.deepEqual(seen, seen.toSorted((left, right) => left - right));
      assert.ok(seen.includes(100_001));
      await subscription.return();
    }
  });

  it("renders the topic from the arguments", async () => {
    const subscription = client().iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "2" } });
    const { value } = await repeatUntil(
      subscription.next(),
      async (number) => {
        await router.publish(PROVIDER, "flights.moved.1", event("1", number));
        await router.publish(PROVIDER, "flights.moved.2", event("2", number));
      },
      "an event of flight 2",
    );
    const { altitude } = value.data.flightMovedById;
    assert.deepEqual(value.data.flightMovedById, expectedFlight("2", altitude));
    await subscription.return();
  });

  it("responds to queries and mutations on the same socket", async () => {
    const one = client();
    const query = await within(
      one.iterate({ query: '{ flight(id: "3") { number to { city } } }' }).next(), "the query");
    assert.deepEqual(query.value, {
      data: { flight: { number: "ST 303", to: { city: "Hamburg" } } },
    });
    const mutation = await within(
      one.iterate({ query: 'mutation { announceDelay(id: "1", minutes: 5) { success } }' }).next(),
      "the mutation",
    );
    assert.deepEqual(mutation.value, { data: { announceDelay: { success: true } } });
  });

  it("refuses an invalid operation, and the socket stays open", async () => {
    const socket = await initialised();
    for (const [id, query] of [["a", "{ flights { nonsense } }"], ["b", "{ flights {"]]) {
      socket.send({ id, type: "subscribe", payload: { query } });
      const message = await socket.next();
      assert.equal(message.type, "error", query);
      assert.equal(message.id, id);
      assert.ok(message.payload[0].message.length > 0);
    }
    socket.send({ id: "c", type: "subscribe", payload: { query: "{ __typename }" } });
    assert.deepEqual(await socket.next(), {
      id: "c", type: "next", payload: { data: { __typename: "Query" } },
    });
    assert.deepEqual(await socket.next(), { id: "c", type: "complete" });
    socket.close();
  });

  it("reports an invalid payload to the subscriber, and the subscription continues", async () => {
    const subscription = client().iterate({ query: SUBSCRIPTION_BY_ID, variables: { id: "bad" } });
    const topic = "flights.moved.bad";
    const { value } = await repeatUntil(
      subscription.next(), () => router.publish(PROVIDER, topic, "[1, 2"), "the error");
    assert.ok(value.errors?.length > 0, JSON.stringify(value));
    let result;
    do {
      await router.publish(PROVIDER, topic, event("1", 7));
      ({ value: result } = await within(subscription.next(), "the good event"));
    } while (result.errors);
    assert.deepEqual(result, { data: { flightMovedById: expectedFlight("1", 7) } });
    await subscription.return();
  });

  it("responds to a ping with a pong", async () => {
    const socket = await initialised();
    socket.send({ type: "ping" });
    assert.equal((await socket.next()).type, "pong");
    socket.close();
  });

  for (const [situation, code, act] of [
    ["a subscribe before connection_init", 4401, (socket) =>
      socket.send({ id: "1", type: "subscribe", payload: { query: "{ __typename }" } })],
    ["a second connection_init", 4429, (socket) => {
      socket.send({ type: "connection_init" });
      socket.send({ type: "connection_init" });
    }],
    ["a message that is not JSON", 4400, (socket) => socket.send("{")],
    ["a message of an unknown type", 4400, (socket) => socket.send({ type: "greet" })],
    ["no connection_init in time", 4408, () => {}],
    ["an operation id that is in use", 4409, async (socket) => {
      socket.send({ type: "connection_init" });
      assert.equal((await socket.next()).type, "connection_ack");
      for (let times = 0; times < 2; times += 1) {
        socket.send({ id: "1", type: "subscribe", payload: { query: SUBSCRIPTION } });
      }
    }],
  ]) {
    it(`closes with ${code} on ${situation}`, async () => {
      const socket = await rawSocket();
      await act(socket);
      assert.equal((await socket.closed()).code, code);
    });
  }

  it("closes with 1009 on a message that is too long, without effect on other connections", async () => {
    const neighbour = await initialised();
    const socket = await initialised();
    const query = `{ __typename } #${"x".repeat(100 * 1024)}`;
    socket.send({ id: "1", type: "subscribe", payload: { query } });
    assert.equal((await socket.closed()).code, 1009);
    neighbour.send({ id: "1", type: "subscribe", payload: { query: "{ __typename }" } });
    assert.equal((await neighbour.next()).type, "next");
    neighbour.close();
  });

  it("does not upgrade to an unsupported protocol", async () => {
    const socket = new WebSocket(router.socket, "soap-over-tin-cans");
    const outcome = await within(
      Promise.race([
        once(socket, "error").then(([error]) => error.message),
        once(socket, "close").then(([code]) => `closed with ${code}`),
      ]),
      "a refusal",
    );
    // Either the handshake fails or the socket is closed at once; it is never served.
    assert.match(outcome, /closed with 4406|Unexpected server response: 4\d\d|no subprotocol/);
  });
});

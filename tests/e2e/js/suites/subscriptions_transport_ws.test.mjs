// The npm client subscriptions-transport-ws (subprotocol graphql-ws), and handwritten messages that it never sends.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { SubscriptionClient } from "subscriptions-transport-ws";
import WebSocket from "ws";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROTOCOL = "graphql-ws";
const PROVIDER = "memory/default";

describe("subscriptions-transport-ws", () => {
  let subgraphs;
  let router;
  const clients = [];
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        websocket: { init_timeout: "500ms" },
        subscriptions: { heartbeat: "1s" },
      },
    });
  });
  after(async () => {
    for (const client of clients) client.close();
    await router?.stop();
    await subgraphs?.stop();
  });

  function client() {
    const made = new SubscriptionClient(router.socket, { reconnect: false }, WebSocket);
    clients.push(made);
    return made;
  }

  /** The results of an operation in order, and how it ended. */
  function run(made, request) {
    const results = [];
    const waiting = [];
    let unsubscribe;
    const ended = new Promise((resolve) => {
      ({ unsubscribe } = made.request(request).subscribe({
        next(result) {
          const next = waiting.shift();
          if (next) next(result);
          else results.push(result);
        },
        error: (error) => resolve({ error }),
        complete: () => resolve({ complete: true }),
      }));
    });
    return {
      next: () => results.length > 0
        ? Promise.resolve(results.shift())
        : new Promise((resolve) => waiting.push(resolve)),
      ended: () => within(ended, "the end of an operation"),
      unsubscribe,
    };
  }

  it("sends every subscriber the event with fields joined from two subgraphs", async () => {
    const subscriptions = [client(), client()].map((each) => run(each, { query: SUBSCRIPTION }));
    const firsts = await repeatUntil(
      Promise.all(subscriptions.map((each) => each.next())),
      (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
      "the first event",
    );
    for (const first of firsts) {
      const { altitude } = first.data.flightMoved;
      assert.deepEqual(first, { data: { flightMoved: expectedFlight("1", altitude) } });
    }
    await router.publish(PROVIDER, "flights.moved", event("2", 100_001));
    for (const subscription of subscriptions) {
      let last;
      do {
        last = await within(subscription.next(), "the last event");
      } while (last.data.flightMoved.altitude !== 100_001);
      subscription.unsubscribe();
    }
  });

  it("separates several operations of one connection, and stops them", async () => {
    const made = client();
    const byId = (id) => run(made, { query: SUBSCRIPTION_BY_ID, variables: { id } });
    const [first, second] = [byId("1"), byId("2")];
    const results = await repeatUntil(
      Promise.all([first.next(), second.next()]),
      async (number) => {
        await router.publish(PROVIDER, "flights.moved.1", event("1", number));
        await router.publish(PROVIDER, "flights.moved.2", event("2", number));
      },
      "an event for each",
    );
    assert.deepEqual(results.map(({ data }) => data.flightMovedById.id), ["1", "2"]);
    first.unsubscribe();
    await router.publish(PROVIDER, "flights.moved.2", event("2", 100_001));
    let last;
    do {
      last = await within(second.next(), "the last event");
    } while (last.data.flightMovedById.altitude !== 100_001);
  });

  it("responds to queries and mutations on the same connection", async () => {
    const made = client();
    const query = run(made, { query: '{ flight(id: "1") { number } }' });
    assert.deepEqual(await query.next(), { data: { flight: { number: "ST 101" } } });
    assert.deepEqual(await query.ended(), { complete: true });
    const mutation =
      run(made, { query: 'mutation { announceDelay(id: "1", minutes: 5) { success } }' });
    assert.deepEqual(await mutation.next(), { data: { announceDelay: { success: true } } });
  });

  it("reports the errors of an invalid operation", async () => {
    const operation = run(client(), { query: "subscription { nonsense }" });
    const { error } = await operation.ended();
    assert.match(error.message ?? error[0].message, /nonsense/);
  });

  /** A socket without a client library. */
  async function rawSocket() {
    const socket = new WebSocket(router.socket, PROTOCOL);
    const closed = once(socket, "close").then(([code, reason]) => ({ code, reason: `${reason}` }));
    const messages = [];
    const waiting = [];
    socket.on("message", (data) => {
      const next = waiting.shift();
      if (next) next(JSON.parse(data));
      else messages.push(JSON.parse(data));
    });
    socket.on("error", () => {});
    await within(once(socket, "open"), "the socket to open");
    return {
      protocol: socket.protocol,
      send: (message) => socket.send(JSON.stringify(message)),
      next: () => within(
        messages.length > 0
          ? Promise.resolve(messages.shift())
          : new Promise((resolve) => waiting.push(resolve)),
        "a message",
      ),
      closed: () => within(closed, "the socket to be closed"),
    };
  }

  it("acknowledges, and sends heartbeats at the configured interval", async () => {
    const socket = await rawSocket();
    assert.equal(socket.protocol, PROTOCOL);
    socket.send({ type: "connection_init", payload: {} });
    assert.deepEqual(await socket.next(), { type: "connection_ack" });
    for (let count = 0; count < 3; count += 1) {
      assert.deepEqual(await socket.next(), { type: "ka" });
    }
    socket.send({ type: "connection_terminate" });
    assert.equal((await socket.closed()).code, 1000);
  });

  it("closes with 4408 without connection_init, and with 4401 for start before it", async () => {
    const silent = await rawSocket();
    assert.equal((await silent.closed()).code, 4408);
    const hasty = await rawSocket();
    hasty.send({ type: "start", id: "1", payload: { query: SUBSCRIPTION } });
    assert.equal((await hasty.closed()).code, 4401);
  });

  it("reports invalid messages, and continues", async () => {
    const socket = await rawSocket();
    socket.send({ type: "connection_init" });
    assert.equal((await socket.next()).type, "connection_ack");
    assert.equal((await socket.next()).type, "ka");
    socket.send({ type: "subscribe", id: "1", payload: { query: SUBSCRIPTION } });
    let response;
    do {
      response = await socket.next();
    } while (response.type === "ka");
    assert.equal(response.type, "connection_error");
    assert.match(response.payload.message, /subscribe/);
    socket.send({ type: "start", id: "1", payload: { query: '{ flight(id: "1") { number } }' } });
    do {
      response = await socket.next();
    } while (response.type === "ka");
    assert.deepEqual(response, {
      id: "1", type: "data", payload: { data: { flight: { number: "ST 101" } } },
    });
  });
});

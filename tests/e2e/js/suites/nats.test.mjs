// A real nats-server, to which the npm client `nats` publishes.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import { connect } from "nats";
import WebSocket from "ws";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, natsSupergraph, startSubgraphs,
} from "../board.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { freePort, startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const config = (url, subgraphs) => ({
  subgraphs,
  events: {
    providers: { nats: [{ id: "default", url, retry: { initial: "50ms", max: "200ms" } }] },
  },
});

describe("nats", { skip: skipWithout(natsServer, "nats-server") }, () => {
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  after(() => subgraphs?.stop());

  describe("with an available broker", () => {
    let nats;
    let router;
    let publisher;
    let socketClient;
    let sseClient;
    const publish = (subject, payload) => publisher.publish(subject, JSON.stringify(payload));
    before(async () => {
      nats = await startNats();
      router = await startServe({
        supergraph: natsSupergraph(),
        config: config(nats.url, subgraphs.configuration),
      });
      publisher = await connect({ servers: nats.url });
      socketClient = createSocketClient({
        url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
      });
      sseClient = createSseClient({ url: router.graphql, retryAttempts: 0 });
    });
    after(async () => {
      await socketClient?.dispose();
      sseClient?.dispose();
      await publisher?.close();
      await router?.stop();
      await nats?.stop();
    });

    it("an event of any NATS client reaches WebSocket and SSE subscribers with joined fields", async () => {
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

    it("a subject is rendered from the arguments", async () => {
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
    });

    it("a mutation publishes to the broker", async () => {
      const heard = publisher.subscribe("flights.delays.1", { max: 1 });
      await publisher.flush();
      const { body } = await router.query(
        'mutation { announceDelay(id: "1", minutes: 25) { success } }');
      assert.deepEqual(body, { data: { announceDelay: { success: true } } });
      const { value: message } = await within(
        heard[Symbol.asyncIterator]().next(), "the published message");
      const payload = message.json();
      assert.equal(payload.id, "1");
      assert.equal(payload.minutes, 25);
    });
  });

  it("the same subscription continues after a broker restart", async () => {
    let nats = await startNats();
    const router = await startServe({
      supergraph: natsSupergraph(),
      config: config(nats.url, subgraphs.configuration),
    });
    const client = createSocketClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
    });
    const subscription = client.iterate({ query: SUBSCRIPTION });
    try {
      const first = subscription.next();
      let publisher = await connect({ servers: nats.url });
      await repeatUntil(
        first,
        (number) => publisher.publish("flights.moved", JSON.stringify(event("1", number))),
        "an event before the loss",
      );
      await publisher.close();
      await nats.stop();
      // Queries do not need the broker.
      assert.deepEqual((await router.query("{ __typename }")).body, {
        data: { __typename: "Query" },
      });
      nats = await startNats(nats.port);
      publisher = await connect({ servers: nats.url });
      let altitude;
      do {
        const { value } = await repeatUntil(
          subscription.next(),
          () => publisher.publish("flights.moved", JSON.stringify(event("1", 100_000))),
          "an event after the return",
        );
        altitude = value.data?.flightMoved.altitude;
      } while (altitude !== 100_000);
      await publisher.close();
    } finally {
      await client.dispose();
      await router.stop();
      await nats.stop();
    }
  });

  it("a broker that is down at the start fails only its own fields", async () => {
    const port = await freePort();
    const router = await startServe({
      supergraph: natsSupergraph(),
      config: config(`nats://127.0.0.1:${port}`, subgraphs.configuration),
    });
    let nats;
    try {
      const { body } = await router.query('{ flight(id: "1") { number } }');
      assert.deepEqual(body, { data: { flight: { number: "ST 101" } } });
      const mutation = await router.query(
        'mutation { announceDelay(id: "1", minutes: 1) { success } }');
      const hasReason = mutation.body.errors?.length > 0
        || mutation.body.data.announceDelay.success === false;
      assert.ok(hasReason, JSON.stringify(mutation.body));
      // The router connects automatically once the broker is available.
      nats = await startNats(port);
      const publisher = await connect({ servers: nats.url });
      const client = createSseClient({ url: router.graphql, retryAttempts: 0 });
      const subscription = client.iterate({ query: SUBSCRIPTION });
      const { value } = await repeatUntil(
        subscription.next(),
        (number) => publisher.publish("flights.moved", JSON.stringify(event("3", number))),
        "an event after the broker's start",
      );
      assert.equal(value.data.flightMoved.number, "ST 303");
      client.dispose();
      await publisher.close();
    } finally {
      await router.stop();
      await nats?.stop();
    }
  });
});

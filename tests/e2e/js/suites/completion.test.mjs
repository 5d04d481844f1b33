// Sources that complete: a topic of the memory provider that an operator completes, and a bounded replay of JetStream.
// Clients of every transport receive all events and then `complete`.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient as createSseClient } from "graphql-sse";
import { createClient } from "graphql-ws";
import { connect } from "nats";
import WebSocket from "ws";
import {
  SELECTION, SUBSCRIPTION, boundedSupergraph, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const MULTIPART = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json";

/** The altitudes that a client of each transport receives until its subscription is complete. */
const transports = {
  async "graphql-ws"(router, query, received) {
    const client = createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 });
    for await (const { data } of client.iterate({ query })) received(data);
    await client.dispose();
  },
  async "graphql-sse"(router, query, received) {
    const client = createSseClient({ url: router.graphql, retryAttempts: 0 });
    for await (const { data } of client.iterate({ query })) received(data);
    client.dispose();
  },
  async multipart(router, query, received) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: MULTIPART },
      body: JSON.stringify({ query }),
    });
    assert.match(response.headers.get("content-type"), /^multipart\/mixed/);
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const parts = text.split("\r\n--graphql");
      text = parts.pop();
      for (const part of parts) {
        const body = part.slice(part.indexOf("\r\n\r\n") + 4).trim();
        if (body.startsWith("{\"payload\"")) received(JSON.parse(body).payload.data);
      }
    }
    assert.equal(text.trim(), "--", "the last delimiter ends it, without an error");
  },
};

describe("completion", () => {
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  after(() => subgraphs?.stop());

  describe("of a topic of the memory provider", () => {
    let router;
    before(async () => {
      router = await startServe({
        supergraph: memorySupergraph(), config: { subgraphs: subgraphs.configuration },
      });
    });
    after(() => router?.stop());

    const complete = async (search) => {
      const target = new URL("/admin/complete", router.admin);
      target.search = new URLSearchParams(search);
      const response = await fetch(target, { method: "POST" });
      return { status: response.status, text: await response.text() };
    };

    for (const [name, follow] of Object.entries(transports)) {
      it(`${name} receives the events published before, and then the end`, async () => {
        const received = [];
        const following = follow(router, SUBSCRIPTION, ({ flightMoved }) => {
          assert.deepEqual(flightMoved, expectedFlight("1", flightMoved.altitude));
          received.push(flightMoved.altitude);
        });
        following.catch(() => {});
        await eventually(async () => {
          const response = await fetch(new URL("/admin/subscriptions", router.admin));
          return (await response.json()).subscribers === 1;
        }, "the subscription");
        for (let number = 0; number < 20; number += 1) {
          await router.publish("memory/default", "flights.moved", event("1", number));
        }
        const topic = "flights.moved";
        assert.deepEqual(await complete({ topic }), { status: 200, text: "ended 1 streams\n" });
        await within(following, "the end");
        assert.deepEqual(received, Array.from({ length: 20 }, (_, number) => number));
      });
    }

    it("reports the errors of a request to complete a topic", async () => {
      assert.deepEqual(await complete({ topic: "ghost" }), { status: 200, text: "ended 0 streams\n" });
      assert.equal((await complete({})).status, 400);
      assert.equal((await complete({ topic: "t", provider: "memory/ghost" })).status, 404);
      const page = await fetch(new URL("/admin/complete?topic=t", router.admin), {
        method: "POST", headers: { origin: "http://evil.example" },
      });
      assert.equal(page.status, 403);
    });
  });

  describe("of a bounded replay", { skip: skipWithout(natsServer, "nats-server") }, () => {
    let nats;
    let router;
    let publisher;
    before(async () => {
      nats = await startNats(-1, { stores: true });
      publisher = await connect({ servers: nats.url });
      await (await publisher.jetstreamManager()).streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
      for (let number = 0; number < 300; number += 1) {
        await publisher.jetstream().publish("flights.moved", JSON.stringify(event("1", number)));
      }
      router = await startServe({
        supergraph: boundedSupergraph(),
        config: {
          subgraphs: subgraphs.configuration,
          events: { providers: { nats: [{ id: "default", url: nats.url }] } },
        },
      });
    });
    after(async () => {
      await router?.stop();
      await publisher?.close();
      await nats?.stop();
    });

    for (const [name, follow] of Object.entries(transports)) {
      it(`${name} receives all stored events, and then the end`, async () => {
        const received = [];
        const query = `subscription { flightsReplayed ${SELECTION} }`;
        const following = follow(router, query, ({ flightsReplayed: { altitude } }) => received.push(altitude));
        await within(following, "the end");
        assert.deepEqual(received, Array.from({ length: 300 }, (_, number) => number));
      });
    }
  });
});

// Clients that lose their connections and resume with their latest cursor.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { ApolloClient, HttpLink, InMemoryCache } from "@apollo/client";
import { parse } from "graphql";
import { createClient as createSseClient } from "graphql-sse";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const QUERY = "subscription { flightMoved { id altitude } }";
const EVENTS = 1000;

describe("cursors", () => {
  let subgraphs;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        cursor: {
          memory: true, keys: ["a key of more than 16 bytes"], ring_events: 50, heartbeat: "1s",
        },
        events: { providers: { memory: [{ id: "default", ring_events: 100_000 }] } },
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  const publish = (number) => router.publish(PROVIDER, "flights.moved", event("1", number));

  /** Publishes until the first event arrives; returns its number and its extensions. */
  async function begin(subscription) {
    let published = -1;
    const { value } = await repeatUntil(
      subscription.next(), (number) => publish(published = number), "the first event",
    );
    return { first: value, number: value.data.flightMoved.altitude, published };
  }

  it("graphql-ws resumes after a terminated socket by extensions.cursor", async () => {
    let socket;
    const connect = () => createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
      on: { connected: (opened) => { socket = opened; } },
    });
    let client = connect();
    let subscription = client.iterate({ query: QUERY });
    let { first, number, published } = await begin(subscription);
    let { cursor } = first.extensions;
    const publishing = (async () => {
      while (published < EVENTS) await publish(published += 1);
    })();
    let cuts = 0;
    while (number < EVENTS) {
      const next = subscription.next();
      const result = await within(next, `event ${number + 1}`);
      assert.equal(result.value.data.flightMoved.altitude, number += 1);
      ({ cursor } = result.value.extensions);
      if (number % 173 === 0) {
        cuts += 1;
        subscription.return().catch(() => {});
        socket.terminate();
        // A new client, because the first one may not have noticed yet that its socket is closed.
        client = connect();
        subscription = client.iterate({ query: QUERY, extensions: { cursor } });
      }
    }
    assert.ok(cuts >= 5, `${cuts}`);
    await publishing;
    await client.dispose();
  });

  it("graphql-sse resumes by extensions.cursor, in both modes", async () => {
    for (const singleConnection of [false, true]) {
      const connect = () => createSseClient({ url: router.graphql, retryAttempts: 0, singleConnection });
      let client = connect();
      const subscription = client.iterate({ query: QUERY });
      const { first } = await begin(subscription);
      client.dispose();
      for (let number = 1; number <= 200; number += 1) await publish(1_000_000 + number);
      client = connect();
      const again = client.iterate({
        query: QUERY, extensions: { cursor: first.extensions.cursor },
      });
      const numbers = [];
      while (numbers.at(-1) !== 1_000_200) {
        const { value } = await within(again.next(), "the next event");
        numbers.push(value.data.flightMoved.altitude);
      }
      assert.deepEqual(numbers.slice(-200), Array.from({ length: 200 }, (_, at) => 1_000_001 + at));
      client.dispose();
    }
  });

  it("graphql-ws receives its position by on.ping, and resumes from there", async () => {
    let notify;
    const position = new Promise((resolve) => { notify = resolve; });
    let client = createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
      on: { ping: (received, payload) => received && notify(payload) },
    });
    const subscription = client.iterate({ query: QUERY });
    const first = subscription.next();
    const { id, cursor } = await within(position, "a position");
    assert.equal(typeof id, "string");
    await publish(2_000_000);
    const { value } = await within(first, "the first event");
    assert.equal(value.data.flightMoved.altitude, 2_000_000);
    await client.dispose();
    client = createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 });
    const again = client.iterate({ query: QUERY, extensions: { cursor } });
    const missed = await within(again.next(), "what it missed");
    assert.equal(missed.value.data.flightMoved.altitude, 2_000_000);
    await client.dispose();
  });

  /** A `fetch` that collects the response until `wanted` is found in it. */
  function watching(wanted) {
    let found;
    const seen = new Promise((resolve) => { found = resolve; });
    const watched = async (...request) => {
      const response = await fetch(...request);
      const [body, shown] = response.body.tee();
      (async () => {
        let text = "";
        for await (const chunk of shown.pipeThrough(new TextDecoderStream())) {
          text += chunk;
          const match = text.match(wanted);
          if (match) found(match[1]);
        }
      })().catch(() => {});
      const { status, headers } = response;
      return new Response(body, { status, headers });
    };
    return { fetch: watched, seen };
  }

  it("graphql-sse ignores an id without an event", async () => {
    const { fetch: fetchFn, seen } = watching(/(?:^|\n)id: (\S+)\n\n/);
    const client = createSseClient({ url: router.graphql, retryAttempts: 0, fetchFn });
    const subscription = client.iterate({ query: QUERY });
    const first = subscription.next();
    await within(seen, "a position");
    await publish(3_000_000);
    const { value } = await within(first, "the first event");
    assert.equal(value.data.flightMoved.altitude, 3_000_000);
    client.dispose();
  });

  it("Apollo Client treats a position as a heartbeat", async () => {
    const { fetch: watched, seen } = watching(/\r\ncursor: (\S+)\r\n\r\n\{\}\r\n--graphql/);
    const client = new ApolloClient({
      link: new HttpLink({ uri: router.graphql, fetch: watched }), cache: new InMemoryCache(),
    });
    const results = [];
    let notify;
    const first = new Promise((resolve) => { notify = resolve; });
    const subscription = client.subscribe({ query: parse(QUERY) }).subscribe({
      next(result) { results.push(result); notify(); },
      error(error) { results.push(error); notify(); },
    });
    await within(seen, "a position");
    await publish(4_000_000);
    await within(first, "the first event");
    assert.deepEqual(results.map((it) => it.data?.flightMoved.altitude), [4_000_000]);
    subscription.unsubscribe();
    client.stop();
  });

  it("tells a client of graphql-ws that its cursor is invalid", async () => {
    const client = createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 });
    const subscription = client.iterate({ query: QUERY, extensions: { cursor: "forged" } });
    await assert.rejects(within(subscription.next(), "the error"), ([error]) => {
      assert.equal(error.extensions.code, "CURSOR_INVALID");
      return true;
    });
    await client.dispose();
  });
});

// Subscriptions as multipart responses: @apollo/client and urql, and the bytes over both versions of HTTP.
import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { after, before, describe, it } from "node:test";
import { ApolloClient, HttpLink, InMemoryCache } from "@apollo/client";
import { Client, fetchExchange } from "@urql/core";
import { parse } from "graphql";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const APOLLO = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json";

describe("multipart", () => {
  let subgraphs;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        subscriptions: { heartbeat: "1s" },
        limits: { time: "2s" },
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  const publish = (number) => router.publish(PROVIDER, "flights.moved", event("1", number));

  /** The next result of an observable, and how it ended. */
  function listen(subscribe) {
    const results = [];
    const waiting = [];
    let subscription;
    const ended = new Promise((resolve) => {
      subscription = subscribe({
        next(result) {
          const next = waiting.shift();
          if (next) next(result);
          else results.push(result);
        },
        error: (error) => resolve({ error }),
        complete: () => resolve({ complete: true }),
      });
    });
    return {
      next: () => results.length > 0
        ? Promise.resolve(results.shift())
        : new Promise((resolve) => waiting.push(resolve)),
      ended: () => within(ended, "the end of a subscription"),
      unsubscribe: () => subscription.unsubscribe(),
    };
  }

  function apollo(seen = () => {}) {
    return new ApolloClient({
      link: new HttpLink({ uri: router.graphql, fetch: watchedFetch(seen) }),
      cache: new InMemoryCache({ addTypename: false }),
      defaultOptions: { watchQuery: { fetchPolicy: "no-cache" } },
    });
  }

  /** A `fetch` that passes all text of a body received so far to `seen`. */
  const watchedFetch = (seen) => async (...request) => {
    const response = await fetch(...request);
    let text = "";
    const decoder = new TextDecoder();
    const watch = new TransformStream({
      transform(piece, controller) {
        text += decoder.decode(piece, { stream: true });
        seen(text);
        controller.enqueue(piece);
      },
    });
    return new Response(response.body.pipeThrough(watch), response);
  };

  const withoutTypenames = (value) =>
    JSON.parse(JSON.stringify(value, (key, inner) => (key === "__typename" ? undefined : inner)));

  it("streams events to @apollo/client between heartbeats", async () => {
    let notify = () => {};
    const signs = new Promise((resolve) => {
      notify = (text) => {
        if (text.split("\r\n{}\r\n").length > 2) resolve();
      };
    });
    const client = apollo((text) => notify(text));
    const subscription = listen((observer) =>
      client.subscribe({ query: parse(SUBSCRIPTION), fetchPolicy: "no-cache" }).subscribe(observer));
    const first = await repeatUntil(subscription.next(), publish, "the first event");
    const { altitude } = first.data.flightMoved;
    assert.deepEqual(
      withoutTypenames(first.data), { flightMoved: expectedFlight("1", altitude) });
    // After two heartbeats it is still open.
    await within(signs, "two signs of life");
    await publish(100_001);
    let last;
    do {
      last = await within(subscription.next(), "the last event");
      assert.equal(last.error, undefined);
    } while (last.data.flightMoved.altitude !== 100_001);
    subscription.unsubscribe();
    client.stop();
  });

  it("reports the errors of an operation to @apollo/client", async () => {
    const client = apollo();
    const subscription = listen((observer) =>
      client.subscribe({ query: parse("subscription { nonsense }") }).subscribe(observer));
    const told = await within(
      Promise.race([subscription.next(), subscription.ended()]), "the errors");
    assert.match(`${told.error?.message}`, /nonsense/);
    client.stop();
  });

  it("responds to queries of a client that accepts parts with plain JSON", async () => {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: APOLLO },
      body: JSON.stringify({ query: '{ flight(id: "1") { number } }' }),
    });
    assert.match(response.headers.get("content-type"), /^application\/json/);
    assert.deepEqual(await response.json(), { data: { flight: { number: "ST 101" } } });
  });

  for (const accept of ["multipart/mixed", "text/event-stream, multipart/mixed", APOLLO]) {
    it(`streams events to urql that accepts ${accept}`, async () => {
      const client = new Client({
        url: router.graphql,
        exchanges: [fetchExchange],
        fetchSubscriptions: true,
        preferGetMethod: false,
        fetchOptions: { headers: { accept } },
      });
      const subscription = listen((observer) => {
        const source = client.subscription(SUBSCRIPTION, {});
        return source.subscribe((result) => observer.next(result));
      });
      const first = await repeatUntil(subscription.next(), publish, "the first event");
      assert.equal(first.error, undefined);
      const { altitude } = first.data.flightMoved;
      assert.deepEqual(first.data, { flightMoved: expectedFlight("1", altitude) });
      await publish(100_001);
      let last;
      do {
        last = await within(subscription.next(), "the last event");
      } while (last.data.flightMoved.altitude !== 100_001);
      subscription.unsubscribe();
    });
  }

  /** The response of HTTP/1.1 or HTTP/2: status, content type, and text as it is received. */
  async function open(version, { accept, query, variables, method = "POST", suffix = "" }) {
    if (version === 1) {
      const stop = new AbortController();
      const response = await within(fetch(`${router.graphql}${suffix}`, {
        method,
        headers: { "content-type": "application/json", accept },
        body: method === "POST" ? JSON.stringify({ query, variables }) : undefined,
        signal: stop.signal,
      }), "a response head");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      return {
        status: response.status,
        type: response.headers.get("content-type"),
        async read() {
          const { value, done } = await within(reader.read(), "a piece of the body");
          return done ? null : value;
        },
        close: () => stop.abort(),
      };
    }
    const session = http2.connect(router.url);
    const stream = session.request({
      ":method": method, ":path": `/graphql${suffix}`, "content-type": "application/json", accept,
    });
    if (method === "POST") stream.end(JSON.stringify({ query, variables }));
    stream.setEncoding("utf8");
    const [headers] = await within(once(stream, "response"), "a response head");
    const pieces = stream[Symbol.asyncIterator]();
    return {
      status: headers[":status"],
      type: headers["content-type"],
      async read() {
        const { value, done } = await within(pieces.next(), "a piece of the body");
        return done ? null : value;
      },
      close: () => session.destroy(),
    };
  }

  for (const version of [1, 2]) {
    it(`sends the head at once, heartbeats and whole parts over HTTP/${version}`, async () => {
      const response = await open(version, { accept: APOLLO, query: SUBSCRIPTION });
      assert.equal(response.status, 200);
      assert.equal(response.type, 'multipart/mixed;boundary="graphql";subscriptionSpec="1.0"');
      let text = await response.read();
      assert.ok(text.startsWith("\r\n--graphql"), text);
      while (!text.includes("\r\n\r\n{}\r\n--graphql")) text += await response.read();
      const part = (async () => {
        while (!/\{"payload":.*\}\r\n--graphql$/.test(text)) text += await response.read();
        return text;
      })();
      await repeatUntil(part, publish, "a part");
      const [, payload] = /\{"payload":(.*)\}\r\n--graphql/.exec(text);
      const { flightMoved } = JSON.parse(payload).data;
      assert.deepEqual(flightMoved, expectedFlight("1", flightMoved.altitude));
      response.close();
    });

    it(`ends with the last delimiter over HTTP/${version}`, async () => {
      const accept = "multipart/mixed";
      const response = await open(version, { accept, query: '{ flight(id: "1") { number } }' });
      let text = "";
      for (let piece; (piece = await response.read()) !== null;) text += piece;
      const parts = text.split("\r\n--graphql");
      assert.deepEqual([parts[0], parts.at(-1)], ["", "--\r\n"]);
      const bodies = parts.slice(1, -1).map((part) => JSON.parse(part.split("\r\n\r\n")[1]));
      assert.deepEqual(bodies, [
        { hasNext: true, data: { flight: { number: "ST 101" } } }, { hasNext: false },
      ]);
      response.close();
    });

    it(`sends events of a distinct connection by GET and by POST over HTTP/${version}`, async () => {
      const accept = "text/event-stream";
      const query = SUBSCRIPTION_BY_ID;
      const variables = { id: "2" };
      const parameters = new URLSearchParams({ query, variables: JSON.stringify(variables) });
      for (const [method, suffix] of [["POST", ""], ["GET", `?${parameters}`]]) {
        const response = await open(version, { accept, query, variables, method, suffix });
        assert.match(response.type, /^text\/event-stream/);
        let text = await response.read();
        const first = (async () => {
          while (!/event: next\ndata: .*\n\n/.test(text)) text += await response.read();
        })();
        await repeatUntil(
          first,
          (number) => router.publish(PROVIDER, "flights.moved.2", event("2", number)),
          "an event",
        );
        assert.match(text, /"number":"ST 202"/);
        response.close();
      }
    });

    it(`responds with the first event as plain JSON over HTTP/${version}`, async () => {
      const accept = "application/json";
      const opened = open(version, { accept, query: SUBSCRIPTION, suffix: "?once" });
      const response = await repeatUntil(opened, publish, "the first event");
      assert.deepEqual([response.status, response.type.split(";")[0]], [200, accept]);
      let text = "";
      for (let piece; (piece = await response.read()) !== null;) text += piece;
      const { flightMoved } = JSON.parse(text).data;
      assert.deepEqual(flightMoved, expectedFlight("1", flightMoved.altitude));
      response.close();
    });
  }

  it("does not wait indefinitely for a first event", async () => {
    const response = await fetch(`${router.graphql}?once`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ query: SUBSCRIPTION_BY_ID, variables: { id: "never" } }),
    });
    assert.equal(response.status, 504);
    assert.equal((await response.json()).errors[0].extensions.code, "TIMEOUT");
  });

  it("reports in a stream why it ends when the router shuts down", async () => {
    const other = await startServe({
      supergraph: memorySupergraph(), config: { subgraphs: subgraphs.configuration },
    });
    const response = await fetch(other.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: APOLLO },
      body: JSON.stringify({ query: SUBSCRIPTION }),
    });
    await other.stop();
    const text = await response.text();
    assert.match(text, /\{"payload":null,"errors":\[.*"SHUTTING_DOWN".*\]\}\r\n--graphql--\r\n$/);
  });
});

// The npm client graphql-sse in "single connection mode", and handwritten requests for cases that it never causes.
import assert from "node:assert/strict";
import http2 from "node:http2";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-sse";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const TOKEN = "x-graphql-event-stream-token";

describe("graphql-sse, single connection", () => {
  let subgraphs;
  let router;
  const clients = [];
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        websocket: { max_subscriptions_per_connection: 3 },
        subscriptions: { heartbeat: "1s" },
      },
    });
  });
  after(async () => {
    for (const client of clients) client.dispose();
    await router?.stop();
    await subgraphs?.stop();
  });

  function client() {
    const made = createClient({ url: router.graphql, singleConnection: true, retryAttempts: 0 });
    clients.push(made);
    return made;
  }

  it("carries several operations on one connection", async () => {
    const made = client();
    const subscriptions = ["1", "2", "3"].map((id) =>
      made.iterate({ query: SUBSCRIPTION_BY_ID, variables: { id } }));
    const firsts = await repeatUntil(
      Promise.all(subscriptions.map((each) => each.next())),
      async (number) => {
        for (const id of ["1", "2", "3"]) {
          await router.publish(PROVIDER, `flights.moved.${id}`, event(id, number));
        }
      },
      "an event for each",
    );
    const flights = firsts.map(({ value }) => value.data.flightMovedById);
    assert.deepEqual(flights.map(({ id }) => id), ["1", "2", "3"]);
    await subscriptions[0].return();
    await router.publish(PROVIDER, "flights.moved.2", event("2", 100_001));
    let last;
    do {
      ({ value: last } = await within(subscriptions[1].next(), "the last event"));
    } while (last.data.flightMovedById.altitude !== 100_001);
    assert.deepEqual(last.data.flightMovedById, expectedFlight("2", 100_001));
    await Promise.all(subscriptions.map((each) => each.return()));
  });

  it("responds to queries and mutations, and completes them", async () => {
    const made = client();
    const all = async (query) => {
      const results = [];
      for await (const result of made.iterate({ query })) results.push(result);
      return results;
    };
    assert.deepEqual(
      await within(all('{ flight(id: "1") { number } }'), "the response to a query"),
      [{ data: { flight: { number: "ST 101" } } }]);
    assert.deepEqual(
      await within(
        all('mutation { announceDelay(id: "1", minutes: 5) { success } }'), "that of a mutation"),
      [{ data: { announceDelay: { success: true } } }]);
  });

  const reserve = async () => {
    const response = await fetch(router.graphql, { method: "PUT" });
    assert.equal(response.status, 201);
    return response.text();
  };
  const start = (token, body) => fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", [TOKEN]: token },
    body: JSON.stringify(body),
  });
  const operation = (operationId, query = SUBSCRIPTION) => ({ query, extensions: { operationId } });
  const stop = (token, query) =>
    fetch(`${router.graphql}?${query}`, { method: "DELETE", headers: { [TOKEN]: token } });

  async function openStream(token, byUrl = false) {
    const abort = new AbortController();
    const headers = { accept: "text/event-stream", ...(byUrl ? {} : { [TOKEN]: token }) };
    const url = byUrl ? `${router.graphql}?token=${token}` : router.graphql;
    const response = await fetch(url, { headers, signal: abort.signal });
    let text = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    return {
      status: response.status,
      async until(pattern) {
        while (!pattern.test(text)) {
          const { value, done } = await within(reader.read(), `${pattern} in ${text}`);
          assert.ok(!done, `the stream ended: ${text}`);
          text += value;
        }
        return text;
      },
      close: () => abort.abort(),
    };
  }

  it("starts operations before the stream is open, and sends heartbeats", async () => {
    const token = await reserve();
    const query = '{ flight(id: "1") { number } }';
    assert.equal((await start(token, operation("early", query))).status, 202);
    const stream = await openStream(token, true);
    assert.equal(stream.status, 200);
    const text = await stream.until(/event: complete\ndata: .*\n\n(.*\n)*:\n\n/);
    const next = '{"id":"early","payload":{"data":{"flight":{"number":"ST 101"}}}}';
    assert.ok(text.includes(`event: next\ndata: ${next}\n\nevent: complete\ndata: {"id":"early"}`));
    stream.close();
  });

  it("responds to each invalid request with its status", async () => {
    const token = await reserve();
    const stream = await openStream(token);
    assert.equal((await openStream(token)).status, 409);
    const status = async (token, body) => (await start(token, body)).status;
    assert.equal(await status("stream-unknown", operation("1")), 404);
    assert.equal(await status(token, { query: SUBSCRIPTION }), 400);
    assert.equal(await status(token, operation("1", "subscription { nonsense }")), 400);
    assert.equal(await status(token, operation("1", "{")), 400);
    assert.equal(await status(token, operation("1")), 202);
    assert.equal(await status(token, operation("1")), 409);
    assert.equal(await status(token, operation("2")), 202);
    assert.equal(await status(token, operation("3")), 202);
    assert.equal(await status(token, operation("4")), 429);
    assert.equal((await stop(token, "")).status, 400);
    assert.equal((await stop("stream-unknown", "operationId=1")).status, 404);
    assert.equal((await stop(token, "operationId=1")).status, 200);
    assert.equal((await stop(token, "operationId=1")).status, 200);
    assert.equal(await status(token, operation("1")), 202);
    stream.close();
    // The stream ends with its connection.
    await repeatUntil(
      (async () => {
        while ((await start(token, operation("5"))).status !== 404);
      })(),
      async () => {},
      "the stream to be forgotten",
    );
  });

  it("does not accept the token of another client", async () => {
    const parameters = new URLSearchParams({ token: "secret", query: '{ flight(id: "1") { id } }' });
    const response = await fetch(`${router.graphql}?${parameters}`);
    assert.deepEqual(await response.json(), { data: { flight: { id: "1" } } });
  });

  it("works over HTTP/2 on one connection", async () => {
    const session = http2.connect(router.url);
    const request = (headers, body) => {
      const stream = session.request({ ":path": "/graphql", ...headers });
      stream.setEncoding("utf8");
      stream.end(body);
      const head = new Promise((resolve) => stream.once("response", resolve));
      const text = async () => {
        let whole = "";
        for await (const piece of stream) whole += piece;
        return whole;
      };
      return { stream, head: within(head, "a response head"), text };
    };
    const put = request({ ":method": "PUT" });
    assert.equal((await put.head)[":status"], 201);
    const token = await put.text();
    const events = session.request({
      ":method": "GET", ":path": "/graphql", accept: "text/event-stream", [TOKEN]: token,
    });
    events.setEncoding("utf8");
    let text = "";
    events.on("data", (piece) => { text += piece; });
    const post = request(
      { ":method": "POST", "content-type": "application/json", [TOKEN]: token },
      JSON.stringify(operation("h2", '{ flight(id: "2") { number } }')),
    );
    assert.equal((await post.head)[":status"], 202);
    await repeatUntil(
      (async () => {
        while (!text.includes("event: complete")) {
          await new Promise((resolve) => events.once("data", resolve));
        }
      })(),
      async () => {},
      "the end of the operation",
    );
    assert.ok(text.includes('{"id":"h2","payload":{"data":{"flight":{"number":"ST 202"}}}}'), text);
    session.destroy();
  });
});

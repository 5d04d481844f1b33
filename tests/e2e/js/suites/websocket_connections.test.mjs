// Agreements between WebSocket clients and the router besides the messages: compression, and headers in the payload of
// connection_init. The client is ws, which offers permessage-deflate as browsers do.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, it } from "node:test";
import WebSocket from "ws";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
/** The message types of both subprotocols. */
const MODERN = { protocol: "graphql-transport-ws", start: "subscribe", result: "next" };
const LEGACY = { protocol: "graphql-ws", start: "start", result: "data" };

/** Large enough to be compressed. */
const LARGE = `subscription { flightMoved { id altitude ${
  Array.from({ length: 90 }, (_, number) => `again${number}: number`).join(" ")
} } }`;

/** A client of `router`, acknowledged. */
async function connect(router, words, { payload, perMessageDeflate = true } = {}) {
  const socket = new WebSocket(router.socket, words.protocol, { perMessageDeflate });
  const closed = once(socket, "close");
  const results = [];
  const waiting = [];
  socket.on("error", () => {});
  let acknowledged;
  const ready = new Promise((resolve) => { acknowledged = resolve; });
  socket.on("message", (data) => {
    const message = JSON.parse(data);
    if (message.type === "connection_ack") acknowledged();
    if (message.type !== words.result && message.type !== "error") return;
    const next = waiting.shift();
    if (next) next(message);
    else results.push(message);
  });
  await within(once(socket, "open"), "the socket to open");
  socket.send(JSON.stringify({ type: "connection_init", payload }));
  return {
    socket,
    ready: () => within(ready, "the acknowledgement"),
    closed: async () => (await within(closed, "the socket to be closed"))[0],
    start: (id, query) =>
      socket.send(JSON.stringify({ id, type: words.start, payload: { query } })),
    next: () => results.length > 0
      ? Promise.resolve(results.shift())
      : new Promise((resolve) => waiting.push(resolve)),
    received: () => socket._socket.bytesRead,
  };
}

describe("compressed messages", () => {
  let subgraphs;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  it("reach every subscriber of an event with any agreement, under their own ids", async () => {
    const clients = [
      await connect(router, MODERN),
      await connect(router, LEGACY),
      await connect(router, MODERN, { perMessageDeflate: false }),
    ];
    const ids = ["1", 'quoted "id"', "3"];
    assert.deepEqual(
      clients.map(({ socket }) => socket.extensions),
      ["permessage-deflate", "permessage-deflate", ""]);
    for (const [at, client] of clients.entries()) {
      await client.ready();
      client.start(ids[at], LARGE);
    }
    await repeatUntil(
      Promise.all(clients.map((client) => client.next())),
      (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
      "the first event for each",
    );
    for (let number = 100_001; number <= 100_010; number += 1) {
      await router.publish(PROVIDER, "flights.moved", event("2", number));
    }
    const last = await Promise.all(clients.map(async (client) => {
      const seen = [];
      while (seen.at(-1) !== 100_010) {
        const message = await within(client.next(), "the last event");
        const { altitude, again89 } = message.payload.data.flightMoved;
        if (altitude > 100_000) {
          assert.equal(again89, "ST 202");
          seen.push(altitude);
        }
        client.last = message.id;
      }
      return seen.length;
    }));
    assert.deepEqual(last, [10, 10, 10]);
    assert.deepEqual(clients.map((client) => client.last), ids);
    const [modern, legacy, plain] = clients.map((client) => client.received());
    assert.ok(modern * 3 < plain && legacy * 3 < plain, `${modern}, ${legacy}, ${plain}`);
    for (const { socket } of clients) socket.close();
  });

  it("are read when a client sends them, and sent as responses to queries", async () => {
    const client = await connect(router, MODERN);
    await client.ready();
    const fields = Array.from({ length: 90 }, (_, number) => `again${number}: number`).join(" ");
    client.start("1", `{ flight(id: "1") { ${fields} } } # ${"x".repeat(5_000)}`);
    const { payload } = await within(client.next(), "the response");
    assert.equal(payload.data.flight.again89, "ST 101");
    assert.ok(client.received() < 1_000, `${client.received()} bytes`);
    client.socket.close();
  });

  it("can be turned off", async () => {
    const other = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration, websocket: { compression: { enabled: false } },
      },
    });
    const client = await connect(other, MODERN);
    assert.equal(client.socket.extensions, "");
    client.socket.close();
    await other.stop();
  });
});

describe("headers in connection_init", () => {
  let flights;
  let router;
  before(async () => {
    // A subgraph whose responses contain the headers of the request.
    flights = http.createServer(async (request, response) => {
      let body = "";
      for await (const part of request.setEncoding("utf8")) body += part;
      const number = request.headers.authorization ?? "nobody";
      const flight = { __typename: "Flight", id: "1", number };
      const { variables } = JSON.parse(body);
      const representations = Object.values(variables ?? {}).find(Array.isArray) ?? [];
      const data = body.includes("_entities")
        ? { _entities: representations.map(() => flight) }
        : { flight };
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ data }));
    });
    flights.listen(0, "127.0.0.1");
    await once(flights, "listening");
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: { flights: { url: `http://127.0.0.1:${flights.address().port}/graphql` } },
        headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
        websocket: { init_payload_headers: ["authorization"] },
      },
    });
  });
  after(async () => {
    await router?.stop();
    flights?.close();
    flights?.closeAllConnections();
  });

  for (const words of [MODERN, LEGACY]) {
    it(`are those of every operation on ${words.protocol}`, async () => {
      const payloads = [
        { authorization: "ann" }, { headers: { Authorization: "bob" } }, { cookie: "eve" },
      ];
      const clients =
        await Promise.all(payloads.map((payload) => connect(router, words, { payload })));
      for (const client of clients) {
        await client.ready();
        client.start("1", '{ flight(id: "1") { number } }');
      }
      const responses =
        await within(Promise.all(clients.map((client) => client.next())), "the responses");
      assert.deepEqual(
        responses.map(({ payload }) => payload.data.flight.number), ["ann", "bob", "nobody"]);
      // Equal subscriptions of different users share no request whose headers differ.
      for (const client of clients) client.start("2", "subscription { flightMoved { number } }");
      const events = await repeatUntil(
        Promise.all(clients.map((client) => client.next())),
        (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
        "an event for each",
      );
      assert.deepEqual(
        events.map(({ payload }) => payload.data.flightMoved.number), ["ann", "bob", "nobody"]);
      for (const { socket } of clients) socket.close();
    });
  }

  it("close the connection with 4400 if they are not valid headers", async () => {
    const client = await connect(router, MODERN, { payload: { authorization: "a\r\nb: c" } });
    assert.equal(await client.closed(), 4400);
  });
});

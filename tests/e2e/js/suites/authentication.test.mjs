// Tokens over every transport: which clients are accepted, which are refused, and what happens when a token expires.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, it } from "node:test";
import { createClient as createSseClient } from "graphql-sse";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { SUBSCRIPTION, event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { startServe } from "../router.mjs";
import { inSeconds, startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const QUERY = '{ flight(id: "1") { number } }';

/** Long enough for a busy machine to start the subscription that must outlive the token. */
const SHORT_SECONDS = 10;

for (const reactors of [1, 2]) {
  describe(`tokens, reactors: ${reactors}`, () => {
    let subgraphs;
    let issuer;
    let router;
    const clients = [];
    before(async () => {
      subgraphs = await startSubgraphs();
      issuer = await startIssuer();
      router = await startServe({
        supergraph: memorySupergraph(),
        config: {
          reactors,
          subgraphs: subgraphs.configuration,
          authentication: {
            jwt: {
              required: true,
              max_token_size: "2KiB",
              issuers: [{ ...issuer.configuration, leeway: "0s" }],
            },
          },
        },
      });
    });
    after(async () => {
      await Promise.all(clients.map((client) => client.dispose()));
      await router?.stop();
      await subgraphs?.stop();
      await issuer?.stop();
    });

    async function ask(headers = {}, accept = "application/json") {
      const response = await fetch(router.graphql, {
        method: "POST",
        headers: { "content-type": "application/json", accept, ...headers },
        body: JSON.stringify({ query: QUERY }),
      });
      return {
        status: response.status,
        challenge: response.headers.get("www-authenticate"),
        body: await response.json(),
      };
    }
    const bearing = (token) => ask({ authorization: `Bearer ${token}` });
    const code = ({ body }) => body.errors[0].extensions.code;

    async function metric(name, labels) {
      const text = await (await fetch(`${router.admin}/metrics`)).text();
      const line = text.split("\n").find((it) => it.startsWith(`${name}{`) && it.includes(labels));
      return Number(line?.split(" ").at(-1) ?? 0);
    }

    it("serves clients with a valid token", async () => {
      const response = await bearing(issuer.issue());
      assert.deepEqual([response.status, response.body], [200, { data: { flight: { number: "ST 101" } } }]);
      const again = await ask({ authorization: `bearer ${issuer.issue()}` });
      assert.equal(again.status, 200);
    });

    it("asks clients without a token for one", async () => {
      for (const accept of ["application/json", "application/graphql-response+json", "text/event-stream"]) {
        const response = await ask({}, accept);
        assert.deepEqual([response.status, response.challenge, code(response)], [401, "Bearer", "UNAUTHENTICATED"]);
      }
    });

    it("refuses every invalid token with the reason", async () => {
      for (const [token, reason] of [
        [issuer.unsigned(), "malformed"],
        [issuer.confused(), "algorithm"],
        [issuer.issue({ iss: "https://other.example" }), "issuer"],
        [issuer.issue({ aud: "other" }), "audience"],
        [issuer.issue({ exp: inSeconds(-1) }), "expired"],
        [issuer.issue({ nbf: inSeconds(3600) }), "not valid yet"],
        [issuer.issue().slice(0, -8) + "AAAAAAAA", "signature"],
        [issuer.issue({ padding: "x".repeat(2048) }), "too long"],
        ["x", "malformed"],
      ]) {
        const response = await bearing(token);
        assert.deepEqual([response.status, code(response)], [401, "UNAUTHENTICATED"], reason);
        assert.match(response.challenge, new RegExp(`^Bearer error="invalid_token".*${reason}`));
      }
      assert.ok(await metric("starling_authentication_refused_total", '"expired"') >= 1);
      assert.ok(!router.output().includes(issuer.issue().split(".")[1].slice(0, 40)));
    });

    it("refuses a header of another scheme, and repeated headers", async () => {
      assert.equal((await ask({ authorization: `Basic ${issuer.issue()}` })).status, 401);
      const request = http.request(router.graphql, {
        method: "POST",
        headers: [
          "content-type", "application/json", "host", new URL(router.url).host,
          "authorization", `Bearer ${issuer.issue()}`, "authorization", `Bearer ${issuer.issue()}`,
        ],
      });
      request.end(JSON.stringify({ query: QUERY }));
      const [response] = await within(once(request, "response"), "a response");
      response.resume();
      assert.equal(response.statusCode, 401);
    });

    it("does not fetch the key set for every invented key id", async () => {
      const before = issuer.fetches();
      const responses = await Promise.all(
        Array.from({ length: 200 }, (_, number) => bearing(issuer.ofUnknownKey(`made-up-${number}`))));
      assert.deepEqual(new Set(responses.map(({ status }) => status)), new Set([401]));
      assert.ok(issuer.fetches() - before <= 3, `${issuer.fetches() - before} fetches`);
    });

    it("finds a new key automatically, and keeps the old ones while the issuer is down", async () => {
      issuer.addKey(`second-${reactors}`);
      await eventually(
        async () => (await bearing(issuer.issue({}, `second-${reactors}`))).status === 200,
        "the new key",
      );
      issuer.setDown(true);
      try {
        const failed = await metric("starling_authentication_key_sets_total", '"failed"');
        await eventually(async () => {
          await bearing(issuer.ofUnknownKey("not there"));
          return await metric("starling_authentication_key_sets_total", '"failed"') > failed;
        }, "a look that fails");
        assert.equal((await bearing(issuer.issue({ sub: "somebody new" }))).status, 200);
        assert.match(router.output(), /could not be read/);
      } finally {
        issuer.setDown(false);
      }
    });

    function webSocketClient(connectionParams, retryAttempts = 0) {
      const closed = [];
      const made = createClient({
        url: router.socket, webSocketImpl: WebSocket, retryAttempts, connectionParams,
        on: { closed: ({ code, reason }) => closed.push({ code, reason }) },
      });
      clients.push(made);
      return { made, closed };
    }

    it("accepts the token of connection_init, with and without the prefix", async () => {
      for (const params of [
        { Authorization: `Bearer ${issuer.issue({ sub: "a" })}` },
        { authorization: issuer.issue({ sub: "b" }) },
      ]) {
        const { made } = webSocketClient(params);
        const { value } = await within(made.iterate({ query: QUERY }).next(), "a response");
        assert.deepEqual(value, { data: { flight: { number: "ST 101" } } });
      }
    });

    it("closes with 4403 without a token, or with an invalid one", async () => {
      for (const params of [
        undefined,
        {},
        { authorization: issuer.confused() },
        { authorization: issuer.issue({ exp: inSeconds(-1) }) },
        { authorization: 7 },
      ]) {
        const { made, closed } = webSocketClient(params);
        await assert.rejects(within(made.iterate({ query: QUERY }).next(), "the refusal"));
        assert.deepEqual(closed, [{ code: 4403, reason: "Forbidden" }]);
      }
    });

    it("reports the same to clients of the older protocol", async () => {
      const socket = new WebSocket(router.socket, "graphql-ws");
      await within(once(socket, "open"), "the socket to open");
      const messages = [];
      socket.on("message", (data) => messages.push(JSON.parse(data)));
      const closed = once(socket, "close");
      socket.send(JSON.stringify({ type: "connection_init", payload: { authorization: "x" } }));
      const [code, reason] = await within(closed, "the end");
      assert.deepEqual([code, `${reason}`], [4403, "Forbidden"]);
      assert.deepEqual(messages.map(({ type }) => type), ["connection_error"]);
    });

    it("refuses an invalid token of the handshake before the upgrade", async () => {
      const socket = new WebSocket(router.socket, "graphql-transport-ws", {
        headers: { authorization: `Bearer ${issuer.unsigned()}` },
      });
      socket.on("error", () => {});
      const [, response] = await within(once(socket, "unexpected-response"), "a response");
      assert.equal(response.statusCode, 401);
      response.destroy();
    });

    it("accepts a valid token of the handshake", async () => {
      const socket = new WebSocket(router.socket, "graphql-transport-ws", {
        headers: { authorization: `Bearer ${issuer.issue()}` },
      });
      await within(once(socket, "open"), "the socket to open");
      socket.send(JSON.stringify({ type: "connection_init" }));
      const [message] = await within(once(socket, "message"), "a message");
      assert.equal(JSON.parse(message).type, "connection_ack");
      socket.close();
    });

    it("closes a WebSocket when its token expires", async () => {
      const { made, closed } = webSocketClient({
        authorization: issuer.issue({ exp: inSeconds(SHORT_SECONDS) }),
      });
      const subscription = made.iterate({ query: SUBSCRIPTION });
      await repeatUntil(
        subscription.next(),
        (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
        "the first event",
      );
      await within((async () => {
        for await (const _ of subscription);
      })().catch(() => {}), "the end");
      await eventually(() => closed.length > 0, "the close");
      assert.deepEqual(closed, [{ code: 4403, reason: "token expired" }]);
    });

    it("graphql-ws reconnects with a fresh token after 4403, as documented, with its defaults", async () => {
      const expiring = [inSeconds(SHORT_SECONDS), inSeconds(600)];
      const closed = [];
      const made = createClient({
        url: router.socket, webSocketImpl: WebSocket,
        connectionParams: async () => ({ authorization: issuer.issue({ exp: expiring.shift() }) }),
        on: { closed: ({ code, reason }) => closed.push({ code, reason }) },
      });
      clients.push(made);
      const subscription = made.iterate({ query: SUBSCRIPTION });
      const publish = (number) => router.publish(PROVIDER, "flights.moved", event("1", number));
      await repeatUntil(subscription.next(), publish, "the first event");
      await eventually(() => closed.length > 0, "the close");
      const { value, done } = await repeatUntil(
        (async () => {
          // Events from before the close may still be queued in the client.
          for (;;) {
            const next = await subscription.next();
            if (next.done || expiring.length === 0 && next.value.data.flightMoved.altitude >= 500_000) return next;
          }
        })(),
        (number) => publish(500_000 + number),
        "an event on the next connection",
      );
      assert.equal(done, false);
      assert.ok(value.data.flightMoved.altitude >= 500_000);
      assert.deepEqual(closed, [{ code: 4403, reason: "token expired" }]);
    });

    it("ends an event stream with an error when its token expires", async () => {
      const made = createSseClient({
        url: router.graphql,
        retryAttempts: 0,
        headers: { authorization: `Bearer ${issuer.issue({ exp: inSeconds(SHORT_SECONDS) })}` },
      });
      clients.push(made);
      const subscription = made.iterate({ query: SUBSCRIPTION });
      await repeatUntil(
        subscription.next(),
        (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
        "the first event",
      );
      const last = await within((async () => {
        let last;
        for await (const result of subscription) last = result;
        return last;
      })(), "the end");
      assert.equal(last.errors[0].extensions.code, "UNAUTHENTICATED");
      assert.match(last.errors[0].message, /expired/);
    });

    it("serves the page and the preflight of browsers without a token", async () => {
      const page = await fetch(router.url, { headers: { accept: "text/html" } });
      assert.equal(page.status, 200);
      const preflight = await fetch(router.graphql, {
        method: "OPTIONS",
        headers: {
          origin: router.url,
          "access-control-request-method": "POST",
          "access-control-request-headers": "authorization",
        },
      });
      assert.ok(preflight.status < 300, `${preflight.status}`);
    });
  });
}

/** A subgraph that returns the `authorization` header of the request as the number of a flight. */
async function startEcho() {
  const server = http.createServer(async (request, response) => {
    for await (const _ of request);
    const number = request.headers.authorization ?? "none";
    response.writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ data: { flight: { __typename: "Flight", id: "1", number } } }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    configuration: { flights: { url: `http://127.0.0.1:${server.address().port}/graphql` } },
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

for (const reactors of [1, 2]) {
  describe(`the header of tokens, reactors: ${reactors}`, () => {
    let echo;
    let issuer;
    let router;
    before(async () => {
      echo = await startEcho();
      issuer = await startIssuer();
      router = await startServe({
        supergraph: memorySupergraph(),
        config: {
          reactors,
          subgraphs: echo.configuration,
          headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
          websocket: { init_payload_headers: ["authorization"] },
          authentication: { jwt: { required: true, issuers: [issuer.configuration] } },
        },
      });
    });
    after(async () => {
      await router?.stop();
      await echo?.stop();
      await issuer?.stop();
    });

    /** The header that the subgraph receives from a connection with this payload, or the code that closed it. */
    async function forwarded(payload, headers = {}) {
      const socket = new WebSocket(router.socket, "graphql-transport-ws", { headers });
      const outcome = new Promise((resolve, reject) => {
        socket.on("error", reject);
        socket.on("close", (code) => resolve(code));
        socket.on("message", (data) => {
          const message = JSON.parse(data);
          if (message.type === "connection_ack") {
            socket.send(JSON.stringify({ type: "subscribe", id: "1", payload: { query: QUERY } }));
          } else if (message.type === "next") {
            resolve(message.payload.data.flight.number);
          }
        });
      });
      await within(once(socket, "open"), "the socket to open");
      socket.send(`{"type":"connection_init","payload":${payload}}`);
      try {
        return await within(outcome, "an outcome");
      } finally {
        socket.terminate();
      }
    }

    it("contains the verified token, even if a payload contains other texts", async () => {
      const good = issuer.issue({ sub: "ann" });
      for (const payload of [
        `{"authorization":"${good}"}`,
        `{"authorization":"Bearer ${good}","headers":{"authorization":"Bearer forged"}}`,
        `{"headers":{"Authorization":"forged"},"Authorization":"bearer ${good}"}`,
        `{"authorization":"${good}","AUTHORIZATION":"forged"}`,
        `{"authorization":"${good}","headers":{"AUTHORIZATION":["forged"]}}`,
        `{"authorization":null,"headers":{"authorization":"${good}"}}`,
      ]) {
        assert.equal(await forwarded(payload), `Bearer ${good}`, payload);
      }
    });

    it("is replaced by the token that was verified", async () => {
      const [first, second] = ["ann", "bob"].map((sub) => issuer.issue({ sub }));
      const handshake = { authorization: `Bearer ${first}` };
      assert.equal(await forwarded(`{"authorization":"${second}"}`, handshake), `Bearer ${second}`);
      assert.equal(await forwarded("{}", handshake), `Bearer ${first}`);
    });

    it("is refused if the payload contains another value for it", async () => {
      const good = issuer.issue({ sub: "ann" });
      for (const payload of [
        '{"authorization":"forged"}',
        '{"headers":{"authorization":"forged"}}',
        `{"authorization":["${good}"]}`,
        `{"authorization":{"authorization":"${good}"}}`,
        `{"headers":[{"authorization":"${good}"}]}`,
      ]) {
        assert.equal(await forwarded(payload), 4403, payload);
      }
    });

    it("cannot be removed by a client through `connection`", async () => {
      const token = `Bearer ${issuer.issue({ sub: "ann" })}`;
      const request = http.request(router.graphql, {
        method: "POST",
        headers: {
          "content-type": "application/json", authorization: token, connection: "authorization",
        },
      });
      request.end(JSON.stringify({ query: QUERY }));
      const [response] = await within(once(request, "response"), "a response");
      let body = "";
      for await (const part of response.setEncoding("utf8")) body += part;
      assert.equal(JSON.parse(body).data?.flight.number, token, body);
    });
  });
}

describe("an unavailable identity provider", () => {
  let subgraphs;
  let issuer;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    issuer = await startIssuer();
    issuer.setDown(true);
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        authentication: {
          jwt: {
            required: true,
            issuers: [{ ...issuer.configuration, jwks: { ...issuer.configuration.jwks, refresh: "1s", max_age: "4s" } }],
          },
        },
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
    await issuer?.stop();
  });

  async function ask(token) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify({ query: QUERY }),
    });
    const { errors } = await response.json();
    return [response.status, errors?.[0].extensions.code];
  }
  const AWAY = [503, "AUTHENTICATION_UNAVAILABLE"];

  it("is not the client's fault, which may retry with the same token", async () => {
    const token = issuer.issue();
    assert.deepEqual(await ask(token), AWAY);
    const closed = [];
    const made = createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 1000,
      retryWait: () => new Promise((resolve) => setTimeout(resolve, 50)),
      shouldRetry: () => true, connectionParams: { authorization: token },
      on: { closed: ({ code }) => closed.push(code) },
    });
    try {
      const first = made.iterate({ query: QUERY }).next();
      await eventually(() => closed.length > 0, "the first close");
      assert.equal(closed[0], 1013);
      issuer.setDown(false);
      const { value } = await within(first, "a response after all");
      assert.deepEqual(value, { data: { flight: { number: "ST 101" } } });
    } finally {
      await made.dispose();
    }
  });

  it("leads to expired keys, which are fetched again when it is back", async () => {
    const token = issuer.issue();
    await eventually(async () => (await ask(token))[0] === 200, "the keys");
    issuer.setDown(true);
    await eventually(async () => (await ask(token))[0] === 503, "the keys to expire");
    assert.deepEqual(await ask(token), AWAY);
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    assert.match(text, /starling_authentication_keys\{issuer="https:\/\/issuer.example"\} 0/);
    assert.match(text, /starling_authentication_keys_expired_total\{.*\} 1/);
    assert.match(router.output(), /could not be read again within `max_age`/);
    issuer.setDown(false);
    await eventually(async () => (await ask(token))[0] === 200, "the keys again");
  });

  it("revokes tokens with an empty key set", async () => {
    const token = issuer.issue();
    await eventually(async () => (await ask(token))[0] === 200, "the keys");
    issuer.removeKeys();
    await eventually(async () => (await ask(token))[0] === 401, "the refusal");
    assert.deepEqual(await ask(token), [401, "UNAUTHENTICATED"]);
  });
});

describe("the admin listener", () => {
  let router;
  before(async () => {
    const subgraphs = { flights: { url: "http://127.0.0.1:1" }, airports: { url: "http://127.0.0.1:1" } };
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs, admin: { allowed_hosts: ["starling.internal"] } },
    });
  });
  after(() => router?.stop());

  async function status(host, path = "/metrics", method = "GET") {
    const request = http.request(`${router.admin}${path}`, { method, headers: { host } });
    request.end();
    const [response] = await within(once(request, "response"), "a response");
    response.resume();
    return response.statusCode;
  }

  it("does not serve host names that a web page could direct to it", async () => {
    const publish = "/admin/publish?topic=flights.moved";
    for (const host of ["evil.example", "evil.example:8088", "127.0.0.1.evil.example"]) {
      assert.equal(await status(host), 421, host);
      assert.equal(await status(host, publish, "POST"), 421, host);
      assert.equal(await status(host, "/health/live"), 200, host);
    }
    for (const host of ["localhost:1", "127.0.0.1", "[::1]:8088", "starling.internal:8088"]) {
      assert.equal(await status(host), 200, host);
    }
  });
});

describe("web pages of other origins, where every origin is allowed", () => {
  let router;
  before(async () => {
    const subgraphs = { flights: { url: "http://127.0.0.1:1" }, airports: { url: "http://127.0.0.1:1" } };
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs, cors: { origins: ["*"] } },
    });
  });
  after(() => router?.stop());

  it("open WebSockets only without cookies, and a refusal is logged", async () => {
    const open = (headers) => new WebSocket(router.socket, "graphql-transport-ws", { headers });
    const origin = "https://other.example";
    const welcome = open({ origin });
    await within(once(welcome, "open"), "the socket to open");
    welcome.terminate();
    const foreign = open({ origin, cookie: "session=1" });
    foreign.on("error", () => {});
    const [, response] = await within(once(foreign, "unexpected-response"), "a response");
    assert.equal(response.statusCode, 403);
    response.destroy();
    await eventually(() => /a web page of another origin is refused/.test(router.output()), "the line");
    assert.match(router.output(), /other\.example/);
    assert.doesNotMatch(router.output(), /session=1/);
  });
});

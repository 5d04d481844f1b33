// Tokens, over every transport: who is let in, who is not, and what happens when a token expires.
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

/** As long as a machine that builds beside it may take from a token to the subscription that is to outlive it. */
const SHORT_SECONDS = 10;

for (const reactors of [1, 0]) {
  describe(`tokens, ${reactors ? "with reactors" : "with tasks"}`, () => {
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
      const answer = await fetch(router.graphql, {
        method: "POST",
        headers: { "content-type": "application/json", accept, ...headers },
        body: JSON.stringify({ query: QUERY }),
      });
      return {
        status: answer.status,
        challenge: answer.headers.get("www-authenticate"),
        body: await answer.json(),
      };
    }
    const bearing = (token) => ask({ authorization: `Bearer ${token}` });
    const code = ({ body }) => body.errors[0].extensions.code;

    async function metric(name, labels) {
      const text = await (await fetch(`${router.admin}/metrics`)).text();
      const line = text.split("\n").find((it) => it.startsWith(`${name}{`) && it.includes(labels));
      return Number(line?.split(" ").at(-1) ?? 0);
    }

    it("answers who has a good token", async () => {
      const answer = await bearing(issuer.issue());
      assert.deepEqual([answer.status, answer.body], [200, { data: { flight: { number: "ST 101" } } }]);
      const again = await ask({ authorization: `bearer ${issuer.issue()}` });
      assert.equal(again.status, 200);
    });

    it("asks who has none for one", async () => {
      for (const accept of ["application/json", "application/graphql-response+json", "text/event-stream"]) {
        const answer = await ask({}, accept);
        assert.deepEqual([answer.status, answer.challenge, code(answer)], [401, "Bearer", "UNAUTHENTICATED"]);
      }
    });

    it("refuses every token that is not good, and says why", async () => {
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
        const answer = await bearing(token);
        assert.deepEqual([answer.status, code(answer)], [401, "UNAUTHENTICATED"], reason);
        assert.match(answer.challenge, new RegExp(`^Bearer error="invalid_token".*${reason}`));
      }
      assert.ok(await metric("starling_authentication_refused_total", '"expired"') >= 1);
      assert.ok(!router.said().includes(issuer.issue().split(".")[1].slice(0, 40)));
    });

    it("refuses a header of another scheme, and two of them", async () => {
      assert.equal((await ask({ authorization: `Basic ${issuer.issue()}` })).status, 401);
      const request = http.request(router.graphql, {
        method: "POST",
        headers: [
          "content-type", "application/json", "host", new URL(router.url).host,
          "authorization", `Bearer ${issuer.issue()}`, "authorization", `Bearer ${issuer.issue()}`,
        ],
      });
      request.end(JSON.stringify({ query: QUERY }));
      const [response] = await within(once(request, "response"), "an answer");
      response.resume();
      assert.equal(response.statusCode, 401);
    });

    it("does not fetch the key set for everybody who makes up a key", async () => {
      const before = issuer.fetches();
      const answers = await Promise.all(
        Array.from({ length: 200 }, (_, number) => bearing(issuer.ofUnknownKey(`made-up-${number}`))));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([401]));
      assert.ok(issuer.fetches() - before <= 3, `${issuer.fetches() - before} fetches`);
    });

    it("finds a new key by itself, and keeps the old ones while the issuer is away", async () => {
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
        assert.match(router.said(), /could not be read/);
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

    it("takes the token of connection_init, with and without the prefix", async () => {
      for (const params of [
        { Authorization: `Bearer ${issuer.issue({ sub: "a" })}` },
        { authorization: issuer.issue({ sub: "b" }) },
      ]) {
        const { made } = webSocketClient(params);
        const { value } = await within(made.iterate({ query: QUERY }).next(), "an answer");
        assert.deepEqual(value, { data: { flight: { number: "ST 101" } } });
      }
    });

    it("closes with 4403 who has none, or a wrong one", async () => {
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

    it("tells clients of the older protocol the same", async () => {
      const socket = new WebSocket(router.socket, "graphql-ws");
      await within(once(socket, "open"), "the socket to open");
      const said = [];
      socket.on("message", (data) => said.push(JSON.parse(data)));
      const closed = once(socket, "close");
      socket.send(JSON.stringify({ type: "connection_init", payload: { authorization: "x" } }));
      const [code, reason] = await within(closed, "the end");
      assert.deepEqual([code, `${reason}`], [4403, "Forbidden"]);
      assert.deepEqual(said.map(({ type }) => type), ["connection_error"]);
    });

    it("refuses a wrong token of the handshake before the upgrade", async () => {
      const socket = new WebSocket(router.socket, "graphql-transport-ws", {
        headers: { authorization: `Bearer ${issuer.unsigned()}` },
      });
      socket.on("error", () => {});
      const [, response] = await within(once(socket, "unexpected-response"), "an answer");
      assert.equal(response.statusCode, 401);
      response.destroy();
    });

    it("takes a good token of the handshake", async () => {
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

    it("graphql-ws connects again with a fresh token after 4403, as documented, by its defaults", async () => {
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

    it("ends an event stream by an error when its token expires", async () => {
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

    it("answers the page and the preflight of browsers without a token", async () => {
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

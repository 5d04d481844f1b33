// Opaque tokens that the identity provider is asked about: what it is asked, how often, and the ways in which it fails.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import WebSocket from "ws";
import { once } from "node:events";
import { memorySupergraph, startSubgraphs } from "../board.mjs";
import { CREDENTIALS, startIdentityProvider } from "../introspection.mjs";
import { startServe } from "../router.mjs";
import { inSeconds, startIssuer } from "../tokens.mjs";
import { eventually, within } from "../waiting.mjs";

const QUERY = '{ flight(id: "1") { number } }';
const AWAY = [503, "AUTHENTICATION_UNAVAILABLE"];

async function ask(router, token) {
  const response = await fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ query: QUERY }),
  });
  const { errors } = await response.json();
  return [response.status, errors?.[0].extensions.code];
}

async function metric(router, name, labels = "") {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(name) && it.includes(labels));
  return Number(line?.split(" ").at(-1) ?? 0);
}

const startRouter = (subgraphs, introspection, jwt = {}) =>
  startServe({
    supergraph: memorySupergraph(),
    config: {
      subgraphs: subgraphs.configuration,
      authentication: { jwt: { required: true, ...jwt }, introspection },
    },
  });

describe("introspection of tokens", () => {
  let subgraphs;
  let provider;
  let issuer;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    provider = await startIdentityProvider();
    issuer = await startIssuer();
    router = await startRouter(
      subgraphs,
      { ...provider.configuration, timeout: "10s", cache: { ttl: "5s", negative_ttl: "5s" } },
      { issuers: [issuer.configuration] },
    );
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
    await provider?.stop();
    await issuer?.stop();
  });

  it("asks as the specification says, and shows neither token nor secret", async () => {
    provider.add("opaque+token/1=", { sub: "ann" });
    assert.deepEqual(await ask(router, "opaque+token/1="), [200, undefined]);
    const [{ method, headers, form }] = provider.requests("opaque+token/1=");
    const { client_id: id, client_secret: secret } = CREDENTIALS;
    const basic = Buffer.from(`${id}:${encodeURIComponent(secret)}`).toString("base64");
    assert.deepEqual([method, headers.authorization], ["POST", `Basic ${basic}`]);
    assert.equal(headers["content-type"], "application/x-www-form-urlencoded");
    assert.equal(form.get("token_type_hint"), "access_token");
    assert.doesNotMatch(router.output(), /opaque|secret of/);
  });

  it("asks once about a token that many requests bring at the same time, valid or not", async () => {
    provider.add("busy");
    for (const [token, status] of [["busy", 200], ["unknown", 401]]) {
      const outcomes = await Promise.all(Array.from({ length: 50 }, () => ask(router, token)));
      assert.ok(outcomes.every(([it]) => it === status), JSON.stringify(outcomes));
      assert.equal(provider.requests(token).length, 1, token);
    }
    assert.deepEqual(await ask(router, "unknown"), [401, "UNAUTHENTICATED"]);
    assert.ok(await metric(router, "starling_authentication_refused_total", '"inactive"') >= 51);
    assert.ok(await metric(router, "starling_authentication_introspected_tokens") >= 2);
  });

  it("notices within the time of the cache that a token was revoked", async () => {
    provider.add("revoked");
    assert.equal((await ask(router, "revoked"))[0], 200);
    provider.revoke("revoked");
    await eventually(async () => (await ask(router, "revoked"))[0] === 401, "the refusal");
  });

  it("leaves signed tokens to their keys", async () => {
    const count = provider.requests().length;
    assert.equal((await ask(router, issuer.issue()))[0], 200);
    assert.equal((await ask(router, issuer.unsigned()))[0], 401);
    assert.equal(provider.requests().length, count);
  });

  it("verifies the token of connection_init, and closes the connection when it expires", async () => {
    provider.add("short", { exp: inSeconds(8) });
    const open = async (authorization) => {
      const socket = new WebSocket(router.socket, "graphql-transport-ws");
      await within(once(socket, "open"), "the socket to open");
      socket.send(JSON.stringify({ type: "connection_init", payload: { authorization } }));
      return socket;
    };
    const socket = await open("Bearer short");
    const [message] = await within(once(socket, "message"), "a message");
    assert.equal(JSON.parse(message).type, "connection_ack");
    const [code, reason] = await within(once(socket, "close"), "the close");
    assert.deepEqual([code, String(reason)], [4403, "token expired"]);
    const refused = await open("Bearer nothing");
    assert.equal((await within(once(refused, "close"), "the close"))[0], 4403);
  });
});

describe("an identity provider that does not work", () => {
  let subgraphs;
  let provider;
  before(async () => {
    subgraphs = await startSubgraphs();
    provider = await startIdentityProvider();
  });
  after(async () => {
    await subgraphs?.stop();
    await provider?.stop();
  });

  const json = { "content-type": "application/json" };
  for (const [name, respond, reason] of [
    ["that sends a page", (it) => it.writeHead(200, { "content-type": "text/html" }).end("<html>"), /not a JSON object/],
    ["that sends a word for true", (it) => it.writeHead(200, json).end('{"active":"true"}'), /neither true nor false/],
    ["that sends a wrong time", (it) => it.writeHead(200, json).end('{"active":true,"exp":"x"}'), /not a number of/],
    ["that sends too much", (it) => it.writeHead(200, json).end(`{"active":true,"a":"${"x".repeat(70_000)}"}`), /larger/],
    ["that floods", (it) => {
      it.writeHead(200, json).on("error", () => {});
      const flood = () => {
        while (!it.destroyed && it.write("x".repeat(16_384)));
        if (!it.destroyed) it.once("drain", flood);
      };
      flood();
    }, /larger/],
    ["that redirects", (it) => it.writeHead(302, { location: provider.url }).end(), /302/],
    ["that does not know the router", (it) => it.writeHead(401, json).end('{"error":"invalid_client"}'), /401/],
    ["that fails", (it) => it.writeHead(500).end("down"), /500/],
    ["that hangs", () => {}, /no response within/],
    ["that ends in the middle", (it) => {
      it.writeHead(200, { ...json, "content-length": "100" }).write('{"active":true', () => it.destroy());
    }, /closed|end/],
  ]) {
    it(`${name} is neither the client's fault nor a permission`, async () => {
      const router = await startRouter(subgraphs, {
        ...provider.configuration,
        url: `${provider.url}?key=hidden`,
        timeout: name === "that hangs" ? "1s" : "10s",
      });
      try {
        provider.add("token");
        provider.setResponse(respond);
        assert.deepEqual(await ask(router, "token"), AWAY);
        // Only these lines: a number in another line can look like a reason.
        const failures = () => router.output().split("\n").filter((it) => it.includes("could not be introspected"));
        await eventually(() => failures().some((it) => reason.test(it)), "the line in the log");
        assert.match(failures()[0], /\/introspect/);
        assert.doesNotMatch(router.output(), /hidden|secret of/);
        // After failures in a row no request is sent until a pause is over.
        while ((await metric(router, "starling_authentication_introspections_omitted_total", "backoff")) === 0) {
          assert.deepEqual(await ask(router, "token"), AWAY);
        }
        const failed = await metric(router, "starling_authentication_introspections_total", "failed");
        assert.ok(failed <= 4, `${failed} requests`);
        assert.ok(failures().length <= 2, `${failures().length} lines`);
        provider.setResponse(undefined);
        await eventually(async () => (await ask(router, "token"))[0] === 200, "the provider to be asked again");
      } finally {
        provider.setResponse(undefined);
        await router.stop();
      }
    });
  }

  it("keeps the tokens that are known while it is down, and costs nothing per request", async () => {
    const router = await startRouter(subgraphs, { ...provider.configuration, timeout: "10s" });
    try {
      provider.add("known");
      assert.equal((await ask(router, "known"))[0], 200);
      provider.setResponse((it) => it.destroy());
      const outcomes = await Promise.all(Array.from({ length: 200 }, (_, number) => ask(router, `new-${number}`)));
      assert.ok(outcomes.every(([status]) => status === 503));
      assert.equal((await ask(router, "known"))[0], 200);
      const count = provider.requests().length;
      for (let number = 0; number < 50; number++) assert.deepEqual(await ask(router, `later-${number}`), AWAY);
      assert.ok(provider.requests().length <= count + 5, `${provider.requests().length - count} more requests`);
    } finally {
      provider.setResponse(undefined);
      await router.stop();
    }
  });
});

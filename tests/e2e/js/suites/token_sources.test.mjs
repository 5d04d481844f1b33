// Tokens in several headers and in cookies, and clients that continue without an invalid one.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, it } from "node:test";
import WebSocket from "ws";
import { memorySupergraph } from "../board.mjs";
import { startServe } from "../router.mjs";
import { inSeconds, startIssuer } from "../tokens.mjs";
import { eventually, within } from "../waiting.mjs";

const QUERY = '{ flight(id: "1") { number } }';
const HEADERS = ["authorization", "x-token", "cookie"];

/** A subgraph that returns the headers with tokens as the number of a flight. It allows caches to store the response. */
async function startEcho() {
  const server = http.createServer(async (request, response) => {
    for await (const _ of request);
    const number = HEADERS.map((name) => request.headers[name] ?? "").join("|");
    response.writeHead(200, { "content-type": "application/json", "cache-control": "max-age=60" })
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

/** A router that forwards all headers with tokens. */
const startRouter = (echo, jwt, more = {}) =>
  startServe({
    supergraph: memorySupergraph(),
    config: {
      subgraphs: echo.configuration,
      headers: {
        all: {
          request: HEADERS.map((named) => ({ propagate: { named } })),
          response: [{ propagate: { named: "cache-control" } }],
        },
      },
      authentication: {
        jwt: {
          sources: [{ header: {} }, { header: { name: "x-token", prefix: "" } }, { cookie: { name: "session" } }],
          ...jwt,
        },
      },
      ...more,
    },
  });

async function ask(router, headers = {}, url = router.graphql) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ query: QUERY }),
  });
  const { data, errors } = await response.json();
  const [caching, vary] = ["cache-control", "vary"].map((name) => response.headers.get(name));
  return { status: response.status, number: data?.flight.number, message: errors?.[0].message, caching, vary };
}

/** The status of a GET request with these headers, which `fetch` would not send. */
async function statusOfGet(router, headers) {
  const url = `${router.graphql}?query=${encodeURIComponent(QUERY)}`;
  const request = http.get(url, { headers: { accept: "application/json", ...headers } });
  const [response] = await within(once(request, "response"), "a response");
  response.resume();
  return response.statusCode;
}

/** The headers that the subgraph gets from a WebSocket, or the code that closed it, or the status of its handshake. */
async function askSocket(router, headers, payload = {}) {
  const socket = new WebSocket(router.socket, "graphql-transport-ws", { headers });
  const outcome = new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("unexpected-response", (_, response) => resolve(response.statusCode));
    socket.on("close", (code) => resolve(code));
    socket.on("open", () => socket.send(JSON.stringify({ type: "connection_init", payload })));
    socket.on("message", (data) => {
      const message = JSON.parse(data);
      if (message.type === "connection_ack") {
        socket.send(JSON.stringify({ type: "subscribe", id: "1", payload: { query: QUERY } }));
      } else if (message.type === "next") {
        resolve(message.payload.data.flight.number);
      }
    });
  });
  try {
    return await within(outcome, "an outcome");
  } finally {
    socket.on("error", () => {});
    socket.terminate();
  }
}

async function metric(router, name, labels) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name}{`) && it.includes(labels));
  return Number(line?.split(" ").at(-1) ?? 0);
}

for (const reactors of [1, 2]) {
  describe(`several places of tokens, reactors: ${reactors}`, () => {
    let echo;
    let issuer;
    let router;
    let [ann, bob, expired] = [];
    before(async () => {
      echo = await startEcho();
      issuer = await startIssuer();
      router = await startRouter(echo, { issuers: [issuer.configuration] }, {
        reactors, websocket: { init_payload_headers: ["authorization"] },
      });
      [ann, bob] = ["ann", "bob"].map((sub) => issuer.issue({ sub }));
      expired = issuer.issue({ exp: inSeconds(-60) });
    });
    after(async () => {
      await router?.stop();
      await echo?.stop();
      await issuer?.stop();
    });

    it("takes the token of the first place, and forwards no other one", async () => {
      for (const [headers, expected] of [
        [{ authorization: `Bearer ${ann}` }, `Bearer ${ann}||`],
        [{ "x-token": ann }, `|${ann}|`],
        [{ cookie: `a=1; session=${ann}` }, `||a=1; session=${ann}`],
        [{ "x-token": ann, cookie: `a=1; session=${bob}; b=2` }, `|${ann}|a=1; b=2`],
        [{ authorization: `Bearer ${ann}`, "x-token": "forged" }, `Bearer ${ann}||`],
        [{ authorization: `Bearer ${ann}`, cookie: `session=${expired}` }, `Bearer ${ann}||`],
        [{ cookie: "a=1; session=" }, "||a=1; session="],
        [{}, "||"],
      ]) {
        const { status, number } = await ask(router, headers);
        assert.deepEqual([status, number], [200, expected], JSON.stringify(headers));
      }
    });

    it("refuses an invalid token in the first place, whatever the others have", async () => {
      for (const [headers, reason] of [
        [{ authorization: "Basic abc", cookie: `session=${ann}` }, /must have the form/],
        [{ "x-token": expired, cookie: `session=${ann}` }, /expired/],
        [{ cookie: `session=${expired}` }, /expired/],
        [{ cookie: `session=${ann}; session=${bob}` }, /several cookies session/],
      ]) {
        const { status, message } = await ask(router, headers);
        assert.equal(status, 401, JSON.stringify(headers));
        assert.match(message, reason);
      }
    });

    it("lets no cache keep the response to a token, nor give a stored one to a client with one", async () => {
      for (const headers of [{ authorization: `Bearer ${ann}` }, { "x-token": ann }, { cookie: `session=${ann}` }]) {
        assert.equal((await ask(router, headers)).caching, "no-store");
      }
      const { caching, vary } = await ask(router);
      assert.equal(caching, "max-age=60");
      assert.match(vary, /authorization, x-token, cookie/);
    });

    it("accepts no cookie from pages of other origins", async () => {
      const cookie = `session=${ann}`;
      const embedded = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" };
      assert.equal(await statusOfGet(router, { cookie }), 200);
      assert.equal(await statusOfGet(router, { cookie, ...embedded }), 403);
      assert.equal(await statusOfGet(router, { cookie, origin: "https://evil.example" }), 403);
      assert.equal(await askSocket(router, { cookie, origin: "https://evil.example" }), 403);
      // A form or a script without preflight.
      const response = await fetch(router.graphql, {
        method: "POST", headers: { "content-type": "text/plain", cookie }, body: JSON.stringify({ query: QUERY }),
      });
      assert.equal(response.status, 415);
    });

    it("takes the cookie of a WebSocket's handshake, unless connection_init has a token", async () => {
      const cookie = `a=1; session=${ann}`;
      assert.equal(await askSocket(router, { cookie }), `||${cookie}`);
      assert.equal(await askSocket(router, { cookie: `session=${expired}` }), 401);
      assert.equal(await askSocket(router, { cookie }, { authorization: bob }), `Bearer ${bob}||a=1`);
      assert.equal(await askSocket(router, { cookie }, { authorization: expired }), 4403);
      assert.equal(await askSocket(router, { "x-token": ann }, { authorization: `Bearer ${bob}` }), `Bearer ${bob}||`);
    });
  });
}

describe("on_error: continue", () => {
  let echo;
  let issuer;
  let router;
  before(async () => {
    echo = await startEcho();
    issuer = await startIssuer();
    router = await startRouter(echo, { on_error: "continue", issuers: [issuer.configuration] });
  });
  after(async () => {
    await router?.stop();
    await echo?.stop();
    await issuer?.stop();
  });

  it("serves a client with an invalid token as an anonymous one, and forwards no invalid token", async () => {
    const expired = issuer.issue({ exp: inSeconds(-60) });
    for (const headers of [
      { authorization: `Bearer ${expired}` },
      { authorization: "Basic abc" },
      { "x-token": "forged" },
      { cookie: `session=${expired}` },
    ]) {
      const { status, number } = await ask(router, headers);
      assert.deepEqual([status, number], [200, "||"], JSON.stringify(headers));
    }
    assert.equal(await metric(router, "starling_authentication_ignored_tokens_total", '"expired"'), 2);
    assert.equal(await metric(router, "starling_authentication_refused_total", '"expired"'), 0);
    const valid = issuer.issue();
    assert.equal((await ask(router, { "x-token": valid })).number, `|${valid}|`);
  });

  it("does the same for WebSockets", async () => {
    const [valid, expired] = [issuer.issue(), issuer.issue({ exp: inSeconds(-60) })];
    assert.equal(await askSocket(router, { cookie: `session=${expired}` }), "||");
    assert.equal(await askSocket(router, {}, { authorization: expired }), "||");
    assert.equal(await askSocket(router, {}, { authorization: 7 }), "||");
    assert.equal(await askSocket(router, { "x-token": valid }, { authorization: expired }), "||");
    assert.equal(await askSocket(router, { "x-token": valid }), `|${valid}|`);
  });

  it("still refuses tokens that cannot be verified at present", async () => {
    issuer.setDown(true);
    try {
      // Keys are read again at most every ten seconds.
      await eventually(async () => {
        const { status } = await ask(router, { "x-token": issuer.ofUnknownKey("new") });
        return status === 503;
      }, "the refusal");
    } finally {
      issuer.setDown(false);
    }
  });
});

// Signatures of AWS on requests to subgraphs, computed again by npm's @smithy/signature-v4.
import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, it } from "node:test";
import { SignatureV4 } from "@smithy/signature-v4";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";
import { startServe } from "../router.mjs";

const REGION = "eu-central-1";
const SERVICE = "appsync";
const CREDENTIALS = {
  accessKeyId: "AKIAIOSFODNN7EXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
  sessionToken: "a-token-of-temporary-credentials==",
};

const SUPERGRAPH = `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION) {
  query: Query
}
${JOIN_DEFINITIONS}
enum join__Graph { A @join__graph(name: "a", url: "http://127.0.0.1:1/graphql") }
scalar Upload @join__type(graph: A)
type Query @join__type(graph: A) { greet(name: String): String size(file: Upload!): String }
`;

/** SHA-256 as the library wants it: with a key, an HMAC. */
class Sha256 {
  #hash;
  constructor(key) {
    this.#hash = key ? createHmac("sha256", key) : createHash("sha256");
  }
  update(data) {
    this.#hash.update(data);
  }
  async digest() {
    return new Uint8Array(this.#hash.digest());
  }
}

/** The `authorization` that a request should have. */
async function expectedAuthorization(request, body, credentials) {
  const [, signed] = request.headers.authorization.match(/SignedHeaders=([^,]+),/);
  const names = signed.split(";");
  const headers = Object.fromEntries(
    names.filter((name) => !name.startsWith("x-amz-")).map((name) => [name, request.headers[name]]),
  );
  const url = new URL(request.url, "http://router");
  const signer = new SignatureV4({
    region: REGION, service: SERVICE, credentials, sha256: Sha256, applyChecksum: false,
  });
  const [, year, month, day, hour, minute, second] = request.headers["x-amz-date"]
    .match(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/);
  const signedRequest = await signer.sign({
    method: request.method,
    protocol: "http:",
    hostname: "127.0.0.1",
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    headers,
    body,
  }, {
    signingDate: new Date(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`),
    signableHeaders: new Set(names),
  });
  return signedRequest.headers.authorization;
}

describe("signatures of AWS", () => {
  let subgraph;
  let url;
  let router;
  const received = [];
  /** How many requests are refused for a moment before one is served. */
  let refusals = 0;
  const config = (more) => ({
    subgraphs: { a: { url, aws_sigv4: { region: REGION, service: SERVICE, ...more } } },
    headers: {
      all: {
        request: [{ propagate: { matching: ".*" } }, { insert: { name: "x-inserted", value: "a  b" } }],
      },
    },
    uploads: { enabled: true },
    traffic: { all: { retry: { initial: "1ms" } } },
    include_subgraph_errors: { all: true },
  });
  before(async () => {
    subgraph = http.createServer(async (request, response) => {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      received.push({ request, body: Buffer.concat(pieces) });
      if (refusals > 0) {
        refusals -= 1;
        response.writeHead(503).end();
        return;
      }
      response.setHeader("content-type", "application/json").end(`{"data":{"greet":"hello","size":"1"}}`);
    }).listen(0, "127.0.0.1");
    await once(subgraph, "listening");
    url = `http://127.0.0.1:${subgraph.address().port}/a%20b/graphql?stage=test&b=c%2Fd`;
    router = await startServe({
      supergraph: SUPERGRAPH,
      config: config({
        access_key_id: CREDENTIALS.accessKeyId,
        secret_access_key: CREDENTIALS.secretAccessKey,
        session_token: CREDENTIALS.sessionToken,
      }),
    });
  });
  after(async () => {
    await router?.stop();
    subgraph?.close();
    subgraph?.closeAllConnections();
  });

  const greet = (headers = {}) => fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ query: "query($n: String) { greet(name: $n) }", variables: { n: "ä" } }),
  });

  async function assertSigned({ request, body }) {
    const expected = await expectedAuthorization(request, body, CREDENTIALS);
    assert.equal(request.headers.authorization, expected);
    assert.equal(request.headers["x-amz-security-token"], CREDENTIALS.sessionToken);
    const other = await expectedAuthorization(request, Buffer.concat([body, Buffer.from(" ")]), CREDENTIALS);
    assert.notEqual(other, expected, "the body is signed");
  }

  it("the final headers and the body are signed, and a client cannot add to the signature", async () => {
    const response = await greet({
      authorization: "Bearer of-a-client", "x-amz-security-token": "stolen", "x-tenant": "a", "x-amz-date": "today",
    });
    assert.deepEqual(await response.json(), { data: { greet: "hello" } });
    const last = received.at(-1);
    await assertSigned(last);
    const [, signed] = last.request.headers.authorization.match(/SignedHeaders=([^,]+),/);
    for (const name of ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-inserted", "x-tenant"]) {
      assert.ok(signed.split(";").includes(name), `${name} in ${signed}`);
    }
    assert.ok(!router.output().includes(CREDENTIALS.secretAccessKey));
  });

  it("a retry is signed too", async () => {
    refusals = 1;
    const count = received.length;
    assert.deepEqual(await (await greet()).json(), { data: { greet: "hello" } });
    assert.equal(received.length, count + 2);
    await assertSigned(received.at(-2));
    await assertSigned(received.at(-1));
  });

  it("a form with files is signed as a whole", async () => {
    const form = new FormData();
    form.append("operations", JSON.stringify({
      query: "query($f: Upload!) { size(file: $f) }", variables: { f: null },
    }));
    form.append("map", JSON.stringify({ 0: ["variables.f"] }));
    form.append("0", new Blob(["x".repeat(1_000_000)]));
    const response = await fetch(router.graphql, {
      method: "POST", headers: { "apollo-require-preflight": "true" }, body: form,
    });
    assert.deepEqual(await response.json(), { data: { size: "1" } });
    const last = received.at(-1);
    assert.match(last.request.headers["content-type"], /^multipart\/form-data/);
    assert.ok(last.body.length > 1_000_000);
    await assertSigned(last);
  });

  it("without credentials in the configuration those of the environment are used", async () => {
    const names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    const values = [CREDENTIALS.accessKeyId, CREDENTIALS.secretAccessKey, CREDENTIALS.sessionToken];
    names.forEach((name, index) => {
      process.env[name] = values[index];
    });
    let other;
    try {
      other = await startServe({ supergraph: SUPERGRAPH, config: config() });
      assert.deepEqual((await other.query("{ greet }")).body, { data: { greet: "hello" } });
      await assertSigned(received.at(-1));
    } finally {
      names.forEach((name) => delete process.env[name]);
      await other?.stop();
    }
  });

  it("a router without credentials does not start, and says what is missing", async () => {
    const started = startServe({ supergraph: SUPERGRAPH, config: config() });
    await assert.rejects(started, /the environment variable `AWS_ACCESS_KEY_ID` is not set/);
  });
});

// Secrets: known ones go in by headers, variables, URLs, the configuration, messages of subgraphs and topics, and come
// out in no log, metric, span, page or error.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { buildSubgraphSchema } from "@apollo/subgraph";
import { GraphQLError, parse } from "graphql";
import WebSocket from "ws";
import { closeAfterEach } from "../closing.mjs";
import { startCollector } from "../collector.mjs";
import { compose } from "../composition.mjs";
import { GraphqlResponse, representations, startSubgraph } from "../counting_subgraph.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { freePort, startServe } from "../router.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { inSeconds, token } from "../tokens.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@key"])';
const PRODUCTS = `${LINK}
type Query { product(id: ID!, amount: Int): Product away: String }
type Product @key(fields: "id") { id: ID! name: String }`;
const REVIEWS = `${LINK}
type Query { ratings: Int }
type Product @key(fields: "id") { id: ID! reviews(by: String): Int }`;
const AWAY = `${LINK} type Query { away: String }`;
const CHANGES = `${LINK}
type Subscription { changed(by: String): Product @events__subscribe(topics: ["changed"], providerId: "memory/default") }
type Product @key(fields: "id", resolvable: false) { id: ID! }`;

const FAILING = `${LINK}
type Query { failing: String }
type Product @key(fields: "id") { id: ID! name: String }`;
const NOTES = `${LINK}
type Query { note: String }
type Subscription { noted: String }`;
/** The templates of topics: one at a provider in the process, one at a broker that is absent. */
const TOPICS = { announced: "announced.{{claims.sub}}.{{args.by}}", lost: "lost.{{claims.sub}}.{{args.by}}" };
const ANNOUNCEMENTS = `${LINK}
type Mutation {
  announce(id: ID!, by: String!): edfs__PublishResult!
    @events__publish(topic: "${TOPICS.announced}", providerId: "memory/default")
  lose(by: String!): edfs__PublishResult! @events__publish(topic: "${TOPICS.lost}", providerId: "nats/default")
}
type Subscription {
  announced(by: String!): Product @events__subscribe(topics: ["${TOPICS.announced}"], providerId: "memory/default")
  lost(by: String!): Product @events__subscribe(topics: ["${TOPICS.lost}"], providerId: "nats/default")
}
type edfs__PublishResult { success: Boolean! }
type Product @key(fields: "id", resolvable: false) { id: ID! }`;

/** The data of the operation that most requests have. */
const TABLE = { product: { name: "Table", reviews: 7 } };

/** A word that nothing but a secret contains, so that also a part of one is found. */
const MARK = "s3cr3t";

/** All secrets, by what they are. */
const secrets = new Map();

/** Returns the secret for a purpose. */
function secret(purpose) {
  if (!secrets.has(purpose)) secrets.set(purpose, `${MARK}-${purpose}-${randomBytes(12).toString("hex")}`);
  return secrets.get(purpose);
}

/** Fails if a text contains a secret, as it is or encoded for a URL or in Base64. */
function assertNoSecret(text, what) {
  for (const [purpose, value] of secrets) {
    const forms = [value, encodeURIComponent(value), Buffer.from(value).toString("base64").slice(0, -4)];
    for (const form of forms) {
      const at = text.indexOf(form);
      assert.equal(at, -1, `${what} has the secret of ${purpose}: ${text.slice(Math.max(0, at - 300), at + 100)}`);
    }
  }
  const at = text.indexOf(MARK);
  assert.equal(at, -1, `${what} has a part of a secret: ${text.slice(Math.max(0, at - 300), at + 100)}`);
}

/** Returns a token with this subject, signed with the secret of tokens. */
const signedToken = (sub) => token(
  { alg: "HS256" }, { sub, exp: inSeconds(600) },
  (signed) => createHmac("sha256", secret("jwt")).update(signed).digest("base64url"),
);

/**
 * Reads a page of the admin listener, which must contain `known` and no secret. `known` shows that the page has
 * something. `more` are further headers.
 */
async function readPage(router, place, known, more = {}) {
  const headers = { authorization: `Bearer ${secret("console")}`, ...more };
  const response = await fetch(`${router.admin}${place}`, { headers });
  const content = await response.text();
  assert.ok(response.ok && content.includes(known), `${place}: ${response.status} ${content.slice(0, 2_000)}`);
  assertNoSecret(content, place);
  return content;
}

/** Reads each trace that the flight recorder has, of which one must be that of `operation`. */
async function readRecordedTraces(router, operation) {
  const slow = await readPage(router, "/console/api/slow", operation);
  const numbers = slow.match(/"number":\d+/g).map((it) => it.slice(9));
  for (const number of numbers) await readPage(router, `/console/api/trace?number=${number}`, "{");
}

/** Fails if a response has other data or an error. It may have extensions, such as a trace. */
const assertData = ({ data, errors }, expected) => assert.deepEqual([data, errors], [expected, undefined]);

describe("secrets", () => {
  const keep = closeAfterEach();
  let products, reviews, folder, supergraph, awayUrl, seen;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-secrets-"));
    const product = ({ id }) => ({ __typename: "Product", id, name: "Table" });
    products = await startSubgraph((body, request) => {
      seen.push(request);
      if (body.query.includes("_entities")) return { _entities: representations(body).map(product) };
      return { product: product({ id: Object.values(body.variables)[0] ?? "1" }) };
    });
    reviews = await startSubgraph((body) => ({
      ratings: 1, _entities: representations(body).map(({ id }) => ({ __typename: "Product", id, reviews: 7 })),
    }));
    // Another test has public responses, of which the page of the caches shows more.
    for (const subgraph of [products, reviews]) subgraph.headers = { "cache-control": "private, max-age=10" };
    awayUrl = `http://127.0.0.1:${await freePort()}/graphql`;
    supergraph = await compose({
      products: { sdl: PRODUCTS.replace(" away: String", ""), url: products.url },
      reviews: { sdl: REVIEWS, url: reviews.url },
      away: { sdl: AWAY, url: awayUrl },
      changes: { sdl: CHANGES },
    });
  });
  after(async () => {
    await products?.stop();
    await reviews?.stop();
    if (folder) await rm(folder, { recursive: true });
  });

  /** A configuration with a secret wherever one can be. What cannot be reached makes the router log its failures. */
  const configuration = (collector, nowhere) => {
    const user = (name) => ({ username: "router", password: secret(name) });
    const header = (name) => [{ name: "authorization", value: `Bearer ${secret(name)}` }];
    return {
      subgraphs: {
        products: {
          url: `${products.url}?key=${secret("subgraph-url")}`, signature: { hmac: { secret: secret("hmac") } },
        },
        away: { url: `${awayUrl}?key=${secret("url-of-absent-subgraph")}` },
      },
      authentication: {
        jwt: {
          issuers: [
            { secret: secret("jwt"), algorithms: ["HS256"] },
            { issuer: "https://other.example", jwks: { url: `http://${nowhere}/jwks?key=${secret("jwks-url")}` } },
          ],
        },
        introspection: {
          url: `http://${nowhere}/introspect?key=${secret("introspection-url")}`, client_id: "router",
          client_secret: secret("introspection"),
        },
      },
      headers: {
        all: {
          request: [
            { propagate: { named: "authorization" } }, { propagate: { named: "x-client-secret" } },
            { insert: { name: "x-api-key", value: secret("inserted-header") } },
          ],
        },
      },
      events: {
        providers: {
          memory: [{ id: "default" }],
          nats: [{ id: "default", url: `nats://${nowhere}`, authentication: { user_info: user("nats") } }],
          redis: [{ id: "default", urls: [`redis://${nowhere}`], authentication: user("redis-events") }],
          kafka: [{ id: "default", brokers: [nowhere], authentication: { sasl_plain: user("kafka") } }],
        },
      },
      storage_providers: {
        redis: [{ id: "shared", urls: [`redis://${nowhere}`], authentication: user("redis-store") }],
      },
      rate_limits: [{
        name: "per-token", key: "request.headers['x-client-secret']", rate: 1000, per: "1s", burst: 1000, store: "shared",
      }],
      cache: {
        enabled: true, store: "shared", subgraphs: { all: { ttl: "10s" } },
        private_by: { headers: ["x-client-secret"] },
      },
      cursor: { keys: [secret("cursor")] },
      websocket: { init_payload_headers: ["x-client-secret"] },
      admin: {
        console: { token: secret("console"), recorder: { enabled: true, slow: "1ms" } },
      },
      tracing: {
        enabled: true, sample: { ratio: "100%" },
        otlp: { endpoint: collector.endpoint, interval: "20ms", headers: header("otlp-traces") },
      },
      metrics: {
        otlp: {
          enabled: true, endpoint: `http://${nowhere}/v1/metrics?key=${secret("otlp-metrics-url")}`, interval: "50ms",
          headers: header("otlp-metrics"),
        },
      },
      access_log: { enabled: true },
      trace: { enabled: true },
      log: { level: "debug" },
    };
  };

  it("come out nowhere, whatever is done with them", async () => {
    seen = [];
    const collector = keep(await startCollector());
    const nowhere = `127.0.0.1:${await freePort()}`;
    const config = configuration(collector, nowhere);
    const router = keep(await startServe({ supergraph, config, outputMax: 50_000_000 }));
    /** What clients got, but for data that they asked for. */
    const responses = [];

    const jwt = signedToken(secret("claim"));
    // The token is a secret itself; the check for parts of it needs a part that nothing else has.
    secrets.set("token", jwt.slice(-30));
    const headers = {
      "content-type": "application/json", authorization: `Bearer ${jwt}`, cookie: `session=${secret("cookie")}`,
      "x-client-secret": secret("client-header"), "graphql-client-name": "known-client", "starling-trace": "1",
      "apollo-require-preflight": "1", baggage: `user=${secret("baggage")}`,
    };
    const post = async (body, more = {}, url = router.graphql) => {
      const response = await fetch(url, {
        method: "POST", headers: { ...headers, ...more }, body: typeof body === "string" ? body : JSON.stringify(body),
      });
      const text = await response.text();
      responses.push(JSON.stringify([...response.headers]), text);
      return { status: response.status, text };
    };
    /** Sends a request that is served. */
    const serve = async (...request) => {
      const { status, text } = await post(...request);
      assert.equal(status, 200, text);
      assertData(JSON.parse(text), TABLE);
    };
    /** Sends a request that fails with this code. */
    const fail = async (code, ...request) => {
      const { text } = await post(...request);
      assert.equal(JSON.parse(text).errors?.[0].extensions.code, code, text);
    };

    const KNOWN = "query KnownOperation($id: ID!, $by: String) { product(id: $id) { name reviews(by: $by) } }";
    const variables = { id: secret("variable"), by: secret("variable-of-a-reference") };
    await serve({ query: KNOWN, variables });
    // The secrets have arrived where they belong.
    assert.equal(seen[0].headers["x-api-key"], secret("inserted-header"));
    assert.equal(seen[0].headers["x-client-secret"], secret("client-header"));
    assert.ok(seen[0].url.includes(secret("subgraph-url")));

    // The same in the URL, by which GET requests and WebSockets come.
    const url = new URL(router.graphql);
    url.search = new URLSearchParams({ query: KNOWN, variables: JSON.stringify(variables), token: secret("url") });
    const got = await fetch(url, { headers });
    responses.push(await got.text());
    assertData(JSON.parse(responses.at(-1)), TABLE);
    await serve({ query: KNOWN, variables }, {}, `${router.graphql}?token=${secret("url-of-post")}`);
    const elsewhere = await fetch(`${router.url}/elsewhere?token=${secret("url-elsewhere")}`, { headers });
    responses.push(await elsewhere.text());
    assert.equal(elsewhere.status, 404);

    // What is refused: tokens, variables, texts and bodies.
    const bearer = (it) => ({ authorization: `Bearer ${it}` });
    await fail("AUTHENTICATION_UNAVAILABLE", { query: KNOWN, variables }, bearer(secret("bad-token")));
    await fail("UNAUTHENTICATED", { query: KNOWN, variables }, bearer(`${jwt.slice(0, -5)}${"x".repeat(5)}`));
    const invalid = {
      "Wrong($n: Int) { product(id: 1, amount: $n) { id } }": { n: secret("wrong-type") },
      "Missing($id: ID!) { product(id: $id) { id } }": { other: secret("unknown-variable") },
      "Deep($id: ID!) { product(id: $id) { id } }": { id: { deep: secret("wrong-object") } },
    };
    for (const [query, values] of Object.entries(invalid)) {
      await fail("BAD_USER_INPUT", { query: `query ${query}`, variables: values });
    }
    const unknown = { query: "query Unknown { unknown }", variables: { id: secret("of-an-invalid-operation") } };
    await fail("GRAPHQL_VALIDATION_FAILED", unknown);
    await fail("BAD_REQUEST", `{"query": "{ product(id: 1) { id } }", "variables": {"id": "${secret("broken-body")}"`);
    await serve({ query: KNOWN, variables, extensions: { anything: secret("extension") } });

    // A subgraph that is absent, whose URL has a secret.
    await fail("SUBGRAPH_REQUEST_FAILED", { query: "query Absent { away }" });

    // Operations and subscriptions on other transports.
    const socket = keep(openSocket(
      { socket: `${router.socket}?token=${secret("socket-url")}` },
      { authorization: `Bearer ${jwt}`, "x-client-secret": secret("init-payload") },
    ));
    assertData(await socket.subscribe({ query: KNOWN, variables }).next(), TABLE);
    const streams = keep(openStreams(router, headers));
    const CHANGED = "subscription KnownChange($by: String) { changed(by: $by) { id name } }";
    for (const client of [socket, streams]) {
      const changes = client.subscribe({ query: CHANGED, variables: { by: secret("variable-of-a-subscription") } });
      const event = await repeatUntil(
        changes.next(), () => router.publish("memory/default", "changed", { __typename: "Product", id: "7" }), "an event",
      );
      assertData(event, { changed: { id: "7", name: "Table" } });
    }
    const refused = new WebSocket(router.socket, "graphql-transport-ws");
    const closed = new Promise((resolve) => { refused.on("close", (code, reason) => resolve(`${code} ${reason}`)); });
    refused.on("message", (message) => responses.push(`${message}`));
    refused.on("open", () => refused.send(JSON.stringify({
      type: "connection_init", payload: { authorization: `Bearer ${secret("bad-token-of-a-socket")}` },
    })));
    responses.push(await closed);
    assert.equal(responses.at(-1), "1013 authentication unavailable");

    // Whatever could not be reached was logged by now.
    await eventually(() => ["nats", "redis", "kafka"].every((kind) =>
      new RegExp(`"WARN".*${kind}`).test(router.output())), "the failures of brokers in the log");
    await eventually(() => /metrics cannot be exported/.test(router.output()), "a failed export in the log");
    await collector.named("query KnownOperation", 3);
    await collector.named("process changed");

    // Each page of the admin listener.
    const page = (...request) => readPage(router, ...request);
    for (const accept of ["text/plain", "application/openmetrics-text"]) {
      await page("/metrics", "KnownOperation", { accept });
    }
    for (const accept of ["text/html", "application/json"]) {
      await page("/admin/subscriptions", "changed", { accept });
    }
    await page("/admin/cache", '"isPrivate":true', { accept: "application/json" });
    await page("/admin/cache", "Caches", { accept: "text/html" });
    await page("/admin/usage", "known-client");
    await page("/admin/operations", "KnownOperation");
    await page("/console/", "<html");
    await page("/console/api/overview", "products");
    await page("/console/api/subgraph?name=products", "products");
    await page("/console/api/operations", "KnownOperation");
    await page("/console/api/operation?name=KnownOperation&kind=query", "reviews");
    await page("/console/api/graph", "products");
    await page("/console/api/type?name=Product", "reviews");
    await page("/console/api/live", "changed");
    await page("/console/api/tools", "{");
    await readRecordedTraces(router, "KnownOperation");
    const authorization = `Bearer ${secret("console")}x`;
    const wrong = await fetch(`${router.admin}/console/api/overview`, { headers: { authorization } });
    assert.equal(wrong.status, 401);
    responses.push(await wrong.text());

    for (const response of responses) assertNoSecret(response, "a response");
    for (const { text: message } of collector.requests) assertNoSecret(message, "an export of traces");
    assert.ok(collector.requests.every((it) => it.headers.authorization === `Bearer ${secret("otlp-traces")}`));
    await socket.dispose();
    assert.equal(await router.stop(), 0);
    const log = router.output();
    assert.ok(log.includes('"operation":"KnownOperation"'), "the access log");
    assertNoSecret(log, "the log");
    // Brokers, stores, collectors and subgraphs that are away may come back, so none of that is an error.
    assert.doesNotMatch(log, /"level":"ERROR"/);
    // Secrets in the file stay there.
    const file = await readFile(path.join(router.folder, "starling.yaml"), "utf8");
    assert.ok(file.includes(secret("hmac")));
  });

  it("in messages of subgraphs and in topics come out nowhere, with the default log and errors", async () => {
    const error = (path) => ({
      message: `no row for ${secret("message-of-a-subgraph")}`, path,
      extensions: { code: "NO_ROW", row: secret("extension-of-a-subgraph") },
    });
    const failing = keep(await startSubgraph(({ query }) => (query.includes("_entities")
      ? new GraphqlResponse({ _entities: [null] }, [error(["_entities", 0])])
      : new GraphqlResponse({ failing: null }, [error(["failing"])]))));
    const refuse = () => {
      throw new GraphQLError(`no notes for ${secret("message-of-a-stream")}`, { extensions: { code: "NO_NOTES" } });
    };
    const resolvers = { Subscription: { noted: { subscribe: refuse } } };
    const notes = keep(await startGraphqlWs({ schema: buildSubgraphSchema({ typeDefs: parse(NOTES), resolvers }) }));
    const collector = keep(await startCollector());
    const graph = await compose({
      failing: { sdl: FAILING, url: failing.url }, notes: { sdl: NOTES, url: notes.url },
      announcements: { sdl: ANNOUNCEMENTS },
    });
    const router = keep(await startServe({
      supergraph: graph, outputMax: 50_000_000,
      config: {
        subgraphs: { notes: { subscription: notes.subscription } },
        authentication: { jwt: { issuers: [{ secret: secret("jwt"), algorithms: ["HS256"] }] } },
        events: {
          providers: {
            memory: [{ id: "default" }], nats: [{ id: "default", url: `nats://127.0.0.1:${await freePort()}` }],
          },
        },
        admin: { console: { token: secret("console"), recorder: { enabled: true, slow: "1ms" } } },
        tracing: {
          enabled: true, sample: { ratio: "100%" }, otlp: { endpoint: collector.endpoint, interval: "20ms" },
        },
        access_log: { enabled: true },
      },
    }));
    const jwt = signedToken(secret("claim-in-a-topic"));
    secrets.set("token-of-a-claim-in-a-topic", jwt.slice(-30));
    const authorization = `Bearer ${jwt}`;
    const responses = [];
    const post = async (query, variables) => {
      const response = await fetch(router.graphql, {
        method: "POST", headers: { "content-type": "application/json", authorization },
        body: JSON.stringify({ query, variables }),
      });
      responses.push(await response.text());
      return JSON.parse(responses.at(-1));
    };
    const codesOf = ({ errors = [] }) => errors.map(({ extensions }) => extensions.code);
    const by = secret("argument-in-a-topic");

    assert.deepEqual(codesOf(await post("query Failing { failing }")), ["NO_ROW"]);
    const ANNOUNCE = 'mutation Announce($by: String!) { announce(id: "7", by: $by) { success } }';
    const LOSE = "mutation Lose($by: String!) { lose(by: $by) { success } }";
    const socket = keep(openSocket(router, { authorization }));
    const announced = socket.subscribe({
      query: "subscription Announced($by: String!) { announced(by: $by) { id name } }", variables: { by },
    });
    // The event comes, so both topics were rendered with the same values.
    const event = await repeatUntil(announced.next(), () => post(ANNOUNCE, { by }), "an event");
    responses.push(JSON.stringify(event));
    assert.deepEqual([event.data, codesOf(event)], [{ announced: { id: "7", name: null } }, ["NO_ROW"]]);
    // The broker of the other topics is absent.
    assert.deepEqual(await post(LOSE, { by }), { data: { lose: { success: false } } });
    assert.deepEqual(codesOf(await post(LOSE, { by: `${secret("refused-value")}.x` })), ["BAD_USER_INPUT"]);
    for (const [query, code] of [
      ["subscription Lost($by: String!) { lost(by: $by) { id } }", "PROVIDER_UNAVAILABLE"],
      ["subscription Noted { noted }", "NO_NOTES"],
    ]) {
      const ended = await socket.subscribe({ query, variables: { by } }).ended();
      responses.push(JSON.stringify(ended));
      assert.ok(responses.at(-1).includes(`"${code}"`), responses.at(-1));
    }

    // The signals say what happened, by the templates of the topics and by codes.
    const [message] = await collector.named("send announce");
    const [received] = await collector.named("process announced");
    for (const { attributes } of [message, received]) {
      assert.equal(attributes["messaging.destination.template"], TOPICS.announced);
    }
    const [lost] = await collector.named("send lose");
    assert.equal(lost.attributes["messaging.destination.template"], TOPICS.lost);
    const logged = [
      /an event was not published/, /a subscription could not be opened/, /NO_ROW/, /"operation":"Lose"/,
    ];
    await eventually(() => logged.every((it) => it.test(router.output())), `${logged.join(", ")} in the log`);
    assert.ok(router.output().includes(TOPICS.lost), "the warning names the template");
    await readPage(router, "/metrics", `topic="${TOPICS.announced}"`);
    await readPage(router, "/metrics", `topic="${TOPICS.lost}"`);
    // Lists operations that came more than once. How often `Announce` came depends on when its event arrived.
    await readPage(router, "/admin/operations", "Lose");
    await readPage(router, "/admin/usage", "announce");
    await readPage(router, "/console/api/overview", "failing");
    await readPage(router, "/console/api/operations", "Announce");
    await readPage(router, "/console/api/subgraph?name=failing", "failing");
    await readRecordedTraces(router, "Announce");
    await socket.dispose();
    assert.equal(await router.stop(), 0);
    for (const response of responses) assertNoSecret(response, "a response");
    for (const { text } of collector.requests) assertNoSecret(text, "an export of traces");
    assertNoSecret(router.output(), "the log");
  });

  it("in topics and in keys of caches come out on no page of operators and in no log", async () => {
    const product = ({ id }) => ({ __typename: "Product", id, name: "Table" });
    const catalogue = keep(await startSubgraph((body) => (body.query.includes("_entities")
      ? { _entities: representations(body).map(product) }
      : { product: product({ id: Object.values(body.variables)[0] }) })));
    const ratings = keep(await startSubgraph((body) => ({
      _entities: representations(body).map(({ id }) => ({ __typename: "Product", id, reviews: 7 })),
    })));
    for (const subgraph of [catalogue, ratings]) subgraph.headers = { "cache-control": "public, max-age=60" };
    const collector = keep(await startCollector());
    const router = keep(await startServe({
      supergraph: await compose({
        catalogue: { sdl: PRODUCTS.replace(" away: String", ""), url: catalogue.url },
        ratings: { sdl: REVIEWS, url: ratings.url },
        announcements: { sdl: ANNOUNCEMENTS },
      }),
      outputMax: 50_000_000,
      config: {
        authentication: { jwt: { issuers: [{ secret: secret("jwt"), algorithms: ["HS256"] }] } },
        headers: { all: { request: [{ propagate: { named: "x-client-secret" } }] } },
        websocket: { init_payload_headers: ["x-client-secret"] },
        events: {
          providers: {
            memory: [{ id: "default" }], nats: [{ id: "default", url: `nats://127.0.0.1:${await freePort()}` }],
          },
        },
        cache: { enabled: true, subgraphs: { all: { ttl: "60s" } } },
        admin: { console: { token: secret("console"), recorder: { enabled: true, slow: "1ms" } } },
        tracing: {
          enabled: true, sample: { ratio: "100%" }, otlp: { endpoint: collector.endpoint, interval: "20ms" },
        },
        access_log: { enabled: true },
        log: { level: "debug" },
      },
    }));
    const claim = secret("claim-of-a-subscriber");
    const jwt = signedToken(claim);
    secrets.set("token-of-a-subscriber", jwt.slice(-30));
    const authorization = `Bearer ${jwt}`;
    const headers = {
      "content-type": "application/json", authorization, "x-client-secret": secret("header-of-a-cached-request"),
    };
    const post = async (query, variables) => {
      const body = JSON.stringify({ query, variables });
      return (await fetch(router.graphql, { method: "POST", headers, body })).json();
    };
    const json = { accept: "application/json" };

    // What is cached: an entity, a root field and a whole response.
    const KNOWN = "query KnownProduct($id: ID!, $by: String) { product(id: $id) { name reviews(by: $by) } }";
    const variables = { id: secret("key-of-an-entity"), by: secret("argument-of-a-cached-field") };
    const cachePage = async () => JSON.parse(await readPage(router, "/admin/cache", '"key":"id: #', json));
    await eventually(async () => {
      for (let times = 0; times < 50; times += 1) assertData(await post(KNOWN, variables), TABLE);
      return (await cachePage()).hottest.length > 0;
    }, "a hot entry");
    const { hottest, largest } = await cachePage();
    for (const { level, name, key, isPrivate } of [...hottest, ...largest]) {
      const entry = `${level} ${name}: ${key}`;
      assert.ok(!isPrivate, entry);
      assert.match(key, /^((\w+: )?#[0-9a-f]{8}(, |$))*$/, entry);
    }
    // The form takes a key from the operator.
    const body = JSON.stringify({ kind: "entity", type: "Product", key: { id: variables.id } });
    const preview = await fetch(`${router.admin}/admin/cache/preview`, { method: "POST", body });
    assert.ok((await preview.json()).entries > 0, "entries with the key");

    // Topics with a claim and an argument: one with subscribers, and one whose broker is absent.
    const [by, id] = [secret("argument-of-a-subscription"), secret("key-in-an-event")];
    const socket = keep(openSocket(router, { authorization, "x-client-secret": secret("header-of-a-socket") }));
    const streams = keep(openStreams(router, headers));
    const ANNOUNCE = "mutation Announce($id: ID!, $by: String!) { announce(id: $id, by: $by) { success } }";
    const query = "subscription Announced($by: String!) { announced(by: $by) { id name } }";
    for (const client of [socket, streams]) {
      const announced = client.subscribe({ query, variables: { by } });
      const event = await repeatUntil(announced.next(), () => post(ANNOUNCE, { id, by }), "an event");
      assertData(event, { announced: { id, name: "Table" } });
    }
    const LOST = "subscription Lost($by: String!) { lost(by: $by) { id } }";
    const ended = JSON.stringify(await socket.subscribe({ query: LOST, variables: { by } }).ended());
    assert.ok(ended.includes('"PROVIDER_UNAVAILABLE"'), ended);
    const LOSE = "mutation Lose($by: String!) { lose(by: $by) { success } }";
    assert.deepEqual(await post(LOSE, { by }), { data: { lose: { success: false } } });

    // Operators see the template and tell topics apart, and find one whose values they know.
    const shown = `${TOPICS.announced} #`;
    const rendered = TOPICS.announced.replace("{{claims.sub}}", claim).replace("{{args.by}}", by);
    const subscriptions = async (topic) => {
      const place = `/admin/subscriptions?${new URLSearchParams({ topic })}`;
      return JSON.parse(await readPage(router, place, "triggers", json)).triggers;
    };
    const triggers = await subscriptions(rendered);
    assert.ok(triggers.length > 0 && triggers.every(({ topics }) => topics.every((it) => it.startsWith(shown))));
    assert.deepEqual(await subscriptions(`${rendered}0`), []);

    await readPage(router, "/admin/subscriptions", shown, { accept: "text/html" });
    await readPage(router, "/admin/subscriptions", shown, json);
    await readPage(router, "/admin/cache", "Caches", { accept: "text/html" });
    await readPage(router, "/admin/operations", "KnownProduct");
    await readPage(router, "/admin/usage", "announce");
    await readPage(router, "/metrics", `topic="${TOPICS.announced}"`);
    await readPage(router, "/console/api/overview", "catalogue");
    await readPage(router, "/console/api/operations", "KnownProduct");
    await readPage(router, "/console/api/operation?name=KnownProduct&kind=query", "ratings");
    await readPage(router, "/console/api/subgraph?name=catalogue", "catalogue");
    await readPage(router, "/console/api/graph", "catalogue");
    await readPage(router, "/console/api/type?name=Product", "ratings");
    await readPage(router, "/console/api/tools", "{");
    await readRecordedTraces(router, "KnownProduct");
    const live = JSON.parse(await readPage(router, "/console/api/live", shown));
    const groups = live.triggers.flatMap((it) => it.groups);
    let watches = 0;
    for (const group of groups) {
      const page = JSON.parse(await readPage(router, `/console/api/subscribers?group=${group.id}`, shown));
      for (const subscriber of page.subscribers) {
        const options = { method: "POST", headers: { authorization: `Bearer ${secret("console")}` } };
        const parameter = `id=${encodeURIComponent(subscriber.id)}`;
        const watched = await fetch(`${router.admin}/console/api/watch?${parameter}`, options);
        assert.equal(watched.status, 200);
        watches += 1;
        assertNoSecret(await watched.text(), "the history of a subscriber");
        await readPage(router, `/console/api/subscriber?${parameter}`, "delivered");
      }
    }

    assert.ok(watches > 0, JSON.stringify(live));
    await collector.named("process announced");
    await eventually(() => router.output().includes(`${TOPICS.lost} #`), "a debug line with a masked topic");
    await socket.dispose();
    assert.equal(await router.stop(), 0);
    for (const { text } of collector.requests) assertNoSecret(text, "an export of traces");
    assertNoSecret(router.output(), "the log");
  });

  it("are in no message about a configuration that is wrong", async () => {
    const header = (value) => ({ headers: { all: { request: [{ insert: { name: "x-api-key", value } }] } } });
    const nats = (more) => ({ events: { providers: { nats: [{ id: "default", url: "nats://127.0.0.1:1", ...more }] } } });
    const redis = (url) => ({ storage_providers: { redis: [{ id: "shared", urls: [url] }] } });
    const wrong = {
      "a header with a line break": header(`${secret("header")}\n`),
      "a header that is an object": header({ [secret("key-of-an-object")]: secret("value-of-an-object") }),
      "the URL of a subgraph": { subgraphs: { products: { url: `ftp://user:${secret("ftp-url")}@127.0.0.1/` } } },
      "the port of a subgraph": {
        subgraphs: { products: { url: `http://user:${secret("url-with-a-port")}@127.0.0.1:99999/` } },
      },
      "a short HMAC": { subgraphs: { products: { signature: { hmac: { secret: `${MARK}-short` } } } } },
      "the URL of NATS": nats({ url: `http://user:${secret("nats-url")}@127.0.0.1:1` }),
      "the port of NATS": nats({ url: `nats://user:${secret("nats-port")}@127.0.0.1:port` }),
      "a password in a list": nats({ authentication: { user_info: { username: "u", password: [secret("list")] } } }),
      "two kinds of credentials": nats({ authentication: { token: secret("nats-token"), nkey: secret("nats-nkey") } }),
      "an nkey": nats({ authentication: { nkey: secret("nkey") } }),
      "the URL of Redis": redis(`http://user:${secret("redis-url")}@127.0.0.1:1`),
      "the port of Redis": redis(`redis://user:${secret("redis-port")}@127.0.0.1:port`),
      "a short token of the console": { admin: { console: { token: `${MARK}-short` } } },
      "the URL of the collector": {
        tracing: { enabled: true, otlp: { endpoint: `ftp://router:${secret("otlp-password")}@collector/?key=${secret("otlp-key")}` } },
      },
      "a short secret of tokens": {
        authentication: { jwt: { issuers: [{ secret: `${MARK}-short`, algorithms: ["HS256"] }] } },
      },
      "a public key": { authentication: { jwt: { issuers: [{ public_key: secret("public-key") }] } } },
      "the URL of a key set": {
        authentication: { jwt: { issuers: [{ jwks: { url: `ftp://127.0.0.1/?key=${secret("jwks")}` } }] } },
      },
    };
    const file = path.join(folder, "wrong.yaml");
    const graph = path.join(folder, "supergraph.graphql");
    await writeFile(graph, supergraph);
    const run = (...words) => new Promise((resolve) => {
      execFile(process.env.STARLING_BIN, words, { timeout: 30_000 }, (error, output, messages) => {
        resolve({ code: error?.code ?? 0, text: `${output}${messages}` });
      });
    });
    for (const [what, config] of Object.entries(wrong)) {
      await writeFile(file, JSON.stringify({ supergraph: { file: graph }, ...config }, null, 2));
      for (const command of ["check", "serve"]) {
        const { code, text } = await run(command, "--config", file);
        assert.ok(code > 0 && /error/i.test(text), `${what}: starling ${command}: ${code} ${text}`);
        assertNoSecret(text, `the message about ${what} (starling ${command})`);
      }
    }
  });
});

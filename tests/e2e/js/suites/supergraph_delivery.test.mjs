// A supergraph that is read by URL: from servers that are slow, down, or send what must not be used; with signatures,
// several servers and a copy on disk; reloads and rollbacks by an operator.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, afterEach, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { SignatureV4 } from "@smithy/signature-v4";
import { parse } from "yaml";
import { memorySupergraph, startSubgraphs } from "../board.mjs";
import { blocksOf } from "../documentation/blocks.mjs";
import { hmacOf, minisignKeys, startGraphServer } from "../graph_server.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const SECRET = "a secret of the publisher, which is long enough";

/** The graph with one more field of the root type. */
const withField = (name) =>
  memorySupergraph().replace(
    "airports: [Airport!]!",
    `${name}: [Airport!]! @join__field(graph: AIRPORTS)\n  airports: [Airport!]!`,
  );

const run = promisify(execFile);

describe("a supergraph by URL", () => {
  let subgraphs;
  let folder;
  const servers = [];
  const routers = [];
  before(async () => {
    subgraphs = await startSubgraphs();
    folder = await mkdtemp(path.join(tmpdir(), "starling-delivery-"));
  });
  afterEach(async () => {
    await Promise.all(routers.splice(0).map((router) => router.stop()));
    await Promise.all(servers.splice(0).map((server) => server.stop()));
  });
  after(async () => {
    await subgraphs?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  async function publisher(...published) {
    const server = await startGraphServer(...published);
    servers.push(server);
    return server;
  }

  /** A router that reads its supergraph from `servers`, often. */
  async function route(servers, { keys = {}, supergraph = {}, ...config } = {}) {
    const urls = servers.map((it) => it.url);
    const url = { urls, refresh: "100ms", timeout: "20s", ...keys };
    const router = await startServe({
      // No key of the configuration names this file.
      supergraph: "",
      config: { subgraphs: subgraphs.configuration, supergraph: { url, ...supergraph }, ...config },
    });
    routers.push(router);
    return router;
  }

  async function fields(router) {
    const { body } = await router.query('{ __type(name: "Query") { fields { name } } }');
    return body.data.__type.fields.map(({ name }) => name);
  }

  const serves = (router, field) =>
    eventually(async () => (await fields(router)).includes(field), `the field ${field}`);

  /** Waits until the output of the router, which it writes with a delay, has this text. */
  const logs = (router, pattern) => eventually(() => pattern.test(router.output()), `${pattern} in the output`);

  const downloads = async (router, result) =>
    (await scrape(router)).value("starling_supergraph_downloads_total", { result });

  /** Waits until requests with this result have been counted from now on. */
  async function further(router, result, count = 2) {
    const before = await downloads(router, result);
    await eventually(async () => await downloads(router, result) >= before + count, `${count} × ${result}`);
  }

  /** The router still answers with the data of subgraphs. */
  async function assertServes(router, generation) {
    const { body } = await router.query('{ flight(id: "1") { number } }');
    assert.deepEqual(body, { data: { flight: { number: "ST 101" } } });
    assert.equal((await scrape(router)).value("starling_graph_generation"), generation);
  }

  const post = async (router, action) => {
    const response = await fetch(`${router.admin}/admin/${action}`, { method: "POST" });
    return { status: response.status, ...await response.json() };
  };

  it("a published version is loaded, and an unchanged one is not transferred", async () => {
    const server = await publisher(memorySupergraph());
    const router = await route([server], { keys: { headers: [{ name: "x-key", value: "${DELIVERY_KEY:-k}" }] } });
    await further(router, "unchanged");
    assert.ok(server.requests.at(-1).headers["if-none-match"]);
    assert.equal(server.requests.at(-1).headers["x-key"], "k");
    server.publish(withField("landmarks"));
    await serves(router, "landmarks");
    await assertServes(router, 2);
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_supergraph_download_failing_servers"), 0);
    const success = metrics.value("starling_supergraph_download_success_time_seconds");
    assert.ok(Math.abs(success - Date.now() / 1000) < 60, `${success}`);
  });

  it("the router keeps serving while the server is slow", async () => {
    const server = await publisher(memorySupergraph());
    const router = await route([server], { keys: { timeout: "2s" } });
    server.misbehave((_, response) => response.writeHead(200).write("schema"));
    await further(router, "failed", 1);
    await logs(router, /no response within 2s/);
    await assertServes(router, 1);
    server.publish(withField("landmarks"));
    await serves(router, "landmarks");
  });

  it("the router keeps serving while the server is down or sends what is no supergraph", async () => {
    const server = await publisher(memorySupergraph());
    const router = await route([server], { keys: { max_size: "1MiB" } });
    const behaviours = [
      [(_, response) => response.writeHead(500).end(), "failed", /HTTP status 500/],
      [(_, response) => response.writeHead(302, { location: "/other" }).end(), "failed",
        /redirections are not followed: write the URL that it leads to/],
      [(_, response) => response.writeHead(200).end(Buffer.alloc(1 + (1 << 20), " ")), "failed",
        /larger than 1048576 bytes \(`supergraph.url.max_size`\)/],
      [(_, response) => response.writeHead(200).end(Buffer.from([0xff, 0xfe])), "refused", /not text in UTF-8/],
    ];
    for (const [behaviour, result, reason] of behaviours) {
      server.misbehave(behaviour);
      await further(router, result);
      await logs(router, reason);
      await assertServes(router, 1);
    }
    assert.equal((await scrape(router)).value("starling_supergraph_download_failing_servers"), 1);
    await server.stop();
    await further(router, "failed");
    await assertServes(router, 1);
    await logs(router, /connection failed/);
    // A failure that stays the same is one line.
    assert.equal(router.output().match(/connection failed/g).length, 1);

    await server.restart();
    server.publish("<html>maintenance</html>");
    const refused = async () => (await scrape(router)).value("starling_graph_loads_total", { result: "refused" });
    await eventually(async () => await refused() === 1, "the page to be refused");
    await logs(router, /the server provides the supergraph again/);
    await logs(router, /supergraph was refused; the old one continues to serve/);
    await further(router, "unchanged");
    assert.equal(await refused(), 1, "it is refused once");
    await assertServes(router, 1);
    server.publish(withField("landmarks"));
    await serves(router, "landmarks");
  });

  it("an older version is refused, unless the configuration accepts it", async () => {
    const at = (minute) => ({ headers: { "last-modified": `Fri, 27 Nov 2026 10:0${minute}:00 GMT` } });
    const server = await publisher(withField("second"), at(2).headers);
    const router = await route([server]);
    server.publish(withField("first"), at(1));
    await further(router, "refused");
    await logs(router, /older than the last one by its header `last-modified`/);
    assert.ok((await fields(router)).includes("second"));
    server.publish(withField("first"), at(3));
    await serves(router, "first");

    const other = await route([server], { keys: { accept_older: true } });
    server.publish(withField("zeroth"), at(0));
    await serves(other, "zeroth");
  });

  it("only a supergraph with the right HMAC is loaded", async () => {
    const signed = (sdl, secret = SECRET) => ({ "x-amz-meta-signature": hmacOf(secret, sdl) });
    const server = await publisher(memorySupergraph(), signed(memorySupergraph()));
    const file = path.join(folder, "secret");
    await writeFile(file, `${SECRET}\n`);
    const hmac = { secret_file: file, header: "x-amz-meta-signature" };
    const router = await route([server], { keys: { signature: { hmac } } });
    const next = withField("landmarks");
    for (const [headers, reason] of [
      [{}, /the header `x-amz-meta-signature` is missing/],
      [signed(next, "another secret"), /does not belong to this body and this secret/],
      [{ "x-amz-meta-signature": "none" }, /is not a signature/],
    ]) {
      server.publish(next, { headers });
      await further(router, "refused");
      await logs(router, reason);
      await assertServes(router, 1);
    }
    assert.ok(!router.output().includes(SECRET));
    server.publish(next, { headers: signed(next) });
    await serves(router, "landmarks");

    server.publish(next);
    await assert.rejects(route([server], { keys: { signature: { hmac } } }), ({ message }) => {
      assert.match(message, /the supergraph of a server was refused/);
      assert.doesNotMatch(message, /last good one/);
      return true;
    });
  });

  it("only a supergraph with the right signature of minisign is loaded, and none that is older", async () => {
    const [keys, others] = [minisignKeys(), minisignKeys()];
    const server = await publisher();
    const publish = (sdl, signature) => server.publish(sdl, { minisign: signature });
    publish(memorySupergraph(), keys.sign(memorySupergraph(), 1000));
    const minisign = { public_keys: [minisignKeys().publicKey, keys.publicKey] };
    const router = await route([server], { keys: { signature: { minisign } } });
    const next = withField("landmarks");
    for (const [signature, reason] of [
      [undefined, /its signature cannot be read from http:\S+\.minisig: HTTP status 404/],
      [others.sign(next), /does not belong to this text and to a key/],
      [keys.sign(memorySupergraph()), /does not belong to this text and to a key/],
      ["<html>", /the file beside it is not a signature of minisign/],
      [keys.sign(next, 999), /older than the last one by the time in its signature/],
    ]) {
      publish(next, signature);
      await further(router, "refused");
      await logs(router, reason);
      await assertServes(router, 1);
    }
    publish(next, keys.sign(next, 1001));
    await serves(router, "landmarks");
  });

  it("another server is asked when the first one fails", async () => {
    const [first, second] = [await publisher(memorySupergraph()), await publisher(memorySupergraph())];
    const router = await route([first, second]);
    await further(router, "unchanged");
    assert.equal(second.requests.length, 0);
    await first.stop();
    second.publish(withField("landmarks"));
    await serves(router, "landmarks");
    await logs(router, /a server does not provide the supergraph; another one does/);
    assert.equal((await scrape(router)).value("starling_supergraph_download_failing_servers"), 1);
  });

  describe("a copy on disk", () => {
    it("serves a start without network, also after a version that does not load", async () => {
      const copy = path.join(folder, "copies/supergraph.graphql");
      const server = await publisher(withField("landmarks"));
      const first = await route([server], { keys: { copy } });
      assert.match(await readFile(copy, "utf8"), /landmarks/);
      assert.equal((await stat(copy)).mode & 0o777, 0o600);
      server.publish("type Query { broken");
      await logs(first, /the old one continues to serve/);
      await first.stop();

      // The server still has what does not load.
      const second = await route([server], { keys: { copy } });
      await logs(second, /the router starts with the copy of the last good one/);
      assert.ok((await fields(second)).includes("landmarks"));
      assert.equal((await scrape(second)).value("starling_supergraph_download_serves_copy"), 1);
      await second.stop();

      await server.stop();
      const third = await route([server], { keys: { copy } });
      await logs(third, /connection failed: .*; the router starts with the copy \S+, written \d+ s ago/);
      assert.ok((await fields(third)).includes("landmarks"));
      await assertServes(third, 1);
      // The command that reads the same graph says so, too.
      const operations = path.join(folder, "operations.graphql");
      await writeFile(operations, "query Landmarks { landmarks { __typename } }");
      const words = ["validate", "--config", path.join(third.folder, "starling.yaml"), "--operations", operations];
      const validated = await run(process.env.STARLING_BIN, words);
      assert.match(validated.stderr, /the router starts with the copy/);
      assert.match(validated.stdout, /^1 operation: 0 errors/);
      await server.restart();
      server.publish(withField("landmarks"));
      const servesCopy = async () => (await scrape(third)).value("starling_supergraph_download_serves_copy");
      await eventually(async () => await servesCopy() === 0, "the server to confirm the copy");
      await assertServes(third, 1);
      server.publish(withField("monuments"));
      await serves(third, "monuments");
      await eventually(async () => /monuments/.test(await readFile(copy, "utf8")), "the new copy");
    });

    it("is not used if it was changed, or if its signature is missing", async () => {
      const copy = path.join(folder, "changed.graphql");
      const server = await publisher(memorySupergraph());
      await (await route([server], { keys: { copy } })).stop();
      const written = await readFile(copy, "utf8");
      await server.stop();
      const signature = { hmac: { secret: SECRET } };
      await assert.rejects(route([server], { keys: { copy, signature } }),
        /the copy \S+ of the supergraph is not used: there is no signature/);
      await writeFile(copy, written.replace("airports", "harbours"));
      await assert.rejects(route([server], { keys: { copy } }), /its text has changed since the router wrote it/);
      // An operator may put a supergraph there.
      await writeFile(copy, memorySupergraph());
      await assertServes(await route([server], { keys: { copy } }), 1);
    });

    it("without it and without servers the router does not start, and says what to do", async () => {
      const server = await publisher(memorySupergraph());
      await server.stop();
      await assert.rejects(route([server]), (error) => {
        assert.match(error.message, /no server provides the supergraph \(`supergraph\.url`\): http:\S+: connection failed/);
        assert.match(error.message, /with `supergraph\.url\.copy` the router keeps a copy on disk/);
        return true;
      });
    });
  });

  describe("generations", () => {
    const id = async (router) => (await scrape(router)).all("starling_graph_info")[0].labels.id;

    it("an operator reloads, and learns what happened", async () => {
      const server = await publisher(memorySupergraph());
      const router = await route([server], { keys: { refresh: "1h" } });
      const first = await id(router);
      assert.deepEqual(await post(router, "reload"), { status: 200, result: "unchanged", generation: first });
      server.publish(withField("landmarks"));
      const loaded = await post(router, "reload");
      assert.deepEqual(loaded, { status: 200, result: "loaded", generation: await id(router), before: first });
      assert.match(loaded.generation, /^[0-9a-f]{16}-2$/);
      await logs(router, new RegExp(`a new supergraph serves now.*${loaded.generation}`));
      assert.ok((await fields(router)).includes("landmarks"));

      server.publish("type Query { broken");
      const refused = await post(router, "reload");
      assert.deepEqual({ ...refused, problems: [] },
        { status: 422, result: "refused", generation: loaded.generation, problems: [] });
      assert.ok(refused.problems.length > 0 && refused.problems.every((it) => it.includes("supergraph")), `${refused.problems}`);
      await server.stop();
      const unreachable = await post(router, "reload");
      assert.equal(unreachable.status, 422);
      assert.match(unreachable.problems[0], /connection failed/);
      await assertServes(router, 2);

      const url = `${router.admin}/admin/reload`;
      assert.equal((await fetch(url)).status, 405);
      const page = await fetch(url, { method: "POST", headers: { origin: "https://evil.example" } });
      assert.equal(page.status, 403);
    });

    it("an operator returns to the graph before, until the source changes or is reloaded", async () => {
      const server = await publisher(withField("first"));
      const router = await route([server]);
      assert.equal((await post(router, "rollback")).status, 409);
      const first = await id(router);
      server.publish(withField("second"));
      await serves(router, "second");
      const second = await id(router);
      const before = async () => (await scrape(router)).value("starling_graph_rollback_graphs");
      await eventually(async () => await before() === 1, "the graph before to be counted");

      const back = await post(router, "rollback");
      const third = await id(router);
      assert.deepEqual(back, { status: 200, result: "rolled_back", generation: third, before: second });
      assert.equal(third.split("-")[0], first.split("-")[0], "it is the same supergraph");
      assert.equal(third.split("-")[1], "3");
      assert.ok((await fields(router)).includes("first"));
      assert.equal(await before(), 0);
      assert.equal((await post(router, "rollback")).status, 409);
      // The server still has the second one.
      await further(router, "unchanged", 3);
      assert.equal(await id(router), third);

      assert.equal((await post(router, "reload")).result, "loaded");
      assert.ok((await fields(router)).includes("second"));
      await post(router, "rollback");
      assert.ok((await fields(router)).includes("first"));
      server.publish(withField("third"));
      await serves(router, "third");
      const loads = await scrape(router);
      assert.equal(loads.value("starling_graph_loads_total", { result: "rolled_back" }), 2);
    });

    it("a rollback from a file stays when the file is touched", async () => {
      const router = await startServe({
        supergraph: withField("first"), config: { subgraphs: subgraphs.configuration },
      });
      routers.push(router);
      const file = path.join(router.folder, "supergraph.graphql");
      const replace = (sdl) => writeFile(file, sdl);
      await replace(withField("second"));
      await serves(router, "second");
      await post(router, "rollback");
      const rolledBack = await id(router);
      await replace(withField("second"));
      await logs(router, /still the one before the rollback/);
      assert.equal(await id(router), rolledBack);
      process.kill(router.pid, "SIGHUP");
      await serves(router, "second");
    });

    it("a response says which generation served it, to clients that ask", async () => {
      const server = await publisher(memorySupergraph());
      const router = await route([server], { supergraph: { expose_generation: true } });
      const ask = async (headers, body = { query: "{ __typename }" }) => {
        const response = await fetch(router.graphql, {
          method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body),
        });
        return response.headers.get("starling-generation");
      };
      const current = await id(router);
      assert.equal(await ask({ "starling-generation": "?" }), current);
      assert.equal(await ask({}), null);
      server.publish(withField("landmarks"));
      await serves(router, "landmarks");
      const next = await ask({ "starling-generation": "?" });
      assert.notEqual(next, current);
      assert.equal(next, await id(router));
      const silent = await route([server]);
      const response = await fetch(silent.graphql, {
        method: "POST", headers: { "content-type": "application/json", "starling-generation": "?" },
        body: '{"query": "{ __typename }"}',
      });
      assert.equal(response.headers.get("starling-generation"), null);
    });
  });

  it("the samples of its page are accepted, and do what they say", async () => {
    const server = await publisher(memorySupergraph(), { "x-amz-meta-signature": hmacOf(SECRET, memorySupergraph()) });
    const outcomes = [];
    for (const [index, sample] of (await samplesOfPage()).entries()) {
      const { url } = sample.supergraph;
      // Also with a query, which the routers of others may need.
      url.urls = url.urls.map((it) => `${server.url}?for=${encodeURIComponent(it)}`);
      const file = path.join(folder, `sample-${index}.yaml`);
      await writeFile(file, JSON.stringify({ ...sample, subgraphs: subgraphs.configuration }));
      const env = {
        ...process.env, SUPERGRAPH_SECRET: SECRET, HIVE_TARGET: "target", HIVE_CDN_KEY: "hv0-key",
        AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret",
      };
      const checked = await run(process.env.STARLING_BIN, ["check", "--config", file], { env })
        .then(({ stdout }) => stdout, ({ stderr }) => stderr.match(/its signature cannot be read from .*404/)?.[0] ?? stderr);
      outcomes.push(checked.replace(/ from .* status/, ""));
    }
    const inOrder = "Everything is in order.\n";
    assert.deepEqual(outcomes, [inOrder, "its signature cannot be read 404", inOrder, inOrder]);
    const sent = server.requests.map(({ headers }) => headers);
    assert.ok(sent.some((headers) => headers["x-hive-cdn-key"] === "hv0-key"));
    assert.ok(sent.some((headers) => headers.authorization?.includes("/eu-central-1/s3/aws4_request")));
  });

  describe("stores", () => {
    it("the CDN of Hive gets its key", async () => {
      const server = await publisher();
      server.misbehave((request, response) => {
        if (request.headers["x-hive-cdn-key"] !== "hv0-key") return response.writeHead(403).end();
        return response.writeHead(200, { "content-type": "text/plain", etag: '"1"' }).end(memorySupergraph());
      });
      const keys = (value) => ({ keys: { headers: [{ name: "X-Hive-CDN-Key", value }] } });
      await assertServes(await route([server], keys("hv0-key")), 1);
      await assert.rejects(route([server], keys("wrong")), /HTTP status 403 Forbidden; check the credentials/);
    });

    it("requests for a bucket are signed", async () => {
      const credentials = { accessKeyId: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" };
      const server = await publisher(memorySupergraph());
      const aws = {
        region: "eu-central-1", service: "s3",
        access_key_id: credentials.accessKeyId, secret_access_key: credentials.secretAccessKey,
      };
      const router = await route([{ url: `${server.url}?versionId=a%2Fb` }], { keys: { aws_sigv4: aws } });
      await further(router, "unchanged");
      const { url, headers } = server.requests.at(-1);
      assert.ok(headers["if-none-match"]);
      const signer = new SignatureV4({ ...aws, credentials, sha256: Sha256, uriEscapePath: false });
      const parsed = new URL(url, "http://router");
      const signed = await signer.sign({
        method: "GET", protocol: "http:", hostname: "127.0.0.1", path: parsed.pathname,
        query: Object.fromEntries(parsed.searchParams), headers: { host: headers.host }, body: "",
      }, { signingDate: dateOf(headers["x-amz-date"]) });
      assert.equal(headers.authorization, signed.headers.authorization);
      assert.ok(!router.output().includes(credentials.secretAccessKey));
    });
  });
});

/** The samples of the page that name servers of others. */
async function samplesOfPage() {
  const name = "docs/supergraph-delivery.md";
  const page = await readFile(path.join(import.meta.dirname, "../../../..", name), "utf8");
  return blocksOf(page, name).filter(({ annotation }) => annotation.setup === "delivery").map(({ text }) => parse(text));
}

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

/** The time that `x-amz-date` names. */
function dateOf(text) {
  const [, year, month, day, hour, minute, second] = text.match(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/);
  return new Date(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
}

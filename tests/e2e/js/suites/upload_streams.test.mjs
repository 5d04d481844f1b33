// Files flow through the router: to a subgraph that reads slowly, answers early, dies or never answers, and from clients
// that break off or send too much.
import assert from "node:assert/strict";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import { after, before, describe, it } from "node:test";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

const MIB = 1024 * 1024;

const SUPERGRAPH = `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION) {
  query: Query
  mutation: Mutation
}
${JOIN_DEFINITIONS}
enum join__Graph {
  FILES @join__graph(name: "files", url: "http://127.0.0.1:1/graphql")
  OTHERS @join__graph(name: "others", url: "http://127.0.0.1:1/graphql")
}
scalar Upload @join__type(graph: FILES) @join__type(graph: OTHERS)
type Query @join__type(graph: FILES) @join__type(graph: OTHERS) {
  ready: Boolean @join__field(graph: FILES)
}
type Mutation @join__type(graph: FILES) @join__type(graph: OTHERS) {
  store(file: Upload!): String @join__field(graph: FILES)
  other(file: Upload!): String @join__field(graph: OTHERS)
}
`;

const STORE = "mutation($file: Upload!) { store(file: $file) }";
const BOUNDARY = "x-client-boundary";

/** A subgraph whose behaviour each test chooses: `behave(request, response, record)`. */
async function startSubgraph() {
  const subgraph = { requests: [], behave: readAll };
  const server = http.createServer((request, response) => {
    const record = { headers: request.headers, bytes: 0, isAborted: false, request, response };
    subgraph.requests.push(record);
    request.on("error", () => {});
    response.on("error", () => {});
    request.on("close", () => {
      record.isAborted = !request.complete;
    });
    subgraph.behave(request, response, record);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  subgraph.url = `http://127.0.0.1:${server.address().port}/graphql`;
  subgraph.stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return subgraph;
}

/** Counts the bytes of a request. */
function count(request, record) {
  record.hash = createHash("sha256");
  request.on("data", (piece) => {
    record.bytes += piece.length;
    record.hash.update(piece);
  });
}

const respond = (response, data) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ data }));
};

/** Reads everything, then responds with the number of bytes as the result of a field. */
const readAllFor = (field) => (request, response, record) => {
  count(request, record);
  request.on("end", () => respond(response, { [field]: `${record.bytes}` }));
};

const readAll = readAllFor("store");

const part = (name, content, more = "") =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${content}\r\n`;

const beginForm = (query = STORE, variables = { file: null }, map = { 0: ["variables.file"] }) =>
  part("operations", JSON.stringify({ query, variables })) + part("map", JSON.stringify(map));

const beginFile = (name) =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"; filename="f"\r\n\r\n`;

const END = `\r\n--${BOUNDARY}--\r\n`;

/** A request with files that is written step by step. */
function openUpload(router) {
  const request = http.request(router.graphql, {
    method: "POST",
    headers: {
      "apollo-require-preflight": "true",
      "content-type": `multipart/form-data; boundary=${BOUNDARY}`,
    },
  });
  request.on("error", () => {});
  const response = new Promise((resolve, reject) => {
    request.on("error", reject);
    request.on("response", async (message) => {
      let text = "";
      for await (const piece of message.setEncoding("utf8")) text += piece;
      resolve({ status: message.statusCode, body: JSON.parse(text) });
    });
  });
  response.catch(() => {});
  return {
    request,
    response: () => within(response, "the response to an upload"),
    /** Writes as much as the router takes. */
    async write(piece) {
      if (!request.write(piece)) await within(once(request, "drain"), "the router to take a piece");
    },
  };
}

/** The value of a metric of uploads. */
async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  return Number(text.match(new RegExp(`^${name} (\\d+)$`, "m"))[1]);
}

const held = (router) => metric(router, "starling_uploads_bytes");

/** The memory of a process, in bytes. */
async function residentBytes(pid) {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(status.match(/^VmRSS:\s+(\d+) kB$/m)[1]) * 1024;
}

describe("streams of uploads", () => {
  let files;
  let others;
  let router;
  before(async () => {
    files = await startSubgraph();
    others = await startSubgraph();
    others.behave = readAllFor("other");
    router = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: files.url }, others: { url: others.url } },
        uploads: {
          enabled: true, max_file_bytes: "70MiB", max_bytes: "80MiB", max_bytes_total: "8MiB", timeout: "60s",
        },
        include_subgraph_errors: { all: true },
      },
    });
  });
  after(async () => {
    await router?.stop();
    files?.stop();
    others?.stop();
  });

  /** Starts a test with a subgraph that behaves like this. */
  function behave(behaviour) {
    files.requests.length = 0;
    others.requests.length = 0;
    files.behave = behaviour;
  }

  const record = () => eventually(() => files.requests[0], "a request of the router");

  it("the subgraph gets the first bytes before the client has sent the last ones", async () => {
    behave(readAll);
    const upload = openUpload(router);
    await upload.write(beginForm() + beginFile(0));
    await upload.write(Buffer.alloc(MIB, "a"));
    const first = await record();
    await eventually(() => first.bytes >= MIB, "the first half at the subgraph");
    assert.equal(first.headers["transfer-encoding"], "chunked");
    upload.request.end(Buffer.concat([Buffer.alloc(MIB, "b"), Buffer.from(END)]));
    const { status, body } = await upload.response();
    assert.deepEqual([status, body.errors], [200, undefined]);
    assert.ok(Number(body.data.store) > 2 * MIB);
    await eventually(async () => await held(router) === 0, "the memory to be given back");
  });

  it("a file of 64 MiB passes through a router that may keep 8 MiB", async () => {
    behave(readAll);
    const before = await residentBytes(router.pid);
    const piece = randomBytes(MIB);
    const upload = openUpload(router);
    await upload.write(beginForm() + beginFile(0));
    let most = 0;
    for (let sent = 0; sent < 64; sent++) {
      await upload.write(piece);
      most = Math.max(most, await residentBytes(router.pid));
    }
    upload.request.end(END);
    const { body } = await upload.response();
    assert.ok(Number(body.data.store) > 64 * MIB, JSON.stringify(body));
    most = Math.max(most, await residentBytes(router.pid));
    assert.ok(most - before < 24 * MIB, `the router has grown by ${(most - before) / MIB} MiB`);
  });

  it("a subgraph that does not read slows the client, and costs no memory", async () => {
    behave((request) => request.pause());
    const upload = openUpload(router);
    upload.request.write(beginForm() + beginFile(0));
    // More than all buffers of the system between client and subgraph, and less than `max_file_bytes`.
    upload.request.write(Buffer.alloc(60 * MIB, "z"));
    const first = await record();
    await eventually(async () => await held(router) >= 256 * 1024, "the window to be full");
    assert.ok(await held(router) < 2 * MIB);
    assert.ok(upload.request.writableLength > 20 * MIB, "the client waits");
    readAll(first.request, first.response, first);
    first.request.resume();
    upload.request.end(END);
    const { body } = await upload.response();
    assert.ok(Number(body.data.store) > 60 * MIB, JSON.stringify(body));
  });

  it("a client that breaks off makes the router abort its request", async () => {
    behave(readAll);
    const brokenOff = await metric(router, "starling_uploads_broken_off_total");
    const upload = openUpload(router);
    await upload.write(beginForm() + beginFile(0) + "y".repeat(100_000));
    const first = await record();
    await eventually(() => first.bytes >= 100_000, "the first bytes at the subgraph");
    upload.request.destroy();
    await eventually(() => first.isAborted, "the end of the request to the subgraph");
    assert.equal(first.response.writableEnded, false, "the subgraph has not run the operation");
    await eventually(async () => await held(router) === 0, "the memory to be given back");
    assert.ok(await metric(router, "starling_uploads_broken_off_total") >= brokenOff);
  });

  it("a file that turns out to be too large, and a form with further parts, are never completed", async () => {
    for (const [rest, status, message] of [
      [Buffer.alloc(71 * MIB), 413, /uploads\.max_file_bytes/],
      [Buffer.from(`\r\n${part("1", "x")}--${BOUNDARY}--\r\n`), 400, /a part that `map` does not name/],
      [Buffer.from("\r\n--no-boundary"), 400, /the form cannot be read/],
    ]) {
      behave(readAll);
      const upload = openUpload(router);
      await upload.write(beginForm() + beginFile(0) + "y".repeat(100_000));
      const first = await record();
      upload.request.end(rest);
      const refused = await upload.response();
      assert.equal(refused.status, status, JSON.stringify(refused.body));
      assert.match(refused.body.errors[0].message, message);
      await eventually(() => first.isAborted, "the end of the request to the subgraph");
      assert.equal(first.response.writableEnded, false);
      assert.equal(files.requests.length, 1);
    }
  });

  it("the response of a subgraph that answers early reaches the client", async () => {
    behave((request, response) => {
      request.once("data", () => {
        request.pause();
        response.setHeader("connection", "close");
        respond(response, { store: "not wanted" });
      });
    });
    const upload = openUpload(router);
    upload.request.write(beginForm() + beginFile(0));
    upload.request.write(Buffer.alloc(10 * MIB, "z"));
    upload.request.end(END);
    const { status, body } = await upload.response();
    assert.deepEqual([status, body], [200, { data: { store: "not wanted" } }]);
  });

  it("a subgraph that dies meanwhile is reported, and gets no second request", async () => {
    behave((request) => request.once("data", () => request.socket.destroy()));
    const upload = openUpload(router);
    upload.request.write(beginForm() + beginFile(0));
    upload.request.end(Buffer.concat([Buffer.alloc(4 * MIB, "z"), Buffer.from(END)]));
    const { body } = await upload.response();
    assert.equal(body.errors[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    assert.equal(files.requests.length, 1);
  });

  it("the time of a subgraph begins when it has the file", async () => {
    behave((request, _, record) => count(request, record));
    const hasty = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: files.url } },
        uploads: { enabled: true },
        traffic: { all: { timeout: "1s" } },
        include_subgraph_errors: { all: true },
      },
    });
    try {
      const upload = openUpload(hasty);
      await upload.write(beginForm() + beginFile(0) + "y".repeat(100_000));
      const first = await record();
      await eventually(() => first.bytes >= 100_000, "the first bytes at the subgraph");
      // Longer than the timeout of the subgraph.
      const began = Date.now();
      await eventually(() => Date.now() - began > 1_500, "the client's pause");
      assert.equal(first.isAborted, false);
      upload.request.end(END);
      const { body } = await upload.response();
      assert.match(body.errors[0].message, /no response within 1s/, JSON.stringify(body));
      assert.equal(files.requests.length, 1);
    } finally {
      await hasty.stop();
    }
  });

  it("files that arrive in another order than the operation needs them are kept", async () => {
    behave(readAll);
    const buffered = await metric(router, "starling_uploads_buffered_total");
    const query = "mutation($a: Upload!, $b: Upload!) { store(file: $a) other(file: $b) }";
    const upload = openUpload(router);
    await upload.write(beginForm(query, { a: null, b: null }, { a: ["variables.a"], b: ["variables.b"] }));
    await upload.write(beginFile("b"));
    await upload.write(Buffer.alloc(4 * MIB, "b"));
    await upload.write(`\r\n${beginFile("a")}`);
    upload.request.end(Buffer.concat([Buffer.alloc(MIB, "a"), Buffer.from(END)]));
    const { body } = await upload.response();
    assert.deepEqual(body.errors, undefined, JSON.stringify(body));
    assert.ok(Number(body.data.store) > MIB && Number(body.data.store) < 2 * MIB, JSON.stringify(body));
    assert.ok(Number(body.data.other) > 4 * MIB);
    assert.equal(await metric(router, "starling_uploads_buffered_total"), buffered + 1);
    // The order that the operation needs costs nothing.
    const ordered = openUpload(router);
    await ordered.write(beginForm(query, { a: null, b: null }, { a: ["variables.a"], b: ["variables.b"] }));
    await ordered.write(beginFile("a"));
    await ordered.write(Buffer.alloc(20 * MIB, "a"));
    await ordered.write(`\r\n${beginFile("b")}`);
    ordered.request.end(Buffer.concat([Buffer.alloc(MIB, "b"), Buffer.from(END)]));
    const second = await ordered.response();
    assert.ok(Number(second.body.data.store) > 20 * MIB, JSON.stringify(second.body));
    assert.equal(await metric(router, "starling_uploads_buffered_total"), buffered + 1);
  });

  it("a file that must be kept, and is larger than the memory of all uploads, is refused", async () => {
    behave(readAll);
    const query = "mutation($a: Upload!, $b: Upload!) { store(file: $a) other(file: $b) }";
    const upload = openUpload(router);
    await upload.write(beginForm(query, { a: null, b: null }, { a: ["variables.a"], b: ["variables.b"] }));
    await upload.write(beginFile("b"));
    upload.request.write(Buffer.alloc(20 * MIB, "b"));
    upload.request.end(`\r\n${beginFile("a")}a${END}`);
    const { status, body } = await upload.response();
    assert.deepEqual([status, body.errors[0].extensions.code], [503, "OVERLOADED"]);
    assert.equal(others.requests.length, 0);
    await eventually(async () => await held(router) === 0, "the memory to be given back");
  });

  it("all uploads together are bounded, and others go on meanwhile", async () => {
    const slow = await startSubgraph();
    slow.behave = (request, response, record) => {
      const query = record.headers["content-type"] === "application/json";
      if (query) respond(response, { ready: true });
      else request.pause();
    };
    const small = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: slow.url } },
        // A connection that is not read, because its subgraph does not read, shows only at the time limit that its client
        // has left.
        uploads: { enabled: true, max_file_bytes: "70MiB", max_bytes: "70MiB", max_bytes_total: "1MiB", timeout: "5s" },
      },
    });
    const waiting = [];
    try {
      // Each fills its window, until one does not fit. More than the buffers of the system between client and subgraph,
      // and little enough for the router to discard it, so that the refusal can be read.
      const content = Buffer.alloc(24 * MIB, "z");
      const responses = [];
      for (let index = 0; index < 6; index++) {
        const upload = openUpload(small);
        upload.request.write(beginForm() + beginFile(0));
        upload.request.write(content);
        upload.request.end(END);
        waiting.push(upload.request);
        responses.push(upload.response());
      }
      const { status, body } = await Promise.any(responses);
      assert.deepEqual([status, body.errors[0].extensions.code], [503, "OVERLOADED"]);
      assert.deepEqual((await small.query("{ ready }")).body, { data: { ready: true } });
      assert.ok(await metric(small, "starling_uploads_overloaded_total") > 0);
      waiting.forEach((request) => request.destroy());
      await Promise.allSettled(responses);
      await eventually(async () => await held(small) === 0, "the memory to be given back");
    } finally {
      waiting.forEach((request) => request.destroy());
      await small.stop();
      slow.stop();
    }
  });

  it("over HTTP/2 files flow, and a client that breaks off resets the stream", async () => {
    const streams = [];
    const server = http2.createServer();
    server.on("stream", (stream) => {
      const record = { bytes: 0, code: null };
      streams.push(record);
      stream.on("error", () => {});
      stream.on("data", (piece) => {
        record.bytes += piece.length;
      });
      stream.on("close", () => {
        record.code = stream.rstCode;
      });
      stream.on("end", () => {
        if (stream.destroyed) return;
        stream.respond({ ":status": 200, "content-type": "application/json" });
        stream.end(JSON.stringify({ data: { store: `${record.bytes}` } }));
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const over2 = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: `http://127.0.0.1:${server.address().port}/graphql` } },
        uploads: { enabled: true, max_file_bytes: "30MiB", max_bytes: "30MiB", max_bytes_total: "8MiB" },
        traffic: { all: { protocol: "http2" } },
      },
    });
    try {
      const whole = openUpload(over2);
      await whole.write(beginForm() + beginFile(0));
      await whole.write(Buffer.alloc(20 * MIB, "a"));
      whole.request.end(END);
      const { body } = await whole.response();
      assert.ok(Number(body.data?.store) > 20 * MIB, JSON.stringify(body));
      const broken = openUpload(over2);
      await broken.write(beginForm() + beginFile(0) + "y".repeat(100_000));
      await eventually(() => streams[1]?.bytes >= 100_000, "the first bytes at the subgraph");
      broken.request.destroy();
      await eventually(() => streams[1].code !== null, "the end of the stream");
      assert.notEqual(streams[1].code, 0, "the stream was reset");
    } finally {
      await over2.stop();
      server.close();
    }
  });

  it("a subgraph that verifies signatures gets the whole form with a signature", async () => {
    const secret = randomBytes(32).toString("hex");
    let verified;
    const signed = await startSubgraph();
    signed.behave = (request, response, record) => {
      const pieces = [];
      request.on("data", (piece) => pieces.push(piece));
      request.on("end", () => {
        const signature = createHmac("sha256", secret).update(Buffer.concat(pieces)).digest("hex");
        verified = record.headers["x-starling-signature"] === `sha256=${signature}`;
        respond(response, { store: "ok" });
      });
    };
    const signing = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: signed.url, signature: { hmac: { secret } } } },
        uploads: { enabled: true },
      },
    });
    try {
      const upload = openUpload(signing);
      await upload.write(beginForm() + beginFile(0));
      upload.request.end(Buffer.concat([Buffer.alloc(2 * MIB, "a"), Buffer.from(END)]));
      const { body } = await upload.response();
      assert.deepEqual(body, { data: { store: "ok" } });
      assert.equal(verified, true);
    } finally {
      await signing.stop();
      signed.stop();
    }
  });
});

// Deadlines: how long a client waits bounds its operation and is sent on to subgraphs, and what nothing waits for any
// more ends.
// Runs alone: it measures times.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { after, afterEach, before, describe, it } from "node:test";
import { compose } from "../composition.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** A subgraph that keeps its open requests until `release()`, and knows which of them were given up. */
async function startHolding(field) {
  const subgraph = { headers: [], open: new Set(), ended: 0, responds: true };
  const respond = (response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ data: { [field]: "done" } }));
  };
  const server = http.createServer((request, response) => {
    request.resume();
    subgraph.headers.push(request.headers);
    if (subgraph.responds) {
      respond(response);
      return;
    }
    subgraph.open.add(response);
    response.on("close", () => {
      if (!response.writableFinished) subgraph.ended += 1;
      subgraph.open.delete(response);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  subgraph.url = `http://127.0.0.1:${server.address().port}/graphql`;
  subgraph.release = () => {
    subgraph.responds = true;
    for (const response of subgraph.open) respond(response);
  };
  subgraph.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return subgraph;
}

describe("deadlines", () => {
  let fast, slow, router;

  before(async () => {
    fast = await startHolding("fast");
    slow = await startHolding("slow");
    router = await startServe({
      supergraph: await compose({
        fast: { sdl: "type Query { fast: String }", url: fast.url },
        slow: { sdl: "type Query { slow: String }", url: slow.url },
      }),
      config: {
        limits: {
          time: "30s",
          deadline_headers: [
            { name: "x-timeout-ms" }, { name: "x-timeout", format: "seconds" }, { name: "grpc-timeout", format: "grpc" },
          ],
        },
        traffic: {
          all: { timeout: "20s", deadline_header: { name: "x-time-left" } },
          subgraphs: { slow: { timeout: "10s", deadline_header: { name: "grpc-timeout", format: "grpc" } } },
        },
      },
    });
  });
  afterEach(() => {
    for (const subgraph of [fast, slow]) {
      subgraph.release();
      subgraph.headers.length = 0;
      subgraph.ended = 0;
    }
  });
  after(async () => {
    await router?.stop();
    await slow?.stop();
    await fast?.stop();
  });

  const send = async (query, headers = {}, signal) => {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query }),
      signal,
    });
    return { status: response.status, body: await response.json() };
  };

  it("are those of the router if the client names none", async () => {
    assert.deepEqual((await send("{ fast slow }")).body, { data: { fast: "done", slow: "done" } });
    const [left, grpc] = [fast.headers[0]["x-time-left"], slow.headers[0]["grpc-timeout"]];
    assert.match(left, /^\d+$/);
    assert.match(grpc, /^\d+m$/);
    // The timeouts of the subgraphs, less some time that has passed. A busy machine may take a moment.
    assert.ok(Number(left) <= 20_000 && Number(left) > 15_000, left);
    assert.ok(parseInt(grpc) <= 10_000 && parseInt(grpc) > 5_000, grpc);
  });

  for (const [name, value] of [["x-timeout-ms", "5000"], ["x-timeout", "5.0"], ["grpc-timeout", "5S"]]) {
    it(`of clients go to subgraphs, by ${name}`, async () => {
      assert.deepEqual((await send("{ fast }", { [name]: value })).body, { data: { fast: "done" } });
      const left = Number(fast.headers[0]["x-time-left"]);
      assert.ok(left <= 5000 && left > 0, `${left}`);
    });
  }

  it("do not change by a value that cannot be read, or is longer than that of the router", async () => {
    for (const value of ["soon", "-1", "1e3", "", "99999999"]) {
      assert.deepEqual((await send("{ fast }", { "x-timeout-ms": value })).body, { data: { fast: "done" } }, value);
    }
    for (const headers of fast.headers) assert.ok(Number(headers["x-time-left"]) > 15_000, headers["x-time-left"]);
  });

  it("end the operation, with the fields that are there", async () => {
    slow.responds = false;
    const started = performance.now();
    const { status, body } = await send("{ fast slow }", { "x-timeout-ms": "5000" });
    const ms = performance.now() - started;
    assert.equal(status, 200);
    assert.deepEqual(body.data, { fast: "done", slow: null });
    assert.deepEqual(body.errors.map(({ extensions }) => extensions.code), ["TIMEOUT"]);
    assert.ok(ms >= 4900 && ms < 9000, `${ms}`);
    await eventually(() => slow.open.size === 0, "the end of the request to the subgraph");
    assert.equal(slow.ended, 1);
  });

  it("end the operation of a client that waits for less than another one with an equal operation", async () => {
    slow.responds = false;
    const patient = send("{ slow }");
    await eventually(() => slow.open.size === 1, "the request of the patient client");
    const started = performance.now();
    const { body } = await send("{ slow }", { "x-timeout-ms": "2000" });
    const ms = performance.now() - started;
    assert.deepEqual(body.errors.map(({ extensions }) => extensions.code), ["TIMEOUT"]);
    assert.ok(ms >= 1900 && ms < 8000, `${ms}`);
    slow.release();
    assert.deepEqual((await within(patient, "the response to the patient client")).body, { data: { slow: "done" } });
  });

  it("of a client do not count against the subgraph", async () => {
    slow.responds = false;
    const results = await Promise.all(
      Array.from({ length: 30 }, (_, number) => send(`{ a${number}: slow }`, { "x-timeout-ms": "4000" })),
    );
    for (const { body } of results) assert.equal(body.errors[0].extensions.code, "TIMEOUT");
    slow.release();
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    const failures = (kind) => {
      const name = `starling_subgraph_failures_total{subgraph="slow",kind="${kind}"} `;
      return Number(text.split("\n").find((line) => line.startsWith(name)).slice(name.length));
    };
    assert.ok(failures("deadline") >= 1, text);
    assert.equal(failures("timeout"), 0);
    assert.doesNotMatch(router.output(), /requests to a subgraph fail/);
    // The circuit breaker would have opened.
    assert.deepEqual((await send("{ slow }")).body, { data: { slow: "done" } });
  });

  describe("of clients that have gone", () => {
    const QUERY = "{ slow }";

    it("are over at once, over HTTP/1.1", async () => {
      slow.responds = false;
      const gone = new AbortController();
      const request = send(QUERY, {}, gone.signal);
      request.catch(() => {});
      await eventually(() => slow.open.size === 1, "the request to the subgraph");
      gone.abort();
      await assert.rejects(request);
      await eventually(() => slow.ended === 1, "the end of the request to the subgraph", 5000);
    });

    it("are over at once, over HTTP/2", async () => {
      slow.responds = false;
      const session = http2.connect(router.url);
      try {
        const stream = session.request({
          ":method": "POST", ":path": "/graphql", "content-type": "application/json",
        });
        stream.on("error", () => {});
        stream.end(JSON.stringify({ query: QUERY }));
        await eventually(() => slow.open.size === 1, "the request to the subgraph");
        stream.close(http2.constants.NGHTTP2_CANCEL);
        await eventually(() => slow.ended === 1, "the end of the request to the subgraph", 5000);
      } finally {
        session.destroy();
      }
    });

    it("are over at once, on a WebSocket", async () => {
      slow.responds = false;
      const client = openSocket(router);
      try {
        const operation = client.subscribe(QUERY);
        await eventually(() => slow.open.size === 1, "the request to the subgraph");
        operation.stop();
        await eventually(() => slow.ended === 1, "the end of the request to the subgraph", 5000);
      } finally {
        await client.dispose();
      }
    });

    it("are not over while another client waits for the same", async () => {
      slow.responds = false;
      const gone = new AbortController();
      const first = send(QUERY, {}, gone.signal);
      first.catch(() => {});
      await eventually(() => slow.open.size === 1, "the request to the subgraph");
      const second = send(QUERY);
      const followers = async () => {
        const text = await (await fetch(`${router.admin}/metrics`)).text();
        return /starling_sharing_followers_total\{level="operation"\} [1-9]/.test(text);
      };
      await eventually(followers, "the second client to share the work of the first");
      gone.abort();
      await assert.rejects(first);
      slow.release();
      assert.deepEqual((await within(second, "the response")).body, { data: { slow: "done" } });
      assert.equal(slow.headers.length, 1);
      assert.equal(slow.ended, 0);
    });
  });
});

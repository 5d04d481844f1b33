// What an overloaded router tells load balancers and new connections: readiness, load reports, refused handshakes.
// Runs alone: it has a full load.
import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import WebSocket from "ws";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const UNSHARED = { operations: false, subgraph_queries: false };
const QUERY = "{ flights { number } }";

async function send(router, query, headers = {}) {
  const response = await fetch(router.graphql, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ query }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text };
}

async function metric(router, name) {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const line = text.split("\n").find((it) => it.startsWith(`${name} `));
  assert.ok(line, `${name} is not in:\n${text}`);
  return Number(line.slice(name.length));
}

async function ready(router) {
  const response = await fetch(`${router.admin}/health/ready`);
  return { status: response.status, text: await response.text() };
}

describe("a router at its limit", () => {
  const IN_FLIGHT = 'starling_admission_requests{class="normal"}';
  let subgraphs, router, held;

  beforeEach(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        sharing: UNSHARED,
        admission: {
          enabled: true,
          limit: { initial: 1, min: 1, max: 1 },
          queue: { max_waiting: 0 },
          readiness: { enabled: true, refused_percent: 50, unready_after: "1s", ready_after: "1s" },
          priority: [
            { when: "request.headers['x-class'] == 'critical'", class: "critical" },
            { when: "request.headers['x-class'] == 'sheddable'", class: "sheddable" },
          ],
        },
      },
    });
  });
  afterEach(async () => {
    subgraphs.resume();
    await held;
    await router.stop();
    await subgraphs.stop();
  });

  /** Fills the limit until the subgraphs respond again. */
  async function fill() {
    subgraphs.pause();
    held = send(router, QUERY);
    await eventually(async () => (await metric(router, IN_FLIGHT)) === 1, "a request in flight");
  }

  it("is not ready while it refuses much, and ready again once it does not", async () => {
    assert.deepEqual(await ready(router), { status: 200, text: "ready\n" });
    await fill();
    const refuse = async () => {
      const responses = await Promise.all(Array.from({ length: 20 }, () => send(router, "{ __typename }")));
      assert.ok(responses.some(({ status }) => status === 503));
    };
    const unready = eventually(async () => (await ready(router)).status === 503, "the readiness check to fail");
    await repeatUntil(unready, refuse, "the readiness check to fail");
    assert.match((await ready(router)).text, /^overloaded: \d+ % of the requests are refused\n$/);
    assert.equal((await fetch(`${router.admin}/health/live`)).status, 200);
    assert.equal(await metric(router, "starling_admission_ready"), 0);
    assert.equal(await metric(router, "starling_admission_unready_total"), 1);
    // It serves as before.
    subgraphs.resume();
    await held;
    assert.equal((await send(router, QUERY)).status, 200);
    await eventually(async () => (await ready(router)).status === 200, "the router to be ready again");
    assert.equal(await metric(router, "starling_admission_ready"), 1);
    assert.match(router.output(), /is overloaded, and is not ready for new clients/);
  });

  it("is ready while it refuses sheddable requests only", async () => {
    await fill();
    // Each class may always have one operation in flight.
    held = Promise.all([held, send(router, QUERY, { "x-class": "sheddable" })]);
    const ofClass = 'starling_admission_requests{class="sheddable"}';
    await eventually(async () => (await metric(router, ofClass)) === 1, "a sheddable request in flight");
    // Longer than it would take.
    const started = performance.now();
    while (performance.now() - started < 4000) {
      const headers = { "x-class": "sheddable" };
      const responses = await Promise.all(Array.from({ length: 20 }, () => send(router, QUERY, headers)));
      assert.ok(responses.every(({ status }) => status === 503));
      assert.equal((await ready(router)).status, 200);
    }
  });

  it("refuses handshakes with 503 and the time to come back, and delivers events", async () => {
    const client = openSocket(router);
    try {
      const events = client.subscribe("subscription { flightMoved { id altitude } }");
      const publish = (altitude) => router.publish("memory/default", "flights.moved", event("1", altitude));
      await repeatUntil(events.next(), publish, "the first event");
      await fill();
      const socket = new WebSocket(router.socket, "graphql-transport-ws");
      const [, response] = await within(once(socket, "unexpected-response"), "the response to the handshake");
      assert.equal(response.statusCode, 503);
      assert.match(response.headers["retry-after"], /^([1-9]|[12][0-9]|30)$/);
      let text = "";
      for await (const part of response) text += part;
      assert.equal(JSON.parse(text).errors[0].extensions.code, "OVERLOADED");
      // One that is critical is accepted.
      const critical = new WebSocket(router.socket, "graphql-transport-ws", { headers: { "x-class": "critical" } });
      await within(once(critical, "open"), "a critical connection");
      critical.terminate();
      await publish(7000);
      await events.find(({ data }) => data.flightMoved.altitude === 7000, "an event at the limit");
      assert.equal(client.opened(), 1);
      // There is room again, and the handshake itself holds none.
      subgraphs.resume();
      await held;
      for (let count = 0; count < 3; count += 1) {
        const later = new WebSocket(router.socket, "graphql-transport-ws");
        await within(once(later, "open"), "a connection");
        later.terminate();
      }
      await eventually(async () => (await metric(router, "starling_admission_in_flight")) === 0, "no work");
    } finally {
      await client.dispose();
    }
  });

  it("refuses streams of HTTP/2 with 503, and keeps the connection", async () => {
    await fill();
    const session = http2.connect(router.url);
    try {
      const stream = session.request({ ":method": "POST", ":path": "/graphql", "content-type": "application/json" });
      stream.end(JSON.stringify({ query: QUERY }));
      const [headers] = await within(once(stream, "response"), "the response");
      assert.equal(headers[":status"], 503);
      assert.match(headers["retry-after"], /^\d+$/);
      stream.resume();
      await once(stream, "close");
      assert.equal(session.closed, false);
    } finally {
      session.destroy();
    }
  });
});

describe("load reports", () => {
  const routers = {};
  before(async () => {
    const start = (config) => startServe({ supergraph: memorySupergraph(), config });
    routers.none = await start({});
    routers.requested = await start({
      http: { load_report: { send: "on_request" } }, admission: { enabled: false },
    });
    routers.always = await start({ http: { load_report: { send: "always", format: "json" } } });
  });
  after(() => Promise.all(Object.values(routers).map((router) => router.stop())));

  const report = async (router, format) => {
    const headers = format ? { "endpoint-load-metrics-format": format } : {};
    return (await send(router, "{ __typename }", headers)).headers.get("endpoint-load-metrics");
  };

  it("are not sent by default", async () => {
    assert.equal(await report(routers.none, "TEXT"), null);
  });

  it("are sent to clients that request them, without the part of the limit if there is none", async () => {
    const text = await eventually(() => report(routers.requested, "TEXT"), "the first report");
    assert.match(text, /^TEXT cpu_utilization=[01]\.\d{3},rps_fractional=\d+\.\d{3},eps=\d+\.\d{3}$/);
    assert.equal(await report(routers.requested), null);
  });

  it("are sent with every response, and follow the load", async () => {
    const busy = async () => {
      await send(routers.always, "{ __typename }");
      const value = await report(routers.always);
      if (!value) return undefined;
      assert.ok(value.startsWith("JSON "), value);
      const figures = JSON.parse(value.slice("JSON ".length));
      assert.deepEqual(Object.keys(figures), ["cpu_utilization", "application_utilization", "rps_fractional", "eps"]);
      assert.ok(figures.cpu_utilization >= 0 && figures.cpu_utilization <= 1, value);
      assert.ok(figures.application_utilization >= figures.cpu_utilization - 0.001, value);
      assert.equal(figures.eps, 0);
      return figures.rps_fractional > 5 ? figures : undefined;
    };
    await eventually(busy, "a report with requests");
    const response = await fetch(`${routers.always.url}/nowhere`);
    assert.match(response.headers.get("endpoint-load-metrics"), /^JSON /);
  });
});

// The normal client of the hostile soak, in its own process: 50 queries, 10 new operations and 20 events per second.
// Latencies are measured from the time at which a request was due, so that a pause of the router affects all of them.
import { once } from "node:events";
import http from "node:http";
import process from "node:process";
import WebSocket from "ws";

const QUERIES_PER_SECOND = 50;
const NEW_OPERATIONS_PER_SECOND = 10;
const EVENTS_PER_SECOND = 20;
/** Time after which a request has failed. */
const REQUEST_MS_MAX = 20_000;

const target = JSON.parse(process.argv[2]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
const admin = new http.Agent({ keepAlive: true, maxSockets: 8 });
let samples = fresh();
let number = 0;

function fresh() {
  const kind = () => ({ times: [], failed: 0, example: "", open: 0 });
  return { queries: kind(), operations: kind(), events: kind() };
}

function fail(kind, reason) {
  kind.failed += 1;
  kind.example ||= String(reason).slice(0, 200);
}

/** Sends a POST request; settles with the body. */
function post(url, body, agent) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, {
      method: "POST", agent, timeout: REQUEST_MS_MAX, headers: { "content-type": "application/json" },
    }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part) => { text += part; });
      response.on("end", () => (response.statusCode === 200
        ? resolve(text)
        : reject(new Error(`${response.statusCode} ${text}`))));
      response.on("error", reject);
    });
    request.on("timeout", () => request.destroy(new Error("no response in time")));
    request.on("error", reject);
    request.end(body);
  });
}

async function ask(kind, query) {
  const due = performance.now();
  kind.open += 1;
  try {
    const text = await post(target.graphql, JSON.stringify({ query }), agent);
    if (text.includes('"errors"')) throw new Error(text);
    kind.times.push(performance.now() - due);
  } catch (error) {
    fail(kind, error.message);
  } finally {
    kind.open -= 1;
  }
}

/** Events carry the time at which they were due. Sender and receiver use the same clock. */
async function publish(kind) {
  const id = `${(number += 1)}`;
  const note = String(performance.now());
  const url = `${target.admin}/admin/publish?provider=memory/default&topic=ticks`;
  await post(url, JSON.stringify({ __typename: "Tick", id, note }), admin)
    .catch((error) => fail(kind, `publishing: ${error.message}`));
}

function every(perSecond, act) {
  const [started, step] = [performance.now(), 1000 / perSecond];
  let count = 0;
  setInterval(() => {
    while (started + count * step <= performance.now()) {
      count += 1;
      act();
    }
  }, Math.min(step, 10));
}

const socket = new WebSocket(target.socket, "graphql-transport-ws");
socket.on("error", (error) => fail(samples.events, error.message));
socket.on("close", (code) => fail(samples.events, `the socket was closed with ${code}`));
await once(socket, "open");
socket.send(JSON.stringify({ type: "connection_init" }));
await once(socket, "message");
socket.on("message", (data) => {
  const message = JSON.parse(data);
  if (message.type === "ping") return socket.send('{"type":"pong"}');
  if (message.type !== "next") return fail(samples.events, data);
  if (message.payload.errors) return fail(samples.events, data);
  samples.events.times.push(performance.now() - Number(message.payload.data.tick.note));
});
const subscribe = { query: "subscription { tick { id note } }" };
socket.send(JSON.stringify({ id: "1", type: "subscribe", payload: subscribe }));

every(QUERIES_PER_SECOND, () => ask(samples.queries, "{ items(first: 3) { id name price } }"));
every(NEW_OPERATIONS_PER_SECOND, () => {
  number += 1;
  ask(samples.operations, `{ new${process.pid}_${number}: items(first: 2) { id name related { id note } } }`);
});
every(EVENTS_PER_SECOND, () => publish(samples.events));
process.send({ type: "ready" });

process.on("message", (message) => {
  if (message === "begin") samples = fresh();
  if (message === "report") report(samples, performance.now() + REQUEST_MS_MAX);
  if (message === "stop") {
    process.send({ type: "stopped" });
    process.exit(0);
  }
});

/** Reports after all requests of the phase have ended, because the slow ones matter most. */
function report(ended, deadline) {
  samples = fresh();
  const look = () => {
    const kinds = Object.entries(ended);
    const isOver = kinds.every(([, kind]) => kind.open === 0) || performance.now() > deadline;
    if (!isOver) return setTimeout(look, 20);
    const summaries = kinds.map(([name, kind]) => [name, summary(kind)]);
    process.send({ type: "report", report: Object.fromEntries(summaries) });
  };
  look();
}

function summary({ times, failed, example }) {
  times.sort((a, b) => a - b);
  const at = (part) => {
    const value = times[Math.min(times.length - 1, Math.floor(part * times.length))] ?? NaN;
    return Math.round(value * 10) / 10;
  };
  return { count: times.length, p50: at(0.5), p99: at(0.99), failed, ...(failed > 0 && { example }) };
}

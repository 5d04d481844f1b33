// A soak: for STARLING_SOAK_SECONDS, WebSocket and SSE subscribers of the demo connect, receive events for a while and
// leave, with a close message or by breaking the connection. Afterwards all remaining subscribers must still receive
// events, a query must get a response, memory must not have grown much, and Ctrl-C must stop the demo.
import { readFile } from "node:fs/promises";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import WebSocket from "ws";
import { startDemo } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** Subscribers at a time: enough for overlap, few enough for two cores. */
const SUBSCRIBERS = 200;
/** How long one subscriber stays at most. */
const LISTEN_MS_MAX = 2_000;
/** Maximum memory growth between the first fifth of the run, when pools are warm, and the end. */
const GROWTH_KB_MAX = 48 * 1024;

const seconds = Number(process.env.STARLING_SOAK_SECONDS ?? 60);
const router = await startDemo();
const page = await (await fetch(`${router.url}/ide/plain`)).text();
const config = JSON.parse(page.match(/id="starling-config">(.*?)<\/script>/s)[1]);
const [query, subscription] = config.tabs.map((tab) => tab.query);

const end = Date.now() + seconds * 1000;
const sums = { subscriptions: 0, events: 0, problems: [] };
let warm = null;
const warming = pause(seconds * 200).then(async () => {
  warm = await residentKb();
});
await Promise.all(Array.from({ length: SUBSCRIBERS }, (_, index) => runSubscriber(index)));
await warming;

const stayed = Array.from({ length: 10 }, () => createSseClient({ url: router.graphql }));
const first = stayed.map((client) => client.iterate({ query: subscription }).next());
await within(Promise.all(first), "an event for everyone after the run");
stayed.forEach((client) => client.dispose());
const { body } = await router.query(query);
if (body.errors) sums.problems.push(JSON.stringify(body.errors));

const rest = await residentKb();
const ended = await router.stop();
if (sums.events === 0) sums.problems.push("no event at all");
if (rest - warm > GROWTH_KB_MAX) sums.problems.push(`memory grew by ${rest - warm} kB`);
if (ended !== 0) sums.problems.push(`the router ended with ${ended}`);
const { subscriptions, events: received, problems } = sums;
console.log(JSON.stringify({
  seconds, subscriptions, events: received, warm_kb: warm, rest_kb: rest, problems: problems.length,
}));
if (problems.length > 0) {
  console.error(problems.slice(0, 10).join("\n"));
  process.exit(1);
}

/** One slot, used by one subscriber after the other. */
async function runSubscriber(index) {
  // A seeded generator, so that a run can be repeated.
  let state = index + 1;
  const random = () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
  while (Date.now() < end) {
    if (!router.isRunning()) throw new Error(`the router ended:\n${router.output()}`);
    sums.subscriptions += 1;
    const time = Math.max(1, Math.min(random() * LISTEN_MS_MAX, end - Date.now()));
    try {
      await within(random() < 0.5 ? socket(time, random() < 0.3) : events(time), "a subscriber");
    } catch (error) {
      sums.problems.push(error.message);
    }
  }
}

async function socket(time, rudely) {
  let raw;
  let leaving = false;
  const client = createSocketClient({
    url: router.socket,
    retryAttempts: 0,
    webSocketImpl: class extends WebSocket {
      constructor(...rest) {
        super(...rest);
        raw = this;
      }
    },
  });
  client.subscribe({ query: subscription }, {
    next: () => {
      sums.events += 1;
    },
    // Leaving before the connection is established, or breaking it, causes an error here.
    error: (error) => {
      if (!leaving) sums.problems.push(`socket: ${error.message ?? error.reason ?? error}`);
    },
    complete: () => {},
  });
  await pause(time);
  leaving = true;
  if (rudely) raw?.terminate();
  try {
    await client.dispose();
  } catch {
    // As above.
  }
}

async function events(time) {
  const leave = new AbortController();
  const leaving = pause(time).then(() => leave.abort());
  try {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ query: subscription }),
      signal: leave.signal,
    });
    if (!response.ok) throw new Error(`sse: ${response.status} ${await response.text()}`);
    for await (const part of response.body) {
      sums.events += Buffer.from(part).toString("utf8").split("event: next").length - 1;
    }
    if (!leave.signal.aborted) throw new Error("sse: the stream ended by itself");
  } catch (error) {
    if (!leave.signal.aborted) throw error;
  }
  await leaving;
}

/** Resident memory, after the memory of the last subscribers has been released. */
async function residentKb() {
  let before = Infinity;
  return eventually(async () => {
    const status = await readFile(`/proc/${router.pid}/status`, "utf8");
    const now = Number(status.match(/VmRSS:\s+(\d+)/)[1]);
    const settled = now >= before;
    before = now;
    await pause(250);
    return settled && now;
  }, "memory to settle");
}

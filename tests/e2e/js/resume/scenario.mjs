// One scenario: numbered events at a broker, clients that resume, and a fault. Every client must receive every event,
// in order.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { loadProcessors } from "../busy_processors.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";
import { EventStreamClient, SocketClient } from "./clients.mjs";
import { figures } from "./figures.mjs";
import { startSubgraphProcess } from "./subgraphs.mjs";

/** Events are published in this number of batches per second. */
const BATCHES_PER_SECOND = 50;

/** How long a fault lasts in which the subgraphs or the router are paused. */
const PAUSE_MS = 2_000;

/** A scenario ends when its clients have received nothing for this time, even if events are missing. */
const QUIET_MS = 20_000;

/** How much of the router's log is shown for a failed scenario. */
const OUTPUT_CHARACTERS_MAX = 2_000;

/** Time until each client has received its first event, on a busy machine. */
const BEGIN_MS = 60_000;

const PLAIN = "subscription { flightMoved { id altitude } }";
const JOINED = "subscription { flightMoved { id altitude number to { code city } } }";

export const KILL = ({ restartRouter }) => restartRouter("SIGKILL");
const DRAIN = ({ restartRouter }) => restartRouter("SIGTERM");
const RESTART_BROKER = ({ broker }) => broker.restart();
export const PAUSE = async ({ subgraphs }) => {
  subgraphs.stand();
  await pause(PAUSE_MS);
  subgraphs.go();
};

/** Pauses the router, as on a machine that swaps or in a virtual machine that is being moved. */
const FREEZE = async ({ routerPid }) => {
  const pid = routerPid();
  process.kill(pid, "SIGSTOP");
  await pause(PAUSE_MS);
  process.kill(pid, "SIGCONT");
};

/** The threads that write to clients get almost no CPU time, while the rest of the router continues. */
const STARVE = async ({ routerPid }) => {
  const folder = `/proc/${routerPid()}/task`;
  const nameOf = (thread) => readFileSync(`${folder}/${thread}/comm`, "utf8");
  const threads = readdirSync(folder).filter((thread) => nameOf(thread).startsWith("reactor"));
  const schedule = (policy) => threads.forEach((thread) => execFileSync("chrt", [policy, "-p", "0", thread]));
  const endBurning = loadProcessors();
  schedule("--idle");
  try {
    await pause(2 * PAUSE_MS);
  } finally {
    schedule("--other");
    endBurning();
  }
};

/**
 * The faults. `at` maps a fraction of the events to an action; `begin` acts before the first event. Actions get
 * `{restartRouter(signal), routerPid(), broker, subgraphs}`.
 */
export const DISTURBANCES = [
  { name: "kill", at: [[0.2, KILL], [0.4, RESTART_BROKER], [0.6, KILL], [0.8, KILL]] },
  { name: "drain", at: [[0.3, DRAIN], [0.7, DRAIN]] },
  { name: "pause", at: [[0.3, PAUSE]] },
  { name: "freeze", at: [[0.2, FREEZE], [0.6, FREEZE]] },
  // Also with the last event, after which no event follows that could report a loss.
  { name: "starve", at: [[0.2, STARVE], [0.8, STARVE]] },
  { name: "slow", begin: ({ subgraphs }) => subgraphs.setFaults({ delayMs: 300 }), at: [[0.5, KILL]] },
  { name: "failing", begin: ({ subgraphs }) => subgraphs.setFaults({ failing: 0.3 }), at: [[0.5, KILL]] },
];

/**
 * Runs a scenario with a running broker and returns its figures. `clients` is their number: a quarter each uses
 * WebSocket or event streams, with fields of the event only or joined from two subgraphs.
 */
export async function runScenario({ broker, topic, disturbance, events, perSecond, clients: number }) {
  const started = Date.now();
  const subgraphs = await startSubgraphProcess();
  const clients = [];
  let router;
  const startRouter = (ports) => startServe({
    supergraph: broker.supergraph(topic),
    ports,
    config: {
      subgraphs: subgraphs.configuration,
      cursor: { keys: ["a key of more than 16 bytes"], heartbeat: "1s" },
      events: broker.configuration,
      log: { level: "warn" },
    },
  });
  let restarts = Promise.resolve();
  const context = {
    broker,
    subgraphs,
    routerPid: () => router.pid,
    restartRouter: (signal) => {
      // Restarts run one after the other, even if one takes longer than the events in between.
      restarts = restarts.then(async () => {
        const { ports } = router;
        await router.kill(signal);
        router = await startRouter(ports);
      });
      return restarts;
    },
  };
  try {
    await broker.createTopic(topic);
    router = await startRouter();
    await disturbance.begin?.(context);
    const address = new URL(router.url).host;
    for (let index = 0; index < number; index += 1) {
      const Kind = index % 2 === 0 ? SocketClient : EventStreamClient;
      const isJoined = index % 4 >= 2;
      const client = new Kind({ address, query: isJoined ? JOINED : PLAIN, events });
      clients.push(Object.assign(client, { isJoined, isSocket: Kind === SocketClient }));
      client.open();
    }
    // No protocol reports when a subscription has started, so an event without a number is published until each client
    // has received one.
    let warming = 0;
    await eventually(async () => {
      if (clients.every(({ hasBegun }) => hasBegun)) return true;
      await broker.publish(topic, [warming -= 1]);
      return false;
    }, "the first event of each client", BEGIN_MS);

    const actions = [...(disturbance.at ?? [])];
    const running = [];
    const batch = Math.max(1, Math.round(perSecond / BATCHES_PER_SECOND));
    const begun = Date.now();
    for (let first = 1; first <= events; first += batch) {
      const last = Math.min(events, first + batch - 1);
      await broker.publish(topic, Array.from({ length: last - first + 1 }, (_, index) => first + index));
      while (actions.length > 0 && last >= actions[0][0] * events) {
        const action = actions.shift()[1](context);
        action.catch(() => {});
        running.push(action);
      }
      // Keeps the rate.
      const early = begun + (last * 1000) / perSecond - Date.now();
      if (early > 0) await pause(early);
    }
    const publishedMs = Date.now() - begun;
    await Promise.all(running);
    await broker.finishTopic?.(topic);
    await untilQuiet(clients);
    const row = figures({ clients, events, publishedMs, started });
    if (!row.passed) row.details.push(await losses(router), router.output().slice(-OUTPUT_CHARACTERS_MAX));
    return row;
  } finally {
    for (const client of clients) client.close();
    await restarts.catch(() => {});
    // The output of a killed router is not needed; SIGKILL, because the scenario does not test the shutdown.
    if (router?.isRunning()) await router.kill("SIGKILL");
    await subgraphs.stop();
  }
}

/** Waits until every client has received all events, or none has received one for a while. */
async function untilQuiet(clients) {
  const received = () => clients.reduce((sum, { account }) => sum + account.received + account.repeated, 0);
  let before = received();
  let since = Date.now();
  while (!clients.every(({ account, refused }) => account.missing === 0 || refused)) {
    await pause(100);
    const now = received();
    if (now !== before) {
      before = now;
      since = Date.now();
    } else if (Date.now() - since > QUIET_MS) {
      return;
    }
  }
}

/** Returns the metrics about losses that the router has counted since its last start. */
async function losses(router) {
  const text = await fetch(`${router.admin}/metrics`).then((response) => response.text(), (error) => error.message);
  const lines = text.split("\n").filter((line) => /^starling_\w*(dropped|gap|lost|refused|behind)\w*/.test(line));
  return lines.filter((line) => !line.endsWith(" 0")).join("\n");
}

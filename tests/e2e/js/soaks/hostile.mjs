// A soak: hostile clients beside a normal client. Each attack in `hostile/attacks` gets a fresh router. The normal
// load runs alone first, then while the same attack hits another router (which takes the same processors), then with the
// attack on its own router. Its 99th percentile may at most double over the worse of the first two, none of its requests
// may fail, and the router must stay within its memory limit.
// STARLING_SOAK_SECONDS is the time of all attacks together, without starting routers. STARLING_HOSTILE_ONLY selects
// one attack or several, separated by commas. STARLING_HOSTILE_GOOD_MS is a 99th percentile that is always accepted.
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { adopt } from "../children.mjs";
import { freePort, startServe } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** Maximum ratio of the normal client's latency with and without an attack. */
const SLOWDOWN_MAX = 2;
/**
 * A 99th percentile below this is accepted regardless of the ratio. The load, the subgraphs and the attacker need
 * processors too: on a machine with two of them, requests sometimes take 10 to 20 ms without any attack, and the 99th
 * percentile of a short phase (50 new operations) is the slowest request.
 */
const GOOD_MS = Number(process.env.STARLING_HOSTILE_GOOD_MS ?? 50);
const MEMORY_KB_MAX = 256 * 1024;
/** The shortest phase with a meaningful 99th percentile: 250 queries. */
const PHASE_SECONDS_MIN = 5;

const folder = fileURLToPath(new URL("./hostile/", import.meta.url));
const binary = process.env.STARLING_BIN;
const supergraph = await readFile(path.join(folder, "supergraph.graphql"), "utf8");

const only = process.env.STARLING_HOSTILE_ONLY?.split(",");
const known = (await readdir(path.join(folder, "attacks")))
  .filter((file) => file.endsWith(".mjs"))
  .map((file) => file.slice(0, -".mjs".length))
  .sort();
const names = only ?? known;
for (const name of names) {
  if (!known.includes(name)) throw new Error(`no attack is called ${name}; there are: ${known.join(", ")}`);
}
const total = Number(process.env.STARLING_SOAK_SECONDS ?? 600);
const phaseSeconds = Math.max(PHASE_SECONDS_MIN, total / names.length / 3);

const problems = [];
for (const name of names) {
  const result = await play(name);
  console.log(JSON.stringify({ attack: name, ...result }));
  problems.push(...result.problems.map((problem) => `${name}: ${problem}`));
}
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}

/** Runs one attack beside the normal load: first against a second router, then against the router of the load. */
async function play(name) {
  const { default: attack } = await import(path.join(folder, "attacks", `${name}.mjs`));
  const stage = await openStage(attack.config);
  try {
    const polite = fork(path.join(folder, "polite.mjs"), [JSON.stringify(stage.target)]);
    adopt(polite);
    await message(polite, "ready");
    // Warms up caches, pools and the process of the normal client.
    await phase(polite, 2);
    const alone = await phase(polite, phaseSeconds);
    const elsewhere = await controlPhase(name, attack.config, polite, stage.mockAddress);

    const memory = watchMemory(stage.router.pid);
    const attacker = await startAttacker(name, stage.target);
    const attacked = await phase(polite, phaseSeconds);
    const attacks = await stop(attacker);
    const memoryKb = memory.stop();
    await stop(polite);
    return judge({ alone, elsewhere, attacked, attacks, memoryKb, isRunning: stage.router.isRunning() });
  } finally {
    await stage.close();
  }
}

/**
 * The normal load while the attack takes processors and the time of subgraphs, but not its router: what the machine and
 * the subgraphs alone make of it.
 */
async function controlPhase(name, config, polite, mockAddress) {
  const other = await openStage(config, mockAddress);
  try {
    const attacker = await startAttacker(name, other.target);
    const report = await phase(polite, phaseSeconds);
    await stop(attacker);
    return report;
  } finally {
    await other.close();
  }
}

async function startAttacker(name, target) {
  const attacker = fork(path.join(folder, "attacker.mjs"), [name, JSON.stringify(target)]);
  adopt(attacker);
  await message(attacker, "attacking");
  return attacker;
}

/** A router, with the subgraphs at `mockAddress` or with subgraphs of its own. */
async function openStage(config, mockAddress = null) {
  const mock = mockAddress ? null : await startMock();
  const address = mockAddress ?? mock.address;
  const url = (subgraph) => ({ url: `http://${address}/${subgraph}` });
  const router = await startServe({
    supergraph,
    config: { subgraphs: { items: url("items"), prices: url("prices") }, ...config },
  });
  const close = async () => {
    await router.stop();
    mock?.child.kill();
  };
  const warm = "{ items(first: 1) { id } }";
  await eventually(async () => !(await router.query(warm)).body.errors, "the mock to respond");
  const target = { graphql: router.graphql, socket: router.socket, admin: router.admin };
  return { router, target, mockAddress: address, close };
}

/** The subgraphs, in one process. */
async function startMock() {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(binary, [
    "mock", "--supergraph", path.join(folder, "supergraph.graphql"), "--listen", address,
  ], { stdio: "ignore" });
  adopt(child);
  return { address, child };
}

function judge({ alone, elsewhere, attacked, attacks, memoryKb, isRunning }) {
  const problems = [];
  if (!isRunning) problems.push("the router has ended");
  if (!(attacks.count > 0)) problems.push(`the attack did not happen: ${attacks.problem ?? "no request"}`);
  for (const kind of Object.keys(alone)) {
    const [before, control, now] = [alone[kind], elsewhere[kind], attacked[kind]];
    if (now.failed > 0) problems.push(`${now.failed} ${kind} failed: ${now.example}`);
    const bound = Math.max(GOOD_MS, SLOWDOWN_MAX * Math.max(before.p99, control.p99));
    if (!(now.p99 <= bound)) {
      const others = `alone ${before.p99} ms, with the attack on another router ${control.p99} ms`;
      problems.push(`p99 of ${kind}: ${now.p99} ms, ${others}, at most ${bound} ms`);
    }
  }
  if (memoryKb > MEMORY_KB_MAX) problems.push(`${memoryKb} kB of memory`);
  return { alone, elsewhere, attacked, attacks: attacks.count, memory_kb: memoryKb, problems };
}

/** Runs a phase of the normal load and returns its report. */
async function phase(polite, seconds) {
  polite.send("begin");
  // Duration of the load.
  await pause(seconds * 1000);
  polite.send("report");
  return (await message(polite, "report", 60_000)).report;
}

/** Asks a child to stop and returns its last message. */
async function stop(child) {
  const ended = once(child, "exit");
  child.send("stop");
  const last = await message(child, "stopped");
  await within(ended, "the end of a load process");
  return last;
}

async function message(child, type, ms) {
  const received = new Promise((resolve, reject) => {
    const listen = (message) => {
      if (message.type !== type) return;
      child.off("message", listen);
      resolve(message);
    };
    child.on("message", listen);
    child.once("exit", (code) => reject(new Error(`a load process ended with ${code}`)));
  });
  return within(received, `"${type}" of a load process`, ms);
}

/** Maximum resident memory until it is stopped. */
function watchMemory(pid) {
  let most = 0;
  const timer = setInterval(async () => {
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    most = Math.max(most, Number(status.match(/VmRSS:\s+(\d+)/)?.[1] ?? 0));
  }, 100);
  return {
    stop: () => {
      clearInterval(timer);
      return most;
    },
  };
}

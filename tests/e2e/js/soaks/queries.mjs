// A soak: for STARLING_SOAK_SECONDS, a small operation over two mocked subgraphs at a constant rate, with every
// response checked by `starling bench query`. Memory must be constant after the first minute. Then a thousand reloads,
// with requests in between, must not leave memory behind either.
import { execFile, spawn } from "node:child_process";
import { readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { adopt } from "../children.mjs";
import { freePort, startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

/** Requests per second: thousands of plan-cache hits per minute, with two cores half idle. */
const RATE = 500;
/** Time after which pools, caches and arenas have their final size. */
const WARM_SECONDS = 60;
/** Maximum memory growth between the end of the first minute and the end, which is measurement noise. */
const GROWTH_KB_MAX = 4 * 1024;
const RELOADS = 1000;
/** Reloads before the first memory measurement: both graphs have been loaded many times. */
const WARM_RELOADS = 100;
/** Maximum growth during the other reloads; a graph that is not released takes several hundred kB each. */
const RELOAD_GROWTH_KB_MAX = 8 * 1024;

const seconds = Number(process.env.STARLING_SOAK_SECONDS ?? 600);
const binary = process.env.STARLING_BIN;
const folder = fileURLToPath(new URL("../../../../benches/items/", import.meta.url));
const sdl = await readFile(path.join(folder, "supergraph.graphql"), "utf8");

const mockAddress = `127.0.0.1:${await freePort()}`;
const mock = spawn(binary, [
  "mock", "--supergraph", path.join(folder, "supergraph.graphql"), "--listen", mockAddress,
], { stdio: "ignore" });
adopt(mock);
const url = (name) => ({ url: `http://${mockAddress}/${name}` });
const router = await startServe({
  supergraph: sdl,
  config: { subgraphs: { items: url("items"), prices: url("prices") } },
});
const operation = await readFile(path.join(folder, "operation.graphql"), "utf8");
await eventually(async () => !(await router.query(operation)).body.errors, "the mock to respond");

const problems = [];
const warmSeconds = Math.min(WARM_SECONDS, seconds / 2);
const warming = pause(warmSeconds * 1000).then(residentKb);
const report = await load(seconds);
const [warm, rest] = [await warming, await residentKb()];
if (report.failed > 0) problems.push(`${report.failed} requests failed: ${report.example}`);
if (report.requests < RATE * seconds * 0.99) problems.push(`only ${report.requests} requests`);
if (rest - warm > GROWTH_KB_MAX) problems.push(`memory grew by ${rest - warm} kB under load`);

let warmReloaded = 0;
for (let number = 1; number <= RELOADS; number += 1) {
  await reload(number);
  if (number === WARM_RELOADS) warmReloaded = await residentKb();
}
const reloaded = await residentKb();
if (reloaded - warmReloaded > RELOAD_GROWTH_KB_MAX) {
  problems.push(`memory grew by ${reloaded - warmReloaded} kB in ${RELOADS - WARM_RELOADS} reloads`);
}
const ended = await router.stop();
if (ended !== 0) problems.push(`the router ended with ${ended}`);
mock.kill();
console.log(JSON.stringify({
  seconds, requests: report.requests, p50_us: report.latency.p50_us, p99_us: report.latency.p99_us,
  warm_kb: warm, rest_kb: rest, reloads: RELOADS, warm_reloaded_kb: warmReloaded,
  reloaded_kb: reloaded, problems: problems.length,
}));
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}

/** Runs load for `duration`; returns the generator's report. */
async function load(duration) {
  const words = [
    "bench", "query", "--url", router.graphql, "--operation", path.join(folder, "operation.graphql"),
    "--rate", String(RATE), "--duration", `${duration}s`, "--connections", "20", "--quiet",
    "--format", "json",
  ];
  // The exit code is 1 if requests failed; the report contains the details.
  const { stdout } = await promisify(execFile)(binary, words, { maxBuffer: 64 * 1024 * 1024 })
    .catch((error) => {
      if (error.stdout) return error;
      throw error;
    });
  return JSON.parse(stdout)[0];
}

/** Installs another graph and waits until the router serves it. */
async function reload(number) {
  const field = `generation${number % 2}`;
  const changed = sdl.replace(
    "type Query @join__type(graph: ITEMS) @join__type(graph: PRICES) {",
    `$&\n  ${field}: Int @join__field(graph: ITEMS)`,
  );
  const before = await loads();
  const file = path.join(router.folder, "supergraph.graphql");
  await writeFile(`${file}.new`, changed);
  await rename(`${file}.new`, file);
  process.kill(router.pid, "SIGHUP");
  await eventually(async () => (await loads()) > before, `reload ${number}`);
  const { body } = await router.query(operation);
  if (body.errors) problems.push(`after reload ${number}: ${JSON.stringify(body.errors)}`);
}

async function loads() {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  return Number(text.match(/^starling_graph_loads_total\{result="loaded"\} (\d+)/m)?.[1] ?? 0);
}

/** Resident memory: the minimum of several samples, so that memory about to be freed does not count. */
async function residentKb() {
  let least = Infinity;
  for (let look = 0; look < 5; look += 1) {
    const status = await readFile(`/proc/${router.pid}/status`, "utf8");
    least = Math.min(least, Number(status.match(/VmRSS:\s+(\d+)/)[1]));
    await pause(100);
  }
  return least;
}

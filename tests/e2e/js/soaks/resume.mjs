// A soak: clients that resume with their cursor must receive every stored event, in order, whatever happens to the
// router, the broker and the subgraphs. Runs scenarios for STARLING_SOAK_SECONDS, then prints a table.
// STARLING_SOAK_BUSY=1 keeps all cores busy. To run a selection: STARLING_SOAK_ONLY=kafka/kill,pause (parts of
// scenario names), STARLING_SOAK_EVENTS, STARLING_SOAK_CLIENTS, STARLING_SOAK_RATE.
import process from "node:process";
import { loadProcessors } from "../busy_processors.mjs";
import { SOURCES } from "../resume/brokers.mjs";
import { DISTURBANCES, runScenario } from "../resume/scenario.mjs";

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const seconds = number("STARLING_SOAK_SECONDS", 600);
const events = number("STARLING_SOAK_EVENTS", 5_000);
const clients = number("STARLING_SOAK_CLIENTS", 40);
const perSecond = number("STARLING_SOAK_RATE", 500);
const only = (process.env.STARLING_SOAK_ONLY ?? "").split(",");
const isBusy = process.env.STARLING_SOAK_BUSY === "1";

const missing = SOURCES.filter(({ program }) => !program()).map(({ name }) => name);
if (missing.length > 0) console.log(`not played, since the broker is not installed: ${missing.join(", ")}`);
// Every source with one fault, then every source with the next one, so that a short run covers each source.
const scenarios = DISTURBANCES.flatMap((disturbance) => SOURCES
  .filter(({ program }) => program())
  .map((source) => ({ source, disturbance, name: `${source.name}/${disturbance.name}` })))
  .filter(({ name }) => only.some((part) => name.includes(part)));
if (scenarios.length === 0) throw new Error(`no scenario has \`${only.join("` or `")}\` in its name`);

const endBurning = isBusy ? loadProcessors() : () => {};
const end = Date.now() + seconds * 1000;
const brokers = new Map();
const rows = [];
try {
  for (let round = 0; Date.now() < end; round += 1) {
    const { source, disturbance, name } = scenarios[round % scenarios.length];
    if (!brokers.has(source)) brokers.set(source, await source.start());
    const topic = `moves.${round}`;
    let row;
    try {
      row = await runScenario({ broker: brokers.get(source), topic, disturbance, events, perSecond, clients });
    } catch (error) {
      row = { passed: false, details: [error.stack] };
    }
    rows.push({ name, ...row });
    console.log(line(rows.at(-1)));
    for (const detail of row.details) console.log(`    ${detail.replaceAll("\n", "\n    ")}`);
  }
} finally {
  endBurning();
  for (const broker of brokers.values()) await broker.stop().catch((error) => console.log(error.message));
}

console.log(`\n${clients} clients, ${events} events at ${perSecond}/s per scenario${isBusy ? ", busy machine" : ""}`);
console.log(line(null));
for (const row of rows) console.log(line(row));
const unplayed = scenarios.slice(rows.length).map(({ name }) => name);
if (unplayed.length > 0) console.log(`no time left for: ${unplayed.join(", ")}`);
const failed = rows.filter(({ passed }) => !passed);
console.log(`${rows.length - failed.length} of ${rows.length} scenarios lost nothing`);
process.exit(failed.length === 0 ? 0 : 1);

function line(row) {
  const columns = row === null
    ? ["scenario", "expected", "missing", "(joined)", "disorder", "repeated", "lost", "gap", "reconn.", "rate/s", "time", ""]
    : [
      row.name, row.expected, row.faults?.missing, row.missingJoined, row.faults?.outOfOrder, row.repeated,
      row.faults?.lost, row.faults?.gaps, row.reconnections, row.perSecond, `${row.seconds ?? "?"} s`, row.passed ? "ok" : "FAILED",
    ];
  const codes = row && Object.entries(row.codes ?? {}).map(([code, count]) => `${code} ${count}`).join(", ");
  return `${columns.map((value, index) => (index === 0 ? `${value}`.padEnd(26) : `${value ?? "?"}`.padStart(9))).join("")}`
    + `${codes ? `  (${codes})` : ""}`;
}

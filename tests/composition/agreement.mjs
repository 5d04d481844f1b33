// Compares two implementations over the results of many federations:
// `node agreement.mjs [--first NAME] [--second NAME] [--examples 3] < results`.
//
// A line of standard input is a result as the rig writes it, by any implementation: concatenate files to compare more
// than the packages. A federation in which one implementation crashed is left out and counted.
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { REFERENCE, SECOND } from "./packages.mjs";

/**
 * Compares the results of two implementations. Returns the number of compared federations, of crashes, of equal
 * outcomes, of failures in both, of failures with equal sets of codes, and the disagreements by pair of outcomes.
 */
export function compareResults(results, first, second) {
  const byName = new Map();
  for (const result of results) {
    if (!byName.has(result.name)) byName.set(result.name, new Map());
    byName.get(result.name).set(result.package, result);
  }
  const summary = { compared: 0, crashes: 0, sameOutcome: 0, sharedFailures: 0, sameCodes: 0, disagreements: new Map() };
  for (const [name, outcomes] of byName) {
    const [one, other] = [outcomes.get(first), outcomes.get(second)];
    if (one === undefined || other === undefined) continue;
    if (one.crash !== undefined || other.crash !== undefined) {
      summary.crashes += 1;
      continue;
    }
    summary.compared += 1;
    if (one.success === other.success) summary.sameOutcome += 1;
    if (!one.success && !other.success) summary.sharedFailures += 1;
    const [left, right] = [describe(one), describe(other)];
    if (left === right) {
      if (!one.success) summary.sameCodes += 1;
      continue;
    }
    const pair = `${left} | ${right}`;
    summary.disagreements.set(pair, [...summary.disagreements.get(pair) ?? [], name]);
  }
  return summary;
}

function describe({ success, codes }) {
  return success ? "composes" : codes.join(", ") || "fails without a code";
}

async function main() {
  const { values: options } = parseArgs({
    options: {
      first: { type: "string", default: REFERENCE },
      second: { type: "string", default: SECOND },
      examples: { type: "string", default: "3" },
    },
  });
  const results = [];
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    if (line.trim() !== "") results.push(JSON.parse(line));
  }
  const summary = compareResults(results, options.first, options.second);
  const percent = (part, whole) => (whole === 0 ? "–" : `${(100 * part / whole).toFixed(1)} %`);
  console.log(`${options.first} and ${options.second}: ${summary.compared} federations, ${summary.crashes} left out (crash)`);
  console.log(`same success or failure: ${summary.sameOutcome} (${percent(summary.sameOutcome, summary.compared)})`);
  const { sameCodes, sharedFailures } = summary;
  console.log(`same codes in shared failures: ${sameCodes} of ${sharedFailures} (${percent(sameCodes, sharedFailures)})`);
  const pairs = [...summary.disagreements].sort(([, left], [, right]) => right.length - left.length);
  for (const [pair, names] of pairs) {
    console.log(`${String(names.length).padStart(5)}  ${pair}  (${names.slice(0, Number(options.examples)).join(", ")})`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();

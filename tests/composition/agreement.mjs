// Compares two implementations over the results of many federations:
// `node agreement.mjs [--first NAME] [--second NAME] [--examples 3] < results`.
//
// A line of standard input is a result as the rig writes it, by any implementation: concatenate files to compare more
// than the packages. A federation in which one implementation crashed is left out and counted.
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { normalForm } from "./normal_form.mjs";
import { REFERENCE, SECOND } from "./packages.mjs";

/**
 * Compares the results of two implementations. Returns numbers of federations: compared, left out because of a crash,
 * with the same outcome, composed by both (with equal hints, with equal supergraphs), refused by both (with equal sets
 * of codes); the names of federations with different supergraphs; and the names of those with different outcomes, by
 * pair of outcomes.
 */
export function compareResults(results, first, second) {
  const byName = new Map();
  for (const result of results) {
    if (!byName.has(result.name)) byName.set(result.name, new Map());
    byName.get(result.name).set(result.package, result);
  }
  const summary = {
    compared: 0, crashes: 0, sameOutcome: 0, sharedSuccesses: 0, sameHints: 0, sameSupergraph: 0, sharedFailures: 0,
    sameCodes: 0, otherSupergraphs: [], disagreements: new Map(),
  };
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
    if (one.success && other.success) {
      summary.sharedSuccesses += 1;
      if (one.hints.join() === other.hints.join()) summary.sameHints += 1;
      if (isSameSupergraph(one.supergraph, other.supergraph)) summary.sameSupergraph += 1;
      else summary.otherSupergraphs.push(name);
    }
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

/** True if both have a supergraph with the same meaning. Results without `--supergraph` have none. */
function isSameSupergraph(one, other) {
  return one !== undefined && other !== undefined && normalForm(one) === normalForm(other);
}

function describe({ success, codes }) {
  return success ? "composes" : codes.join(", ") || "fails without a code";
}

/** Returns the comparison as lines of text, the most frequent disagreement first, each with some examples. */
export function reportLines(summary, first, second, exampleCount) {
  const share = (part, whole) => `${part} of ${whole}${whole === 0 ? "" : ` (${(100 * part / whole).toFixed(1)} %)`}`;
  const pairs = [...summary.disagreements].sort(([, left], [, right]) => right.length - left.length);
  return [
    `${first} and ${second}: ${summary.compared} federations, ${summary.crashes} left out because of a crash`,
    `same success or failure: ${share(summary.sameOutcome, summary.compared)}`,
    `same codes in shared failures: ${share(summary.sameCodes, summary.sharedFailures)}`,
    `same hints in shared successes: ${share(summary.sameHints, summary.sharedSuccesses)}`,
    `same supergraph in shared successes: ${share(summary.sameSupergraph, summary.sharedSuccesses)}`,
    ...pairs.map(([pair, names]) => (
      `${String(names.length).padStart(5)}  ${pair}  (${names.slice(0, exampleCount).join(", ")})`
    )),
  ];
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
  for (const line of reportLines(summary, options.first, options.second, Number(options.examples))) console.log(line);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();

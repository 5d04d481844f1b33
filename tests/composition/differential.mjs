// Compares a program that composes with the reference, over generated federations or the corpus:
// `node differential.mjs PROGRAM [--count 1000] [--seed 1] [--corpus] [--examples 3] [--disagreements FILE]`.
//
// PROGRAM reads lines `{"name", "subgraphs"}` and writes a line `{"name", "success", "codes", "hints", "supergraph"}`
// for each, as the rig does. The exit code is 1 if it agrees less often than required. `--disagreements` writes a JSON
// line for each federation on which they differ, with the subgraphs and both results (supergraphs in normal form).
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import process from "node:process";
import { parseArgs } from "node:util";

import { compareResults, reportLines } from "./agreement.mjs";
import { readCases } from "./corpus.mjs";
import { generate } from "./generate.mjs";
import { normalForm } from "./normal_form.mjs";
import { compose, REFERENCE } from "./packages.mjs";
import { openProgram } from "./program.mjs";

/** The least share of federations with the same success or failure as the reference. */
const SAME_OUTCOME_MIN = 0.97;

/** The least share of shared failures with the same set of codes. */
const SAME_CODES_MIN = 0.85;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: "string", default: "1000" },
    seed: { type: "string", default: "1" },
    corpus: { type: "boolean", default: false },
    examples: { type: "string", default: "3" },
    disagreements: { type: "string" },
  },
});
const [program] = positionals;
if (program === undefined) {
  console.error("usage: node differential.mjs PROGRAM [--count N] [--seed N] [--corpus] [--disagreements FILE]");
  process.exit(2);
}

const federations = options.corpus
  ? (await readCases()).map(({ kind, name, subgraphs }) => ({ name: `${kind}/${name}`, subgraphs }))
  : [...generate({ seed: Number(options.seed), count: Number(options.count) })];

const implementation = openProgram(program);
const results = await Promise.all(federations.map(implementation.compose));
await implementation.close();
results.push(...runReference());
const summary = compareResults(results, REFERENCE, implementation.name);
for (const line of reportLines(summary, REFERENCE, implementation.name, Number(options.examples))) console.log(line);
if (options.disagreements !== undefined) await writeDisagreements(options.disagreements);
const isGood = summary.compared > 0 && summary.sameOutcome >= SAME_OUTCOME_MIN * summary.compared
  && summary.sameCodes >= SAME_CODES_MIN * summary.sharedFailures;
process.exitCode = isGood ? 0 : 1;

function* runReference() {
  for (const { name, subgraphs } of federations) {
    yield { name, package: REFERENCE, ...compose(REFERENCE, subgraphs) };
  }
}

async function writeDisagreements(file) {
  const output = createWriteStream(file);
  const names = new Set([...[...summary.disagreements.values()].flat(), ...summary.otherSupergraphs]);
  for (const federation of federations.filter(({ name }) => names.has(name))) {
    const both = results.filter(({ name }) => name === federation.name);
    const outcomes = both.map((result) => (
      { ...result, supergraph: result.success ? normalForm(result.supergraph) : undefined }
    ));
    output.write(`${JSON.stringify({ ...federation, outcomes })}\n`);
  }
  output.end();
  await once(output, "finish");
}

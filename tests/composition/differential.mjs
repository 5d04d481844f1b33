// Compares a program that composes with the reference, over generated federations or the corpus:
// `node differential.mjs PROGRAM [--count 1000] [--seed 1] [--corpus] [--examples 3] [--disagreements FILE]`.
//
// PROGRAM reads lines `{"name", "subgraphs"}` and writes a line `{"name", "success", "codes", "hints", "supergraph"}`
// for each, as the rig does. The exit code is 1 if it agrees less often than required. `--disagreements` writes a JSON
// line for each federation on which they differ, with the subgraphs and both results (supergraphs in normal form).
import { writeFile } from "node:fs/promises";
import process from "node:process";
import { pathToFileURL } from "node:url";
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

/** Composes federations with the program and the reference. Returns the results, a summary and the program's name. */
export async function compareWithReference(program, federations) {
  const implementation = openProgram(program);
  const results = await Promise.all(federations.map(implementation.compose));
  await implementation.close();
  for (const { name, subgraphs } of federations) {
    results.push({ name, package: REFERENCE, ...compose(REFERENCE, subgraphs) });
  }
  return { name: implementation.name, results, summary: compareResults(results, REFERENCE, implementation.name) };
}

/** True if the program agrees with the reference as often as required. */
export function isAgreementEnough({ compared, sameOutcome, sharedFailures, sameCodes }) {
  return compared > 0 && sameOutcome >= SAME_OUTCOME_MIN * compared && sameCodes >= SAME_CODES_MIN * sharedFailures;
}

/** Returns the corpus as federations. */
export async function corpusFederations() {
  const cases = await readCases();
  return cases.map(({ kind, name, subgraphs }) => ({ name: `${kind}/${name}`, subgraphs }));
}

/** Returns the federations on which the implementations differ, with both results, as JSON lines. */
function disagreementLines(federations, { results, summary }) {
  const names = new Set([...[...summary.disagreements.values()].flat(), ...summary.otherSupergraphs]);
  return federations.filter(({ name }) => names.has(name)).map((federation) => {
    const outcomes = results.filter(({ name }) => name === federation.name).map((result) => (
      { ...result, supergraph: result.success ? normalForm(result.supergraph) : undefined }
    ));
    return `${JSON.stringify({ ...federation, outcomes })}\n`;
  });
}

async function main() {
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
    process.exitCode = 2;
    return;
  }
  const federations = options.corpus
    ? await corpusFederations()
    : [...generate({ seed: Number(options.seed), count: Number(options.count) })];
  const comparison = await compareWithReference(program, federations);
  for (const line of reportLines(comparison.summary, REFERENCE, comparison.name, Number(options.examples))) {
    console.log(line);
  }
  if (options.disagreements !== undefined) {
    await writeFile(options.disagreements, disagreementLines(federations, comparison));
  }
  if (!isAgreementEnough(comparison.summary)) process.exitCode = 1;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();

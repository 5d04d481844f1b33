// Reads the corpus in `crates/compose/tests/reference` and writes the results of the packages beside the subgraphs.
//
// `node corpus.mjs` checks that the stored results are those of the installed packages; `node corpus.mjs --update`
// rewrites them. A case is a folder with one `*.graphql` file per subgraph, named after the subgraph. It receives
// `reference.json` (the result of each package) and, for merging rules, `reference.graphql` (the supergraph of the
// reference).
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

import { compose, PACKAGES, REFERENCE } from "./packages.mjs";

/** The root of the corpus. */
export const CORPUS = path.join(import.meta.dirname, "../../crates/compose/tests/reference");

/** The kinds of cases: error codes, hints, merging rules, disagreements and crashes of packages. */
export const KINDS = ["codes", "hints", "merging", "corners", "crashes"];

/** The file with the supergraph of the reference, which is no subgraph. */
const SUPERGRAPH_FILE = "reference.graphql";

/** The file with the results of the packages. */
const RESULTS_FILE = "reference.json";

/** Returns all cases as `{kind, name, folder, subgraphs}`, sorted by kind and name. */
export async function readCases() {
  const cases = [];
  for (const kind of KINDS) {
    const entries = await readdir(path.join(CORPUS, kind), { withFileTypes: true });
    const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name).sort();
    for (const name of names) {
      const folder = path.join(CORPUS, kind, name);
      cases.push({ kind, name, folder, subgraphs: await readSubgraphs(folder) });
    }
  }
  return cases;
}

async function readSubgraphs(folder) {
  const files = (await readdir(folder)).filter((file) => file.endsWith(".graphql") && file !== SUPERGRAPH_FILE);
  return Promise.all(files.sort().map(async (file) => {
    const name = path.basename(file, ".graphql");
    return { name, url: `http://${name}.example/graphql`, sdl: await readFile(path.join(folder, file), "utf8") };
  }));
}

/** Composes a case with every package and returns the texts of its result files by file name. */
export function resultFiles({ kind, subgraphs }) {
  const results = {};
  const files = {};
  for (const packageName of Object.keys(PACKAGES)) {
    const { success, codes, hints, crash, supergraph } = compose(packageName, subgraphs);
    results[packageName] = { success, codes, hints, crash: crash === undefined ? undefined : true };
    if (packageName === REFERENCE && kind === "merging" && supergraph !== undefined) {
      files[SUPERGRAPH_FILE] = `${supergraph.trimEnd()}\n`;
    }
  }
  files[RESULTS_FILE] = `${JSON.stringify(results, null, 2)}\n`;
  return files;
}

/** Returns the stored result files of a case, with `undefined` for a file that does not exist. */
export async function storedFiles({ folder }) {
  const read = (name) => readFile(path.join(folder, name), "utf8").catch(() => undefined);
  return { [RESULTS_FILE]: await read(RESULTS_FILE), [SUPERGRAPH_FILE]: await read(SUPERGRAPH_FILE) };
}

/** Returns the files whose stored text differs from the packages' results, and writes them if `isUpdate`. */
export async function checkCase(corpusCase, isUpdate) {
  const stored = await storedFiles(corpusCase);
  const expected = resultFiles(corpusCase);
  const changed = Object.keys(stored).filter((name) => stored[name] !== expected[name]);
  if (isUpdate) {
    for (const name of changed) {
      const file = path.join(corpusCase.folder, name);
      await (expected[name] === undefined ? rm(file) : writeFile(file, expected[name]));
    }
  }
  return changed;
}

async function main() {
  const isUpdate = process.argv.includes("--update");
  const cases = await readCases();
  let count = 0;
  for (const corpusCase of cases) {
    for (const name of await checkCase(corpusCase, isUpdate)) {
      count += 1;
      console.log(`${isUpdate ? "wrote" : "differs"}: ${corpusCase.kind}/${corpusCase.name}/${name}`);
    }
  }
  console.log(`${cases.length} cases, ${count} result files ${isUpdate ? "written" : "differ"}`);
  if (count > 0 && !isUpdate) process.exitCode = 1;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();

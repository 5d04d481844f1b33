// Reduces federations on which two implementations disagree, so that a person can judge them:
// `node reduce.mjs [PROGRAM] < federations`.
//
// Each line of standard input is `{"name", "subgraphs"}`, such as those of `differential.mjs --disagreements`. Parts
// are removed as long as the reference and PROGRAM (without it: the second package) keep their outcomes. The result is
// printed as readable text: both outcomes, then the SDL of the remaining subgraphs.
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

import { Kind, parse, print } from "graphql";

import { compose, REFERENCE, SECOND } from "./packages.mjs";
import { openProgram } from "./program.mjs";

/** The lists of a node whose members can be removed one by one, the largest parts first. */
const LISTS = ["definitions", "fields", "values", "types", "arguments", "interfaces", "directives", "operationTypes"];

/** Kinds whose members are not removed: these would change the meaning of a directive instead of simplifying it. */
const KEPT_KINDS = new Set([Kind.DIRECTIVE, Kind.LIST, Kind.OBJECT, Kind.DIRECTIVE_DEFINITION]);

/**
 * Returns the subgraphs with as much removed as possible while `isSame` (which may be asynchronous) stays true for
 * them. Subgraphs whose SDL does not parse stay as they are.
 */
export async function reduceFederation(subgraphs, isSame) {
  let current = subgraphs;
  for (let hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (let index = current.length - 1; index >= 0 && current.length > 1; index -= 1) {
      const fewer = current.filter((_, position) => position !== index);
      if (await isSame(fewer)) {
        current = fewer;
        hasChanged = true;
      }
    }
    for (let index = 0; index < current.length; index += 1) {
      const reduced = await reduceSubgraph(current, index, isSame);
      hasChanged ||= reduced[index].sdl !== current[index].sdl;
      current = reduced;
    }
  }
  return current;
}

/** Removes parts of one subgraph, each once. */
async function reduceSubgraph(subgraphs, index, isSame) {
  let document;
  try {
    document = parse(subgraphs[index].sdl, { noLocation: true });
  } catch {
    return subgraphs;
  }
  const withSdl = (sdl) => subgraphs.map((subgraph, position) => (
    position === index ? { ...subgraph, sdl } : subgraph
  ));
  let best = withSdl(print(document));
  if (!await isSame(best)) return subgraphs;
  const attempt = async (remove, restore) => {
    remove();
    const candidate = withSdl(print(document));
    // An element that needs a part prints as text that does not parse or fails in another way: both are not the same.
    if (document.definitions.length > 0 && await isSame(candidate)) best = candidate;
    else restore();
  };
  const visitNode = async (node) => {
    for (const name of LISTS) {
      if (!Array.isArray(node[name]) || KEPT_KINDS.has(node.kind)) continue;
      for (const part of [...node[name]].reverse()) {
        const before = node[name];
        await attempt(() => { node[name] = before.filter((other) => other !== part); }, () => { node[name] = before; });
      }
      for (const part of node[name]) await visitNode(part);
    }
    if (node.description !== undefined) {
      const { description } = node;
      await attempt(() => { node.description = undefined; }, () => { node.description = description; });
    }
  };
  await visitNode(document);
  return best;
}

function outcomeOf({ success, codes, crash }) {
  return crash !== undefined ? "crashes" : success ? "composes" : codes.join(", ");
}

async function main() {
  const program = process.argv[2] === undefined ? undefined : openProgram(process.argv[2]);
  const runSecond = program === undefined
    ? async ({ subgraphs }) => compose(SECOND, subgraphs)
    : program.compose;
  const outcomes = async (federation) => [
    outcomeOf(compose(REFERENCE, federation.subgraphs)), outcomeOf(await runSecond(federation)),
  ];
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const { name, subgraphs } = JSON.parse(line);
    const wanted = (await outcomes({ name, subgraphs })).join(" | ");
    const isSame = async (candidate) => (await outcomes({ name, subgraphs: candidate })).join(" | ") === wanted;
    const reduced = await reduceFederation(subgraphs, isSame);
    console.log(`# ${name}: ${wanted}`);
    for (const subgraph of reduced) console.log(`## ${subgraph.name}\n${subgraph.sdl}\n`);
  }
  await program?.close();
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();

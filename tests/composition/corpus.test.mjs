import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";

import { checkCase, readCases, resultFiles } from "./corpus.mjs";
import { REFERENCE } from "./packages.mjs";

const require = createRequire(import.meta.url);

/** Names that no composition of subgraphs reports. The README of the corpus has the reasons. */
const UNREACHABLE = {
  codes: [
    "DOWNSTREAM_SERVICE_ERROR",
    "INVALID_FEDERATION_SUPERGRAPH",
    "MAX_VALIDATION_SUBGRAPH_PATHS_EXCEEDED",
    "UNSUPPORTED_FEATURE",
    "UNSUPPORTED_LINKED_FEATURE",
  ],
  hints: ["INCONSISTENT_TYPE_SYSTEM_DIRECTIVE_LOCATIONS", "INCONSISTENT_TYPE_SYSTEM_DIRECTIVE_REPEATABLE"],
};

const cases = await readCases();

test("the stored results are those of the installed packages", async () => {
  for (const corpusCase of cases) {
    const changed = await checkCase(corpusCase, false);
    assert.deepEqual(changed, [], `${corpusCase.kind}/${corpusCase.name}: run \`node corpus.mjs --update\``);
  }
});

test("each case shows what its folder is named after", () => {
  for (const corpusCase of cases) {
    const { kind, name } = corpusCase;
    const results = JSON.parse(resultFiles(corpusCase)["reference.json"]);
    const { success, codes, hints } = results[REFERENCE];
    if (kind === "codes") assert.deepEqual(codes, [name]);
    else if (kind === "crashes") {
      assert.ok(Object.values(results).some(({ crash }) => crash), `${name} crashes nothing`);
    } else if (kind !== "corners") assert.ok(success, `${kind}/${name} fails with ${codes}`);
    if (kind === "hints") assert.ok(hints.includes(name), `${name} is not among ${hints}`);
  }
});

test("each code and hint of the reference has a case", () => {
  const { ERRORS } = require("@apollo/federation-internals");
  const { HINTS } = require("@apollo/composition/dist/hints.js");
  for (const [kind, definitions] of Object.entries({ codes: ERRORS, hints: HINTS })) {
    const known = new Set(Object.values(definitions).map((definition) => definition.code));
    const covered = cases.filter((corpusCase) => corpusCase.kind === kind).map((corpusCase) => corpusCase.name);
    assert.deepEqual([...covered, ...UNREACHABLE[kind]].sort(), [...known].sort());
  }
});

test("the first subgraph of each case begins with a comment", () => {
  for (const { kind, name, subgraphs } of cases) {
    assert.ok(subgraphs[0].sdl.startsWith("# "), `${kind}/${name} has no comment`);
  }
});

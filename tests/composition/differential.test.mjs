import assert from "node:assert/strict";
import process from "node:process";
import test from "node:test";

import { reportLines } from "./agreement.mjs";
import { compareWithReference, corpusFederations, isAgreementEnough } from "./differential.mjs";
import { generate } from "./generate.mjs";
import { REFERENCE } from "./packages.mjs";

/** The program that composes JSON lines. Without it the comparison is skipped. */
const PROGRAM = process.env.STARLING_TEST_COMPOSE_LINES;

/** The number of generated federations that are compared. */
const FEDERATIONS = 1000;

/** Merging rules whose supergraph differs from that of the reference on purpose, in the order of their names. */
const OTHER_SUPERGRAPHS = [
  // The link of cache tags is written without `for: EXECUTION`: a router that does not know them may ignore them.
  "merging/cache_tag",
  // A requirement of a Federation 1 subgraph that the subgraph resolves itself is kept. It is harmless.
  "merging/federation_1_requires_a_resolved_field",
];

const skip = PROGRAM === undefined ? "STARLING_TEST_COMPOSE_LINES names no program" : false;

async function check(federations) {
  const { name, summary } = await compareWithReference(PROGRAM, federations);
  assert.ok(isAgreementEnough(summary), reportLines(summary, REFERENCE, name, 3).join("\n"));
}

test("composition agrees with the reference on generated federations", { skip }, () => (
  check([...generate({ seed: 1, count: FEDERATIONS })])
));

test("composition agrees with the reference on the cases of codes, hints and merging rules", { skip }, async () => {
  const kinds = ["codes/", "hints/", "merging/"];
  await check((await corpusFederations()).filter(({ name }) => kinds.some((kind) => name.startsWith(kind))));
});

test("supergraphs of merging rules are those of the reference", { skip }, async () => {
  const merging = (await corpusFederations()).filter(({ name }) => name.startsWith("merging/"));
  const { summary } = await compareWithReference(PROGRAM, merging);
  assert.equal(summary.sharedSuccesses, merging.length);
  assert.deepEqual(summary.otherSupergraphs.sort(), OTHER_SUPERGRAPHS);
});

test("the required agreement has a bound for outcomes and one for codes", () => {
  const summary = { compared: 100, sameOutcome: 97, sharedFailures: 40, sameCodes: 34 };
  assert.ok(isAgreementEnough(summary));
  assert.ok(!isAgreementEnough({ ...summary, sameOutcome: 96 }));
  assert.ok(!isAgreementEnough({ ...summary, sameCodes: 33 }));
  assert.ok(!isAgreementEnough({ compared: 0, sameOutcome: 0, sharedFailures: 0, sameCodes: 0 }));
});

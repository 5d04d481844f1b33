import assert from "node:assert/strict";
import test from "node:test";

import { generate } from "./generate.mjs";
import { generateFederation } from "./generator/federation.mjs";
import { MUTATIONS } from "./generator/mutations.mjs";
import { LARGE } from "./generator/plan.mjs";
import { seededRandom } from "./generator/random.mjs";
import { toRigInput } from "./generator/schema.mjs";
import { compose, REFERENCE } from "./packages.mjs";

/** The numbers of types in a graph for measurements of speed: 2,300, give or take what chance leaves unused. */
const LARGE_TYPES = [2_250, 2_350];

test("the same seed gives the same federations", () => {
  const run = () => JSON.stringify([...generate({ seed: 5, count: 20 })]);
  assert.equal(run(), run());
});

test("a federation does not depend on those before it", () => {
  const all = [...generate({ seed: 5, count: 20 })];
  assert.deepEqual([...generate({ seed: 5, count: 7 })].at(-1), all[6]);
});

test("federations without mutations compose", () => {
  for (const { name, subgraphs } of generate({ seed: 2, count: 80, isValid: true })) {
    const { success, messages } = compose(REFERENCE, subgraphs);
    assert.ok(success, `${name}: ${messages}`);
  }
});

test("about half of the mutated federations fail", () => {
  const federations = [...generate({ seed: 3, count: 120 })];
  const failures = federations.filter(({ subgraphs }) => !compose(REFERENCE, subgraphs).success).length;
  assert.ok(failures > 40 && failures < 80, `${failures} of 120 fail`);
});

test("each mutation finds a place and changes the federation", () => {
  for (const [name, apply] of Object.entries(MUTATIONS)) {
    const isEffective = Array.from({ length: 200 }, (_, seed) => seededRandom(seed)).some((random) => {
      const federation = generateFederation(random, name);
      const before = JSON.stringify(toRigInput(federation));
      return apply(random, federation) && JSON.stringify(toRigInput(federation)) !== before;
    });
    assert.ok(isEffective, name);
  }
});

test("the graph for measurements of speed has 190 subgraphs and about 2,300 types", () => {
  const [{ subgraphs }] = generate({ seed: 1, count: 1, isValid: true, size: LARGE });
  assert.equal(subgraphs.length, 190);
  const definition = /^(?:extend )?(?:type|interface|union|enum|input|scalar) (\w+)/gm;
  const types = new Set();
  for (const { sdl } of subgraphs) {
    for (const [, name] of sdl.matchAll(definition)) types.add(name);
  }
  const [least, most] = LARGE_TYPES;
  assert.ok(types.size >= least && types.size <= most, `${types.size} types`);
});

// Writes generated federations as input for the rig: `node generate.mjs [--count 1000] [--seed 1] [--valid] [--large]`.
//
// `--valid` leaves out the mutations, `--large` makes graphs of 190 subgraphs with 2,300 types. The same options always
// give the same federations. A federation is called `SEED-NUMBER` and, if mutated, lists its mutations.
import process from "node:process";
import { parseArgs } from "node:util";

import { generateFederation } from "./generator/federation.mjs";
import { mutate } from "./generator/mutations.mjs";
import { LARGE, SMALL } from "./generator/plan.mjs";
import { seededRandom } from "./generator/random.mjs";
import { toRigInput } from "./generator/schema.mjs";

const { values: options } = parseArgs({
  options: {
    count: { type: "string", default: "1000" },
    seed: { type: "string", default: "1" },
    valid: { type: "boolean", default: false },
    large: { type: "boolean", default: false },
  },
});

for (let number = 1; number <= Number(options.count); number += 1) {
  // Federations of one run are independent: each can be made again without those before it.
  const random = seededRandom(Number(options.seed) * 1_000_003 + number);
  const federation = generateFederation(random, `${options.seed}-${number}`, options.large ? LARGE : SMALL);
  const mutations = options.valid ? [] : mutate(random, federation);
  process.stdout.write(`${JSON.stringify({ ...toRigInput(federation), mutations })}\n`);
}

// Writes generated federations as input for the rig: `node generate.mjs [--count 1000] [--seed 1] [--valid] [--large]`.
//
// `--valid` leaves out the mutations, `--large` makes graphs of 190 subgraphs with 2,300 types. The same options always
// give the same federations. A federation is called `SEED-NUMBER` and lists its mutations.
import process from "node:process";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { generateFederation } from "./generator/federation.mjs";
import { mutate } from "./generator/mutations.mjs";
import { LARGE, SMALL } from "./generator/plan.mjs";
import { seededRandom } from "./generator/random.mjs";
import { toRigInput } from "./generator/schema.mjs";

/** Generates federations as input for the rig, one after the other. */
export function* generate({ seed, count, isValid = false, size = SMALL }) {
  for (let number = 1; number <= count; number += 1) {
    // Federations of one run are independent: each can be made again without those before it.
    const random = seededRandom(seed * 1_000_003 + number);
    const federation = generateFederation(random, `${seed}-${number}`, size);
    const mutations = isValid ? [] : mutate(random, federation);
    yield { ...toRigInput(federation), mutations };
  }
}

function main() {
  const { values: options } = parseArgs({
    options: {
      count: { type: "string", default: "1000" },
      seed: { type: "string", default: "1" },
      valid: { type: "boolean", default: false },
      large: { type: "boolean", default: false },
    },
  });
  const size = options.large ? LARGE : SMALL;
  const federations = generate({
    seed: Number(options.seed), count: Number(options.count), isValid: options.valid, size,
  });
  for (const federation of federations) process.stdout.write(`${JSON.stringify(federation)}\n`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) main();

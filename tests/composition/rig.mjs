// Composes many federations in one process: `node rig.mjs [--supergraph] [--messages] [--package NAME] < federations`.
//
// Each line of standard input is `{"name", "subgraphs": [{"name", "url", "sdl"}]}`. For each line and package, one line
// is written: `{"name", "package", "success", "codes", "hints"}`, with `crash` if the package threw an exception.
// `--supergraph` adds the supergraph SDL, `--messages` the texts of errors and hints (for reading, not for tests), and
// `--package` restricts the run to one package.
import process from "node:process";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { compose, PACKAGES } from "./packages.mjs";

const { values: options } = parseArgs({
  options: {
    supergraph: { type: "boolean", default: false },
    messages: { type: "boolean", default: false },
    package: { type: "string", multiple: true, default: Object.keys(PACKAGES) },
  },
});
const unknown = options.package.find((name) => !(name in PACKAGES));
if (unknown !== undefined) {
  console.error(`unknown package ${unknown}; known: ${Object.keys(PACKAGES).join(", ")}`);
  process.exit(2);
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (line.trim() === "") continue;
  const { name, subgraphs } = JSON.parse(line);
  for (const packageName of options.package) {
    const { messages, supergraph, ...outcome } = compose(packageName, subgraphs);
    const output = { name, package: packageName, ...outcome };
    if (options.messages) output.messages = messages;
    if (options.supergraph && supergraph !== undefined) output.supergraph = supergraph;
    // A full pipe must not let the output pile up in memory.
    if (!process.stdout.write(`${JSON.stringify(output)}\n`)) {
      await new Promise((resolve) => process.stdout.once("drain", resolve));
    }
  }
}

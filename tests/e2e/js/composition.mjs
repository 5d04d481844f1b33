// Composition by `starling compose`, as a user does it.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { promisify } from "node:util";

/** The time that composition may take, on a busy machine. */
const COMPOSE_MS = 60_000;

/**
 * Writes the composition configuration of `subgraphs` to `folder`: name → `{sdl, url}`, without `url` for an event
 * subgraph, and with `more` as further keys of the subgraph. Returns the path of the configuration.
 */
export async function writeComposition(folder, subgraphs) {
  await mkdir(folder, { recursive: true });
  const entries = {};
  for (const [name, { sdl, url, more }] of Object.entries(subgraphs)) {
    await writeFile(path.join(folder, `${name}.graphql`), sdl);
    entries[name] = { schema: { file: `${name}.graphql` }, ...(url && { routing_url: url }), ...more };
  }
  const file = path.join(folder, "supergraph.yaml");
  // JSON is valid YAML.
  await writeFile(file, JSON.stringify({ subgraphs: entries }));
  return file;
}

/** Composes the configuration that `writeComposition` wrote, and returns the supergraph. */
export async function composeFile(file) {
  const output = path.join(path.dirname(file), "supergraph.graphql");
  const words = ["compose", "--config", file, "--output", output];
  await promisify(execFile)(process.env.STARLING_BIN, words, { timeout: COMPOSE_MS });
  return readFile(output, "utf8");
}

/** Composes `subgraphs` (see `writeComposition`) in a folder of its own. */
export async function compose(subgraphs) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-composition-"));
  try {
    return await composeFile(await writeComposition(folder, subgraphs));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

// The archives of a release that `cargo xtask test` packs from the router that it has built, for the suites `packages`.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { skipBecause } from "./programs.mjs";

const ROOT = path.join(import.meta.dirname, "../../..");

/** The target in the names of archives for this machine. */
export const TARGET = `${process.arch === "arm64" ? "aarch64" : "x86_64"}-unknown-linux-gnu`;

/** The folder of the archives. */
export const ARCHIVES = process.env.STARLING_TEST_DIST;

export const VERSION = (await readFile(path.join(ROOT, "Cargo.toml"), "utf8")).match(/^version = "(.*)"$/m)[1];

/** The name of the archive for this machine, without its ending, and of the folder in it. */
export const NAME = `starling-${VERSION}-${TARGET}`;

/** The programs that the installer calls, except those for an address. */
export const INSTALLER_TOOLS = [
  "cat", "chmod", "cp", "dirname", "grep", "gzip", "head", "mkdir", "mktemp", "mv", "rm", "rmdir", "sed", "sha256sum",
  "tar", "uname",
];

/** For the `skip` option of a test: false, or the reason. Throws under CI=true. */
export function skipWithoutArchives() {
  return ARCHIVES ? false : skipBecause("there are no archives: `cargo xtask test --filter packages` makes them");
}

/** Runs a program to its end: `{code, out, error}`. */
export function run(program, words, { cwd, env } = {}) {
  return new Promise((resolve) => {
    execFile(program, words, { cwd, env, maxBuffer: 64 << 20 }, (failure, out, error) => {
      resolve({ code: failure ? failure.code : 0, out, error });
    });
  });
}

/** All files below a folder, relative to it. */
export async function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => !entry.isDirectory());
  return files.map((entry) => path.relative(folder, path.join(entry.parentPath ?? entry.path, entry.name))).sort();
}

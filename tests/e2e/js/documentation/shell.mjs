// Shell blocks: bash in the page's folder, with `starling` and `curl` wrapped so that samples work as they are written.
import { spawn } from "node:child_process";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { adopt } from "../children.mjs";
import { within } from "../waiting.mjs";

/** How much of what a block prints is kept. */
const OUTPUT_CHARACTERS_MAX = 200_000;

/** How long programs of a page have for a clean end. */
const END_MS = 15_000;

/** How long `curl -N` waits for its first event. */
const STREAM_SECONDS_MAX = 30;

/** Adds the ports of the page to `serve` and `demo`, unless the sample names its own. */
const STARLING = `#!/bin/bash
case "$1 $*" in
  *--help*|*--listen*) ;;
  "serve "*|"demo "*) set -- "$@" --listen "127.0.0.1:$PAGE_PORT" --admin-listen "127.0.0.1:$PAGE_ADMIN_PORT" ;;
esac
exec "$STARLING_BIN" "$@"
`;

/** Ends a stream once its first event has been printed, which a reader does with Ctrl-C. */
const CURL = `#!/bin/bash
real=$(PATH="$PATH_BEFORE" command -v curl)
for word in "$@"; do
  if [[ "$word" =~ ^-[a-zA-Z]*N || "$word" == --no-buffer ]]; then
    # Line by line in the shell: some awks wait for a whole block of a pipe.
    seen=""
    while IFS= read -r line; do
      printf '%s\\n' "$line"
      [[ "$line" =~ ^data:|^\\{\\"payload\\" ]] && seen=1
      [[ -n "$seen" && "$line" =~ ^.?$ ]] && exit 0
    done < <(exec "$real" --max-time ${STREAM_SECONDS_MAX} "$@")
    [[ -n "$seen" ]]
    exit
  fi
done
exec "$real" "$@"
`;

/** The folder with the wrappers, for `PATH`. */
export async function installWrappers(folder) {
  const bin = path.join(folder, ".bin");
  await mkdir(bin);
  for (const [name, text] of [["starling", STARLING], ["curl", CURL]]) {
    await writeFile(path.join(bin, name), text);
    await chmod(path.join(bin, name), 0o755);
  }
  return bin;
}

/**
 * Starts `script` in `folder`. Variables and functions of earlier scripts of the folder are there. Answers with
 * `{ended: Promise<exit code>, output(), end()}`.
 */
export function startShell(script, { folder, bin, ports }) {
  const state = path.join(folder, ".state");
  const whole = `
    [ -f ${state} ] && . ${state} 2>/dev/null
    set -eo pipefail
    trap 'status=$?; { declare -p | grep -vE "^declare -[a-zA-Z]*r|^declare -[-a-zA-Z]* (BASH|FUNCNAME|PIPESTATUS|_=|SHLVL|PWD|OLDPWD|PATH|status=)"; declare -f; } > ${state}; exit $status' EXIT
    ${script}`;
  const child = spawn("bash", ["-c", whole], {
    cwd: folder,
    // A group of its own, so that what it has started ends with it.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env, PATH: `${bin}:${process.env.PATH}`, PATH_BEFORE: process.env.PATH,
      PAGE_PORT: `${ports.graphql}`, PAGE_ADMIN_PORT: `${ports.admin}`, RUST_BACKTRACE: "0",
    },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text) => {
      output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
    });
  }
  const ended = new Promise((resolve) => {
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  adopt(child);
  process.once("exit", () => signalGroup(child, "SIGKILL"));
  return {
    ended,
    output: () => output,
    isRunning: () => child.exitCode === null && child.signalCode === null,
    async end() {
      signalGroup(child, "SIGTERM");
      await within(ended, "a shell to end after SIGTERM", END_MS).catch(() => signalGroup(child, "SIGKILL"));
      await within(ended, "a shell to end after SIGKILL");
    },
  };
}

/** Signals a shell and what it has started. */
function signalGroup(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

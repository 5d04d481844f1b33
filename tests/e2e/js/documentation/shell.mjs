// Shell blocks: bash in the page's folder, with `starling` and `curl` wrapped so that samples run unchanged.
import { spawn } from "node:child_process";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { adopt } from "../children.mjs";
import { within } from "../waiting.mjs";

const running = new Set();
process.on("exit", () => {
  for (const child of running) signalGroup(child, "SIGKILL");
});

/** How much output of a block is kept. */
const OUTPUT_CHARACTERS_MAX = 200_000;

/** The time that programs of a page have to exit cleanly. */
const END_MS = 15_000;

/** How long `curl -N` waits for its first event. */
const STREAM_SECONDS_MAX = 30;

/** Makes `serve`, `dev` and `demo` listen on the ports of the page, and `mock` on a free one unless it names one. */
const STARLING = `#!/bin/bash
words=() listen=
while [ $# -gt 0 ]; do
  case "$1" in --listen) listen=$2; shift ;; --admin-listen) shift ;; *) words+=("$1") ;; esac
  shift
done
case " \${words[*]} " in
  *" --help "*) ;;
  " serve "*|" dev "*|" demo "*) words+=(--listen "127.0.0.1:$PAGE_PORT" --admin-listen "127.0.0.1:$PAGE_ADMIN_PORT") ;;
  " mock "*) words+=(--listen "\${listen:-127.0.0.1:0}") ;;
esac
exec "$STARLING_BIN" "\${words[@]}"
`;

/** Of all routers on the machine, returns the one of the page. */
const PIDOF = `#!/bin/bash
curl -s "$PAGE_ADMIN/metrics" >/dev/null || exit 1
# The process whose socket listens at the port of the admin listener.
inode=$(awk -v port="$(printf ':%04X' "\${PAGE_ADMIN##*:}")" '$4 == "0A" && $2 ~ port "$" {print $10}' /proc/net/tcp)
find /proc/[0-9]*/fd -lname "socket:\\[$inode\\]" 2>/dev/null | head -n 1 | cut -d/ -f3
`;

/**
 * Ends a stream after its first event, as a reader does with Ctrl-C. With `STREAM_OPEN` it stays open for the events that
 * a sample shows after that.
 */
const CURL = `#!/bin/bash
real=$(PATH="$PATH_BEFORE" command -v curl)
until_event() {
  local line seen=
  while IFS= read -r line; do
    printf '%s\\n' "$line"
    [[ "$line" == data:* || "$line" == '{"payload"'* ]] && seen=1
    [[ -n "$seen" && "$line" =~ ^.?$ ]] && return 0
  done
  [[ -n "$seen" ]]
}
for word in "$@"; do
  [[ -z "$STREAM_OPEN" ]] || break
  if [[ "$word" =~ ^-[a-zA-Z]*N || "$word" == --no-buffer ]]; then
    "$real" --max-time ${STREAM_SECONDS_MAX} "$@" | until_event
    exit "\${PIPESTATUS[1]}"
  fi
done
exec "$real" "$@"
`;

/** The folder with the wrappers, for `PATH`. */
export async function installWrappers(folder) {
  const bin = path.join(folder, ".bin");
  await mkdir(bin);
  for (const [name, text] of [["starling", STARLING], ["curl", CURL], ["pidof", PIDOF]]) {
    await writeFile(path.join(bin, name), text);
    await chmod(path.join(bin, name), 0o755);
  }
  return bin;
}

/**
 * Starts `script` in `folder` with the variables and functions of earlier scripts of the folder. Returns `{ended:
 * Promise<exit code>, output(), end()}`.
 */
export function startShell(script, { folder, bin, ports, adminUrl, environment = {} }) {
  const state = path.join(folder, ".state");
  const whole = `
    [ -f ${state} ] && . ${state} 2>/dev/null
    set -eo pipefail
    trap 'status=$?; { declare -p | grep -vE "^declare -[a-zA-Z]*r|^declare -[-a-zA-Z]* (BASH|FUNCNAME|PIPESTATUS|_=|SHLVL|PWD|OLDPWD|PATH|status=)"; declare -f; } > ${state}; exit $status' EXIT
    ${script}`;
  const child = spawn("bash", ["-c", whole], {
    cwd: folder,
    // Its own process group, so that all processes it has started end with it.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env, PATH: `${bin}:${process.env.PATH}`, PATH_BEFORE: process.env.PATH,
      PAGE_PORT: `${ports.graphql}`, PAGE_ADMIN_PORT: `${ports.admin}`, PAGE_ADMIN: adminUrl,
      RUST_BACKTRACE: "0", ...environment,
    },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text) => {
      output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
    });
  }
  let hasClosed = false;
  const ended = new Promise((resolve) => {
    child.once("close", (code, signal) => {
      hasClosed = true;
      resolve(code ?? signal);
    });
  });
  adopt(child);
  running.add(child);
  child.once("close", () => running.delete(child));
  return {
    ended,
    output: () => output,
    isRunning: () => child.exitCode === null && child.signalCode === null,
    async end() {
      if (hasClosed) return;
      signalGroup(child, "SIGTERM");
      await within(ended, "a shell to end after SIGTERM", END_MS).catch(() => signalGroup(child, "SIGKILL"));
      await within(ended, "a shell to end after SIGKILL");
    },
  };
}

/** Sends a signal to a shell and to the processes that it has started, which may outlive it. */
function signalGroup(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

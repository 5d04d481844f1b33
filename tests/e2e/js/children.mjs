// Programs that a suite starts must not outlive it, however it ends: its own `stop`, a failed hook
// (then nobody calls `stop`), or the test runner's SIGTERM after the time is up.
import process from "node:process";

const alive = new Set();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
});
process.once("SIGTERM", () => process.exit(143));

/** Ends `child` when this process ends, and does not let it keep this process alive. */
export function adopt(child) {
  alive.add(child);
  child.once("exit", () => alive.delete(child));
  for (const handle of [child, child.stdout, child.stderr]) handle?.unref();
}

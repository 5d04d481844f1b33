// Programs started by a suite must not outlive it, whether it ends by its own `stop`, by a failed hook (then `stop` is
// not called) or by the test runner's SIGTERM after the timeout.
import { rmSync } from "node:fs";
import process from "node:process";

const alive = new Set();
const folders = new Set();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});
process.once("SIGTERM", () => process.exit(143));

/**
 * Ends `child` and removes its `folder` when this process ends, and does not let the child keep this
 * process alive.
 */
export function adopt(child, folder) {
  alive.add(child);
  if (folder) folders.add(folder);
  child.once("exit", () => alive.delete(child));
  for (const handle of [child, child.stdout, child.stderr]) handle?.unref();
}

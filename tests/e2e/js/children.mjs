// Programs that a suite starts must not outlive it, however it ends: its own `stop`, a failed hook
// (then nobody calls `stop`), or the test runner's SIGTERM after the time is up.
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

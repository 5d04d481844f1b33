// Processes that keep all processors busy, for tests of guarantees that also hold on a loaded machine.
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import process from "node:process";
import { adopt } from "./children.mjs";

/** Keeps all processors busy; returns a function that stops it. */
export function loadProcessors() {
  const burners = Array.from({ length: availableParallelism() }, () => {
    const child = spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" });
    adopt(child);
    return child;
  });
  return () => burners.forEach((child) => child.kill("SIGKILL"));
}

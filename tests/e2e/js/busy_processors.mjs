// Processes that keep all processors busy, for tests of promises that hold on a loaded machine too.
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import process from "node:process";
import { adopt } from "./children.mjs";

/** Keeps all processors busy; returns a function that ends it. */
export function burnProcessors() {
  const burners = Array.from({ length: availableParallelism() }, () => {
    const child = spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" });
    adopt(child);
    return child;
  });
  return () => burners.forEach((child) => child.kill("SIGKILL"));
}

// Starts the program in subgraphs_process.mjs and causes its faults.
import { fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { adopt } from "../children.mjs";
import { within } from "../waiting.mjs";

/** Starts the subgraphs; `configuration` is for `subgraphs:` of the router. */
export async function startSubgraphProcess() {
  const child = fork(path.join(import.meta.dirname, "subgraphs_process.mjs"));
  adopt(child);
  const [{ configuration }] = await within(once(child, "message"), "the subgraphs to listen");
  return {
    configuration,
    setFaults: (faults) => child.send({ delayMs: 0, failing: 0, ...faults }),
    stand: () => child.kill("SIGSTOP"),
    go: () => child.kill("SIGCONT"),
    async stop() {
      if (!child.connected) throw new Error("the subgraphs have ended before the scenario");
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await within(ended, "the subgraphs to end");
    },
  };
}

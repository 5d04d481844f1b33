// The subgraphs of the board as a program of their own, so that they can be stopped (SIGSTOP) while clients go on.
// A message {delayMs, failing} of the parent process changes how they respond; `failing` is the share of requests that
// fail, half of them by status 503 and half by a closed connection.
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { startSubgraphs } from "../board.mjs";

let faults = { delayMs: 0, failing: 0 };
let requests = 0;
process.on("message", (changed) => {
  faults = changed;
});
process.on("disconnect", () => process.exit(0));

const { configuration } = await startSubgraphs(async (response) => {
  requests += 1;
  const { delayMs, failing } = faults;
  if (delayMs > 0) await pause(delayMs);
  // Evenly distributed, so that a run can be repeated.
  if (Math.floor(requests * failing) === Math.floor((requests - 1) * failing)) return false;
  if (requests % 2 === 0) response.socket.destroy();
  else response.writeHead(503).end();
  return true;
});
process.send({ configuration });

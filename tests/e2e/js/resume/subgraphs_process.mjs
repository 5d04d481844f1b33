// The subgraphs of the board as a program of their own, so that they can be stopped (SIGSTOP) while clients go on.
// A message {delayMs, failing} of the parent process changes how they respond; `failing` is the share of requests that
// fail, half of them by status 503 and half by a closed connection.
import http from "node:http";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { startSubgraphs } from "../board.mjs";

let faults = { delayMs: 0, failing: 0 };
let requests = 0;
process.on("message", (changed) => {
  faults = changed;
});
process.on("disconnect", () => process.exit(0));

// The board makes its servers with this function; in this process each of them has faults before it.
const { createServer } = http;
http.createServer = (respond) => createServer(async (request, response) => {
  const { delayMs, failing } = faults;
  if (delayMs > 0) await pause(delayMs);
  requests += 1;
  // Evenly distributed, so that a run can be repeated.
  const isFailing = Math.floor(requests * failing) > Math.floor((requests - 1) * failing);
  // A router that is killed leaves requests half read.
  if (!isFailing) await respond(request, response).catch(() => response.destroy());
  else if (requests % 2 === 0) response.destroy();
  else response.writeHead(503).end();
});

const { configuration } = await startSubgraphs();
process.send({ configuration });

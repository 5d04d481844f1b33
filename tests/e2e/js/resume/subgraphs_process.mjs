// The subgraphs of the board in their own process, so that they can be stopped (SIGSTOP) while clients continue. A
// message {delayMs, failing} from the parent process changes their responses; `failing` is the fraction of requests
// that fail, half of them with status 503 and half with a closed connection.
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

// The board creates its servers with this function; in this process each of them applies the faults first.
const { createServer } = http;
http.createServer = (respond) => createServer(async (request, response) => {
  const { delayMs, failing } = faults;
  if (delayMs > 0) await pause(delayMs);
  requests += 1;
  // Evenly distributed, so that a run can be repeated.
  const isFailing = Math.floor(requests * failing) > Math.floor((requests - 1) * failing);
  // A killed router leaves partially read requests.
  if (!isFailing) await respond(request, response).catch(() => response.destroy());
  else if (requests % 2 === 0) response.destroy();
  else response.writeHead(503).end();
});

const { configuration } = await startSubgraphs();
process.send({ configuration });

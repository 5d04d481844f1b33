// Queries at a constant rate, whether or not earlier ones have their responses, on kept-alive connections. A thread of
// their own sends them: subscribers of a test delay neither the next query nor the time that is measured.
import { once } from "node:events";
import http from "node:http";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { WAIT_TIMEOUT_MS, within } from "./waiting.mjs";

/** Time between two looks at the clock. */
const TICK_MS = 5;

/** How many failures are described. */
const FAILURES_SHOWN_MAX = 5;

/**
 * Starts the thread. `queries` are sent in turn to `address`: `{body, expected}`, the texts of request and response.
 * At most `connections` are used at a time.
 */
export function startQueryLoad({ address, queries, perSecond, connections }) {
  const worker = new Worker(new URL(import.meta.url), { workerData: { address, queries, perSecond, connections } });
  worker.unref();
  return {
    /**
     * Ends when all queries have their responses, with `{sent, seconds, opened, slowestMs, failed, failures}`: for how
     * long queries were sent, how many connections were opened, and the number and some descriptions of failures.
     */
    async stop() {
      const result = once(worker, "message");
      worker.postMessage("stop");
      const [figures] = await within(result, "the last queries", 2 * WAIT_TIMEOUT_MS);
      return figures;
    },
  };
}

if (!isMainThread) {
  const { address, queries, perSecond, connections } = workerData;
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const sockets = new WeakSet();
  const pending = new Set();
  const figures = { sent: 0, seconds: 0, opened: 0, slowestMs: 0, failed: 0, failures: [] };

  const post = (body) => new Promise((resolve, reject) => {
    const request = http.request(`http://${address}/graphql`, {
      agent,
      method: "POST",
      headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) },
      signal: AbortSignal.timeout(WAIT_TIMEOUT_MS),
    });
    request.on("socket", (socket) => {
      if (!sockets.has(socket)) figures.opened += 1;
      sockets.add(socket);
    });
    request.on("error", reject);
    request.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part) => {
        text += part;
      });
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode, text }));
    });
    request.end(body);
  });

  const send = async ({ body, expected }) => {
    const begun = performance.now();
    try {
      const { status, text } = await post(body);
      if (status !== 200 || text !== expected) throw new Error(`status ${status}: ${text}`);
    } catch (error) {
      figures.failed += 1;
      const description = `${new Date().toISOString()}: ${error.cause ?? error}`;
      if (figures.failed <= FAILURES_SHOWN_MAX) figures.failures.push(description);
    }
    figures.slowestMs = Math.max(figures.slowestMs, Math.round(performance.now() - begun));
  };

  const begun = performance.now();
  const timer = setInterval(() => {
    const due = ((performance.now() - begun) * perSecond) / 1_000;
    for (; figures.sent < due; figures.sent += 1) {
      const query = send(queries[figures.sent % queries.length]).finally(() => pending.delete(query));
      pending.add(query);
    }
  }, TICK_MS);
  parentPort.once("message", async () => {
    clearInterval(timer);
    figures.seconds = (performance.now() - begun) / 1_000;
    await Promise.all(pending);
    agent.destroy();
    parentPort.postMessage(figures);
  });
}

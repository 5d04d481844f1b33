// A real redis-server for a suite.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { adopt } from "./children.mjs";
import { redisServer } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { within } from "./waiting.mjs";

/**
 * Starts a server on `port` or on a free port. With `folder`, that of an earlier server, it has that server's stored
 * data; with `stores` alone it starts to store data. `options` are further arguments of the server.
 */
export async function startRedis(port, { stores = false, folder, options = [] } = {}) {
  port ??= await freePort();
  const isKept = stores || folder !== undefined;
  folder ??= await mkdtemp(path.join(tmpdir(), "starling-redis-"));
  const child = spawn(
    redisServer(),
    [
      "--bind", "127.0.0.1", "--port", `${port}`, "--save", "", "--dir", folder,
      "--appendonly", isKept ? "yes" : "no", ...options,
    ],
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);
  // The server reports on its standard output when it listens; the rest is read so that the pipe does not fill.
  await within(new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`redis-server ended with ${code}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (line.includes("Ready to accept connections")) resolve();
    });
  }), "redis-server to listen");
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    folder,
    /** Stops the process without ending it (`SIGSTOP`), or lets it continue (`SIGCONT`). */
    signal: (name) => child.kill(name),
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "redis-server to end");
    },
  };
}

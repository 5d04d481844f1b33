// A real nats-server for a suite.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "./children.mjs";
import { natsServer } from "./programs.mjs";
import { eventually, within } from "./waiting.mjs";

/**
 * Starts a server on `port` or on a free port. With `stores` it has JetStream; with `store`, the folder of an earlier
 * server, it has that server's stored data.
 */
export async function startNats(port = -1, { stores = false, store } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-nats-"));
  // Only the `.ports` file contains the address of the server.
  store ??= path.join(folder, "store");
  const words = stores ? ["-js", "-sd", store] : [];
  const child = spawn(
    natsServer(),
    ["-a", "127.0.0.1", "-p", `${port}`, "--ports_file_dir", folder, ...words],
    { stdio: "ignore" },
  );
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);
  // The server writes its address to a file.
  const url = await eventually(async () => {
    if (child.exitCode !== null) {
      throw Object.assign(new Error(`nats-server ended with ${child.exitCode}`), { fatal: true });
    }
    const [file] = (await readdir(folder)).filter((name) => name.endsWith(".ports"));
    return file && JSON.parse(await readFile(path.join(folder, file), "utf8")).nats[0];
  }, "nats-server to listen");
  return {
    url,
    port: Number(new URL(url).port),
    store,
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "nats-server to end");
    },
  };
}

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
 * Starts a server on `port`, or on one that is free; with `stores`, one that has JetStream; with `store`, the folder of
 * an earlier one, it has what was stored there.
 */
export async function startNats(port = -1, { stores = false, store } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-nats-"));
  // The files beside the one in which it says where it listens are none of `.ports`.
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
  // The server itself says where it listens, in a file.
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

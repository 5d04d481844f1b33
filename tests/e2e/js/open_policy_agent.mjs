// A real Open Policy Agent for a suite.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "./children.mjs";
import { openPolicyAgent } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { eventually, within } from "./waiting.mjs";

/** Starts a server with these rules, in Rego. `port` is that of an earlier one, which this one replaces. */
export async function startOpenPolicyAgent(rules, { port } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-opa-"));
  const file = path.join(folder, "rules.rego");
  await writeFile(file, rules);
  port ??= await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(
    openPolicyAgent(),
    ["run", "--server", "--disable-telemetry", "--addr", `127.0.0.1:${port}`, file],
    { stdio: "ignore" },
  );
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);
  await eventually(async () => {
    if (child.exitCode !== null) {
      throw Object.assign(new Error(`opa ended with ${child.exitCode}`), { fatal: true });
    }
    return (await fetch(`${url}/health`)).ok;
  }, "Open Policy Agent to listen");
  return {
    port,
    /** The URL of a policy document, such as `starling/allow`. */
    document: (name) => `${url}/v1/data/${name}`,
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "Open Policy Agent to end");
    },
  };
}

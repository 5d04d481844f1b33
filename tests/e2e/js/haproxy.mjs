// A real HAProxy in front of routers, with the sample of the documentation.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "./children.mjs";
import { haproxy } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { eventually, within } from "./waiting.mjs";

const SAMPLE = path.join(import.meta.dirname, "../../../examples/deployment/haproxy.cfg");

/** How much of the log is kept for the message of a failed test. It has only failures, and servers that come and go. */
const OUTPUT_CHARACTERS_MAX = 20_000;

/**
 * Starts HAProxy with `examples/deployment/haproxy.cfg` in front of three routers, each `{graphql, admin}` of ports of
 * this machine. Only addresses are replaced.
 */
export async function startHaproxy(routers) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-haproxy-"));
  const file = path.join(folder, "haproxy.cfg");
  const port = await freePort();
  const statistics = `127.0.0.1:${await freePort()}`;
  let text = await readFile(SAMPLE, "utf8");
  const replace = (address, by) => {
    assert.equal(text.split(address).length, 2, `the sample has one line with \`${address}\``);
    text = text.replace(address, by);
  };
  replace("\n    bind :80\n", `\n    bind 127.0.0.1:${port}\n`);
  replace("bind 127.0.0.1:8404\n", `bind ${statistics}\n`);
  // The routers share one address here, so that the admin listener of each has a port of its own.
  replace(" check port 8088\n", " check\n");
  routers.forEach(({ graphql, admin }, index) => {
    replace(` 10.0.0.1${index + 1}:4000\n`, ` 127.0.0.1:${graphql} port ${admin}\n`);
  });
  await writeFile(file, text);
  // A warning about the configuration prevents the start.
  const child = spawn(haproxy(), ["-dW", "-db", "-f", file], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (part) => {
      output = (output + part).slice(-OUTPUT_CHARACTERS_MAX);
    });
  }
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);

  /** The columns of each router's line of the statistics, in the order of `routers`. */
  async function servers() {
    const [head, ...lines] = (await (await fetch(`http://${statistics}/;csv`)).text()).split("\n");
    const names = head.replace("# ", "").split(",");
    const rows = lines.map((line) => Object.fromEntries(line.split(",").map((value, index) => [names[index], value])));
    return rows.filter(({ svname }) => svname?.startsWith("router-"));
  }

  const balancer = {
    address: `127.0.0.1:${port}`,
    servers,
    /** Waits until the checks of HAProxy have the result `UP` or `DOWN` for a router. */
    untilServer: (index, status) => eventually(async () => {
      if (child.exitCode !== null) throw Object.assign(new Error(`HAProxy ended: ${output}`), { fatal: true });
      return (await servers())[index].status === status;
    }, `HAProxy to see that router ${index} is ${status}`),
    output: () => output,
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "HAProxy to end");
    },
  };
  for (const index of routers.keys()) await balancer.untilServer(index, "UP");
  return balancer;
}

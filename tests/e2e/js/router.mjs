// Starts the router in its own process, as a user does, and ends it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { adopt } from "./children.mjs";
import { eventually, within } from "./waiting.mjs";

/** How much output of the router is kept for the message of a failed test, unless a test wants to see more. */
const OUTPUT_CHARACTERS_MAX = 20_000;

/** The ports that tests use, up to 32,767: the first one, how many each process has, and for how many processes. */
const PORTS_MIN = 12_768;
const PORTS_PER_PROCESS = 100;
const PROCESSES_MAX = 200;

/** How many ports this process has tried. */
let portsGiven = 0;

/** `starling demo`. `command` starts the router in another way, as in [`startServe`]. */
export const startDemo = ({ command } = {}) => start(["demo"], { command });

/**
 * Starts `starling serve` with a supergraph (SDL text) and additional configuration (an object; JSON is valid YAML).
 * `extra` are additional command-line arguments. `ports: {graphql, admin}` are those of an earlier router that this
 * one replaces. The last `outputMax` characters of its output are kept. `isReady(admin)` asks an admin listener for its
 * health that has more than HTTP. `command` are the program and the words before those of `serve`, by default that of
 * `STARLING_BIN`; it must replace itself by the router, whose process gets the signals.
 */
export async function startServe({ supergraph, config = {}, extra = [], ports, outputMax, isReady, command }) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-e2e-"));
  await writeFile(path.join(folder, "supergraph.graphql"), supergraph);
  const file = path.join(folder, "starling.yaml");
  const whole = { supergraph: { file: path.join(folder, "supergraph.graphql") }, ...config };
  await writeFile(file, JSON.stringify(whole, null, 2));
  return start(["serve", "--config", file, ...extra], { folder, ports, outputMax, isReady, command });
}

/**
 * A port of 127.0.0.1 that was free a moment ago, and that neither this process nor another test process has got. It
 * is below those that the system gives to connections and to listeners on port 0, which would take it at any time.
 */
export async function freePort() {
  for (let tries = 0; tries < PORTS_PER_PROCESS; tries++) {
    const port = firstPort() + (portsGiven++ % PORTS_PER_PROCESS);
    const server = net.createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(() => true, () => false);
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
  throw new Error(`none of the ${PORTS_PER_PROCESS} ports from ${firstPort()} is free`);
}

/** The first port of this process. The processes of the tests have close ids, so that their ports are distinct. */
const firstPort = () => PORTS_MIN + (process.pid % PROCESSES_MAX) * PORTS_PER_PROCESS;

const hasHealth = async (admin) => (await fetch(`${admin}/health/ready`)).ok;

/** Starts the router with these words and with free ports. [`startServe`] says what `options` are. */
export async function start(words, options = {}) {
  let { folder = null, ports = null } = options;
  const { outputMax = OUTPUT_CHARACTERS_MAX, isReady = hasHealth, command = [process.env.STARLING_BIN] } = options;
  const [program, ...before] = command;
  if (!program || !existsSync(program)) {
    throw new Error("STARLING_BIN must name the router; `cargo xtask test` builds it and sets this");
  }
  ports ??= { graphql: await freePort(), admin: await freePort() };
  const address = `127.0.0.1:${ports.graphql}`;
  const admin = `127.0.0.1:${ports.admin}`;
  const child = spawn(program, [...before, ...words, "--listen", address, "--admin-listen", admin], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text) => {
      output = (output + text).slice(-outputMax);
    });
  }
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);

  /** Requests a clean shutdown, as Ctrl-C does; returns the exit code. */
  async function stop() {
    if (router.isRunning()) {
      child.kill("SIGINT");
      try {
        await within(ended, "the router's end after SIGINT", 15_000);
      } catch (error) {
        child.kill("SIGKILL");
        throw new Error(`${error.message}\n${output}`);
      }
    }
    return child.exitCode;
  }

  /** Ends it with `signal` and waits until it has ended. */
  async function kill(signal, ms = 30_000) {
    child.kill(signal);
    await within(ended, `the router's end after ${signal}`, ms);
  }

  const router = {
    ports,
    kill,
    url: `http://${address}`,
    graphql: `http://${address}/graphql`,
    socket: `ws://${address}/graphql`,
    admin: `http://${admin}`,
    pid: child.pid,
    folder,
    output: () => output,
    /** Whether the router still runs; a crashed router does not. */
    isRunning: () => child.exitCode === null && child.signalCode === null,
    stop,

    /** Sends a GraphQL request by POST; returns status and body. */
    async query(request) {
      const response = await fetch(router.graphql, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/graphql-response+json, application/json",
        },
        body: JSON.stringify(typeof request === "string" ? { query: request } : request),
      });
      return { status: response.status, body: await response.json() };
    },

    /** Publishes a test event through the admin listener. */
    async publish(provider, topic, payload) {
      const target = new URL("/admin/publish", router.admin);
      target.search = new URLSearchParams({ provider, topic });
      const response = await fetch(target, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: typeof payload === "string" ? payload : JSON.stringify(payload),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`publishing: ${response.status} ${text}`);
    },
  };

  try {
    await eventually(async () => {
      if (!router.isRunning()) {
        const how = child.exitCode ?? child.signalCode;
        throw Object.assign(new Error(`the router ended with ${how}`), { fatal: true });
      }
      return isReady(router.admin);
    }, "the router to be ready");
  } catch (error) {
    child.kill("SIGKILL");
    throw new Error(`${error.message}\n${output}`);
  }
  return router;
}

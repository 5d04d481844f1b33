// Starts a subgraph in a process of its own and talks to it.
import { fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { adopt } from "../children.mjs";
import { freePort } from "../router.mjs";
import { within } from "../waiting.mjs";

const PROGRAM = path.join(import.meta.dirname, "child.mjs");

/** Starts `child.mjs` at `port`, by default a free one. */
export async function startProcess(port) {
  port ??= await freePort();
  const child = fork(PROGRAM, [String(port)]);
  adopt(child);
  child.channel.unref();
  const waiting = new Map();
  let requests = 0;
  const ready = new Promise((resolve, reject) => {
    child.on("message", ({ isReady, number, operations }) => {
      if (isReady) resolve();
      waiting.get(number)?.(operations);
      waiting.delete(number);
    });
    child.once("exit", (code, signal) => reject(new Error(`the subgraph ended with ${code ?? signal}`)));
  });
  await within(ready, "the subgraph to listen");

  /** Sends a request to the child; returns the number of its live operations after it. */
  function request(content) {
    const number = requests++;
    const response = new Promise((resolve) => waiting.set(number, resolve));
    child.send({ number, ...content });
    return within(response, "a response of the subgraph's process");
  }

  return {
    port,
    url: `http://127.0.0.1:${port}/graphql`,
    subscription: { url: `ws://127.0.0.1:${port}/subscriptions` },
    publish: (event) => request({ publish: event }),
    operations: () => request({}),
    /** Sends a signal, such as SIGSTOP and SIGCONT. */
    signal: (name) => child.kill(name),
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await within(ended, "the subgraph's process to end");
    },
  };
}

// Runs a program that composes: it reads federations as JSON lines and writes a result line for each, in order.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";

/**
 * Starts the program. `compose` sends a federation and returns a promise of its result, also while earlier ones are
 * still under way; `close` ends the program. If the program ends by itself, the results that are missing fail.
 */
export function openProgram(file) {
  const name = path.basename(file);
  const child = spawn(file, { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = [];
  const fail = (error) => {
    for (const { reject } of waiting.splice(0)) reject(error);
  };
  const exit = once(child, "exit");
  exit.then(([code, signal]) => fail(new Error(`${name} ended with ${signal ?? code}`)), fail);
  // The exit above reports the failure of a program that no longer reads.
  child.stdin.on("error", () => {});
  createInterface({ input: child.stdout }).on("line", (line) => {
    waiting.shift()?.resolve({ ...JSON.parse(line), package: name });
  });
  const compose = ({ name: federation, subgraphs }) => new Promise((resolve, reject) => {
    waiting.push({ resolve, reject });
    child.stdin.write(`${JSON.stringify({ name: federation, subgraphs })}\n`);
  });
  const close = async () => {
    child.stdin.end();
    await exit;
  };
  return { name, compose, close };
}

// Runs one attack in its own process until it is asked to stop: `node attacker.mjs NAME TARGET`.
import process from "node:process";

const [name, target] = process.argv.slice(2);
const { default: attack } = await import(`./attacks/${name}.mjs`);
const told = { count: 0, problem: undefined };
const controller = new AbortController();

process.on("message", (message) => {
  if (message !== "stop") return;
  controller.abort();
  process.send({ type: "stopped", ...told }, () => process.exit(0));
});
// Resets, refusals and closed sockets of an attacker do not fail the soak.
process.on("uncaughtException", (error) => { told.problem = error.message; });

const done = attack.run({
  ...JSON.parse(target),
  signal: controller.signal,
  /** Counts a message or request of the attack. */
  sent: () => { told.count += 1; },
});
process.send({ type: "attacking" });
await Promise.resolve(done).catch((error) => { told.problem = error.message; });

// A real Kafka broker (KRaft, one node) for a suite.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { adopt } from "./children.mjs";
import { kafkaJars } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { eventually, within } from "./waiting.mjs";

/** Timeout for starting the broker or running one of its tools, about three seconds on an idle machine. */
const JAVA_MS = 120_000;

/** Settings of every broker of tests, and those of a broker with 192 MB of memory. */
const SETTINGS = ["common", "small"].map((name) =>
  readFileSync(new URL(`../../../tools/test-kit/kafka/${name}.properties`, import.meta.url), "utf8")).join("");

const JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/** Starts a broker on a free port. Its stored data is kept while it is stopped. */
export async function startKafka() {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-kafka-"));
  const [port, controller] = [await freePort(), await freePort()];
  const address = `127.0.0.1:${port}`;
  const settings = path.join(folder, "server.properties");
  await writeFile(settings, `${SETTINGS}
controller.quorum.voters=1@127.0.0.1:${controller}
listeners=PLAIN://${address},CONTROLLER://127.0.0.1:${controller}
advertised.listeners=PLAIN://${address}
log.dirs=${path.join(folder, "data")}
`);
  const java = (megabytes, words) =>
    [`-Xmx${megabytes}m`, ...JVM, "-cp", path.join(kafkaJars(), "*"), ...words];
  const run = (megabytes, words) =>
    promisify(execFile)("java", java(megabytes, words), { timeout: JAVA_MS, killSignal: "SIGKILL" });
  await run(96, [
    "kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg", "--config", settings,
  ]);

  let child;
  let ended;
  const broker = {
    address,

    /** Kills the broker. Everything that it has confirmed is in its files. */
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "the broker to end");
    },

    /** Starts the broker again on the same port. */
    async start() {
      child = spawn("java", java(192, ["kafka.Kafka", settings]), { cwd: folder, stdio: "ignore" });
      ended = once(child, "exit");
      ended.catch(() => {});
      adopt(child, folder);
      await eventually(async () => {
        if (child.exitCode !== null) {
          throw Object.assign(new Error(`the broker ended with ${child.exitCode}`), { fatal: true });
        }
        const socket = net.connect(port, "127.0.0.1");
        try {
          await once(socket, "connect");
        } finally {
          socket.destroy();
        }
        return true;
      }, "the broker to listen", JAVA_MS);
    },

    /** Runs `kafka-topics` with these arguments. */
    async topics(...words) {
      await run(64, ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, ...words]);
    },

    /**
     * Starts Kafka's own idempotent producer, which retries for minutes and keeps the order. It publishes each line of
     * its standard input.
     */
    startProducer(topic) {
      const producer = spawn("java", java(96, [
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", address, "--topic", topic,
        "--request-required-acks", "all", "--timeout", "5", "--message-send-max-retries", "2147483647",
        "--command-property", "delivery.timeout.ms=300000", "--command-property", "enable.idempotence=true",
        "--command-property", "retry.backoff.max.ms=500",
      ]), { stdio: ["pipe", "ignore", "ignore"] });
      adopt(producer);
      return producer;
    },

    /** Number of events published to each partition of a topic. */
    async ends(topic) {
      const { stdout } = await run(64, [
        "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", address, "--topic", topic,
      ]);
      return stdout.trim().split("\n").map((line) => Number(line.split(":").at(-1)));
    },
  };
  await broker.start();
  return broker;
}

// A real Kafka broker (KRaft, one node) for a suite.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
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

const JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/** Starts a broker on a free port. Its stored data is kept while it is stopped. */
export async function startKafka() {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-kafka-"));
  const [port, controller] = [await freePort(), await freePort()];
  const address = `127.0.0.1:${port}`;
  const settings = path.join(folder, "server.properties");
  // As in crates/events/tests/kafka/broker.rs: settings for a broker with 192 MB of memory.
  await writeFile(settings, `
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:${controller}
listeners=PLAIN://${address},CONTROLLER://127.0.0.1:${controller}
advertised.listeners=PLAIN://${address}
log.dirs=${path.join(folder, "data")}
num.network.threads=1
num.io.threads=2
background.threads=1
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
auto.create.topics.enable=false
log.initial.task.delay.ms=100
file.delete.delay.ms=100
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

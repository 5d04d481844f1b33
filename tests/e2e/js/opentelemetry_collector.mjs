// A real OpenTelemetry collector for a suite. It passes on what it has understood as JSON, which this module reads.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "./children.mjs";
import { openTelemetryCollector } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { Received } from "./telemetry_data.mjs";
import { eventually, within } from "./waiting.mjs";

/**
 * Starts a collector. `endpoints.http` and `endpoints.grpc` have the URLs for `traces` and `metrics`; the data that has
 * passed through the collector is as `Received` has it.
 */
export async function startOpenTelemetryCollector() {
  const received = new Received();
  const sink = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    received.add(JSON.parse(Buffer.concat(parts).toString()));
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  });
  sink.listen(0, "127.0.0.1");
  await once(sink, "listening");
  const [grpcPort, httpPort] = [await freePort(), await freePort()];
  const settings = {
    receivers: { otlp: { protocols: {
      grpc: { endpoint: `127.0.0.1:${grpcPort}` }, http: { endpoint: `127.0.0.1:${httpPort}` },
    } } },
    exporters: { otlphttp: {
      endpoint: `http://127.0.0.1:${sink.address().port}`, encoding: "json", compression: "none",
      sending_queue: { enabled: false },
    } },
    service: {
      telemetry: { metrics: { level: "none" }, logs: { level: "warn" } },
      pipelines: {
        traces: { receivers: ["otlp"], exporters: ["otlphttp"] },
        metrics: { receivers: ["otlp"], exporters: ["otlphttp"] },
      },
    },
  };
  const folder = await mkdtemp(path.join(tmpdir(), "starling-otelcol-"));
  // JSON is YAML.
  const child = spawn(openTelemetryCollector(), [`--config=yaml:${JSON.stringify(settings)}`], {
    cwd: folder, stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (text) => {
    log += text;
  });
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);
  for (const port of [grpcPort, httpPort]) {
    await eventually(async () => {
      if (child.exitCode !== null) {
        throw Object.assign(new Error(`the collector ended with ${child.exitCode}: ${log}`), { fatal: true });
      }
      const socket = net.connect(port, "127.0.0.1");
      await once(socket, "connect");
      return socket.destroy();
    }, "the collector to listen");
  }
  return Object.assign(received, {
    endpoints: {
      http: {
        traces: `http://127.0.0.1:${httpPort}/v1/traces`, metrics: `http://127.0.0.1:${httpPort}/v1/metrics`,
      },
      grpc: { traces: `http://127.0.0.1:${grpcPort}`, metrics: `http://127.0.0.1:${grpcPort}` },
    },
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "the collector to end");
      sink.close();
      sink.closeAllConnections();
    },
  });
}

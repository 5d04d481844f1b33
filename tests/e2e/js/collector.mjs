// A collector of traces and metrics for a suite: it decodes OTLP by the definitions of the OpenTelemetry project.
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import root from "@opentelemetry/otlp-proto-exporter-base/build/src/generated/root.js";
import { Received } from "./telemetry_data.mjs";

const { ExportTraceServiceRequest } = root.opentelemetry.proto.collector.trace.v1;
const { ExportMetricsServiceRequest } = root.opentelemetry.proto.collector.metrics.v1;

/**
 * Starts a collector on `port`, a free one by default. `collector.respond` returns the status of each request, or an
 * object with `status` and `headers`, or null to never respond; it gets the number of the request. `requests` are the
 * requests that it has got; it has the data of those with status 200 as `Received` has them.
 */
export async function startCollector(port = 0) {
  const collector = newCollector();
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const outcome = collector.receive(request.url, request.headers, Buffer.concat(parts));
    if (outcome === null) return;
    response.writeHead(outcome.status, { "content-type": "application/x-protobuf", ...outcome.headers }).end();
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  collector.port = server.address().port;
  collector.endpoint = `http://127.0.0.1:${collector.port}/v1/traces`;
  collector.metricsEndpoint = `http://127.0.0.1:${collector.port}/v1/metrics`;
  collector.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return collector;
}

/** Starts the same by gRPC. `collector.respond` is ignored: each request succeeds. */
export async function startGrpcCollector() {
  const collector = newCollector();
  const server = http2.createServer();
  const sessions = new Set();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
  });
  server.on("stream", async (stream, headers) => {
    const parts = [];
    for await (const part of stream) parts.push(part);
    // One byte says that the message is not compressed, four say its length.
    collector.receive(headers[":path"], headers, Buffer.concat(parts).subarray(5));
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(Buffer.alloc(5));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  collector.endpoint = `http://127.0.0.1:${server.address().port}`;
  collector.metricsEndpoint = collector.endpoint;
  collector.stop = async () => {
    server.close();
    for (const session of sessions) session.destroy();
    await once(server, "close");
  };
  return collector;
}

function newCollector() {
  const collector = new Received();
  collector.requests = [];
  collector.respond = () => 200;
  /** Keeps a request, and returns its outcome. */
  collector.receive = (path, headers, body) => {
    const isMetrics = /metrics/i.test(path);
    const type = isMetrics ? ExportMetricsServiceRequest : ExportTraceServiceRequest;
    const message = type.toObject(type.decode(body), { longs: String });
    collector.requests.push({ path, headers, message, text: body.toString("latin1") });
    const outcome = collector.respond(collector.requests.length);
    if (outcome === null) return null;
    const { status, ...more } = typeof outcome === "number" ? { status: outcome } : outcome;
    if (status === 200) collector.add(message);
    return { status, ...more };
  };
  return collector;
}

export { treeOf } from "./telemetry_data.mjs";

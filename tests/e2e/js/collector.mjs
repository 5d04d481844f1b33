// A collector of traces for a suite: it decodes OTLP by the definitions of the OpenTelemetry project.
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import root from "@opentelemetry/otlp-proto-exporter-base/build/src/generated/root.js";
import { eventually } from "./waiting.mjs";

const { ExportTraceServiceRequest } = root.opentelemetry.proto.collector.trace.v1;
const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];

/**
 * Starts a collector on `port`, a free one by default. `collector.respond` returns the status of each request, or an
 * object with `status` and `headers`, or null to never respond; it gets the number of the request. `requests` are the
 * requests that it has got, `spans` the spans of those with status 200.
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
  collector.stop = async () => {
    server.close();
    for (const session of sessions) session.destroy();
    await once(server, "close");
  };
  return collector;
}

function newCollector() {
  const collector = { requests: [], spans: [], respond: () => 200 };
  /** Keeps a request, and returns its outcome. */
  collector.receive = (path, headers, body) => {
    const message = ExportTraceServiceRequest.toObject(ExportTraceServiceRequest.decode(body), { longs: String });
    collector.requests.push({ path, headers, message, text: body.toString("latin1") });
    const outcome = collector.respond(collector.requests.length);
    if (outcome === null) return null;
    const { status, ...more } = typeof outcome === "number" ? { status: outcome } : outcome;
    if (status === 200) collector.spans.push(...spansOf(message));
    return { status, ...more };
  };
  /** The first `count` spans named `name`, once they have come. */
  collector.named = async (name, count = 1) => {
    const found = () => collector.spans.filter((it) => it.name === name);
    await eventually(() => found().length >= count, `${count} spans named ${name}`);
    return found().slice(0, count);
  };
  /** The spans of one trace. */
  collector.trace = (id) => collector.spans.filter((it) => it.trace === id);
  return collector;
}

const hex = (bytes) => Buffer.from(bytes ?? []).toString("hex");

function spansOf({ resourceSpans }) {
  return resourceSpans.flatMap(({ resource, scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans.map((span) => ({
    trace: hex(span.traceId),
    id: hex(span.spanId),
    parent: hex(span.parentSpanId),
    state: span.traceState ?? "",
    name: span.name,
    kind: KINDS[span.kind],
    began: BigInt(span.startTimeUnixNano),
    ended: BigInt(span.endTimeUnixNano),
    attributes: attributesOf(span.attributes),
    error: span.status?.code === 2 ? span.status.message : undefined,
    resource: attributesOf(resource.attributes),
  }))));
}

function attributesOf(list = []) {
  const valueOf = ({ stringValue, intValue, boolValue }) => stringValue ?? boolValue ?? Number(intValue);
  return Object.fromEntries(list.map(({ key, value }) => [key, valueOf(value)]));
}

/**
 * The tree of a trace as lines: the name of each span below that of its parent, and its kind unless it is internal.
 * Siblings are sorted by name, because requests of one wave begin in any order.
 */
export function treeOf(spans) {
  const ids = new Set(spans.map(({ id }) => id));
  const below = (parent, indentation) => spans
    .filter((it) => (parent ? it.parent === parent : !ids.has(it.parent)))
    .sort((a, b) => a.name.localeCompare(b.name))
    .flatMap((it) => [
      indentation + it.name + (it.kind === "internal" ? "" : ` (${it.kind})`), ...below(it.id, `${indentation}  `),
    ]);
  return below(null, "");
}

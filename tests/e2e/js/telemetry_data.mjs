// Traces and metrics of OTLP as a suite compares them, from messages in Protocol Buffers or in JSON.
import { eventually } from "./waiting.mjs";

const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];
const STATUSES = ["unset", "ok", "error"];
const TEMPORALITIES = ["unspecified", "delta", "cumulative"];

/** The data that a collector has received. */
export class Received {
  /** All spans. */
  spans = [];
  /** The values of metrics, in the order of their arrival. */
  points = [];

  /** Adds the data of a message. */
  add({ resourceSpans = [], resourceMetrics = [] }) {
    this.spans.push(...resourceSpans.flatMap(spansOf));
    this.points.push(...resourceMetrics.flatMap(pointsOf));
  }

  /** The first `count` spans named `name`, once they have come. */
  async named(name, count = 1) {
    const found = () => this.spans.filter((it) => it.name === name);
    await eventually(() => found().length >= count, `${count} spans named ${name}`);
    return found().slice(0, count);
  }

  /** The spans of one trace. */
  trace(id) {
    return this.spans.filter((it) => it.trace === id);
  }

  /** All values of a metric with these labels, among others. */
  values(name, labels = {}) {
    return this.points.filter((it) => it.name === name
      && Object.entries(labels).every(([label, value]) => it.labels[label] === value));
  }

  /** The first value of a metric with these labels that fulfils `condition`, once it has come. */
  value(name, labels, condition = () => true) {
    return eventually(
      () => this.values(name, labels).find(condition), `the metric ${name} ${JSON.stringify(labels)}`,
    );
  }
}

/** An id in hexadecimal digits, as JSON has it. */
const hex = (id) => (typeof id === "string" ? id : Buffer.from(id ?? []).toString("hex"));

function spansOf({ resource, scopeSpans, schemaUrl: resourceSchema = "" }) {
  return scopeSpans.flatMap(({ scope, spans, schemaUrl: schema = "" }) => spans.map((span) => ({
    trace: hex(span.traceId),
    id: hex(span.spanId),
    parent: hex(span.parentSpanId),
    state: span.traceState ?? "",
    name: span.name,
    kind: KINDS[span.kind],
    began: BigInt(span.startTimeUnixNano),
    ended: BigInt(span.endTimeUnixNano),
    attributes: attributesOf(span.attributes),
    status: STATUSES[span.status?.code ?? 0],
    error: span.status?.code === 2 ? span.status.message : undefined,
    events: (span.events ?? []).map((event) => ({ name: event.name, attributes: attributesOf(event.attributes) })),
    links: (span.links ?? []).map((link) => ({ trace: hex(link.traceId), span: hex(link.spanId) })),
    resource: attributesOf(resource.attributes),
    resourceSchema,
    scope: { name: scope.name, version: scope.version, schema, attributes: attributesOf(scope.attributes) },
  })));
}

function pointsOf({ resource, scopeMetrics }) {
  return scopeMetrics.flatMap(({ metrics }) => metrics.flatMap((metric) => {
    const type = ["sum", "gauge", "histogram"].find((it) => metric[it]);
    const { aggregationTemporality, isMonotonic, dataPoints } = metric[type];
    return dataPoints.map((point) => ({
      name: metric.name,
      unit: metric.unit ?? "",
      description: metric.description,
      type,
      temporality: TEMPORALITIES[aggregationTemporality ?? 0],
      isMonotonic: isMonotonic ?? false,
      labels: attributesOf(point.attributes),
      value: type === "histogram" ? Number(point.count) : Number(point.asInt ?? point.asDouble),
      sum: point.sum,
      buckets: point.bucketCounts?.map(Number),
      bounds: point.explicitBounds,
      since: BigInt(point.startTimeUnixNano ?? 0),
      at: BigInt(point.timeUnixNano),
      exemplars: (point.exemplars ?? []).map((it) => (
        { trace: hex(it.traceId), span: hex(it.spanId), value: it.asDouble }
      )),
      resource: attributesOf(resource.attributes),
    }));
  }));
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

// Reads the text format of Prometheus.
import assert from "node:assert/strict";

/**
 * The metrics of a router: `types` by name of the family, and `samples` as `{name, labels, value}`. Fails if a line is
 * not in the format, or if a sample is there twice.
 */
export async function scrape(router) {
  const response = await fetch(`${router.admin}/metrics`);
  assert.equal(response.status, 200);
  return parseMetrics(await response.text());
}

export function parseMetrics(text) {
  const types = new Map();
  const samples = [];
  const seen = new Set();
  for (const line of text.split("\n")) {
    const type = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (type) types.set(type[1], type[2]);
    if (line === "" || line.startsWith("#")) continue;
    const parts = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    assert.ok(parts, `not a sample: ${line}`);
    const [, name, list = "", value] = parts;
    const labels = {};
    const rest = list.replace(/([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g, (_, label, written) => {
      labels[label] = written.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
      return "";
    });
    assert.equal(rest, "", `labels that are not in the format: ${line}`);
    const key = `${name} ${JSON.stringify(Object.entries(labels).sort())}`;
    assert.ok(!seen.has(key), `twice: ${line}`);
    seen.add(key);
    samples.push({ name, labels, value: Number(value) });
  }
  return {
    text,
    types,
    samples,
    /** All samples of a name with these labels, among others. */
    all: (name, labels = {}) => samples.filter((it) => it.name === name
      && Object.entries(labels).every(([label, value]) => it.labels[label] === value)),
    /** The value of the only sample of a name with these labels, among others; undefined if there is none. */
    value(name, labels = {}) {
      const found = this.all(name, labels);
      assert.ok(found.length <= 1, `${name} ${JSON.stringify(labels)} is not unique`);
      return found[0]?.value;
    },
    /** The sum of the values of all samples of a name with these labels. */
    sum(name, labels = {}) {
      return this.all(name, labels).reduce((sum, it) => sum + it.value, 0);
    },
  };
}

// The Grafana dashboard and the alert rules: every expression parses, every metric and label in them exists in the
// metrics of a router, each alert is explained, and it fires at the figures that it is for.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { ALERT_CASES } from "../alert_cases.mjs";
import { SUBSCRIPTION, event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import {
  ALERTS, expressionsOf, parseExpression, readAlerts, readDashboard, readMetricsPage, ruleTests, rulesOf, runPromtool,
} from "../monitoring.mjs";
import { promtool, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil } from "../waiting.mjs";

/** Labels that Prometheus adds. */
const ADDED_LABELS = new Set(["instance", "job"]);

/** Metrics that Prometheus makes itself. */
const ADDED_METRICS = new Set(["up"]);

/** Metrics without samples in the router of these tests, and what they need. docs/metrics.md has them. */
const WITHOUT_SAMPLES = {
  starling_authentication_key_sets_total: "an issuer of tokens with a key set",
  starling_cache_log_current: "a cache in Redis",
  starling_events_topic_lag: "a broker that stores events",
  starling_events_topic_lag_seconds: "a broker that stores events",
  starling_store_breaker_open: "a store in Redis",
  starling_supergraph_download_serves_copy: "a supergraph by URL",
  starling_supergraph_download_success_time_seconds: "a supergraph by URL",
  starling_supergraph_downloads_total: "a supergraph by URL",
};

describe("the dashboard and the alert rules", () => {
  const keep = closeAfterEach();
  let subgraphs, router, metrics, places, alerts, documented;

  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      // Everything that has metrics of its own, except what needs a server.
      config: {
        subgraphs: subgraphs.configuration,
        cost: { mode: "measure" },
        cache: { enabled: true, subgraphs: { all: { ttl: "60s" } } },
        access_log: { enabled: true },
        tracing: { enabled: true, otlp: { endpoint: "http://127.0.0.1:9/v1/traces" } },
        rate_limits: [{ name: "all", rate: 1000, per: "1m" }],
      },
    });
    const headers = { "graphql-client-name": "web", "graphql-client-version": "1" };
    const send = (query) => fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query }),
    });
    await send("query All { flights { number to { city } } }");
    await send("query Invalid { nothing }");
    // Refused, since the response is no stream.
    await send(SUBSCRIPTION);
    const socket = openSocket(router);
    await repeatUntil(
      socket.subscribe(SUBSCRIPTION).next(),
      () => router.publish("memory/default", "flights.moved", event("1", 5)),
      "an event",
    );
    await socket.dispose();
    metrics = await scrape(router);
    alerts = await readAlerts();
    documented = await readMetricsPage();
    places = [...expressionsOf(await readDashboard()), ...rulesOf(alerts.text)]
      .map((it) => ({ ...it, ...parseExpression(it.expression) }));
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  it("have expressions that Prometheus can parse", () => {
    assert.ok(places.length > 120, `${places.length}`);
    assert.deepEqual(places.filter((it) => it.problem).map((it) => `${it.place} ${it.problem}`), []);
    assert.match(parseExpression("sum by (a (b)").problem, /cannot be parsed/);
  });

  it("select metrics that a router has", () => {
    const isThere = (metric) => {
      const [, family] = /^(.*)_(bucket|sum|count)$/.exec(metric) ?? [];
      return metrics.types.has(metric) || metrics.types.get(family) === "histogram";
    };
    const isExcepted = (metric) => ADDED_METRICS.has(metric) || metric in WITHOUT_SAMPLES;
    const missing = places.flatMap((it) => it.selectors
      .filter(({ metric }) => !isThere(metric) && !isExcepted(metric)).map(({ metric }) => `${it.place}: ${metric}`));
    assert.deepEqual(missing, []);
    const selected = new Set(places.flatMap((it) => it.selectors.map(({ metric }) => metric)));
    const empty = [...selected].filter((metric) => metrics.all(metric).length === 0 && !ADDED_METRICS.has(metric));
    assert.deepEqual(empty.sort(), Object.keys(WITHOUT_SAMPLES).sort());
    for (const metric of empty) assert.ok(documented.includes(`\`${metric}`), `docs/metrics.md has no ${metric}`);
  });

  it("use labels that the metrics have", () => {
    const wrong = [];
    for (const { place, selectors } of places) {
      for (const { metric, labels } of selectors) {
        const samples = metrics.all(metric);
        if (samples.length === 0) continue;
        for (const label of labels.filter((it) => !ADDED_LABELS.has(it))) {
          if (!samples.some((it) => label in it.labels)) wrong.push(`${place}: ${metric} has no label ${label}`);
        }
      }
    }
    assert.deepEqual(wrong, []);
  });

  it("have panels that do not overlap, and variables that exist", async () => {
    const dashboard = await readDashboard();
    const cells = new Set();
    for (const { title, gridPos: { x, y, w, h } } of dashboard.panels) {
      assert.ok(x + w <= 24, title);
      for (let row = y; row < y + h; row += 1) {
        for (let column = x; column < x + w; column += 1) {
          assert.ok(!cells.has(`${row} ${column}`), `${title} covers another panel`);
          cells.add(`${row} ${column}`);
        }
      }
    }
    assert.equal(new Set(dashboard.panels.map((it) => it.id)).size, dashboard.panels.length);
    const used = new Set(JSON.stringify(dashboard).match(/\$[a-z]\w*/g));
    const known = dashboard.templating.list.map((it) => `$${it.name}`);
    assert.deepEqual([...used].filter((name) => !known.includes(name)), []);
    const tests = dashboard.panels.filter((it) => it.type !== "row").map((it) => it.targets.length);
    assert.ok(tests.every((count) => count > 0));
  });

  it("have a section about each alert", () => {
    assert.ok(alerts.names.length >= 25);
    assert.equal(new Set(alerts.names).size, alerts.names.length);
    assert.equal(rulesOf(alerts.text).length, alerts.names.length);
    const sections = [...alerts.page.matchAll(/^### (Starling\w+)$/gm)].map((it) => it[1]);
    assert.deepEqual(sections, alerts.names, "in the order of the file");
    for (const name of alerts.names) {
      assert.ok(alerts.text.includes(`runbook: docs/monitoring.md#${name.toLowerCase()}\n`), name);
    }
  });

  const skip = skipWithout(promtool, "promtool (Debian package prometheus)");
  it("pass promtool", { skip }, async () => {
    const rules = await runPromtool(promtool(), ["check", "rules", ALERTS]);
    assert.equal(rules.code, 0, rules.output);
    assert.match(rules.output, new RegExp(`SUCCESS: ${alerts.names.length} rules found`));
    // 1: the text cannot be parsed. 3: there is advice, which is not followed everywhere, since names that are
    // published do not change.
    const { code, output } = await runPromtool(promtool(), ["check", "metrics"], metrics.text);
    assert.notEqual(code, 1, output);
    assert.equal((await runPromtool(promtool(), ["check", "metrics"], "a{b=\"")).code, 1);
    const advice = output.split("\n").filter((line) => /^starling_(named|client|metrics)_/.test(line));
    assert.deepEqual(advice, [], "the names of these metrics follow all advice");
  });

  it("have a case of figures for each alert, with metrics of its rule and one moment at which it fires", () => {
    const of = (name) => ALERT_CASES.filter(({ alert }) => alert === name);
    assert.deepEqual([...new Set(ALERT_CASES.map(({ alert }) => alert))].toSorted(), alerts.names.toSorted());
    for (const { place, selectors } of places.filter((it) => it.place.startsWith("alert "))) {
      const cases = of(place.replace("alert ", ""));
      const isQuiet = ({ before, series, fires }) => before !== undefined && Object.keys(series).length > fires.length;
      assert.ok(cases.some(({ fires }) => fires.length > 0), `${place} never fires`);
      assert.ok(cases.some((it) => it.fires.length === 0 || isQuiet(it)), `${place} always fires`);
      const known = new Set(selectors.map(({ metric }) => metric));
      const given = new Set(cases.flatMap(({ series }) => Object.keys(series).map((it) => it.split("{")[0])));
      assert.deepEqual([...given].toSorted(), [...known].toSorted(), place);
    }
  });

  it("fire at the figures that they are for, and at no others", { skip }, async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-alerts-"));
    keep({ remove: () => rm(folder, { recursive: true }) });
    const file = path.join(folder, "tests.yaml");
    for (const name of alerts.names) {
      await writeFile(file, ruleTests(alerts.text, ALERT_CASES.filter(({ alert }) => alert === name)));
      const { code, output } = await runPromtool(promtool(), ["test", "rules", file]);
      assert.equal(code, 0, `${name}: ${output}`);
    }
    // A wrong expectation is found.
    const [first] = ALERT_CASES;
    await writeFile(file, ruleTests(alerts.text, [{ ...first, fires: [] }]));
    assert.notEqual((await runPromtool(promtool(), ["test", "rules", file])).code, 0);
  });
});

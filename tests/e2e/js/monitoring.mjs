// The Grafana dashboard and the alert rules of the repository, as tests read them.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { parser } from "@prometheus-io/lezer-promql";
import { parse as parseYaml } from "yaml";

const ROOT = path.join(import.meta.dirname, "../../..");
export const ALERTS = path.join(ROOT, "examples/monitoring/alerts.yaml");
const DASHBOARD = path.join(ROOT, "examples/monitoring/grafana.json");
const PAGE = path.join(ROOT, "docs/monitoring.md");

/** What Grafana puts in place of the variables of the dashboard. */
const VARIABLES = { $__rate_interval: "1m", $instance: ".*", $top: "10" };

export const readMetricsPage = () => readFile(path.join(ROOT, "docs/metrics.md"), "utf8");

export const readDashboard = async () => JSON.parse(await readFile(DASHBOARD, "utf8"));

/** The expressions of the dashboard, each with the title of its panel. */
export function expressionsOf(dashboard) {
  const targets = dashboard.panels.flatMap((panel) =>
    (panel.targets ?? []).map(({ expr }) => ({ place: `panel "${panel.title}"`, expression: expr })));
  const annotations = dashboard.annotations.list.map(({ name, expr }) =>
    ({ place: `annotation "${name}"`, expression: expr }));
  return [...targets, ...annotations].map(({ place, expression }) => ({
    place,
    expression: expression.replace(/\$\w+/g, (name) => VARIABLES[name] ?? name),
  }));
}

/** The names of the alerts, and the texts of the whole file and of the page about them. */
export async function readAlerts() {
  const text = await readFile(ALERTS, "utf8");
  const names = [...text.matchAll(/^ {6}- alert: (\w+)$/gm)].map((it) => it[1]);
  return { text, names, page: await readFile(PAGE, "utf8") };
}

/** The expressions of the rules. The file has two forms of them: on one line, and as a block with more indentation. */
export function rulesOf(text) {
  const rules = [];
  const lines = text.split("\n");
  let alert;
  for (let at = 0; at < lines.length; at += 1) {
    alert = /^ {6}- alert: (\w+)$/.exec(lines[at])?.[1] ?? alert;
    const [, first] = /^ {8}expr: (.*)$/.exec(lines[at]) ?? [];
    if (first === undefined) continue;
    const block = [];
    if (first === "|") {
      while (/^ {10}/.test(lines[at + 1])) block.push(lines[at += 1]);
    } else {
      block.push(first);
    }
    rules.push({ place: `alert ${alert}`, expression: block.join("\n") });
  }
  return rules;
}

/**
 * Parses an expression by the grammar of Prometheus' own editor. Returns `problem`, a text or undefined, and
 * `selectors`: the metrics that it selects, each as `{metric, labels}` with the labels that matchers and groupings
 * around it name.
 */
export function parseExpression(expression) {
  const tree = parser.parse(expression);
  const textOf = (node) => expression.slice(node.from, node.to);
  const selectors = [];
  let problem;
  tree.iterate({
    enter(node) {
      if (node.type.isError) problem ??= `cannot be parsed at character ${node.from}: ${expression}`;
      if (node.name !== "VectorSelector") return;
      const metric = textOf(node.node.getChild("Identifier"));
      const labels = new Set();
      node.node.cursor().iterate((it) => {
        if (it.name === "LabelName" && it.node.parent.name !== "GroupingLabels") labels.add(textOf(it));
      });
      for (let above = node.node.parent; above; above = above.parent) {
        if (above.name !== "AggregateExpr") continue;
        const grouping = above.getChild("AggregateModifier")?.getChild("GroupingLabels");
        for (const label of grouping?.getChildren("LabelName") ?? []) labels.add(textOf(label));
      }
      selectors.push({ metric, labels: [...labels] });
    },
  });
  return { problem, selectors };
}

/**
 * The text of a file for `promtool test rules` with a test for each case (see `alert_cases.mjs`). The labels and texts
 * that do not depend on figures are those of the rules.
 */
export function ruleTests(alerts, cases) {
  const rules = parseYaml(alerts).groups.flatMap((group) => group.rules);
  const tests = cases.map(({ alert, series, before, at, fires }) => {
    const { labels, annotations: { description, runbook } } = rules.find((it) => it.alert === alert);
    const expected = fires.map((it) => ({
      exp_labels: { ...labels, ...it.labels },
      exp_annotations: { summary: it.summary, description, runbook },
    }));
    const moments = [{ eval_time: `${at}m`, alertname: alert, exp_alerts: expected }];
    if (before !== undefined) moments.unshift({ eval_time: `${before}m`, alertname: alert, exp_alerts: [] });
    return {
      interval: "1m",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: moments,
    };
  });
  // JSON is YAML, too.
  return JSON.stringify({ rule_files: [ALERTS], evaluation_interval: "1m", tests }, null, 2);
}

/** Runs promtool with these words, and gives it `input`. Returns its exit code and output. */
export async function runPromtool(program, words, input = "") {
  const running = promisify(execFile)(program, words, { timeout: 60_000 });
  running.child.stdin.on("error", () => {}).end(input);
  return running.then(
    ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
    (error) => ({ code: error.code, output: `${error.stdout}${error.stderr}` }),
  );
}

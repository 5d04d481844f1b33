// The flight recorder: the last slow, failed and selected requests and events, each as a waterfall of its steps.

import { read } from "./api.js";
import { html, section, setText, table } from "./elements.js";
import { count, counted, duration } from "./format.js";

export const title = "Slow requests";
export const interval = 4_000;

const seconds = (micros) => (micros === null ? null : micros / 1e6);
const clock = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const timeOf = (millis) => (millis === null ? "–" : clock.format(new Date(millis)));

/** The colours of the reasons. */
const BADGES = { failed: "error", slow: "warning" };

export function open(_, { go }) {
  const note = html("p", { class: "note" });
  const list = table({
    caption: "Slow, failed and selected requests and events",
    filter: "Filter by name",
    empty: "No request or event was slow, failed or selected.",
    key: (it) => String(it.number),
    sort: { column: 1, down: true },
    onSelect: (it) => go(`slow/${it.number}`),
    rowsMax: 200,
    columns: [
      {
        title: "Request",
        text: (it) => (it.operation ? `${it.kind ?? ""} ${it.operation}`.trim() : (it.name ?? "–")),
      },
      { title: "Began", number: true, value: (it) => it.beganAt, text: (it) => timeOf(it.beganAt) },
      { title: "Took", number: true, value: (it) => it.micros, text: (it) => duration(seconds(it.micros)) },
      {
        title: "Reason",
        text: (it) => it.reason,
        cell: (it) => html("span", { class: `badge ${BADGES[it.reason] ?? ""}` }, it.reason),
      },
      { title: "Graph", text: (it) => it.graph ?? "", optional: true },
      { title: "Steps", number: true, value: (it) => it.spanCount, text: (it) => count(it.spanCount) },
      { title: "Error", text: (it) => it.error ?? "" },
    ],
  });
  const detail = html("div", { hidden: true });
  const element = html("div", {}, html("h1", {}, title), note, detail, list.element);
  let shown = null;

  async function update(parameter) {
    if (parameter === null) {
      const { enabled, traces } = await read("slow");
      detail.hidden = true;
      list.element.hidden = !enabled;
      shown = null;
      setText(
        note,
        enabled
          ? "The last requests and events that were slow, failed or selected. The newest is first."
          : "The flight recorder is off. Set admin.console.recorder.enabled to keep slow and failed requests.",
      );
      list.update(traces);
      return;
    }
    list.element.hidden = true;
    // A trace does not change.
    if (shown === parameter) return;
    const trace = await read("trace", { number: parameter });
    shown = parameter;
    setText(note, "");
    detail.replaceChildren(...waterfall(trace));
    detail.hidden = false;
    detail.querySelector("h2").focus();
  }

  return { element, update };
}

/** The spans in the order of their beginning, each below its parent, with their depth. */
function ordered(spans) {
  const known = new Set(spans.map((it) => it.id));
  const children = new Map();
  for (const span of spans) {
    const parent = known.has(span.parent) ? span.parent : null;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(span);
  }
  const out = [];
  const visit = (parent, depth) => {
    const below = (children.get(parent) ?? []).sort((a, b) => a.startMicros - b.startMicros);
    for (const span of below) {
      out.push({ span, depth });
      visit(span.id, depth + 1);
    }
  };
  visit(null, 0);
  return out;
}

function waterfall(trace) {
  const whole = Math.max(1, ...trace.spans.map((it) => it.startMicros + it.micros));
  const rows = ordered(trace.spans).map(({ span, depth }) => {
    const bar = html("span", { class: `span ${span.error ? "failed" : span.kind}` });
    bar.style.setProperty("--from", `${(span.startMicros / whole) * 100}%`);
    bar.style.setProperty("--size", `${(span.micros / whole) * 100}%`);
    const name = html("span", { class: "step" }, span.name);
    name.style.setProperty("--depth", String(depth));
    const attributes = Object.entries(span.attributes);
    const facts = html(
      "dl",
      { class: "attributes" },
      span.error ? [html("dt", {}, "error"), html("dd", { class: "bad" }, span.error)] : null,
      attributes.flatMap(([label, value]) => [html("dt", {}, label), html("dd", {}, String(value))]),
    );
    return html(
      "li",
      {},
      html(
        "details",
        {},
        html(
          "summary",
          {},
          name,
          html("span", { class: "track" }, bar),
          html("span", { class: "took" }, `${duration(seconds(span.micros))}`),
          html(
            "span",
            { class: "unseen" },
            ` after ${duration(seconds(span.startMicros))}${span.error ? `, failed: ${span.error}` : ""}`,
          ),
        ),
        facts,
      ),
    );
  });
  return [
    html("p", {}, html("a", { href: "#slow" }, "All slow requests")),
    html("h2", { tabindex: "-1" }, trace.operation ? `${trace.kind ?? ""} ${trace.operation}`.trim() : trace.name),
    html(
      "p",
      {},
      html("span", { class: `badge ${trace.reason === "failed" ? "error" : "warning"}` }, trace.reason),
      ` took ${duration(seconds(trace.micros))}, began ${timeOf(trace.beganAt)}, `,
      trace.graph === null ? "trace " : `graph ${trace.graph}, trace `,
      html("code", {}, trace.traceId),
    ),
    trace.error ? html("p", { class: "bad" }, trace.error) : null,
    section(
      "Steps",
      html("ol", { class: "waterfall" }, rows),
      trace.spansLeftOut > 0
        ? html("p", { class: "note" }, `${counted(trace.spansLeftOut, "step")} left out.`)
        : null,
    ),
  ].filter((it) => it !== null);
}

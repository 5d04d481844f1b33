// Charts of the last hour, or less while the router is young: lines over time as SVG. A chart is made once and updated
// in place.
//
// It is read by keyboard, too: with the focus on it, the arrow keys move a cursor, and the values there are shown and
// announced.

import { html, setText, svg } from "./elements.js";

const WIDTH = 600;
const HEIGHT = 120;
/** The times that a chart may show: the shortest one that the figures fill. A young router has no hour yet. */
const SPANS = [
  { seconds: 300, marks: ["5 min ago", "2½ min", "now"] },
  { seconds: 900, marks: ["15 min ago", "7½ min", "now"] },
  { seconds: 3_600, marks: ["1 h ago", "30 min", "now"] },
];

/** The next higher number of those that are easy to read: 1, 2, 5, 10, …, or for sizes a power of two. */
function ceiling(value, isSize) {
  if (value <= 0) return 1;
  if (isSize) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => it >= value * 0.999);
}

/** The age of each bucket's end in seconds, the last one is 0. */
function ages(seconds) {
  const ages = new Array(seconds.length);
  let age = 0;
  for (let index = seconds.length - 1; index >= 0; index -= 1) {
    ages[index] = age;
    age += seconds[index];
  }
  return ages;
}

function describeAge(age) {
  if (age < 10) return "now";
  return age < 120 ? `${Math.round(age)} s ago` : `${Math.round(age / 60)} min ago`;
}

/**
 * `lines` are `{name, className}`, `format` makes a text of a value. `update(seconds, columns)` takes the lengths of the
 * buckets and one column for each line; null is a bucket without a value.
 */
export function chart({ title, lines, format, id, isSize = false }) {
  const paths = lines.map(({ className }) => svg("path", { class: `line ${className}` }));
  const areas = lines.length === 1 ? [svg("path", { class: `area ${lines[0].className}` })] : [];
  const grid = [0.25, 0.5, 0.75].map((share) =>
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share }),
  );
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    grid,
    areas,
    paths,
    cursor,
  );
  const top = html("span", { class: "top" });
  const values = lines.map(() => html("b", {}));
  const legend = html(
    "ul",
    { class: "legend" },
    lines.map(({ name, className }, index) =>
      html("li", {}, html("span", { class: `key ${className}` }), `${name} `, values[index]),
    ),
  );
  const at = html("span", { class: "at" }, "now");
  const marks = [0, 1, 2].map(() => html("span"));
  const announced = html("span", { class: "unseen", "aria-live": "polite" });
  const plot = html(
    "div",
    {
      class: "plot",
      tabindex: "0",
      role: "img",
      keydown,
      pointermove,
      pointerleave: release,
      blur: release,
    },
    picture,
    top,
  );
  const element = html(
    "figure",
    { class: "chart", id },
    html("figcaption", {}, html("h3", {}, title), at, legend),
    plot,
    html("p", { class: "axis", "aria-hidden": "true" }, marks),
    announced,
  );

  let data = { seconds: [], columns: lines.map(() => []) };
  let ends = [];
  let chosen = null;
  let span = SPANS[0];

  const x = (age) => WIDTH - (age / span.seconds) * WIDTH;

  function update(seconds, columns) {
    data = { seconds, columns };
    ends = ages(seconds);
    const oldest = ends[0] ?? 0;
    span = SPANS.find((it) => oldest <= it.seconds) ?? SPANS.at(-1);
    marks.forEach((mark, index) => setText(mark, span.marks[index]));
    const highest = Math.max(
      0,
      ...columns.map((column) => column.reduce((most, it) => Math.max(most, it ?? 0), 0)),
    );
    const most = ceiling(highest, isSize);
    const y = (value) => HEIGHT - 1 - (value / most) * (HEIGHT - 4);
    columns.forEach((column, line) => {
      let text = "";
      let area = "";
      let begun = null;
      const close = (age) => {
        if (begun !== null) area += `L${x(age).toFixed(1)} ${HEIGHT}L${begun} ${HEIGHT}Z`;
        begun = null;
      };
      column.forEach((value, index) => {
        if (value === null) {
          close(ends[index - 1] ?? 0);
          return;
        }
        const place = `${x(ends[index]).toFixed(1)} ${y(value).toFixed(1)}`;
        if (begun === null) {
          // The first value holds for its whole bucket, so that one without neighbours is seen, too.
          begun = x(ends[index] + seconds[index]).toFixed(1);
          text += `M${begun} ${y(value).toFixed(1)}`;
          area += `M${begun} ${y(value).toFixed(1)}`;
        }
        text += `L${place}`;
        area += `L${place}`;
      });
      close(0);
      paths[line].setAttribute("d", text);
      areas[line]?.setAttribute("d", area);
    });
    setText(top, format(most));
    if (chosen !== null) chosen = Math.min(chosen, seconds.length - 1);
    show();
  }

  function show() {
    // The bucket that has just begun says little; the one before is complete.
    const latest = Math.max(0, data.seconds.length - 2);
    const index = chosen ?? latest;
    const texts = data.columns.map((column) => format(column[index] ?? null));
    values.forEach((it, line) => setText(it, texts[line]));
    setText(at, chosen === null ? "now" : describeAge(ends[index] ?? 0));
    cursor.setAttribute("visibility", chosen === null ? "hidden" : "visible");
    if (chosen !== null) {
      const place = x(ends[index] ?? 0).toFixed(1);
      cursor.setAttribute("x1", place);
      cursor.setAttribute("x2", place);
    }
    const said = lines.map(({ name }, line) => `${name} ${texts[line]}`).join(", ");
    plot.setAttribute("aria-label", `${title} in the last hour. Now: ${said}. The arrow keys move through time.`);
    return said;
  }

  function choose(index) {
    if (data.seconds.length === 0) return;
    chosen = Math.max(0, Math.min(data.seconds.length - 1, index));
    const said = show();
    setText(announced, `${describeAge(ends[chosen])}: ${said}`);
  }

  function release() {
    chosen = null;
    setText(announced, "");
    show();
  }

  function keydown(event) {
    const from = chosen ?? data.seconds.length - 1;
    const step = event.shiftKey ? 6 : 1;
    const target = { ArrowLeft: from - step, ArrowRight: from + step, Home: 0, End: data.seconds.length - 1 }[
      event.key
    ];
    if (event.key === "Escape") release();
    if (target === undefined) return;
    event.preventDefault();
    choose(target);
  }

  function pointermove(event) {
    const { left, width } = plot.getBoundingClientRect();
    const age = (1 - (event.clientX - left) / width) * span.seconds;
    let best = 0;
    ends.forEach((end, index) => {
      if (Math.abs(end - age) < Math.abs(ends[best] - age)) best = index;
    });
    chosen = ends.length === 0 || age > ends[0] + 30 ? null : best;
    show();
  }

  return { element, update };
}

/** The rate of each bucket from its difference; null in a bucket that is too short to say. */
export const rates = (seconds, column) =>
  (column ?? []).map((value, index) => (value === null || seconds[index] < 1 ? null : value / seconds[index]));

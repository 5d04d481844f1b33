// Drawings of nodes in columns with arrows between them.

import { html, svg } from "./elements.js";

const MARGIN = 8;

/** A region that scrolls if the drawing in it is wider than the page. */
export const drawingRegion = (label, ...children) =>
  html("div", { class: "scroll drawing", tabindex: "0", role: "region", "aria-label": label }, ...children);

/** The place in a column and a row. Nodes have `{width, height, gapX, gapY}`; a row may be a fraction. */
export const placeOf = (node, column, row) => ({
  x: MARGIN + column * (node.width + node.gapX),
  y: MARGIN + row * (node.height + node.gapY),
});

/** The size of a drawing with so many columns and rows of nodes. */
const sizeOf = (node, columns, rows) => ({
  width: 2 * MARGIN + columns * node.width + Math.max(0, columns - 1) * node.gapX,
  height: 2 * MARGIN + rows * node.height + Math.max(0, rows - 1) * node.gapY,
});

/** Places the members of each column below each other, in the middle. Returns the places by member. */
export function placeColumns(node, columns) {
  const rows = rowsOf(columns);
  const places = new Map();
  columns.forEach((column, index) =>
    column?.forEach((member, row) => places.set(member, placeOf(node, index, (rows - column.length) / 2 + row))),
  );
  return places;
}

/** The number of rows of the longest column. */
export const rowsOf = (columns) => Math.max(1, ...Array.from(columns, (it) => it?.length ?? 0));

/** The middle of a node's left edge, and that of its right one. */
export const leftOf = (node, { x, y }) => [x, y + node.height / 2];
export const rightOf = (node, { x, y }) => [x + node.width, y + node.height / 2];

/**
 * The whole drawing of `columns` and `rows` of nodes, with `more` pixels at the right. Its role is `group` if its nodes
 * can be pressed: nothing in a picture can.
 */
export function picture(node, { columns, rows, more = 0, label, role = "img" }, ...children) {
  const { width, height } = sizeOf(node, columns, rows);
  const whole = width + more;
  return svg(
    "svg",
    { viewBox: `0 0 ${whole} ${height}`, width: whole, height, role, "aria-label": label },
    ...children,
  );
}

/** A text that fits into a node. */
export const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** A box with a name, what it is below that, and a note at the bottom. With `click` it is a button. */
export function box({ x, y, width, height, name, what = null, note = null, className = "node", click = null }) {
  const title = what === null ? name : `${name}: ${what}`;
  // Its name for assistive technology is the title below.
  const button = click === null ? {} : { role: "button", tabindex: "0", click, keydown: pressing(click) };
  const below = [
    { text: what, className: "what" },
    { text: note, className: "what times" },
  ].filter(({ text }) => text !== null);
  const line = (index) => height / 2 + 5 - below.length * 9 + index * 18;
  return svg(
    "g",
    { class: className, transform: `translate(${x} ${y})`, ...button },
    svg("title", {}, title),
    svg("rect", { width, height, rx: 8 }),
    svg("text", { x: 12, y: line(0), class: "name" }, cut(name, Math.floor(width / 8.5))),
    below.map(({ text, className: ofLine }, index) =>
      svg("text", { x: 12, y: line(index + 1), class: ofLine }, cut(text, Math.floor(width / 6.6))),
    ),
  );
}

/** A listener of keys for elements that are no buttons of HTML: Enter and the space bar press them. */
const pressing = (press) => (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  press(event);
};

/** Makes boxes that are buttons one stop of the Tab key, however many they are. The arrow keys move between them. */
export function moveByArrows(boxes) {
  const stopAt = (stop) => boxes.forEach((it) => it.setAttribute("tabindex", it === stop ? "0" : "-1"));
  const last = boxes.length - 1;
  const keydown = (event) => {
    const from = boxes.indexOf(event.currentTarget);
    const to = {
      ArrowRight: from + 1, ArrowDown: from + 1, ArrowLeft: from - 1, ArrowUp: from - 1, Home: 0, End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const target = boxes[Math.max(0, Math.min(last, to))];
    stopAt(target);
    target.focus();
  };
  for (const it of boxes) it.addEventListener("keydown", keydown);
  stopAt(boxes[0]);
}

/** The point of a forward arrow after that share of its way from left to right. */
export function pointOf([x1, y1], [x2, y2], share) {
  // Its curve has the ends of a Bezier curve level: y is 3t² - 2t³ of the way, and x at the middle is half of it.
  const rise = share * share * (3 - 2 * share);
  const run = share * (1.5 * (1 - share) + share * share);
  return [x1 + (x2 - x1) * run, y1 + (y2 - y1) * rise];
}

/** A curve with an arrow at its end, which enters a box from the left, or with `fromRight` from the right. */
export function arrow([x1, y1], [x2, y2], { width = 1.25, fromRight = false, label = null } = {}) {
  const bend = fromRight ? Math.max(60, x2 - x1 + 60) : (x2 - x1) / 2;
  const [tip, side] = fromRight ? [x2 + 8, 1] : [x2 - 8, -1];
  const line = `M${x1} ${y1}C${x1 + bend} ${y1} ${fromRight ? x2 + 60 : x2 - bend} ${y2} ${tip} ${y2}`;
  return [
    svg("path", { class: "edge", d: line, "stroke-width": width }, label === null ? null : svg("title", {}, label)),
    svg("path", { class: "tip", d: `M${x2} ${y2}l${8 * side} -5v10z` }),
  ];
}

// Elements of the pages. Texts become text nodes and attributes only, never markup.

import { count } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((it) => it !== null && it !== undefined));
  return element;
}

/** An element of HTML. An attribute with a function is a listener. */
export const html = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

/** An element of SVG. */
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

/** A section with a heading. */
export function section(title, ...children) {
  return html("section", {}, html("h2", {}, title), ...children);
}

/** Sets a text only if it changes, so that a selection in it stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets the only child of an element, unless it has an equal one. */
function setOnlyChild(element, child) {
  if (!element.firstChild?.isEqualNode(child)) element.replaceChildren(child);
}

/** A column of a table with a whole number, the member `name` of each row. */
export const countColumn = (title, name, note) => numberColumn(title, (it) => it[name], count, note);

/** A column of a table with a number in this format. */
export const numberColumn = (title, value, format, note) => ({
  title,
  number: true,
  value,
  text: (it) => format(value(it)),
  note,
});

/**
 * A table that is updated in place, can be sorted by its columns, and filtered by a text.
 *
 * A column is `{title, value(row), text(row), number, share(row), cell(row), note, optional}`: `value` is what it is
 * sorted by, `text` what it shows, `cell` its content in place of a text, `share` from 0 to 1 a bar behind it. An
 * `optional` column is hidden while all of its texts are empty. `key(row)` is the identity of a row.
 */
export function table({
  caption,
  columns,
  key,
  empty,
  sort = null,
  filter = null,
  rowsMax = 500,
  onSelect = null,
}) {
  let rows = [];
  let order = sort ?? { column: 0, down: false };
  let wanted = "";
  const known = new Map();
  const body = html("tbody");
  const more = html("p", { class: "note", hidden: true });
  const heads = columns.map(({ title, number, note }, index) => {
    const button = html(
      "button",
      { type: "button", class: "sort", title: note, click: () => sortBy(index) },
      title,
    );
    return html("th", { scope: "col", class: number ? "number" : null }, button);
  });
  const whole = html(
    "table",
    {},
    html("caption", { class: "unseen" }, caption),
    html("thead", {}, html("tr", {}, heads)),
    body,
  );
  const input =
    filter &&
    html("input", {
      type: "search",
      placeholder: filter,
      "aria-label": `${filter} in: ${caption}`,
      input: (event) => {
        wanted = event.target.value.trim().toLowerCase();
        show();
      },
    });
  const element = html(
    "div",
    { class: "table" },
    input,
    html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, whole),
    more,
  );

  function sortBy(index) {
    const first = columns[index].number === true;
    order = { column: index, down: order.column === index ? !order.down : first };
    show();
  }

  function build(row) {
    const cells = columns.map(({ number }, index) =>
      html(index === 0 ? "th" : "td", {
        scope: index === 0 ? "row" : null,
        class: number ? "number" : null,
      }),
    );
    if (onSelect) {
      const button = html("button", {
        type: "button",
        class: "link",
        click: () => onSelect(known.get(key(row))?.row ?? row),
      });
      cells[0].append(button);
    }
    return { element: html("tr", {}, cells), cells, row };
  }

  function render(entry, row) {
    entry.row = row;
    columns.forEach(({ text, share, cell }, index) => {
      const target = entry.cells[index];
      target.hidden = heads[index].hidden;
      if (cell) setOnlyChild(target, cell(row));
      else setText(index === 0 && onSelect ? target.firstChild : target, text(row));
      if (share) {
        target.classList.add("bar");
        target.style.setProperty("--share", `${Math.max(0, Math.min(1, share(row))) * 100}%`);
      }
    });
    return entry.element;
  }

  function show() {
    columns.forEach(({ text, optional }, index) => {
      heads[index].hidden = optional === true && rows.every((row) => text(row) === "");
    });
    const { column, down } = order;
    const value = columns[column].value ?? columns[column].text;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : (a ?? -Infinity) - (b ?? -Infinity));
    const matching = rows.filter((row) => wanted === "" || columns[0].text(row).toLowerCase().includes(wanted));
    matching.sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1) || key(a).localeCompare(key(b)));
    const shown = matching.slice(0, rowsMax);
    const names = new Set(shown.map(key));
    for (const name of [...known.keys()]) if (!names.has(name)) known.delete(name);
    const elements = shown.map((row) => {
      const name = key(row);
      if (!known.has(name)) known.set(name, build(row));
      return render(known.get(name), row);
    });
    if (elements.length === 0) {
      elements.push(
        html(
          "tr",
          {},
          html("td", { colspan: columns.length, class: "none" }, wanted === "" ? empty : "No row matches."),
        ),
      );
    }
    // Moving a row takes the focus from its button.
    const isSame = elements.length === body.rows.length && elements.every((it, index) => it === body.rows[index]);
    if (!isSame) {
      const focused = document.activeElement;
      body.replaceChildren(...elements);
      if (body.contains(focused)) focused.focus();
    }
    heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    more.hidden = matching.length <= rowsMax;
    setText(more, `and ${matching.length - rowsMax} more`);
  }

  return {
    element,
    update(next) {
      rows = next;
      show();
    },
  };
}

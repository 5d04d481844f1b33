// The page of the caches: reads `GET /admin/cache` again and again and shows it, and previews and sends invalidations.
// It needs no library and no build step. Texts of entries are shown as text only and never become markup.

const UPDATE_MS = 2_000;

const element = (id) => document.getElementById(id);
const [follow, state, kind, effect, apply] = ["follow", "state", "kind", "effect", "apply"].map(element);

/** The name of the window whose lookups are shown. */
let selected = "1 minute";
/** The last overview, or null. */
let overview = null;
/** The text of the invalidation that was previewed, or null. */
let previewed = null;

const integers = new Intl.NumberFormat("en");
const count = (value) => integers.format(value);
const digits = (value, fraction) =>
  new Intl.NumberFormat("en", { maximumFractionDigits: fraction, minimumFractionDigits: fraction }).format(value);

/** A size in bytes with its unit. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count(bytes) : digits(bytes, bytes < 10 ? 1 : 0)} ${units[unit]}`;
}

/** A duration with its unit. */
function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0.001) return `${digits(seconds * 1e6, 0)} µs`;
  return seconds < 1 ? `${digits(seconds * 1e3, 1)} ms` : `${digits(seconds, 1)} s`;
}

const counted = (value, one, several) => `${count(value)} ${value === 1 ? one : several}`;

/** A cell with a text; `share` from 0 to 1 is shown as a bar behind it. */
function cell(text, { className = "", share = null, isCode = false } = {}) {
  const cell = document.createElement("td");
  cell.className = className;
  if (share !== null) {
    cell.classList.add("bar");
    cell.style.setProperty("--share", `${Math.max(0, Math.min(1, share)) * 100}%`);
  }
  if (isCode) {
    const code = document.createElement("code");
    code.textContent = text;
    cell.append(code);
  } else {
    cell.textContent = text;
  }
  return cell;
}

const number = (text, share = null) => cell(text, { className: "number", share });

/** Replaces the rows of a table. Without rows it says so. */
function fill(id, rows, empty) {
  const body = element(id).tBodies[0];
  const built = rows.map(({ cells, isTotal = false }) => {
    const row = document.createElement("tr");
    row.className = isTotal ? "total" : "";
    row.append(...cells);
    return row;
  });
  if (built.length === 0) {
    const row = document.createElement("tr");
    const none = cell(empty, { className: "none" });
    none.colSpan = element(id).tHead.rows[0].cells.length;
    row.append(none);
    built.push(row);
  }
  body.replaceChildren(...built);
}

function showWindows() {
  const windows = element("windows");
  if (windows.querySelector("input")) return;
  windows.append(
    ...overview.windows.map(({ name }) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: "window", value: name, checked: name === selected });
      input.addEventListener("change", () => {
        selected = name;
        show();
      });
      label.append(input, ` ${name === "start" ? "since the start" : `last ${name}`}`);
      return label;
    }),
  );
}

function showLookups({ lookups }) {
  fill(
    "lookups",
    lookups.map((it) => ({
      cells: [
        cell(it.level),
        cell(it.subgraph),
        number(it.hitRatio === null ? "–" : `${digits(it.hitRatio * 100, 1)} %`, it.hitRatio ?? 0),
        ...[it.lookups, it.hits, it.staleHits, it.misses, it.missesExpired, it.missesInvalidated, it.refreshes, it.stores]
          .map((value) => number(count(value))),
      ],
    })),
    "No subgraph has a cache.",
  );
}

function showStores(stores) {
  const rows = stores.flatMap((store) => {
    const whole = {
      isTotal: true,
      cells: [
        cell(store.level),
        cell(""),
        number(size(store.bytes), store.bytes / store.bytesMax),
        number(size(store.bytesMax)),
        number(count(store.entries)),
        number(count(store.evictions)),
      ],
    };
    const parts = store.subgraphs.filter((it) => it.subgraph !== "").map((it) => ({
      cells: [
        cell(""),
        cell(it.subgraph),
        number(size(it.bytes), it.bytes / store.bytesMax),
        number(""),
        number(count(it.entries)),
        number(count(it.evictions)),
      ],
    }));
    return [whole, ...parts];
  });
  fill("stores", rows, "");
}

function showInvalidations({ invalidations }, effectTimes) {
  const times = new Map(effectTimes.map((it) => [it.source, it]));
  fill(
    "invalidations",
    invalidations.map((it) => ({
      cells: [
        cell(it.source),
        ...[it.messages, it.invalidations, it.malformed, it.gaps].map((value) => number(count(value))),
        number(duration(times.get(it.source)?.meanSeconds ?? null)),
        number(duration(times.get(it.source)?.p99Seconds ?? null)),
      ],
    })),
    "",
  );
}

const described = (entry) => [
  cell(entry.level),
  cell(entry.subgraph ?? ""),
  cell(entry.name, { className: "wide", isCode: true }),
  entry.isPrivate
    ? cell("private", { className: "none" })
    : cell(entry.key, { className: "wide", isCode: true }),
];

function showEntries({ hottest, largest }) {
  const rows = (entries, more) => entries.map((entry) => ({ cells: [...described(entry), ...more(entry)] }));
  const rate = (value) => digits(value, value < 10 ? 1 : 0);
  fill(
    "hottest",
    rows(hottest, (it) => [number(rate(it.perSecond)), number(it.bytes === null ? "gone" : size(it.bytes))]),
    "No hit has been counted yet.",
  );
  fill("largest", rows(largest, (it) => [number(size(it.bytes))]), "Nothing is stored.");
}

function showSubgraphs(stores) {
  const names = stores.flatMap((store) => store.subgraphs.map((it) => it.subgraph)).filter((it) => it !== "");
  const list = element("subgraphs");
  const known = [...list.options].map((it) => it.value).join("\n");
  if (known !== names.join("\n")) list.replaceChildren(...names.map((name) => new Option(name, name)));
}

function show() {
  const window = overview.windows.find(({ name }) => name === selected) ?? overview.windows[0];
  showWindows();
  showLookups(window);
  showStores(overview.stores);
  showInvalidations(window, overview.effectTimes);
  showEntries(overview);
  showSubgraphs(overview.stores);
  document.querySelector("main").hidden = false;
}

function say(output, text, failed) {
  output.value = text;
  output.classList.toggle("failed", failed);
}

async function update() {
  try {
    const response = await fetch("/admin/cache", { headers: { accept: "application/json" } });
    if (!response.ok) throw new Error((await response.text()).trim());
    overview = await response.json();
    show();
    say(state, "", false);
  } catch (error) {
    // A fetch that gets no response has a message of the browser, which does not say what is wrong.
    say(state, error instanceof TypeError ? "The router does not respond." : error.message, true);
  }
}

/** Updates the page for ever, while it is visible and wanted. */
async function run() {
  await update();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, UPDATE_MS));
    if (follow.checked && document.visibilityState === "visible") await update();
  }
}

/** Returns the invalidation in the form as JSON text. */
function invalidation() {
  const value = (id, what) => {
    const text = element(id).value.trim();
    if (text === "") throw new Error(`${what} is missing.`);
    return text;
  };
  switch (kind.value) {
    case "cache_tag":
      return JSON.stringify({ kind: "cache_tag", cache_tag: value("tag", "The tag") });
    case "entity": {
      let key;
      try {
        key = JSON.parse(value("key", "The key"));
      } catch (error) {
        throw error instanceof SyntaxError ? new Error('The key must be JSON, such as {"id": "1"}.') : error;
      }
      return JSON.stringify({ kind: "entity", type: value("type", "The type"), key });
    }
    case "type": {
      const subgraph = element("subgraph").value.trim();
      return JSON.stringify({ kind: "type", type: value("type", "The type"), ...(subgraph && { subgraph }) });
    }
    case "subgraph":
      return JSON.stringify({ kind: "subgraph", subgraph: value("subgraph", "The subgraph") });
    default:
      return JSON.stringify({ kind: "all" });
  }
}

async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(path, { method: "POST", headers, body }).catch(() => {
    throw new Error("The router does not respond.");
  });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

function forgetPreview() {
  previewed = null;
  apply.disabled = true;
}

function showFields() {
  for (const label of document.querySelectorAll("[data-kinds]")) {
    label.hidden = !label.dataset.kinds.split(" ").includes(kind.value);
  }
}

kind.addEventListener("change", showFields);
element("invalidate").addEventListener("input", forgetPreview);
element("invalidate").addEventListener("submit", async (event) => {
  event.preventDefault();
  forgetPreview();
  try {
    const text = invalidation();
    const { entries, bytes, isComplete } = await post("/admin/cache/preview", text);
    // The form may have changed meanwhile.
    if (invalidation() !== text) return;
    const least = isComplete ? "" : "at least ";
    say(effect, `${least}${counted(entries, "entry", "entries")} (${size(bytes)}) would become stale.`, false);
    previewed = text;
    apply.disabled = false;
  } catch (error) {
    say(effect, error.message, true);
  }
});
apply.addEventListener("click", async () => {
  const text = previewed;
  forgetPreview();
  if (text === null) return;
  try {
    await post("/admin/invalidate", text);
    say(effect, "Invalidated. No later request gets what was stored before.", false);
    await update();
  } catch (error) {
    say(effect, error.message, true);
  }
});

showFields();
run();

// The page without GraphiQL: sends an operation by POST and shows the response; streams a subscription over
// server-sent events ("distinct connections mode" of the GraphQL over SSE protocol). It needs no library and no build
// step.

/** The number of results kept, so that a tab left open for days stays small. */
const RESULTS_MAX = 100;

const config = JSON.parse(document.getElementById("starling-config").textContent);
const element = (id) => document.getElementById(id);
const [query, variables, headers] = ["query", "variables", "headers"].map(element);
const [operation, run, stop, trace, status, results] =
  ["operation", "run", "stop", "trace", "status", "results"].map(element);

/** The `AbortController` of the running request, or null. */
let running = null;

const storageKey = `starling-plain:${document.body.dataset.tabs}`;
const tabs = restoreTabs();
let selected = 0;
show(0);

run.addEventListener("click", start);
stop.addEventListener("click", () => running?.abort());
for (const field of [query, variables, headers]) {
  field.addEventListener("input", remember);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      start();
    }
  });
}

/** Returns the stored tabs, or else the server's. Headers are never stored: they contain secrets. */
function restoreTabs() {
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey));
    if (Array.isArray(stored) && stored.length > 0) return stored;
  } catch {
    // Nothing is stored, it is not readable, or the browser refuses storage: start with the server's tabs.
  }
  const given = config.tabs.map((tab) => ({ query: tab.query, variables: tab.variables ?? "" }));
  return given.length > 0 ? given : [{ query: "{ __typename }", variables: "" }];
}

function remember() {
  tabs[selected] = { query: query.value, variables: variables.value };
  listOperations();
  drawTabs();
  try {
    localStorage.setItem(storageKey, JSON.stringify(tabs));
  } catch {
    // A browser without storage still runs operations.
  }
}

function show(index) {
  selected = index;
  query.value = tabs[index].query;
  variables.value = tabs[index].variables;
  element("more").open = variables.value.trim() !== "" || headers.value.trim() !== "";
  listOperations();
  drawTabs();
}

function drawTabs() {
  const buttons = tabs.map((tab, index) => {
    const button = document.createElement("button");
    const [first] = operationsIn(tab.query);
    button.type = "button";
    button.role = "tab";
    button.ariaSelected = String(index === selected);
    button.textContent = first?.name ?? first?.kind ?? `operation ${index + 1}`;
    button.addEventListener("click", () => show(index));
    return button;
  });
  element("tabs").replaceChildren(...buttons);
}

function listOperations() {
  const found = operationsIn(query.value);
  const before = operation.value;
  operation.replaceChildren(
    ...found.map(({ kind, name }) => new Option(`${kind} ${name ?? ""}`, name ?? "")),
  );
  operation.hidden = found.length < 2;
  if (found.some(({ name }) => name === before)) operation.value = before;
}

/**
 * Returns the operations of a document, as `{kind, name}` in order. Not a parser: it skips strings and
 * comments and reads the words at nesting depth 0. The server reports what it misreads.
 */
function operationsIn(text) {
  const token = /"""(?:\\"""|[^])*?"""|"(?:\\.|[^"\\\n])*"|#[^\n]*|[{}()]|[@$]?[A-Za-z_]\w*/g;
  const found = [];
  let depth = 0;
  let definition = null;
  for (const [word] of text.matchAll(token)) {
    if (word === "(") {
      depth += 1;
    } else if (word === "{") {
      if (depth === 0 && definition === null) found.push({ kind: "query", name: null });
      depth += 1;
    } else if (word === ")") {
      depth -= 1;
    } else if (word === "}") {
      depth -= 1;
      if (depth === 0) definition = null;
    } else if (depth === 0 && /^[A-Za-z_]/.test(word)) {
      if (definition === null) {
        definition = { kind: word, name: null, named: false };
        if (/^(query|mutation|subscription)$/.test(word)) found.push(definition);
      } else if (!definition.named) {
        definition.name = word;
        definition.named = true;
      }
    }
  }
  return found.map(({ kind, name }) => ({ kind, name }));
}

/** Returns the JSON object in a text field; an empty field is an empty object. */
function objectIn(field, what) {
  if (field.value.trim() === "") return {};
  let value;
  try {
    value = JSON.parse(field.value);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Error(`${what}: must be a JSON object, as in {"id": "1"}`);
  }
  return value;
}

async function start() {
  running?.abort();
  const request = new AbortController();
  running = request;
  results.replaceChildren();
  run.disabled = true;
  stop.disabled = false;
  status.value = "running";
  try {
    status.value = await send(request.signal);
  } catch (error) {
    if (request.signal.aborted) {
      if (running === request) status.value = "stopped";
    } else {
      status.value = "failed";
      add(error.message, true);
    }
  }
  if (running === request) {
    running = null;
    run.disabled = false;
    stop.disabled = true;
  }
}

/** Sends the operation on the page and returns the text for the status line. */
async function send(signal) {
  const body = { query: query.value, variables: objectIn(variables, "Variables") };
  const chosen = operationsIn(query.value).find(({ name }) => (name ?? "") === operation.value);
  if (chosen?.name) body.operationName = chosen.name;
  const accept =
    chosen?.kind === "subscription"
      ? "text/event-stream"
      : "application/graphql-response+json, application/json;q=0.9";
  const began = performance.now();
  const response = await fetch(config.endpoint, {
    method: "POST",
    headers: {
      ...(trace.checked && { "starling-trace": "1" }),
      ...objectIn(headers, "Headers"),
      "content-type": "application/json",
      accept,
    },
    body: JSON.stringify(body),
    signal,
  }).catch((error) => {
    if (signal.aborted) throw error;
    const url = new URL(config.endpoint, window.location.href);
    throw new Error(`The router does not respond at ${url.href}. Check that it is still running.`);
  });
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("text/event-stream")) {
    const count = await stream(response);
    return `complete after ${count} ${count === 1 ? "event" : "events"}`;
  }
  const text = await response.text();
  const took = Math.round(performance.now() - began);
  addJson(text, !response.ok);
  return `${response.status} in ${took} ms`;
}

/** Shows each `next` event until `complete` or the end of the stream, and returns their number. */
async function stream(response) {
  let count = 0;
  let pending = "";
  let completed = false;
  status.value = "waiting for the first event";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  while (!completed) {
    const { value, done } = await reader.read().catch((error) => {
      throw new Error(`The connection was lost after ${count} ${count === 1 ? "event" : "events"}: ${error.message}`);
    });
    if (done) break;
    pending += value;
    // An event ends with an empty line. A carriage return at the very end may be half of a CRLF.
    const lines = pending.split(/\r\n|\n|\r(?!$)/);
    let from = 0;
    for (let index = 0; index < lines.length - 1 && !completed; index += 1) {
      if (lines[index] !== "") continue;
      const { event, data } = parseEvent(lines.slice(from, index));
      from = index + 1;
      if (event === "complete") {
        completed = true;
      } else if (event === "next" && data !== null) {
        count += 1;
        addJson(data, false, count);
        status.value = `${count} ${count === 1 ? "event" : "events"}`;
      }
    }
    pending = lines.slice(from).join("\n");
  }
  reader.cancel().catch(() => {});
  if (!completed) throw new Error(`The stream ended after ${count} events without "complete".`);
  return count;
}

function parseEvent(lines) {
  let event = "message";
  const data = [];
  for (const line of lines) {
    const [, field, value] = line.match(/^([^:]*)(?::[ ]?(.*))?$/);
    if (field === "event") event = value ?? "";
    if (field === "data") data.push(value ?? "");
  }
  return { event, data: data.length > 0 ? data.join("\n") : null };
}

function addJson(text, failed, number) {
  try {
    const value = JSON.parse(text);
    add(JSON.stringify(value, null, 2), failed || Boolean(value?.errors), number);
    if (value?.extensions?.trace?.fetches) results.prepend(traceOf(value.extensions.trace));
  } catch {
    add(text === "" ? "(an empty response)" : text, true, number);
  }
}

/** Shows a result above the earlier ones. Text only: an response never becomes markup. */
function add(text, failed, number) {
  const block = document.createElement("pre");
  block.className = failed ? "failed" : "";
  if (number !== undefined) {
    const when = document.createElement("span");
    when.className = "when";
    when.textContent = `#${number} at ${new Date().toLocaleTimeString()}`;
    block.append(when);
  }
  block.append(text);
  results.prepend(block);
  while (results.childElementCount > RESULTS_MAX) results.lastElementChild.remove();
}

/** Returns a trace as a list: what came from memory and what each request took. */
function traceOf({ prepare, execute, fetches, cache }) {
  const lines = [`prepared in ${time(prepare)}, executed in ${time(execute)}`];
  if (cache) {
    const { response, age } = cache;
    lines.push(age === null ? `whole response: ${response}` : `whole response from memory: ${response}, ${time(age)} old`);
    for (const fetch of cache.fetches) {
      const unit = fetch.unit === "entities" ? "entities" : "root fields";
      const counts = ["fresh", "stale", "awaited", "sent", "staleIfError", "refreshed"]
        .filter((name) => fetch[name] > 0)
        .map((name) => `${fetch[name]} ${COUNTS[name]}`);
      const oldest = fetch.oldestAge === null ? "" : `; the oldest ${time(fetch.oldestAge)} old`;
      lines.push(`${fetch.subgraph}, ${unit}: ${counts.join(", ")}${oldest}`);
    }
  }
  for (const { subgraph, began, took, status, answerBytes, sharing } of fetches) {
    const response = status === null ? "no response" : `status ${status}, ${answerBytes} bytes`;
    const shared = sharing === "follower" ? ", shared with another operation" : "";
    lines.push(`${subgraph}, request: ${response} in ${time(took)} after ${time(began)}${shared}`);
  }
  const list = document.createElement("ul");
  list.className = "trace";
  list.append(
    ...lines.map((line) => {
      const item = document.createElement("li");
      item.textContent = line;
      return item;
    }),
  );
  return list;
}

/** What the counts of a fetch say, in the order in which they are shown. */
const COUNTS = {
  fresh: "from memory",
  stale: "old from memory",
  awaited: "that another operation fetched",
  sent: "requested",
  staleIfError: "old because the subgraph failed",
  refreshed: "fetched again in the background",
};

/** A number of microseconds as a time with its unit. */
function time(micros) {
  if (micros < 1e3) return `${micros} µs`;
  return micros < 1e6 ? `${(micros / 1e3).toFixed(1)} ms` : `${(micros / 1e6).toFixed(1)} s`;
}

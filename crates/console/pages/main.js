// The frame of the console: which page is open, when it is updated, the token, and the colours.
//
// A page is a module with `title`, `interval` (milliseconds between two updates) and `open(parameter, tools)`, which
// returns `{element, update(parameter)}`. The address names it: `#operations/NAME`. A page with `isOfGraph` shows data
// of one graph, which is selected in the frame if there are several.

import { TokenNeeded, hasToken, readGraphs, setGraph, setToken } from "./api.js";
import { html } from "./elements.js";
import * as graph from "./graph.js";
import * as live from "./live.js";
import * as operations from "./operations.js";
import * as overview from "./overview.js";
import * as slow from "./slow.js";
import * as tools from "./tools.js";

const PAGES = { overview, operations, graph, live, slow, tools };

const element = (id) => document.getElementById(id);
const [main, state, follow, login, theme] = ["page", "state", "follow", "login", "theme"].map(element);
const [graphChoice, selectedGraph] = ["graph-choice", "selected-graph"].map(element);

/** The open page: `{name, parameter, view}`, or null. */
let current = null;
let timer = null;
/** The number of the newest update, so that an older one that is late changes nothing. */
let newest = 0;

function parse() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const parameter = rest.length === 0 ? null : decodeURIComponent(rest.join("/"));
  return Object.hasOwn(PAGES, name) ? { name, parameter } : { name: "overview", parameter: null };
}

const go = (address) => {
  location.hash = address;
};

function show() {
  const { name, parameter } = parse();
  if (current?.name !== name) {
    current = { name, parameter, view: PAGES[name].open(parameter, { go }) };
    main.replaceChildren(current.view.element);
    document.title = `${PAGES[name].title} – Starling console`;
    for (const link of element("pages").querySelectorAll("a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  current.parameter = parameter;
  showGraphChoice();
  update();
}

/** Reads the names of the graphs once. */
async function knowGraphs() {
  if (selectedGraph.options.length > 0) return;
  const { graphs, selected } = await readGraphs();
  selectedGraph.replaceChildren(...graphs.map((it) => html("option", {}, it)));
  selectedGraph.value = selected;
  showGraphChoice();
}

function showGraphChoice() {
  graphChoice.hidden = selectedGraph.options.length < 2 || PAGES[current.name].isOfGraph !== true;
}

function say(text, failed) {
  state.value = text;
  state.classList.toggle("bad", failed);
}

async function update() {
  clearTimeout(timer);
  const page = current;
  newest += 1;
  const mine = newest;
  try {
    await knowGraphs();
    if (mine !== newest) return;
    await page.view.update(page.parameter);
    if (mine !== newest) return;
    main.dataset.updated = String(Number(main.dataset.updated ?? 0) + 1);
    login.hidden = true;
    main.hidden = false;
    say("", false);
  } catch (error) {
    if (mine !== newest) return;
    if (error instanceof TokenNeeded) {
      askForToken(error);
      return;
    }
    say(error.message, true);
  }
  timer = setTimeout(tick, PAGES[page.name].interval);
}

function tick() {
  if (follow.checked && document.visibilityState === "visible") update();
  else timer = setTimeout(tick, 1_000);
}

function askForToken(error) {
  main.hidden = true;
  login.hidden = false;
  element("login-state").value = hasToken() ? error.message : "";
  element("token").focus();
}

function applyTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(element("token").value);
  element("token").value = "";
  update();
});
selectedGraph.addEventListener("change", () => {
  setGraph(selectedGraph.value);
  const { name } = current;
  // The page begins again: a group or a type of one graph is unknown to another one.
  current = null;
  clearTimeout(timer);
  newest += 1;
  if (location.hash === `#${name}`) show();
  else go(name);
});
theme.addEventListener("change", () => {
  localStorage.setItem("starling-console-theme", theme.value);
  applyTheme(theme.value);
});
window.addEventListener("hashchange", show);

theme.value = localStorage.getItem("starling-console-theme") ?? "auto";
if (theme.value === "") theme.value = "auto";
applyTheme(theme.value);
element("pages").append(
  ...Object.entries(PAGES).map(([name, { title }]) => html("a", { href: `#${name}` }, title)),
);
show();

// The frame of the console: which page is open, when it is updated, the token, and the colours.
//
// A page is a module with `title`, `interval` (milliseconds between two updates) and `open(parameter, tools)`, which
// returns `{element, update(parameter)}`. The address names it: `#operations/NAME`. A page with `isOfGraph` shows data
// of one graph, which is selected in the frame if there are several. With `hasAllGraphs` it can also show the sums over
// all graphs. With `hasForms` it stays as it is when the selected graph is gone, with all that is typed into it.

import { TokenNeeded, graphNames, hasToken, selectGraph, selectedGraph, setToken } from "./api.js";
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
const [graphChoice, choice, graphNote] = ["graph-choice", "selected-graph", "graph-note"].map(element);

/**
 * The open page: `{name, parameter, view, shown}`, or null. `shown` is the parameter of its latest update: null without
 * one.
 */
let current = null;
let timer = null;
/** The number of the newest update, so that an older one that is late changes nothing. */
let newest = 0;

function parse() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const parameter = rest.length === 0 ? null : decodeURIComponent(rest.join("/"));
  return Object.hasOwn(PAGES, name) ? { name, parameter } : { name: "overview", parameter: null };
}

/** The element that has opened a part of the page. */
let opener = null;

const go = (address) => {
  opener = document.activeElement;
  location.hash = address;
};

/** Gives the focus back to what has opened a part of the page, if the focus was in the part that is closed now. */
function returnFocus() {
  const focused = document.activeElement;
  if (focused !== document.body && focused?.checkVisibility()) return;
  const target = opener?.isConnected && opener.checkVisibility() ? opener : main;
  target.focus({ preventScroll: target === main });
}

function show() {
  const { name, parameter } = parse();
  if (current?.name !== name) {
    current = { name, parameter, view: PAGES[name].open(parameter, { go }), shown: null };
    // A page that begins again by itself must not lose the place of a person at the keyboard.
    const hadFocus = main.contains(document.activeElement) && document.activeElement !== main;
    main.replaceChildren(current.view.element);
    if (hadFocus) main.focus();
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

/** Begins the page again: a group or a type of one graph is unknown to another one. */
function beginAgain() {
  const { name } = current;
  current = null;
  clearTimeout(timer);
  newest += 1;
  if (location.hash === `#${name}`) show();
  else go(name);
}

/** The entry for all graphs. */
const ALL_GRAPHS = { value: "", text: "All graphs" };

/** Offers the graphs of the latest response, if there are several and the page shows data of one. */
function showGraphChoice() {
  const names = graphNames();
  const { isOfGraph, hasAllGraphs } = PAGES[current.name];
  const isHidden = names.length < 2 || !isOfGraph;
  if (isHidden && graphChoice.contains(document.activeElement)) main.focus();
  graphChoice.hidden = isHidden;
  // New options close a list that a person has opened.
  const entries = names.map((it) => ({ value: it, text: it }));
  if (hasAllGraphs) entries.unshift(ALL_GRAPHS);
  const offered = [...choice.options].map((it) => it.value);
  if (offered.join(",") !== entries.map((it) => it.value).join(",")) {
    choice.replaceChildren(...entries.map(({ value, text }) => html("option", { value }, text)));
  }
  const selected = selectedGraph() ?? entries[0]?.value ?? "";
  if (choice.value !== selected) choice.value = selected;
}

/**
 * Follows the list of graphs, which each response has. If the selected graph is gone, selects the first one and says
 * so. Returns true if the page begins again because of that.
 */
function followGraphs() {
  const [selected, names] = [selectedGraph(), graphNames()];
  const isGone = selected !== null && names.length > 0 && !names.includes(selected);
  if (isGone) {
    selectGraph(names[0]);
    graphNote.value = `The graph “${selected}” is gone. The graph “${names[0]}” is selected instead.`;
  }
  showGraphChoice();
  const { isOfGraph, hasForms } = PAGES[current.name];
  if (!isGone || !isOfGraph || hasForms) return false;
  beginAgain();
  return true;
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
    await page.view.update(page.parameter);
    if (mine !== newest || followGraphs()) return;
    if (page.shown !== null && page.parameter === null) returnFocus();
    page.shown = page.parameter;
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
    if (followGraphs()) return;
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

// The part of an address behind # is the name of a page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
login.addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(element("token").value);
  element("token").value = "";
  update();
});
choice.addEventListener("change", () => {
  selectGraph(choice.value);
  graphNote.value = "";
  beginAgain();
});
theme.addEventListener("change", () => {
  localStorage.setItem("starling-console-theme", theme.value);
  applyTheme(theme.value);
});
window.addEventListener("hashchange", () => {
  // The note is read when a person opens another page. If a page begins again, none is open.
  if (current !== null && current.name !== parse().name) graphNote.value = "";
  show();
});

theme.value = localStorage.getItem("starling-console-theme") ?? "auto";
if (theme.value === "") theme.value = "auto";
applyTheme(theme.value);
element("pages").append(
  ...Object.entries(PAGES).map(([name, { title }]) => html("a", { href: `#${name}` }, title)),
);
show();

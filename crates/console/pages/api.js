// Reads the JSON below `api/`, with the token if the router wants one.

const KEY = "starling-console-token";

/** The router wants a token, or another one. */
export class TokenNeeded extends Error {}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** The data of one graph. Other data is that of all graphs, and so is an overview without a graph. */
const OF_GRAPH = ["overview", "operation", "live", "subscribers", "subscriber", "watch", "graph", "type", "explain"];

const GRAPH_KEY = "starling-console-graph";

/** The header of the response to each allowed request below `api/` with the names of the graphs. */
const GRAPHS_HEADER = "starling-graphs";

/** The names of the graphs in the latest response, and the number of its request. */
let graphs = { names: [], request: 0 };
let requests = 0;

/** The names of the graphs, the default first; empty before the first response. */
export const graphNames = () => graphs.names;

/** The graph that data is read of; null for all graphs, or for the first one on a page that shows one graph only. */
export const selectedGraph = () => sessionStorage.getItem(GRAPH_KEY) || null;

/** Selects the graph that data is read of; without a name all graphs. */
export function selectGraph(name) {
  sessionStorage.setItem(GRAPH_KEY, name);
}

function noteGraphs(names, request) {
  // A response that a later one has overtaken may be that of a router that has ended.
  if (names !== null && request > graphs.request) graphs = { names: names.split(","), request };
}

/** The path of a request with its parameters, and with the selected graph if the data is of one. */
function pathOf(name, parameters) {
  const all = new URLSearchParams(parameters);
  const graph = selectedGraph();
  if (graph !== null && OF_GRAPH.includes(name)) all.set("graph", graph);
  const query = all.toString();
  return query === "" ? name : `${name}?${query}`;
}

/** Returns the response to a request, or throws an error with a message for people. */
async function send(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { accept: "application/json", ...options.headers };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  requests += 1;
  const request = requests;
  // A fetch that gets no response has a message of the browser, which does not say what is wrong.
  const response = await fetch(`api/${path}`, { ...options, headers }).catch(() => {
    throw new Error("The router does not respond.");
  });
  noteGraphs(response.headers.get(GRAPHS_HEADER), request);
  if (response.status === 401) throw new TokenNeeded("The token is missing or wrong.");
  if (!response.ok) throw new Error((await response.text()).trim());
  return response;
}

/** Reads JSON. `parameters` are those of the URL. */
export async function read(name, parameters = {}) {
  return (await send(pathOf(name, parameters))).json();
}

/** Sends a body, and returns the text of the response. */
export async function post(name, parameters, body, contentType = "application/json") {
  const headers = { "content-type": contentType };
  const response = await send(pathOf(name, parameters), { method: "POST", body, headers });
  return (await response.text()).trim();
}

/** The name of a file in the header `content-disposition`; null if it has none. */
const fileName = (disposition) => /filename="([^"]+)"/.exec(disposition ?? "")?.[1] ?? null;

/**
 * Reads a file of the admin listener outside the console, which needs no token. Returns its name, as the router gives
 * it or `fallback`, and its content. Throws an error with the text of a refusal.
 */
export async function readFile(path, fallback) {
  const response = await fetch(path).catch(() => {
    throw new Error("The router does not respond.");
  });
  if (!response.ok) throw new Error((await response.text()).trim());
  // A connection that breaks while the file arrives has a message of the browser, too.
  const content = await response.blob().catch(() => {
    throw new Error("The file is incomplete.");
  });
  return { name: fileName(response.headers.get("content-disposition")) ?? fallback, content };
}

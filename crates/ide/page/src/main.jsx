// GraphiQL for the router that served this page. The server writes its configuration into the page (see `PageConfig`
// in crates/ide/src/lib.rs); nothing is fetched from any other origin.
import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { getOperationAST, parse } from "graphql";
import "graphiql/style.css";
import "./main.css";
import { createClient } from "graphql-ws";
import { createRoot } from "react-dom/client";
import { noteResult, tracePlugin, withTraceHeader } from "./trace.jsx";

const config = JSON.parse(document.getElementById("starling-config").textContent);
const url = new URL(config.endpoint, window.location.href);
const socketUrl = new URL(url);
socketUrl.protocol = url.protocol === "https:" ? "wss:" : "ws:";

// The content of the headers editor is also sent as the payload of `connection_init`, because a browser cannot set
// headers on a WebSocket.
let headers = {};
const socket = createClient({
  url: socketUrl.href,
  connectionParams: () => headers,
  lazy: true,
  retryAttempts: 3,
});
const send = createGraphiQLFetcher({ url: url.href, wsClient: socket });

// GraphiQL prints the value that a fetch rejects with. For a lost connection that is a bare browser event
// (`{"isTrusted": true}`) or a stack of this bundle, so it is replaced. Results of the server pass unchanged.
function explain(error) {
  if (error instanceof CloseEvent) {
    const reason = error.reason === "" ? "no reason was given" : error.reason;
    throw { message: `The router closed the connection: ${reason} (close code ${error.code}).` };
  }
  if (error instanceof Event || error instanceof TypeError) {
    const detail = error.message ? ` (${error.message})` : "";
    throw { message: `The router does not respond at ${url.href}${detail}. Check that it is still running.` };
  }
  throw error;
}

/**
 * Returns the result of a fetch, or the results of a subscription, with explained errors. The fetch of a query is a
 * sequence, too, because its response may have several parts.
 */
async function explained(sent, isTraced = false) {
  const value = await Promise.resolve(sent).catch(explain);
  if (typeof value?.[Symbol.asyncIterator] !== "function") {
    if (isTraced) noteResult(value);
    return value;
  }
  const results = value[Symbol.asyncIterator]();
  // Not a generator: its `return` would wait for the next event before the subscription is stopped.
  return {
    next: () =>
      results.next().then((step) => {
        if (isTraced && !step.done) noteResult(step.value);
        return step;
      }, explain),
    return: async () => (await results.return?.()) ?? { value: undefined, done: true },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

// GraphiQL learns the operations of a document a moment after a change. A tab run right after opening would otherwise
// be sent with the name of the previous operation, and a subscription by POST.
function fetcher(params, options) {
  headers = options?.headers ?? {};
  let documentAST;
  try {
    documentAST = parse(params.query);
  } catch {
    // The server reports the syntax error.
    return explained(send(params, options));
  }
  const operation =
    getOperationAST(documentAST, params.operationName) ?? getOperationAST(documentAST);
  const operationName = operation?.name?.value ?? params.operationName;
  // GraphiQL asks for the schema itself, and a subscription is sent over a WebSocket.
  const isTraced = operationName !== "IntrospectionQuery" && operation?.operation !== "subscription";
  const sent = isTraced ? { ...options, headers: withTraceHeader(headers) } : options;
  return explained(send({ ...params, operationName }, { ...sent, documentAST }), isTraced);
}

// Tabs are stored separately for each set of initial tabs, so that two routers that take turns on one port (the demo,
// then the user's graph) do not share them.
function storageFor(name) {
  const prefix = `starling:${name}:`;
  return {
    getItem: (key) => localStorage.getItem(prefix + key),
    setItem: (key, value) => localStorage.setItem(prefix + key, value),
    removeItem: (key) => localStorage.removeItem(prefix + key),
    clear() {
      for (const key of Object.keys(localStorage)) {
        if (key.startsWith(prefix)) localStorage.removeItem(key);
      }
    },
    get length() {
      return Object.keys(localStorage).filter((key) => key.startsWith(prefix)).length;
    },
  };
}

const root = document.getElementById("page");
createRoot(root).render(
  <GraphiQL
    fetcher={fetcher}
    storage={storageFor(root.dataset.tabs)}
    defaultTabs={config.tabs.map(({ query, variables }) => ({ query, variables }))}
    defaultEditorToolsVisibility={config.tabs.some((tab) => tab.variables) ? "variables" : undefined}
    shouldPersistHeaders={false}
    plugins={[tracePlugin]}
  >
    <GraphiQL.Logo>
      <a className="starling-logo" href={url.pathname === "/" ? undefined : "/"}>
        {config.title}
      </a>
    </GraphiQL.Logo>
  </GraphiQL>,
);

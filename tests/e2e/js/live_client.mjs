// The npm clients graphql-ws and graphql-sse with one interface, for tests of what the router streams rather than of a
// protocol.
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import WebSocket from "ws";
import { within } from "./waiting.mjs";

/**
 * A client of the router with one WebSocket, which stays open until the client is disposed of. `init` is the payload of
 * `connection_init`.
 */
export function openSocket(router, init) {
  const sockets = [];
  const closed = [];
  const client = createSocketClient({
    url: router.socket, retryAttempts: 0, connectionParams: init, lazy: false, onNonLazyError() {},
    on: { closed: ({ code, reason }) => closed.push({ code, reason }) },
    webSocketImpl: class extends WebSocket {
      constructor(...given) {
        super(...given);
        sockets.push(this);
      }
    },
  });
  return {
    subscribe: (request) => follow((sink) => client.subscribe(asRequest(request), sink)),
    /** The number of WebSockets that the client has opened: 1 as long as the router closed none. */
    opened: () => sockets.length,
    /** The codes and reasons with which they were closed. */
    closed,
    /** Sends a `ping` with this payload. */
    ping: (payload) => sockets.at(-1).send(JSON.stringify({ type: "ping", payload })),
    isOpen: () => sockets.at(-1)?.readyState === WebSocket.OPEN,
    dispose: () => client.dispose(),
  };
}

/** A client of the router with a stream of server-sent events for each operation. */
export function openStreams(router, headers) {
  const client = createSseClient({ url: router.graphql, retryAttempts: 0, headers });
  return {
    subscribe: (request) => follow((sink) => client.subscribe(asRequest(request), sink)),
    dispose: () => client.dispose(),
  };
}

const asRequest = (request) => (typeof request === "string" ? { query: request } : request);

/** The errors of an operation, or the close event of its connection, which has no members of its own. */
const describe = (error) => (error?.code === undefined ? JSON.stringify(error) : `code ${error.code}: ${error.reason}`);

/**
 * Collects the results of one operation. `next()` waits for the next result. `ended` resolves with `{results, error}`,
 * where `error` is undefined after `complete`.
 */
function follow(begin) {
  const results = [];
  let taken = 0;
  let notify = () => {};
  let outcome;
  let resolveEnded;
  const ended = new Promise((resolve) => {
    resolveEnded = resolve;
  });
  const end = (error) => {
    outcome = { results, error };
    resolveEnded(outcome);
    notify();
  };
  const stop = begin({
    next(result) {
      results.push(result);
      notify();
    },
    error: (problem) => end(problem ?? new Error("an unknown error")),
    complete: () => end(undefined),
  });

  async function take() {
    while (results.length === taken) {
      if (outcome) throw new Error(`the subscription has ended: ${describe(outcome.error)}`);
      await new Promise((resolve) => {
        notify = resolve;
      });
    }
    return results[taken++];
  }

  return {
    results, stop,
    next: () => within(take(), "a result"),
    /** Skips results until one fulfils `condition`. */
    async find(condition, what) {
      return within((async () => {
        for (;;) {
          const result = await take();
          if (condition(result)) return result;
        }
      })(), what);
    },
    hasEnded: () => outcome !== undefined,
    ended: () => within(ended, "the end of the subscription"),
  };
}

// WebSocket servers of both subprotocols: the npm packages graphql-ws and subscriptions-transport-ws.
import { execute, subscribe } from "graphql";
import { useServer } from "graphql-ws/use/ws";
import { SubscriptionServer } from "subscriptions-transport-ws";
import { WebSocketServer } from "ws";
import { startListener } from "./listener.mjs";
import { queryHandler } from "./queries.mjs";

const PATH = "/subscriptions";

/**
 * Starts `graphql-ws` with `ws`. `onConnect(context)` is that of the package. `protocol` is the one in the router's
 * configuration, `auto` by default.
 */
export async function startGraphqlWs(subgraph, { protocol, port, tls, onConnect } = {}) {
  const listener = await startListener(queryHandler(subgraph), port, tls);
  const sockets = new WebSocketServer({ server: listener.server, path: PATH });
  // Reports the errors of sockets that a test drops, which the listener handles.
  sockets.on("error", () => {});
  useServer({
    schema: subgraph.schema,
    onConnect,
    context: ({ connectionParams, extra }, _id, { extensions }) => ({
      headers: extra.request.headers, init: connectionParams, extensions,
    }),
  }, sockets);
  return webSocketSubgraph(listener, sockets, protocol);
}

/** Starts `subscriptions-transport-ws`, whose only subprotocol is the legacy `graphql-ws`. */
export async function startSubscriptionsTransportWs(subgraph, { protocol, port } = {}) {
  const listener = await startListener(queryHandler(subgraph), port);
  const server = SubscriptionServer.create({
    schema: subgraph.schema,
    execute,
    subscribe,
    onConnect: (init, _socket, { request }) => ({ headers: request.headers, init }),
    onOperation: ({ payload }, parameters) => {
      parameters.context = { ...parameters.context, extensions: payload.extensions };
      return parameters;
    },
  }, { server: listener.server, path: PATH });
  return webSocketSubgraph(listener, server.server, protocol);
}

function webSocketSubgraph(listener, sockets, protocol) {
  let accepted = 0;
  sockets.on("connection", () => {
    accepted += 1;
  });
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { url: `${listener.origin.replace("http", "ws")}${PATH}`, ...(protocol && { protocol }) },
    /** The number of open WebSockets. */
    connections: () => sockets.clients.size,
    /** The number of WebSockets since the start. */
    accepted: () => accepted,
  };
}

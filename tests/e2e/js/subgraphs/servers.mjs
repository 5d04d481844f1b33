// All servers of subscriptions in this folder, for tests that every protocol must pass.
import { startApolloCallback } from "./apollo_callback.mjs";
import { startGraphqlSse } from "./graphql_sse.mjs";
import { startMultipart } from "./multipart.mjs";
import { startGraphqlWs, startSubscriptionsTransportWs } from "./web_sockets.mjs";
import { startYoga } from "./yoga.mjs";

/** The configuration of the router's side of callbacks, on its main listener. */
export const callbackConfiguration = (port) => ({
  public_url: `http://127.0.0.1:${port}/callback`, path: "/callback", heartbeat_interval: "1s",
});

/**
 * `start(subgraph, options)` begins the server. It has `url` for queries, `subscription` for the router's
 * configuration, `kill()`, `stop()` and `restart()`. `isSocket`: operations share WebSockets, with `connections()` and
 * `accepted()`.
 */
export const SERVERS = [
  { name: "graphql-ws, negotiated", start: startGraphqlWs, isSocket: true },
  {
    name: "graphql-ws, fixed", isSocket: true,
    start: (subgraph, options) => startGraphqlWs(subgraph, { protocol: "graphql_transport_ws", ...options }),
  },
  { name: "subscriptions-transport-ws, negotiated", start: startSubscriptionsTransportWs, isSocket: true },
  {
    name: "subscriptions-transport-ws, fixed", isSocket: true,
    start: (subgraph, options) => startSubscriptionsTransportWs(subgraph, { protocol: "graphql_ws", ...options }),
  },
  { name: "graphql-yoga by POST", start: startYoga },
  {
    name: "graphql-yoga by GET",
    start: (subgraph, options) => startYoga(subgraph, { protocol: "sse_get", ...options }),
  },
  { name: "graphql-sse by POST", start: startGraphqlSse },
  {
    name: "graphql-sse by GET",
    start: (subgraph, options) => startGraphqlSse(subgraph, { protocol: "sse_get", ...options }),
  },
  { name: "multipart of subscriptions", start: startMultipart },
  {
    name: "incremental multipart",
    start: (subgraph, options) => startMultipart(subgraph, { form: "incremental", ...options }),
  },
  { name: "Apollo Server with callbacks", start: startApolloCallback },
];

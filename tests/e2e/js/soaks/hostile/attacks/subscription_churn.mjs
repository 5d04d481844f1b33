// Subscribing and completing immediately, repeatedly, on 8 WebSockets.
import { flood, keepWebSockets, subscribe } from "../websockets.mjs";

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(8, graphql, signal, (socket) => {
      let id = 0;
      return flood(socket, signal, () => {
        for (let count = 0; count < 50; count += 1, id += 1) {
          sent();
          socket.send(subscribe(id, "subscription { tick { id note } }"));
          socket.send(JSON.stringify({ id: String(id), type: "complete" }));
        }
      });
    });
  },
};

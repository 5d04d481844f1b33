// One WebSocket that requests large responses, reads none, and completes each operation immediately.
import { flood, keepWebSockets, stopReading, subscribe } from "../websockets.mjs";

const query = "{ items(first: 200) { id name description related { id name description } } }";

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(1, graphql, signal, (socket) => {
      let id = 0;
      stopReading(socket);
      return flood(socket, signal, () => {
        sent();
        socket.send(subscribe(id, query));
        if (id % 2) socket.send(JSON.stringify({ id: String(id), type: "complete" }));
        id += 1;
      });
    });
  },
};

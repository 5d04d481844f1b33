// Many subscribers that read nothing, with the policy of dropping the oldest event: together they reach the limit of
// all queues.
import { keepWebSockets, stopReading, subscribe } from "../websockets.mjs";

export default {
  config: {
    subscriptions: { policy: "drop_oldest", queue_bytes_total: "1MiB", kernel_queue_bytes: "4KiB" },
  },

  run({ graphql, signal, sent }) {
    keepWebSockets(20, graphql, signal, (socket) => {
      for (let id = 0; id < 50; id += 1) {
        sent();
        socket.send(subscribe(id, "subscription { tick { id note } }"));
      }
      stopReading(socket);
    });
  },
};

// A thousand subscriptions of one client to one source with different aliases: each event is resolved for each of
// them.
import { setTimeout as pause } from "node:timers/promises";
import { keepWebSockets, subscribe } from "../websockets.mjs";

/** Interval between two subscriptions: all of them exist after a few seconds. */
const GAP_MS = 2;

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(1, graphql, signal, async (socket) => {
      for (let id = 0; id < 1000 && !signal.aborted && socket.readyState === socket.OPEN; id += 1) {
        sent();
        socket.send(subscribe(id, `subscription { a${id}: tick { id note } }`));
        await pause(GAP_MS);
      }
    });
  },
};

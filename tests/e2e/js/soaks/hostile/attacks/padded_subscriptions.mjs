// Live subscriptions whose texts are padded with comments, with variables that they do not declare.
import { setTimeout as pause } from "node:timers/promises";
import { keepWebSockets, subscribe } from "../websockets.mjs";

/** Fast enough to reach the limits within a phase, slow enough that each message is read. */
const GAP_MS = 20;

const padding = Array.from({ length: 20_000 }, (_, index) => `${index}`).join(" ");

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(8, graphql, signal, async (socket) => {
      for (let id = 0; id < 100 && !signal.aborted && socket.readyState === socket.OPEN; id += 1) {
        sent();
        socket.send(subscribe(id, `# ${padding}\nsubscription S${id} { tick { id } }`, { padding }));
        await pause(GAP_MS);
      }
    });
  },
};

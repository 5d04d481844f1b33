// Large messages of initialised clients: a list of numbers in a variable that the operation does not declare.
import { flood, keepWebSockets, subscribe } from "../websockets.mjs";

const numbers = Array.from({ length: 150_000 }, (_, index) => index % 1000);

export default {
  run({ graphql, signal, sent }) {
    keepWebSockets(20, graphql, signal, (socket) => {
      let id = 0;
      return flood(socket, signal, () => {
        sent();
        socket.send(subscribe(id++, "{ __typename }", { numbers }));
      });
    });
  },
};

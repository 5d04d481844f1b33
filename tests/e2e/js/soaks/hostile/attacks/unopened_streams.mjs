// Event streams that are reserved and never opened, with operations that have large responses.
import { keepConnections, post } from "../sockets.mjs";

const query = "{ items(first: 200) { id name description related { id name description } } }";

export default {
  run({ graphql, signal, sent }) {
    keepConnections(4, graphql, signal, (socket) => {
      const { host, pathname } = new URL(graphql);
      let id = 0;
      let token;
      const start = () => {
        sent();
        const body = JSON.stringify({ query, extensions: { operationId: String(id++) } });
        socket.write(post(graphql, body, { "x-graphql-event-stream-token": token }));
      };
      socket.on("data", (data) => {
        const text = data.toString("latin1");
        token ??= text.match(/stream-[0-9a-f]+/)?.[0];
        if (token && !socket.destroyed) start();
      });
      socket.write(`PUT ${pathname} HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 0\r\n\r\n`);
    });
  },
};

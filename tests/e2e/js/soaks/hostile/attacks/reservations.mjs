// Reservations of event streams that are never opened, as many as one connection can send.
import { keepConnections, pipeline } from "../sockets.mjs";

export default {
  run({ graphql, signal, sent }) {
    const { host, pathname } = new URL(graphql);
    const request = `PUT ${pathname} HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 0\r\n\r\n`;
    keepConnections(1, graphql, signal, (socket) => pipeline(socket, 64, () => {
      sent();
      return request;
    }));
  },
};

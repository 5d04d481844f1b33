// Subgraphs that break their protocol as a test says, written by hand on `ws` and plain HTTP: no package does.
import { WebSocketServer } from "ws";
import { startListener } from "./listener.mjs";
import { queryHandler } from "./queries.mjs";

const PATH = "/subscriptions";

/**
 * A WebSocket server that acknowledges connections and otherwise does what the test says. `onSubscribe({id, send,
 * sendBytes, socket})` is called for each operation: `send` takes a message, `sendBytes` the bytes of a frame.
 * `onMessage({type, send, socket})` is called for every other message.
 * `accept(subprotocols)` chooses the subprotocol, or false for none.
 */
export async function startScriptedSocket(
  subgraph, { onSubscribe, onMessage = () => {}, accept = (offered) => [...offered][0] },
) {
  const listener = await startListener(queryHandler(subgraph));
  const sockets = new WebSocketServer({ server: listener.server, path: PATH, handleProtocols: accept });
  let accepted = 0;
  sockets.on("connection", (socket, request) => {
    accepted += 1;
    const send = (message) => socket.send(JSON.stringify(message));
    const sendBytes = (bytes) => request.socket.write(bytes);
    socket.on("error", () => {});
    socket.on("message", (text) => {
      const { type, id } = JSON.parse(text);
      if (type === "connection_init") send({ type: "connection_ack" });
      else if (type === "subscribe" || type === "start") onSubscribe({ id, send, sendBytes, socket });
      else onMessage({ type, send, socket });
    });
  });
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { url: `ws://127.0.0.1:${listener.port}${PATH}` },
    connections: () => sockets.clients.size,
    accepted: () => accepted,
  };
}

/** A server that responds to each upgrade and each request for a stream with this status, content type and body. */
export async function startScriptedResponse(subgraph, { protocol, status, type, body }) {
  const queries = queryHandler(subgraph);
  const listener = await startListener((request, response) => {
    if (!request.url.startsWith(PATH)) return queries(request, response);
    response.writeHead(status, { "content-type": type }).end(body);
  });
  listener.server.on("upgrade", (_request, socket) => {
    const head = [`HTTP/1.1 ${status} Scripted`, `content-type: ${type}`, `content-length: ${Buffer.byteLength(body)}`];
    socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  });
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { protocol, url: `${listener.origin}${PATH}` },
  };
}

// A decision point for policies with the interface of Open Policy Agent: it counts what it is asked, and can fail in
// every way.
import { once } from "node:events";
import http from "node:http";

/**
 * Starts a decision point. `decide(input)` returns the `result` of a response. With `forward`, the URL of a document of
 * a real one, that one decides.
 */
export async function startDecisionPoint({ decide = () => [], forward } = {}) {
  const requests = [];
  let respond;
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    const { input } = JSON.parse(body);
    requests.push({ input, headers: request.headers, method: request.method, path: request.url });
    if (respond) {
      respond(response, input);
      return;
    }
    const text = forward
      ? await fetch(forward, { method: "POST", body }).then((it) => it.text(), () => null)
      : JSON.stringify({ result: decide(input) });
    // The real one is away.
    if (text === null) response.destroy();
    else response.writeHead(200, { "content-type": "application/json" }).end(text);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/v1/data/starling/allow`,
    /** The requests since the last call. */
    takeRequests: () => requests.splice(0),
    /** `how(response, input)` writes each response from now on; without it they are as before. */
    setResponse(how) {
      respond = how;
    },
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

/** The ways in which a decision point fails, by name. Each claims to allow every policy. */
export const FAILURES = {
  "a page": (response) => response.end("<html>"),
  "no result": (response) => response.end("{}"),
  "a single truth value": (response) => response.end('{"result":true}'),
  "texts for truth values": (response, { policies }) =>
    response.end(JSON.stringify({ result: Object.fromEntries(policies.map((it) => [it, "true"])) })),
  "half of a response": (response, { policies }) => {
    response.writeHead(200, { "content-length": 1000 });
    response.write(JSON.stringify({ result: policies }), () => response.destroy());
  },
  "another status": (response, { policies }) => {
    response.writeHead(500, { "content-type": "application/json" }).end(JSON.stringify({ result: policies }));
  },
  "a redirection": (response, { policies }) => {
    response.writeHead(302, { location: "/v1/data/other" }).end(JSON.stringify({ result: policies }));
  },
  "a body that is too large": (response, { policies }) =>
    response.end(JSON.stringify({ result: policies, padding: "x".repeat(1 << 20) })),
  "a body without an end": (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const flood = () => {
      while (!response.destroyed && response.write(" ".repeat(65_536)));
      if (!response.destroyed) response.once("drain", flood);
    };
    response.on("error", () => {});
    flood();
  },
  "a closed connection": (response) => response.destroy(),
};

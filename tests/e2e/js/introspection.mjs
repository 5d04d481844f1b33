// An identity provider with opaque tokens: its introspection endpoint (RFC 7662), and the ways in which one fails.
import { once } from "node:events";
import http from "node:http";

export const CREDENTIALS = { client_id: "starling", client_secret: "secret of the router" };

/** The introspection endpoint. It knows the tokens that `add` names, and counts the requests for each token. */
export async function startIdentityProvider() {
  const known = new Map();
  const requests = [];
  let respond;
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    const form = new URLSearchParams(body);
    requests.push({ headers: request.headers, form, method: request.method });
    if (respond) {
      respond(response);
      return;
    }
    const claims = known.get(form.get("token"));
    response.writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify(claims ? { active: true, ...claims } : { active: false }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/introspect`;
  return {
    url,
    configuration: { url, ...CREDENTIALS },
    add: (token, claims = {}) => known.set(token, claims),
    revoke: (token) => known.delete(token),
    requests: (token) => requests.filter(({ form }) => !token || form.get("token") === token),
    /** Each response is written by `how` from now on; without it as before. */
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

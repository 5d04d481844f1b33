// A server that publishes a supergraph, and behaves badly when told to; and the signatures of a publisher.
import { createHash, createHmac, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { once } from "node:events";
import http from "node:http";

/** The value of the header by which a router verifies `body`. */
export const hmacOf = (secret, body) => `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`;

/** A pair of keys of minisign: `publicKey` as the router is configured with it, and `sign(body, time)`. */
export function minisignKeys() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const id = randomBytes(8);
  // The raw key is the end of its DER form.
  const raw = publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  return {
    publicKey: Buffer.concat([Buffer.from("Ed"), id, raw]).toString("base64"),
    /** The file of minisign for `body`, signed at `time` (seconds since 1970). */
    sign(body, time = Math.floor(Date.now() / 1000)) {
      const signature = sign(null, createHash("blake2b512").update(body).digest(), privateKey);
      const comment = `timestamp:${time}\tfile:supergraph.graphql\thashed`;
      const whole = sign(null, Buffer.concat([signature, Buffer.from(comment)]), privateKey);
      return [
        "untrusted comment: signature of a test",
        Buffer.concat([Buffer.from("ED"), id, signature]).toString("base64"),
        `trusted comment: ${comment}`,
        whole.toString("base64"),
        "",
      ].join("\n");
    },
  };
}

/**
 * Starts a server of one supergraph. `publish` serves a text with its etag, and 304 to those who have it;
 * `misbehave(handler)` replaces all responses until the next `publish`. `requests` are the heads of all requests.
 */
export async function startGraphServer(sdl = "", headers = {}) {
  let published;
  let handler = null;
  const requests = [];
  const server = http.createServer((request, response) => {
    requests.push({ url: request.url, headers: request.headers });
    if (handler) return handler(request, response);
    if (new URL(request.url, "http://h").pathname.endsWith(".minisig")) {
      if (published.minisign === undefined) return response.writeHead(404).end();
      return response.end(published.minisign);
    }
    const { etag, body, headers: more } = published;
    if (request.headers["if-none-match"] === etag) return response.writeHead(304, { etag }).end();
    return response.writeHead(200, { etag, ...more }).end(body);
  });
  const listen = async (port) => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await listen(0);
  const { port } = server.address();
  const graphServer = {
    url: `http://127.0.0.1:${port}/graphs/supergraph.graphql`,
    requests,
    /** Publishes a text. `headers` are further ones; `minisign` is the file beside it. */
    publish(body, { headers: more = {}, minisign } = {}) {
      handler = null;
      const etag = `"${createHash("sha256").update(body).update(JSON.stringify(more)).digest("hex").slice(0, 16)}"`;
      published = { body, etag, headers: more, minisign };
    },
    misbehave(behaviour) {
      handler = behaviour;
    },
    /** Closes the port; later connections are refused. */
    async stop() {
      if (!server.listening) return;
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
    /** Listens on the same port again. */
    restart: () => listen(port),
  };
  graphServer.publish(sdl, { headers });
  return graphServer;
}

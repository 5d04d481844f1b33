// An issuer of tokens: keys, tokens signed with them, and the key set over HTTP, as identity providers serve it.
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import http from "node:http";

const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Seconds since 1970, this many from now. */
export const inSeconds = (seconds) => Math.floor(Date.now() / 1000) + seconds;

/** A token with this head, signed by `signature(head and claims)`. */
export function token(head, claims, signature) {
  const signed = `${part({ typ: "JWT", ...head })}.${part(claims)}`;
  return `${signed}.${signature(signed)}`;
}

/** An issuer with one key, which serves its key set. */
export async function startIssuer() {
  const keys = new Map();
  let fetches = 0;
  let isDown = false;
  const addKey = (kid) =>
    keys.set(kid, generateKeyPairSync("rsa", { modulusLength: 2048 }));
  addKey("first");
  const server = http.createServer((request, response) => {
    fetches += 1;
    if (isDown) {
      response.writeHead(500).end("down");
      return;
    }
    const set = [...keys].map(([kid, { publicKey }]) =>
      ({ ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" }));
    response.writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ keys: set }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/jwks.json`;
  const name = "https://issuer.example";
  const claimed = (claims) =>
    ({ iss: name, aud: "starling", exp: inSeconds(3600), ...claims });
  return {
    configuration: { issuer: name, audiences: ["starling"], jwks: { url } },
    addKey,
    /** Revokes all keys: the set is empty from now on. */
    removeKeys: () => keys.clear(),
    fetches: () => fetches,
    setDown: (down) => {
      isDown = down;
    },
    /** A valid token with `claims`. */
    issue: (claims = {}, kid = "first") =>
      token({ alg: "RS256", kid }, claimed(claims), (text) =>
        sign("sha256", Buffer.from(text), keys.get(kid).privateKey).toString("base64url")),
    /** Without a signature. */
    unsigned: (claims = {}) => token({ alg: "none" }, claimed(claims), () => ""),
    /** Signed with the public key, as if that were a secret. */
    confused: (claims = {}) => {
      const secret = keys.get("first").publicKey.export({ type: "spki", format: "pem" });
      return token({ alg: "HS256", kid: "first" }, claimed(claims), (text) =>
        createHmac("sha256", secret).update(text).digest("base64url"));
    },
    /** Names an unknown key. */
    ofUnknownKey: (kid) => token({ alg: "RS256", kid }, claimed({}), () => part("no signature")),
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

// For samples written for browsers and applications: Node.js has a global WebSocket from version 22, and `freshToken`
// is the application's own function, which gets a token from its identity provider.
import { createHmac } from "node:crypto";
import process from "node:process";
import WebSocket from "ws";
import { inSeconds, token } from "../tokens.mjs";

globalThis.WebSocket ??= WebSocket;

const secret = process.env.JWT_SECRET;
if (secret) {
  globalThis.freshToken = async () => token(
    { alg: "HS256" },
    { sub: "ann", exp: inSeconds(Number(process.env.TOKEN_SECONDS ?? 60)) },
    (signed) => createHmac("sha256", secret).update(signed).digest("base64url"),
  );
}

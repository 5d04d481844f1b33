// Serves a built site on this machine: `node serve.mjs FOLDER [BASE] [PORT]`, with the path that it was built for.
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import process from "node:process";

const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".json": "application/json",
  ".svg": "image/svg+xml", ".png": "image/png",
};

/** Serves `folder` under the path `base`, and returns the server once it listens. Port 0 is any free one. */
export function serveFolder(folder, { port = 0, base = "/" } = {}) {
  const server = createServer((request, response) => {
    const file = fileOf(folder, base, request.url);
    if (!file) {
      response.writeHead(404, { "content-type": "text/plain" }).end("not found\n");
      return;
    }
    response.writeHead(200, { "content-type": TYPES[path.extname(file)] ?? "text/plain; charset=utf-8" });
    if (request.method === "HEAD") response.end();
    else createReadStream(file).pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}

function fileOf(folder, base, target) {
  let name;
  try {
    name = decodeURIComponent(new URL(target, "http://site").pathname);
  } catch {
    return null;
  }
  if (!name.startsWith(base)) return null;
  // The path of a URL has no `..`, but a decoded one may.
  const file = path.join(folder, name.slice(base.length), name.endsWith("/") ? "index.html" : "");
  if (!file.startsWith(path.join(folder, path.sep))) return null;
  return statSync(file, { throwIfNoEntry: false })?.isFile() ? file : null;
}

if (process.argv[1] === import.meta.filename) {
  const [folder, base = "/", port = "8000"] = process.argv.slice(2);
  const server = await serveFolder(path.resolve(folder), { base, port: Number(port) });
  console.log(`http://127.0.0.1:${server.address().port}${base}`);
}

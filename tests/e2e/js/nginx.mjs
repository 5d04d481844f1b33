// A real nginx as a caching proxy in front of a router.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "./children.mjs";
import { nginx } from "./programs.mjs";
import { freePort } from "./router.mjs";
import { eventually, within } from "./waiting.mjs";

/** How much output of the proxy is kept for the message of a failed test. */
const OUTPUT_CHARACTERS_MAX = 20_000;

/**
 * Starts nginx with a cache in front of `router`. It follows the headers of the router's responses and nothing else,
 * and says in `x-cache` what it did: `MISS`, `HIT`, `EXPIRED`, `REVALIDATED`.
 */
export async function startCachingProxy(router) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-nginx-"));
  const port = await freePort();
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  const file = path.join(folder, "nginx.conf");
  await writeFile(file, `
    daemon off;
    master_process off;
    pid ${folder}/nginx.pid;
    error_log stderr warn;
    events { worker_connections 512; }
    http {
      access_log off;
      ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join("\n      ")}
      proxy_cache_path ${folder}/cache keys_zone=responses:1m;
      server {
        listen 127.0.0.1:${port};
        location / {
          proxy_pass ${router.url};
          proxy_http_version 1.1;
          proxy_cache responses;
          proxy_cache_key $request_uri;
          proxy_cache_revalidate on;
          add_header x-cache $upstream_cache_status always;
        }
      }
    }
  `);
  // The file of errors that is opened before the configuration is read.
  const child = spawn(nginx(), ["-p", folder, "-c", file, "-e", "stderr"], { stdio: ["ignore", "ignore", "pipe"] });
  let output = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text) => {
    output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
  });
  const ended = once(child, "exit");
  ended.catch(() => {});
  adopt(child, folder);
  const graphql = `http://127.0.0.1:${port}/graphql`;
  await eventually(async () => {
    if (child.exitCode !== null) throw Object.assign(new Error(`nginx ended: ${output}`), { fatal: true });
    return await fetch(graphql);
  }, "nginx to listen");
  return {
    graphql,
    output: () => output,
    async stop() {
      child.kill("SIGKILL");
      await within(ended, "nginx to end");
    },
  };
}

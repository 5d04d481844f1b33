// The API server of Kubernetes with its store and its controllers (tests/e2e/kubernetes), each a process.
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { adopt } from "../children.mjs";
import { kubernetes } from "../programs.mjs";
import { freePort } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** How much output of a process is kept for the message of a failed test. */
const OUTPUT_CHARACTERS_MAX = 5_000;

/** Time until the API server is ready, which installs its own objects first. */
const START_MS = 90_000;

/** The controllers that the objects of the chart need, and those that delete what belongs to deleted objects. */
const CONTROLLERS = [
  "deployment-controller", "disruption-controller", "endpointslice-controller", "garbage-collector-controller",
  "namespace-controller", "replicaset-controller", "serviceaccount-controller",
];

/** Starts a cluster without nodes. `configuration` is the file that Helm and other clients read. */
export async function startCluster() {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-kubernetes-"));
  const place = (name) => path.join(folder, name);
  const token = randomBytes(16).toString("hex");
  const { publicKey, privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
  });
  await writeFile(place("accounts.pem"), publicKey);
  await writeFile(place("accounts.key"), privateKey);
  await writeFile(place("tokens.csv"), `${token},administrator,administrator,system:masters\n`);

  const processes = [];
  /** Starts a part of Kubernetes. `ended` is set as soon as it has ended, with its last words. */
  function run(words) {
    const child = spawn(kubernetes(), words, { stdio: ["ignore", "pipe", "pipe"] });
    adopt(child, folder);
    const part = { child, output: "", ended: null };
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        part.output = (part.output + text).slice(-OUTPUT_CHARACTERS_MAX);
      });
    }
    child.once("exit", (code, signal) => {
      part.ended = `kubernetes ${words[0]} ended with ${code ?? signal}:\n${part.output}`;
    });
    processes.push(part);
    return part;
  }

  const store = run(["store", place("store")]);
  const [, storeUrl] = await eventually(() => {
    if (store.ended) throw Object.assign(new Error(store.ended), { fatal: true });
    return store.output.match(/^(http:\/\/\S+)\n/m);
  }, "the store of Kubernetes");

  const port = await freePort();
  const api = run([
    "api-server",
    `--etcd-servers=${storeUrl}`,
    "--bind-address=127.0.0.1",
    `--secure-port=${port}`,
    `--cert-dir=${place("certificates")}`,
    // Nothing in this cluster reaches the API server by its service.
    "--endpoint-reconciler-type=none",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--authorization-mode=RBAC",
    `--token-auth-file=${place("tokens.csv")}`,
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-key-file=${place("accounts.pem")}`,
    `--service-account-signing-key-file=${place("accounts.key")}`,
  ]);

  const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false });

  /** Sends a request; returns status and body. `type` is the media type of `body`, which is JSON unless it is text. */
  function request(method, target, body, type = "application/json") {
    const content = Buffer.from(typeof body === "string" ? body : (JSON.stringify(body) ?? ""));
    const headers = {
      authorization: `Bearer ${token}`, accept: "application/json", "content-type": type, "content-length": content.length,
    };
    return new Promise((resolve, reject) => {
      const sent = https.request({ agent, method, host: "127.0.0.1", port, path: target, headers });
      sent.on("error", reject);
      sent.on("response", (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (part) => {
          text += part;
        });
        response.on("error", reject);
        response.on("end", () => {
          const isJson = response.headers["content-type"]?.startsWith("application/json");
          const { warning } = response.headers;
          resolve({ status: response.statusCode, body: isJson ? JSON.parse(text) : text, warning });
        });
      });
      sent.end(content);
    });
  }

  /** As `request`, for requests that must succeed; returns the body. */
  async function ask(method, target, body, type) {
    const response = await request(method, target, body, type);
    if (response.status < 300) return response.body;
    throw new Error(`${method} ${target}: ${response.status} ${response.body.message ?? response.body}`);
  }

  await eventually(async () => {
    if (api.ended) throw Object.assign(new Error(api.ended), { fatal: true });
    return (await request("GET", "/readyz")).status === 200;
  }, "the API server", START_MS);

  const configuration = place("kubeconfig.json");
  await writeFile(configuration, JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "test", cluster: { server: `https://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
    users: [{ name: "administrator", user: { token } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "administrator" } }],
    "current-context": "test",
  }));
  const controllers = run([
    "controllers",
    `--kubeconfig=${configuration}`,
    `--controllers=${CONTROLLERS.join(",")}`,
    `--service-account-private-key-file=${place("accounts.key")}`,
    "--leader-elect=false",
    "--secure-port=0",
  ]);

  return {
    configuration,
    request,
    ask,
    /** The last lines of the processes, for the message of a failed test. */
    output: () => [store, api, controllers].map(({ ended, output }) => ended ?? output).join("\n"),
    async stop() {
      agent.destroy();
      for (const { child, ended } of processes.reverse()) {
        if (ended) continue;
        const exit = once(child, "exit");
        child.kill("SIGKILL");
        await within(exit, "a process of Kubernetes to end");
      }
    },
  };
}

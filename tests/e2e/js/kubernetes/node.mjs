// A node of a cluster for tests, in place of a kubelet: it starts the routers of pods as processes, with the files and
// the environment of their containers, asks their probes, reports to the API server, and ends them as a kubelet does.
//
// There are no containers. The process of a pod has an address of its own in 127.0.0.0/8. In words and files the paths
// of volumes and the address of all interfaces are replaced by what the process has in their place.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { adopt } from "../children.mjs";
import { writeVolumes } from "../pod_volumes.mjs";
import { eventually } from "../waiting.mjs";

/** The name of the node. */
const NODE = "node";

/** How often the node compares pods with processes, and asks the probes. */
const STEP_MS = 100;

/** How much output of a router is kept for the message of a failed test. */
const OUTPUT_CHARACTERS_MAX = 5_000;

/**
 * Kubernetes accepts no pod at a loopback address. It knows addresses in `POD_NETWORK`, which have the same ends as
 * those of processes. Each run of the tests has its own network, because the ports are the same in all runs.
 */
const POD_NETWORK = "10.1.";
const PROCESS_NETWORK = `127.${1 + (process.pid % 250)}.`;

/** Time until a router has responded to a probe, on a busy machine. */
const PROBE_TIMEOUT_MS = 5_000;

const PATCH = "application/strategic-merge-patch+json";

/** Starts a node that runs the pods of a namespace. */
export async function startNode(cluster, namespace) {
  await cluster.ask("POST", "/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: NODE } });
  const base = `/api/v1/namespaces/${namespace}`;
  const containers = new Map();
  let addresses = 0;
  let isOver = false;
  let failure = null;
  let lastRefusal = null;

  /** The addresses at which processes of ready pods serve a port of a service: `host:port`. */
  async function endpoints(service, port) {
    const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
    const target = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=${selector}`;
    const { items } = await cluster.ask("GET", target);
    return items.flatMap(({ endpoints, ports }) => {
      const { port: number } = ports?.find(({ name }) => name === port) ?? {};
      const ready = (endpoints ?? []).filter(({ conditions }) => conditions.ready);
      const found = ready.flatMap(({ addresses }) => addresses);
      return found.map((address) => `${address.replace(POD_NETWORK, PROCESS_NETWORK)}:${number}`);
    });
  }

  /** The ConfigMaps of a pod, `{name: {key: text}}`, and their versions, which say whether they have changed. */
  async function configMapsOf({ volumes = [] }) {
    const sources = volumes.flatMap(({ projected }) => projected?.sources ?? []);
    const configMaps = {};
    const versions = [];
    for (const name of new Set(sources.map(({ configMap }) => configMap.name))) {
      const { data, metadata } = await cluster.ask("GET", `${base}/configmaps/${name}`);
      configMaps[name] = data;
      versions.push(metadata.resourceVersion);
    }
    return { configMaps, versions: versions.join() };
  }

  async function environmentOf({ env = [], envFrom = [] }) {
    const secret = async (name) => (await cluster.ask("GET", `${base}/secrets/${name}`)).data;
    const decode = (text) => Buffer.from(text, "base64").toString();
    const values = {};
    for (const { secretRef } of envFrom) {
      for (const [name, value] of Object.entries(await secret(secretRef.name))) values[name] = decode(value);
    }
    for (const { name, value, valueFrom } of env) {
      values[name] = valueFrom ? decode((await secret(valueFrom.secretKeyRef.name))[valueFrom.secretKeyRef.key]) : value;
    }
    return values;
  }

  const report = (pod, status) => cluster.ask("PATCH", `${base}/pods/${pod.metadata.name}/status`, { status }, PATCH);

  async function start(pod) {
    const { name } = pod.metadata;
    if (!pod.spec.nodeName) {
      await cluster.ask("POST", `${base}/pods/${name}/binding`, {
        apiVersion: "v1", kind: "Binding", metadata: { name }, target: { apiVersion: "v1", kind: "Node", name: NODE },
      });
    }
    addresses += 1;
    const end = `${addresses >> 8}.${addresses & 255}`;
    const address = `${PROCESS_NETWORK}${end}`;
    const [definition] = pod.spec.containers;
    // Services have no addresses here: a pod that is ready takes the place of each.
    const services = {};
    for (const [service, port] of await servicePorts()) services[service] = (await endpoints(service, port))[0];
    const folder = await mkdtemp(path.join(tmpdir(), "starling-pod-"));
    const mounted = patternOf((definition.volumeMounts ?? []).map(({ mountPath }) => mountPath));
    const substitute = (text) => {
      return text.replaceAll("0.0.0.0:", `${address}:`)
        .replace(mounted, (mountPath) => path.join(folder, mountPath))
        .replace(/\/\/([a-z-]+):\d+\//, (all, service) => (services[service] ? `//${services[service]}/` : all));
    };
    const container = {
      pod, address, podIP: `${POD_NETWORK}${end}`, folder, substitute, versions: "", output: "", isReady: null,
      exit: null, isReported: false, isEnding: false, isKilled: false,
    };
    containers.set(pod.metadata.uid, container);
    let environment;
    try {
      await refresh(container);
      environment = { PATH: process.env.PATH, ...(await environmentOf(definition)) };
    } catch (error) {
      // The next step starts the pod again.
      containers.delete(pod.metadata.uid);
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
    const child = spawn(process.env.STARLING_BIN, definition.args.map(substitute), {
      env: environment, stdio: ["ignore", "pipe", "pipe"],
    });
    adopt(child, folder);
    container.child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        container.output = (container.output + text).slice(-OUTPUT_CHARACTERS_MAX);
      });
    }
    child.once("exit", (code, signal) => {
      container.exit = code ?? signal;
    });
  }

  async function servicePorts() {
    const { items } = await cluster.ask("GET", `${base}/services`);
    return items.map(({ metadata, spec }) => [metadata.name, spec.ports[0].name]);
  }

  /** Writes the files of a pod if its ConfigMaps have changed. */
  async function refresh(container) {
    const { pod, folder, substitute } = container;
    const { configMaps, versions } = await configMapsOf(pod.spec);
    if (versions === container.versions) return;
    container.versions = versions;
    const substituteAll = (data) => Object.fromEntries(Object.entries(data).map(([name, text]) => [name, substitute(text)]));
    const placed = Object.entries(configMaps).map(([name, data]) => [name, substituteAll(data)]);
    await writeVolumes(folder, pod.spec, Object.fromEntries(placed));
  }

  async function isReady({ pod, address }) {
    const { readinessProbe, ports } = pod.spec.containers[0];
    const { path: target, port, scheme } = readinessProbe.httpGet;
    const { containerPort } = ports.find(({ name }) => name === port);
    const url = `${scheme.toLowerCase()}://${address}:${containerPort}${target}`;
    const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
    return fetch(url, { signal }).then((response) => response.ok, () => false);
  }

  /** Reports that the process of a pod has ended by itself. */
  async function reportEnd(container) {
    const { pod, exit } = container;
    const [{ name, image }] = pod.spec.containers;
    const isTask = pod.spec.restartPolicy === "Never";
    const terminated = { exitCode: Number(exit) || 0, reason: exit === 0 ? "Completed" : "Error" };
    await report(pod, {
      phase: isTask ? (exit === 0 ? "Succeeded" : "Failed") : "Running",
      conditions: [{ type: "Ready", status: "False" }],
      containerStatuses: [{ name, image, imageID: image, ready: false, restartCount: 0, state: { terminated } }],
    });
    container.isReported = true;
  }

  async function watch(container) {
    const { pod, podIP } = container;
    if (container.exit !== null) {
      if (!container.isReported) await reportEnd(container);
      return;
    }
    await refresh(container);
    if (!pod.spec.containers[0].readinessProbe) return;
    const ready = await isReady(container);
    if (ready === container.isReady) return;
    container.isReady = ready;
    const [{ name, image }] = pod.spec.containers;
    const status = ready ? "True" : "False";
    await report(pod, {
      phase: "Running",
      podIP,
      podIPs: [{ ip: podIP }],
      conditions: [{ type: "Ready", status, lastTransitionTime: new Date().toISOString() }],
      containerStatuses: [{
        name, image, imageID: image, ready, restartCount: 0,
        state: { running: { startedAt: new Date().toISOString() } },
      }],
    });
  }

  /** Ends a pod that is to be deleted: SIGTERM, the time of the pod, SIGKILL. Then the pod is gone. */
  async function end(pod, container) {
    const { name, uid, deletionGracePeriodSeconds } = pod.metadata;
    if (container) {
      container.isEnding = true;
      if (container.exit === null) {
        const exit = once(container.child, "exit");
        container.child.kill("SIGTERM");
        const late = pause(deletionGracePeriodSeconds * 1_000, "late", { ref: false });
        if (await Promise.race([exit, late]) === "late") {
          container.child.kill("SIGKILL");
          container.isKilled = true;
        }
      }
    }
    const preconditions = { uid };
    const { status } = await cluster.request("DELETE", `${base}/pods/${name}`, { gracePeriodSeconds: 0, preconditions });
    if (status >= 300 && status !== 404) throw new Error(`deleting the pod ${name}: ${status}`);
  }

  async function step() {
    const { items } = await cluster.ask("GET", `${base}/pods`);
    await Promise.all(items.map(async (pod) => {
      try {
        await attend(pod);
      } catch (error) {
        // The API server refuses requests about a pod or a file that has just been deleted.
        if (!/: (404|409) /.test(error.message)) throw error;
        lastRefusal = error;
      }
    }));
  }

  async function attend(pod) {
    const container = containers.get(pod.metadata.uid);
    if (pod.metadata.deletionTimestamp) {
      if (!container?.isEnding) void end(pod, container).catch(fail);
    } else if (container) {
      await watch(container);
    } else {
      await start(pod);
    }
  }

  /** The failure of the node, or else the last refusal of the API server, for messages. */
  const problem = () => failure ?? lastRefusal;

  function fail(error) {
    failure ??= error;
  }

  const steps = (async () => {
    while (!isOver && !failure) {
      try {
        await step();
      } catch (error) {
        fail(error);
      }
      await pause(STEP_MS, undefined, { ref: false });
    }
  })();

  return {
    endpoints,
    problem,
    /** Throws the failure of the node, if there is one. */
    check() {
      if (failure) throw failure;
    },
    /** The routers that have been started, the first one first: `{pod, address, output, isKilled}`. */
    containers: () => [...containers.values()],
    /** Waits until the pods that `select` takes have this number. */
    untilPods: (number, select, condition) => eventually(async () => {
      if (failure) throw Object.assign(failure, { fatal: true });
      const { items } = await cluster.ask("GET", `${base}/pods`);
      const pods = items.filter(select);
      if (pods.length === number) return pods;
      throw new Error([`${pods.length} of ${number} pods`, problem()?.message].filter(Boolean).join("; "));
    }, condition),
    async stop() {
      isOver = true;
      await steps;
      for (const { child, exit, folder } of containers.values()) {
        if (child && exit === null) child.kill("SIGKILL");
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

/** Matches all of these paths, the longest one first: one path can be the beginning of another one. */
function patternOf(paths) {
  const longestFirst = paths.toSorted((a, b) => b.length - a.length);
  // A pod without paths: an expression that matches nothing.
  const words = longestFirst.map((it) => it.replace(/[^\w/]/g, "\\$&")).join("|") || "(?!)";
  return new RegExp(words, "g");
}

/** Whether a pod is ready and stays. */
export const isServing = ({ metadata, status }) =>
  !metadata.deletionTimestamp && status.conditions?.some(({ type, status }) => type === "Ready" && status === "True");

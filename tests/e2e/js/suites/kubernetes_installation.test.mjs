// The chart, installed by Helm at a real API server; its controllers make pods of it. A node of the test runs the
// routers of these pods as processes (kubernetes/node.mjs): no image, no network of containers.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { memorySupergraph, startSubgraphs } from "../board.mjs";
import { startCluster } from "../kubernetes/cluster.mjs";
import { isServing, startNode } from "../kubernetes/node.mjs";
import { helm, kubernetes, skipWithout } from "../programs.mjs";
import { run } from "../release_archives.mjs";
import { eventually, WAIT_TIMEOUT_MS } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const CHART = path.join(ROOT, "examples/deployment/chart");
const MANIFESTS = path.join(ROOT, "examples/deployment/kubernetes.yaml");

const NAMESPACE = "graph";
const PODS = 3;

/** A namespace without a node: no pod of it runs. */
const SCALED_NAMESPACE = "scaled";

/** How many failures of a client are kept for the message of a failed test. */
const FAILURES_MAX = 10;

/** Time for Helm to see that all routers are replaced, each with `shutdown.delaySeconds` and a start. */
const HELM_SECONDS = 120;

const QUERY = JSON.stringify({ query: "{ airports { code } }" });

const skip = skipWithout(kubernetes, "the API server of Kubernetes") || skipWithout(helm, "helm");

describe("the chart in a cluster", { skip }, () => {
  let folder, cluster, node, subgraphs;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-installation-"));
    [cluster, subgraphs] = await Promise.all([startCluster(), startSubgraphs()]);
    // The strictest rules that Kubernetes has for pods: one that breaks them is refused.
    const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
    await cluster.ask("POST", "/api/v1/namespaces", {
      apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE, labels },
    });
    const key = Buffer.alloc(32, "k").toString("base64");
    await cluster.ask("POST", `/api/v1/namespaces/${NAMESPACE}/secrets`, {
      apiVersion: "v1", kind: "Secret", metadata: { name: "starling" }, stringData: { "cursor-key": key },
    });
    node = await startNode(cluster, NAMESPACE);
  });
  after(async () => {
    await node?.stop();
    await cluster?.stop();
    await subgraphs?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Runs Helm in a namespace. */
  const commandIn = (namespace, ...words) =>
    run(helm(), [...words, "--namespace", namespace, "--kubeconfig", cluster.configuration], {
      env: { ...process.env, HELM_CACHE_HOME: folder, HELM_CONFIG_HOME: folder, HELM_DATA_HOME: folder },
    });

  const command = (...words) => commandIn(NAMESPACE, ...words);

  /** Installs or upgrades the release with a supergraph and additional values, and waits until all pods are ready. */
  async function apply(action, { supergraph = memorySupergraph(), values = {}, seconds = HELM_SECONDS } = {}) {
    const [sdl, file] = ["supergraph.graphql", "values.json"].map((name) => path.join(folder, name));
    await writeFile(sdl, supergraph);
    const { configuration = {}, ...rest } = values;
    const all = {
      shutdown: { drainSeconds: 2, marginSeconds: 20 },
      configuration: { subgraphs: subgraphs.configuration, ...configuration },
      ...rest,
    };
    await writeFile(file, JSON.stringify(all));
    return command(
      action, "starling", CHART, "--set-file", `supergraph.sdl=${sdl}`, "--values", file,
      "--wait", "--timeout", `${seconds}s`,
    );
  }

  /** Why something has failed: the outcome of Helm, and the last words of the node, the routers and the cluster. */
  const explain = ({ out, error }) => [
    out, error, `node: ${node.problem()?.stack ?? "no failure"}`,
    ...node.containers().map(({ pod, output }) => `${pod.metadata.name}: ${output}`),
    `cluster: ${cluster.output()}`,
  ].join("\n");

  const serving = () => node.untilPods(PODS, isServing, "all pods to be ready");
  const names = (pods) => pods.map(({ metadata }) => metadata.name).sort();

  async function ask(address, body = QUERY) {
    const signal = AbortSignal.timeout(WAIT_TIMEOUT_MS);
    const response = await fetch(`http://${address}/graphql`, {
      method: "POST", headers: { "content-type": "application/json" }, body, signal,
    });
    return { status: response.status, text: await response.text() };
  }

  /** Asks the service until it is stopped, as by `kube-proxy`: each time the pod that has waited longest. */
  function startClient() {
    let isOver = false;
    let sent = 0;
    /** The number of the last query to each address. */
    const lastQueries = new Map();
    const failures = [];
    const done = (async () => {
      while (!isOver && failures.length < FAILURES_MAX) {
        const addresses = await node.endpoints("starling", "graphql");
        const waiting = addresses.sort((a, b) => (lastQueries.get(a) ?? 0) - (lastQueries.get(b) ?? 0));
        if (waiting.length === 0) {
          failures.push("the service has no endpoint");
          continue;
        }
        const [address] = waiting;
        sent += 1;
        lastQueries.set(address, sent);
        const failed = (error) => ({ status: 0, text: String(error.cause ?? error) });
        const { status, text } = await ask(address).catch(failed);
        const isRight = status === 200 && text.startsWith('{"data":{"airports":[');
        if (!isRight) failures.push(`${address}: ${status} ${text}`);
      }
      return failures;
    })();
    done.catch(() => {});
    return {
      /** The names of the pods that have been asked. */
      asked() {
        const hosts = new Set([...lastQueries.keys()].map((address) => address.split(":")[0]));
        const pods = node.containers().filter(({ address }) => hosts.has(address)).map(({ pod }) => pod);
        return names(pods);
      },
      /** Ends the queries; returns those that failed. */
      stop() {
        isOver = true;
        return done;
      },
    };
  }

  /** Calls `act` while a client asks the service, and checks that no query fails. */
  async function withClient(act) {
    const client = startClient();
    let failures;
    try {
      await act(client);
    } finally {
      failures = await client.stop();
    }
    assert.deepEqual(failures, []);
  }

  it("is installed, and its pods serve", async () => {
    const outcome = await apply("install");
    assert.equal(outcome.code, 0, explain(outcome));
    // Such as pods that break a rule, or versions of objects that will be removed.
    assert.doesNotMatch(outcome.error, /warning/i);
    await serving();
    const addresses = await node.endpoints("starling", "graphql");
    assert.equal(addresses.length, PODS);
    for (const address of addresses) assert.equal((await ask(address)).status, 200);
    node.check();
  });

  it("passes its own test", async () => {
    const outcome = await command("test", "starling", "--timeout", "60s");
    assert.equal(outcome.code, 0, explain(outcome));
    assert.match(outcome.out, /Phase:\s+Succeeded/);
  });

  it("loads a new supergraph in the pods that it has", async () => {
    const before = names(await serving());
    const supergraph = memorySupergraph().replace(
      "airports: [Airport!]!",
      "renamed: [Airport!]! @join__field(graph: AIRPORTS)\n  airports: [Airport!]!",
    );
    assert.notEqual(supergraph, memorySupergraph());
    const outcome = await apply("upgrade", { supergraph });
    assert.equal(outcome.code, 0, explain(outcome));
    const fields = JSON.stringify({ query: '{ __type(name: "Query") { fields { name } } }' });
    const addresses = await node.endpoints("starling", "graphql");
    assert.equal(addresses.length, PODS);
    for (const address of addresses) {
      await eventually(async () => (await ask(address, fields)).text.includes('"renamed"'), "the new supergraph");
    }
    assert.deepEqual(names(await serving()), before);
    node.check();
  });

  it("replaces its pods for a new configuration, and no query fails", async () => {
    const before = names(await serving());
    await withClient(async (client) => {
      const outcome = await apply("upgrade", { values: { configuration: { traffic: { all: { timeout: "7s" } } } } });
      assert.equal(outcome.code, 0, explain(outcome));
      const after = names(await serving());
      assert.deepEqual(after.filter((name) => before.includes(name)), []);
      await eventually(() => {
        const asked = client.asked();
        return [...before, ...after].every((name) => asked.includes(name));
      }, "a query to each old and to each new pod");
    });
    node.check();
  });

  it("keeps serving if a configuration is wrong, and goes back", async () => {
    const before = names(await serving());
    await withClient(async () => {
      const values = { configuration: { traffic: { all: { timeout: "soon" } } } };
      const outcome = await apply("upgrade", { values, seconds: 5 });
      assert.equal(outcome.code, 1, explain(outcome));
      await eventually(
        () => node.containers().some(({ output }) => output.includes("soon") && output.includes("traffic.all.timeout")),
        "the router that refuses its configuration",
      );
      assert.deepEqual(names(await serving()), before);
      const back = await command("rollback", "starling", "--wait", "--timeout", `${HELM_SECONDS}s`);
      assert.equal(back.code, 0, explain(back));
      assert.deepEqual(names(await serving()), before);
    });
    node.check();
  });

  it("lets the maintenance of nodes take one router at a time", async () => {
    const pods = await serving();
    const evict = ({ metadata: { name } }) => cluster.request("POST", `/api/v1/namespaces/${NAMESPACE}/pods/${name}/eviction`, {
      apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: NAMESPACE },
    });
    // The controller has counted the pods when one may go.
    await eventually(async () => {
      const target = `/apis/policy/v1/namespaces/${NAMESPACE}/poddisruptionbudgets/starling`;
      return (await cluster.ask("GET", target)).status.disruptionsAllowed === 1;
    }, "the budget to allow one eviction");
    assert.equal((await evict(pods[0])).status, 201);
    assert.equal((await evict(pods[1])).status, 429);
    const others = await node.untilPods(
      PODS, (pod) => isServing(pod) && pod.metadata.name !== pods[0].metadata.name, "a pod in place of the evicted one",
    );
    assert.ok(names(others).includes(pods[1].metadata.name));
    node.check();
  });

  it("keeps the number of its pods when it begins to scale them", async () => {
    const outcome = await apply("upgrade", { values: { autoscaling: { enabled: true, minReplicas: 2, maxReplicas: 5 } } });
    assert.equal(outcome.code, 0, explain(outcome));
    // No controller of this cluster scales, so the number is that of the chart.
    const { spec } = await cluster.ask("GET", `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/starling`);
    assert.equal(spec.replicas, PODS);
    await serving();
    const scaler = await cluster.ask("GET", `/apis/autoscaling/v2/namespaces/${NAMESPACE}/horizontalpodautoscalers/starling`);
    assert.deepEqual([scaler.spec.minReplicas, scaler.spec.maxReplicas], [2, 5]);
    node.check();
  });

  it("keeps the number of the autoscaler, unless it goes back to a fixed number", async () => {
    const helmOf = async (...words) => {
      const outcome = await commandIn(SCALED_NAMESPACE, ...words);
      assert.equal(outcome.code, 0, explain(outcome));
    };
    const sdl = path.join(folder, "supergraph.graphql");
    await writeFile(sdl, memorySupergraph());
    const apply = (action, release, ...words) =>
      helmOf(action, release, CHART, "--set-file", `supergraph.sdl=${sdl}`, ...words);
    const target = (release) => `/apis/apps/v1/namespaces/${SCALED_NAMESPACE}/deployments/${release}-starling`;
    const scale = (release, replicas) =>
      cluster.ask("PATCH", `${target(release)}/scale`, { spec: { replicas } }, "application/merge-patch+json");
    const numberOf = async (release) => (await cluster.ask("GET", target(release))).spec.replicas;
    const scaled = ["--set", "autoscaling.enabled=true"];

    await apply("install", "always", "--create-namespace", ...scaled);
    await scale("always", 5);
    await apply("upgrade", "always", ...scaled, "--set", "podLabels.a=b");
    assert.equal(await numberOf("always"), 5);
    await helmOf("rollback", "always", "1");
    assert.equal(await numberOf("always"), 5);

    await apply("install", "later", "--set", "replicas=2");
    await apply("upgrade", "later", ...scaled);
    assert.equal(await numberOf("later"), 2);
    await scale("later", 5);
    await apply("upgrade", "later", ...scaled, "--set", "podLabels.a=b");
    assert.equal(await numberOf("later"), 5);
    await helmOf("rollback", "later", "1");
    assert.equal(await numberOf("later"), 2);
  });

  it("is accepted without Helm, and every field is known", async () => {
    const documents = parseAllDocuments(await readFile(MANIFESTS, "utf8")).map((it) => it.toJS()).filter(Boolean);
    assert.ok(documents.length >= 6);
    for (const object of documents) {
      const { apiVersion, kind, metadata } = object;
      const base = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
      const { resources } = await cluster.ask("GET", base);
      const { name } = resources.find((it) => it.kind === kind && !it.name.includes("/"));
      const parameters = "dryRun=All&fieldValidation=Strict&fieldManager=test&force=true";
      const target = `${base}/namespaces/${NAMESPACE}/${name}/${metadata.name}?${parameters}`;
      const { status, body, warning } = await cluster.request("PATCH", target, object, "application/apply-patch+yaml");
      assert.ok(status === 200 || status === 201, `${kind}: ${status} ${body.message}`);
      assert.equal(warning, undefined, kind);
    }
  });

  it("is removed without a trace", async () => {
    const outcome = await command("uninstall", "starling", "--wait", "--timeout", `${HELM_SECONDS}s`);
    assert.equal(outcome.code, 0, explain(outcome));
    await node.untilPods(0, () => true, "all pods to be gone");
    const selector = "labelSelector=app.kubernetes.io%2Finstance%3Dstarling";
    for (const kind of [
      "/api/v1/namespaces/NAMESPACE/services", "/api/v1/namespaces/NAMESPACE/configmaps",
      "/api/v1/namespaces/NAMESPACE/serviceaccounts", "/apis/apps/v1/namespaces/NAMESPACE/deployments",
      "/apis/apps/v1/namespaces/NAMESPACE/replicasets", "/apis/policy/v1/namespaces/NAMESPACE/poddisruptionbudgets",
      "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies",
      "/apis/autoscaling/v2/namespaces/NAMESPACE/horizontalpodautoscalers",
    ]) {
      await eventually(async () => {
        const { items } = await cluster.ask("GET", `${kind.replace("NAMESPACE", NAMESPACE)}?${selector}`);
        assert.deepEqual(items.map(({ metadata }) => metadata.name), []);
        return true;
      }, `the end of all ${path.basename(kind)}`);
    }
    // Each router has left by itself, in its time.
    const killed = node.containers().filter(({ isKilled }) => isKilled);
    assert.deepEqual(killed.map(({ pod, output }) => `${pod.metadata.name}: ${output}`), []);
    node.check();
  });
});

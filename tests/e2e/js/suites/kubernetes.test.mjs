// The Helm chart, the manifests that are made of it, and the Docker Compose file.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, cp, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { parse, parseAllDocuments } from "yaml";
import { blocksOf } from "../documentation/blocks.mjs";
import { scrape } from "../metrics.mjs";
import { writeVolumes } from "../pod_volumes.mjs";
import { composeGo, helm, kubectlValidate, monitoringDefinitions, promtool, skipWithout } from "../programs.mjs";
import { start, startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const DEPLOYMENT = path.join(ROOT, "examples/deployment");
const CHART = path.join(DEPLOYMENT, "chart");
const SUPERGRAPH = path.join(ROOT, "fixtures/federation-benchmark/supergraph.graphql");

/** The newest version that kubectl-validate has the schemas of, and the oldest that the chart accepts. */
const KUBERNETES_VERSIONS = ["1.30", "1.27"];

/** A key of cursors: 32 bytes. */
const CURSOR_KEY = Buffer.alloc(32, "k").toString("base64");

/** Every value of the chart that adds something to the objects. */
const EVERYTHING = {
  image: { repository: "registry.example.com/starling", tag: "1.2.3", pullPolicy: "Always" },
  imagePullSecrets: [{ name: "registry" }],
  configuration: { path: "/graph", traffic: { all: { timeout: "5s" } }, subscriptions: { heartbeat: "10s" } },
  cursorKeys: { existingSecret: "cursors", keys: ["new", "old"] },
  environment: [{ name: "REGION", value: "north" }],
  environmentSecrets: ["brokers"],
  shutdown: { delaySeconds: 12, drainSeconds: 70, marginSeconds: 8 },
  service: { type: "LoadBalancer", port: 8080, annotations: { "example.com/class": "internal" } },
  autoscaling: {
    enabled: true, minReplicas: 2, maxReplicas: 20, cpuPercent: 70, scaleDownSeconds: 600,
    signals: [{ metric: "starling_subscriptions_open", averageValue: 20000 }],
  },
  podDisruptionBudget: { enabled: true, maxUnavailable: "25%" },
  serviceMonitor: {
    enabled: true, interval: "30s", labels: { release: "prometheus" }, tlsConfig: { serverName: "starling-admin" },
  },
  networkPolicy: {
    enabled: true,
    clients: [{ podSelector: { matchLabels: { app: "gateway" } } }],
    operators: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } }],
    egress: [{ ports: [{ port: 53, protocol: "UDP" }] }, { to: [{ ipBlock: { cidr: "10.0.0.0/8" } }] }],
  },
  serviceAccount: { annotations: { "example.com/role": "router" } },
  topologySpread: { enabled: true, whenUnsatisfiable: "DoNotSchedule" },
  podAnnotations: { "example.com/a": "b" },
  podLabels: { team: "graph" },
  nodeSelector: { pool: "edge" },
  tolerations: [{ key: "edge", operator: "Exists" }],
  affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
  priorityClassName: "high",
  volumes: [{ name: "certificates", secret: { secretName: "certificates" } }],
  volumeMounts: [{ name: "certificates", mountPath: "/etc/certificates", readOnly: true }],
};

/** Everything that can be left out. */
const LITTLE = {
  replicas: 1,
  existingConfigMap: "graph",
  cursorKeys: { existingSecret: "" },
  adminService: { enabled: false },
  podDisruptionBudget: { enabled: false },
  networkPolicy: { enabled: false },
  topologySpread: { enabled: false },
};

/** The schema of a subgraph. */
const schemaOf = (field) => `type Query {\n  ${field}: Int\n}\n`;

/** A graph of each source, the first one from schemas. */
const GRAPHS = {
  configuration: { subgraphs: { products: { url: "http://127.0.0.1:4001/" }, stock: { url: "http://127.0.0.1:4002/" } } },
  supergraph: { directory: { schemas: { "products.graphql": schemaOf("products"), "stock.gql": schemaOf("stock") } } },
  graphs: [
    { name: "beta", header: { name: "x-graph", value: "beta" }, supergraph: { sdl: "type Query { beta: Int }" } },
    { name: "partners", path: "/partners/graphql", supergraph: { existingConfigMap: "partners" } },
    { name: "cdn", host: "cdn.example.com", supergraph: { url: { urls: ["https://graphs.example.com/s.graphql"] } } },
    { name: "teams", path: "/teams", supergraph: { directory: { existingConfigMaps: ["team-a", "team-b"] } } },
    { name: "next", path: "/next", supergraph: { sdl: "type Query { next: Int }" } },
  ],
};

function run(program, words, options = {}) {
  return new Promise((resolve) => {
    execFile(program, words, { maxBuffer: 64 << 20, ...options }, (failure, out, error) => {
      resolve({ code: failure ? failure.code : 0, out, error });
    });
  });
}

describe("the chart", { skip: skipWithout(helm, "helm") }, () => {
  let folder;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-chart-"));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  let files = 0;
  const write = async (text) => {
    const file = path.join(folder, `${files++}.yaml`);
    await writeFile(file, text);
    return file;
  };

  /** Runs a command of Helm with values; the supergraph is given unless the values name another one. */
  async function runHelm(command, values, words = []) {
    const file = await write(JSON.stringify(values));
    const sdl = values.existingConfigMap || values.supergraph !== undefined ? [] : ["--set-file", `supergraph.sdl=${SUPERGRAPH}`];
    return run(helm(), [...command, "--kube-version", "1.30.0", "--values", file, ...sdl, ...words]);
  }

  /** The objects of the chart as `{Kind: [object]}`. */
  async function render(values, words, release = "starling") {
    const { code, out, error } = await runHelm(["template", release, CHART], values, words);
    assert.equal(code, 0, error);
    const objects = {};
    // Kubernetes reads YAML 1.1, in which `on` is a truth value.
    for (const document of parseAllDocuments(out, { version: "1.1" })) {
      const object = document.toJS();
      if (object) (objects[object.kind] ??= []).push(object);
    }
    return { objects, text: out };
  }

  /** The ConfigMaps of the chart as `{name: {key: text}}`. */
  const configMapsOf = ({ ConfigMap }) => Object.fromEntries(ConfigMap.map(({ metadata, data }) => [metadata.name, data]));

  /** Writes the volumes of the pod below `root`, with paths of the configuration that are below `root`, too. */
  async function mount(root, objects, existing = {}) {
    const made = configMapsOf(objects);
    const text = made.starling["starling.yaml"].replaceAll("/etc/starling-schemas/", `${root}/etc/starling-schemas/`);
    const configMaps = { ...existing, ...made, starling: { "starling.yaml": text } };
    await writeVolumes(root, objects.Deployment[0].spec.template.spec, configMaps);
    return path.join(root, "etc/starling/starling.yaml");
  }

  const VALUES = { "the default values": {}, "every value": EVERYTHING, "as little as possible": LITTLE, "several graphs": GRAPHS };

  for (const [name, values] of Object.entries(VALUES)) {
    it(`passes the linter with ${name}`, async () => {
      const { code, out, error } = await runHelm(["lint", "--strict", CHART], values);
      assert.equal(code, 0, out + error);
      assert.doesNotMatch(out, /\[(WARNING|ERROR)\]/);
    });

    const skip = skipWithout(kubectlValidate, "kubectl-validate") || skipWithout(monitoringDefinitions, "the definition of ServiceMonitor");
    it(`makes objects that the API server accepts with ${name}`, { skip }, async () => {
      const file = await write((await render(values)).text);
      for (const version of KUBERNETES_VERSIONS) {
        const words = ["--version", version, "--local-crds", monitoringDefinitions(), file];
        const { code, out, error } = await run(kubectlValidate(), words);
        assert.equal(code, 0, `${version}: ${out}${error}`);
      }
    });
  }

  it("would not pass that check with a mistake", { skip: skipWithout(kubectlValidate, "kubectl-validate") }, async () => {
    const { text } = await render({});
    const file = await write(text.replace("periodSeconds: 10", "periodSecond: 10"));
    const { code, error } = await run(kubectlValidate(), ["--version", "1.30", file]);
    assert.equal(code, 1);
    assert.match(error, /unknown field/);
  });

  it("has only the objects that were asked for", async () => {
    const kinds = async (values) => Object.entries((await render(values, ["--skip-tests"])).objects)
      .flatMap(([kind, objects]) => objects.map(({ metadata }) => `${kind}/${metadata.name}`)).sort();
    const always = ["Deployment/starling", "Service/starling", "ServiceAccount/starling"];
    assert.deepEqual(await kinds(LITTLE), always);
    const usual = [
      "ConfigMap/starling", "ConfigMap/starling-supergraph", ...always, "NetworkPolicy/starling",
      "PodDisruptionBudget/starling", "Service/starling-admin",
    ];
    assert.deepEqual(await kinds({}), usual.sort());
    assert.deepEqual(await kinds(EVERYTHING), [...usual, "HorizontalPodAutoscaler/starling", "ServiceMonitor/starling"].sort());
  });

  it("gives the router more time than it needs to leave, whatever its times are", async () => {
    for (const [shutdown, expected] of [[undefined, 45], [{ delaySeconds: 0, drainSeconds: 0, marginSeconds: 1 }, 1], [EVERYTHING.shutdown, 90]]) {
      const { objects } = await render(shutdown ? { shutdown } : {});
      assert.equal(objects.Deployment[0].spec.template.spec.terminationGracePeriodSeconds, expected);
      const configuration = parse(objects.ConfigMap.find(({ metadata }) => metadata.name === "starling").data["starling.yaml"]);
      const { delaySeconds, drainSeconds } = shutdown ?? { delaySeconds: 5, drainSeconds: 30 };
      assert.equal(configuration.shutdown.delay, `${delaySeconds}s`);
      assert.equal(configuration.subscriptions.drain_period, `${drainSeconds}s`);
    }
  });

  it("takes the keys of cursors from a Secret, the signing one first", async () => {
    const { objects } = await render(EVERYTHING);
    const { env, envFrom } = objects.Deployment[0].spec.template.spec.containers[0];
    const key = (name, key) => ({ name, valueFrom: { secretKeyRef: { name: "cursors", key } } });
    assert.deepEqual(env, [key("CURSOR_KEY", "new"), key("CURSOR_KEY_2", "old"), { name: "REGION", value: "north" }]);
    assert.deepEqual(envFrom, [{ secretRef: { name: "brokers" } }]);
    const configuration = parse(objects.ConfigMap.find(({ metadata }) => metadata.name === "starling").data["starling.yaml"]);
    assert.deepEqual(configuration.cursor.keys, ["${CURSOR_KEY}", "${CURSOR_KEY_2}"]);
    assert.deepEqual(configuration.subscriptions, { heartbeat: "10s", drain_period: "70s" });
  });

  it("restarts routers for a new configuration and not for a new supergraph", async () => {
    const annotations = async (values) => (await render(values)).objects.Deployment[0].spec.template.metadata.annotations;
    const before = await annotations({});
    assert.deepEqual(await annotations({ supergraph: { sdl: "type Query { other: Int }" } }), before);
    assert.notDeepEqual(await annotations({ configuration: { path: "/other" } }), before);
  });

  it("restarts routers for a new graph of the list, and not for a new text of one", async () => {
    const annotations = async (values) => (await render(values)).objects.Deployment[0].spec.template.metadata.annotations;
    const before = await annotations(GRAPHS);
    const [beta, ...others] = GRAPHS.graphs;
    const changed = { ...beta, supergraph: { sdl: "type Query { other: Int }" } };
    assert.deepEqual(await annotations({ ...GRAPHS, graphs: [changed, ...others] }), before);
    const schemas = { ...GRAPHS.supergraph.directory.schemas, "reviews.graphql": schemaOf("reviews") };
    assert.deepEqual(await annotations({ ...GRAPHS, supergraph: { directory: { schemas } } }), before);
    assert.notDeepEqual(await annotations({ ...GRAPHS, graphs: others }), before);
  });

  it("gives each graph a ConfigMap, a file and a copy of its own", async () => {
    const { objects } = await render(GRAPHS);
    const { starling, ...texts } = configMapsOf(objects);
    assert.deepEqual(texts, {
      "starling-schemas-default": GRAPHS.supergraph.directory.schemas,
      "starling-graph-beta": { "supergraph.graphql": "type Query { beta: Int }" },
      "starling-graph-next": { "supergraph.graphql": "type Query { next: Int }" },
    });
    const { supergraph, graphs } = parse(starling["starling.yaml"]);
    assert.deepEqual(supergraph, { directory: "/etc/starling-schemas/default" });
    const url = { ...GRAPHS.graphs[2].supergraph.url, copy: "/var/lib/starling/graph-cdn.graphql" };
    const sources = [
      { file: "graph-beta.graphql" }, { file: "graph-partners.graphql" }, { url },
      { directory: "/etc/starling-schemas/teams" }, { file: "graph-next.graphql" },
    ];
    assert.deepEqual(graphs, GRAPHS.graphs.map((graph, index) => ({ ...graph, supergraph: sources[index] })));

    const { containers, volumes } = objects.Deployment[0].spec.template.spec;
    const ofGraph = (name, graph) => ({ configMap: { name, items: [{ key: "supergraph.graphql", path: `graph-${graph}.graphql` }] } });
    const whole = (name) => ({ configMap: { name } });
    assert.deepEqual(volumes.map(({ name, projected }) => [name, projected?.sources]), [
      ["configuration", [
        whole("starling"), ofGraph("starling-graph-beta", "beta"), ofGraph("partners", "partners"),
        ofGraph("starling-graph-next", "next"),
      ]],
      ["schemas-default", [whole("starling-schemas-default")]],
      ["schemas-teams", [whole("team-a"), whole("team-b")]],
      ["state", undefined],
    ]);
    assert.deepEqual(containers[0].volumeMounts.map(({ name, mountPath }) => [name, mountPath]), [
      ["configuration", "/etc/starling"], ["schemas-default", "/etc/starling-schemas/default"],
      ["schemas-teams", "/etc/starling-schemas/teams"], ["state", "/var/lib/starling"],
    ]);
  });

  it("takes names of objects that are numbers or truth values in YAML", async () => {
    const text = (name) => ({ existingConfigMap: name });
    const { objects } = await render({
      cursorKeys: { existingSecret: "1234567", keys: ["1", "off"] },
      environmentSecrets: ["on", "0x10"],
      priorityClassName: "1e3",
      supergraph: text("7654321"),
      graphs: [
        { name: "1", path: "/1", supergraph: text("on") },
        { name: "no", path: "/no", supergraph: { directory: { existingConfigMaps: ["1.5", "yes"] } } },
      ],
    });
    const { containers, volumes, priorityClassName } = objects.Deployment[0].spec.template.spec;
    const [{ env, envFrom }] = containers;
    const references = env.map(({ valueFrom: { secretKeyRef: { name, key } } }) => [name, key]);
    assert.deepEqual(references, [["1234567", "1"], ["1234567", "off"]]);
    assert.deepEqual(envFrom.map(({ secretRef }) => secretRef.name), ["on", "0x10"]);
    assert.equal(priorityClassName, "1e3");
    const mounted = volumes.map(({ projected }) => projected.sources.map(({ configMap }) => configMap.name));
    assert.deepEqual(mounted, [["starling", "7654321", "on"], ["1.5", "yes"]]);
    const numbered = await render({ existingConfigMap: "1234567" }, [], "1234567");
    const [{ metadata, spec }] = numbered.objects.Deployment;
    const [configuration] = spec.template.spec.volumes;
    assert.equal(configuration.projected.sources[0].configMap.name, "1234567");
    for (const labels of [metadata.labels, spec.selector.matchLabels, spec.template.metadata.labels]) {
      assert.equal(labels["app.kubernetes.io/instance"], "1234567");
    }
  });

  it("takes the text of a graph of the list from a file", async () => {
    const [beta, ...others] = GRAPHS.graphs;
    const values = { ...GRAPHS, graphs: [{ ...beta, supergraph: undefined }, ...others] };
    const { objects } = await render(values, ["--set-file", `graphs[0].supergraph.sdl=${SUPERGRAPH}`]);
    const made = configMapsOf(objects);
    assert.equal(made["starling-graph-beta"]["supergraph.graphql"], await readFile(SUPERGRAPH, "utf8"));
    const { graphs } = parse(made.starling["starling.yaml"]);
    assert.deepEqual(graphs.map(({ name }) => name), GRAPHS.graphs.map(({ name }) => name));
    assert.deepEqual(graphs[0].header, beta.header);
  });

  it("configures a router that serves all graphs, and loads a new text of one when the kubelet has written it", async () => {
    const root = await mkdtemp(path.join(folder, "root-"));
    const text = await readFile(SUPERGRAPH, "utf8");
    const [beta, partners, , teams] = GRAPHS.graphs;
    const existing = {
      partners: { "supergraph.graphql": text },
      "team-a": { "products.graphql": schemaOf("ours") },
      "team-b": { "stock.graphql": schemaOf("theirs") },
    };
    const valuesOf = (sdl, schemas) => ({
      ...GRAPHS,
      cursorKeys: { existingSecret: "" },
      shutdown: { delaySeconds: 0, drainSeconds: 0 },
      supergraph: { directory: { schemas } },
      graphs: [{ ...beta, supergraph: { sdl } }, partners, teams],
    });
    const schemas = GRAPHS.supergraph.directory.schemas;
    const before = (await render(valuesOf(text, schemas))).objects;
    const file = await mount(root, before, existing);
    const checked = await run(process.env.STARLING_BIN, ["check", "--config", file]);
    assert.deepEqual([checked.code, checked.out], [0, "Everything is in order.\n"], checked.error);

    const router = await start(["serve", "--config", file]);
    try {
      /** The generation of each graph: the hash of its text and the number of the load. */
      const generations = async () => {
        const { samples } = await scrape(router);
        const serving = samples.filter(({ name }) => name === "starling_graph_info");
        return Object.fromEntries(serving.map(({ labels }) => [labels.graph, labels.id]));
      };
      const first = await generations();
      assert.deepEqual(Object.keys(first).sort(), ["beta", "default", "partners", "teams"]);

      const newText = text.replace(/^type Query/m, '"The beta." type Query');
      assert.notEqual(newText, text);
      await mount(root, (await render(valuesOf(newText, schemas))).objects, existing);
      const second = await eventually(async () => {
        const now = await generations();
        return now.beta !== first.beta && now;
      }, "the new text of the graph beta");
      assert.deepEqual({ ...second, beta: first.beta }, first);

      const { "stock.gql": _, ...fewer } = schemas;
      await mount(root, (await render(valuesOf(newText, fewer))).objects, existing);
      const third = await eventually(async () => {
        const now = await generations();
        return now.default !== second.default && now;
      }, "the graph without the schema that was removed");
      assert.deepEqual({ ...third, default: second.default }, second);
    } finally {
      assert.equal(await router.stop(), 0);
    }
  });

  it("reads the supergraph from a server in place of a ConfigMap, and keeps a copy in the pod", async () => {
    const url = { urls: ["https://graphs.example.com/s.graphql"], headers: [{ name: "x-key", value: "${GRAPH_KEY}" }] };
    const { objects } = await render({ supergraph: { url } });
    assert.deepEqual(objects.ConfigMap.map(({ metadata }) => metadata.name), ["starling"]);
    const { supergraph } = parse(objects.ConfigMap[0].data["starling.yaml"]);
    const copy = "/var/lib/starling/supergraph.graphql";
    assert.deepEqual(supergraph, { url: { ...url, copy } });
    const { containers, volumes } = objects.Deployment[0].spec.template.spec;
    const { name } = containers[0].volumeMounts.find(({ mountPath }) => mountPath === path.dirname(copy));
    assert.ok(volumes.find((it) => it.name === name).emptyDir);
    const other = await render({ supergraph: { url: { ...url, copy: "/elsewhere/s.graphql" } } });
    assert.equal(parse(other.objects.ConfigMap[0].data["starling.yaml"]).supergraph.url.copy, "/elsewhere/s.graphql");
    // The place of the copy is then up to the configuration.
    for (const { objects } of [other, await render({ existingConfigMap: "graph", supergraph: { url } })]) {
      const { containers, volumes } = objects.Deployment[0].spec.template.spec;
      assert.deepEqual(volumes.map(({ name }) => name), ["configuration"]);
      assert.deepEqual(containers[0].volumeMounts.map(({ name }) => name), ["configuration"]);
    }
  });

  it("asks the admin listener by TLS if it has that", async () => {
    const schemes = async (values) => {
      const { objects } = await render({ serviceMonitor: { enabled: true }, ...values });
      const { startupProbe, readinessProbe, livenessProbe } = objects.Deployment[0].spec.template.spec.containers[0];
      const probes = [startupProbe, readinessProbe, livenessProbe].map(({ httpGet }) => httpGet.scheme);
      const admin = objects.Service.find(({ metadata }) => metadata.name === "starling-admin").spec.ports[0].appProtocol;
      const test = new URL(objects.Pod[0].spec.containers[0].args.at(-1)).protocol;
      return [...probes, objects.ServiceMonitor[0].spec.endpoints[0].scheme, admin, test];
    };
    const tls = { cert: "/etc/certificates/tls.crt", key: "/etc/certificates/tls.key" };
    const https = ["HTTPS", "HTTPS", "HTTPS", "https", "https", "https:"];
    assert.deepEqual(await schemes({}), ["HTTP", "HTTP", "HTTP", "http", "http", "http:"]);
    assert.deepEqual(await schemes({ configuration: { admin: { tls } } }), https);
    assert.deepEqual(await schemes({ configuration: { admin: { tls } }, existingConfigMap: "graph" }), https);
    const { objects } = await render(EVERYTHING);
    assert.deepEqual(objects.ServiceMonitor[0].spec.endpoints[0].tlsConfig, EVERYTHING.serviceMonitor.tlsConfig);
  });

  it("selects the pods of the deployment by every other object", async () => {
    const { objects } = await render(EVERYTHING, ["--skip-tests"]);
    const pods = objects.Deployment[0].spec.template.metadata.labels;
    const isSubset = (selector) => Object.entries(selector).every(([name, value]) => pods[name] === value);
    for (const selector of [
      objects.Deployment[0].spec.selector.matchLabels, objects.PodDisruptionBudget[0].spec.selector.matchLabels,
      objects.NetworkPolicy[0].spec.podSelector.matchLabels, ...objects.Service.map(({ spec }) => spec.selector),
      ...objects.Deployment[0].spec.template.spec.topologySpreadConstraints.map((it) => it.labelSelector.matchLabels),
    ]) {
      assert.ok(Object.keys(selector).length > 0 && isSubset(selector), JSON.stringify(selector));
    }
    const monitored = objects.ServiceMonitor[0].spec.selector.matchLabels;
    const services = objects.Service.filter(({ metadata }) => Object.entries(monitored).every(([name, value]) => metadata.labels[name] === value));
    assert.deepEqual(services.map(({ metadata }) => metadata.name), ["starling-admin"]);
    // The dashboard and the alert rules know routers by this job.
    assert.equal(services[0].metadata.labels[objects.ServiceMonitor[0].spec.jobLabel], "starling");
  });

  it("configures a router that serves, at the ports and paths that the objects name", async () => {
    const { objects } = await render({ configuration: { path: "/graph" }, cursorKeys: { existingSecret: "s", keys: ["a", "b"] } });
    const place = await mkdtemp(path.join(folder, "router-"));
    for (const { data } of objects.ConfigMap) {
      for (const [name, text] of Object.entries(data)) await writeFile(path.join(place, name), text);
    }
    // As the volume of the pod: both ConfigMaps in one folder.
    assert.deepEqual((await readdir(place)).sort(), ["starling.yaml", "supergraph.graphql"]);
    const { args, ports, startupProbe, readinessProbe, livenessProbe } = objects.Deployment[0].spec.template.spec.containers[0];
    assert.deepEqual(args, ["serve", "--config", "/etc/starling/starling.yaml"]);
    const environment = { ...process.env, CURSOR_KEY, CURSOR_KEY_2: CURSOR_KEY };
    const file = path.join(place, "starling.yaml");
    const checked = await run(process.env.STARLING_BIN, ["check", "--config", file], { env: environment });
    assert.deepEqual([checked.code, checked.out], [0, "Everything is in order.\n"], checked.error);

    const configuration = parse(await readFile(file, "utf8"));
    const port = (name) => ports.find((it) => it.name === name).containerPort;
    assert.equal(configuration.listen, `0.0.0.0:${port("graphql")}`);
    assert.equal(configuration.admin.listen, `0.0.0.0:${port("admin")}`);
    const router = await startServe({
      supergraph: await readFile(path.join(place, "supergraph.graphql"), "utf8"),
      config: { ...configuration, supergraph: undefined, cursor: { keys: [CURSOR_KEY] } },
    });
    try {
      for (const { httpGet } of [startupProbe, readinessProbe, livenessProbe]) {
        assert.equal(httpGet.port, "admin");
        assert.equal((await fetch(router.admin + httpGet.path)).status, 200, httpGet.path);
      }
      // The test of the chart, at this router in place of the service.
      const words = objects.Pod[0].spec.containers[0].args.map((it) => it.replace("http://starling-admin:8088", router.admin));
      assert.notDeepEqual(words, objects.Pod[0].spec.containers[0].args);
      const outcome = await run(process.env.STARLING_BIN, words);
      assert.deepEqual([outcome.code, outcome.error], [0, ""]);
    } finally {
      assert.equal(await router.stop(), 0);
    }
  });

  it("takes the values of its page, which are a configuration without mistakes", async () => {
    const blocks = blocksOf(await readFile(path.join(ROOT, "docs/kubernetes.md"), "utf8"), "docs/kubernetes.md");
    const samples = blocks.filter(({ language, text }) => language === "yaml" && !text.startsWith("rules:"));
    assert.equal(samples.length, 4);
    // The ConfigMaps that the samples name.
    const existing = { "shop-beta": { "supergraph.graphql": await readFile(SUPERGRAPH, "utf8") } };
    for (const { text } of samples) {
      const values = parse(text);
      // The commands of the page give the text of the other graphs.
      const words = (values.graphs ?? []).flatMap(({ supergraph }, index) =>
        supergraph ? [] : ["--set-file", `graphs[${index}].supergraph.sdl=${SUPERGRAPH}`]);
      const { objects } = await render(values, words);
      const file = await mount(await mkdtemp(path.join(folder, "page-")), objects, existing);
      const environment = { ...process.env, CURSOR_KEY, NATS_TOKEN: "token" };
      const { code, error } = await run(process.env.STARLING_BIN, ["check", "--config", file], { env: environment });
      assert.equal(code, 0, error);
    }
  });

  it("scales by metrics that a router has", async () => {
    const page = await readFile(path.join(ROOT, "docs/kubernetes.md"), "utf8");
    const router = await startServe({ supergraph: await readFile(SUPERGRAPH, "utf8") });
    try {
      const names = new Set((await scrape(router)).samples.map(({ name }) => name));
      const mentioned = new Set(page.match(/starling_[a-z_]+/g));
      // The adapter makes this one.
      assert.ok(mentioned.delete("starling_admission_utilization"));
      assert.ok(mentioned.size >= 3);
      for (const name of mentioned) assert.ok(names.has(name), name);
    } finally {
      assert.equal(await router.stop(), 0);
    }
  });

  /** Half of what a ConfigMap holds. */
  const HALF = "#".repeat(512 * 1024);
  /** Values with graphs that are without mistakes except for these changes. */
  const withGraphs = (...changes) => ({
    graphs: changes.map((it) => ({ name: "a", path: "/a", supergraph: { sdl: "type Query { a: Int }" }, ...it })),
  });

  /** The message for a graph without a source, by its key in the values and the name of its file. */
  const noSource = (key, file) => {
    const others = `${key}.existingConfigMap, ${key}.url or ${key}.directory`;
    const text = `${key} has no source: give its text by --set-file '${key}.sdl=${file}', or set ${others}`;
    return new RegExp(text.replace(/[.[\]]/g, "\\$&"));
  };

  const refusals = {
    "a misspelt value": [{ replica: 3 }, /additional properties 'replica' not allowed/],
    "a negative number of routers": [{ replicas: -1 }, /at '\/replicas'/],
    "an address in the configuration": [{ configuration: { listen: "0.0.0.0:80" } }, /configuration\.listen is set by the chart/],
    "a delay in the configuration": [{ configuration: { shutdown: { delay: "60s" } } }, /use shutdown\.delaySeconds/],
    "a drain period in the configuration": [{ configuration: { subscriptions: { drain_period: "60s" } } }, /use shutdown\.drainSeconds/],
    "keys in the configuration": [{ configuration: { cursor: { keys: ["secret"] } } }, /use cursorKeys/],
    "no supergraph": [{ supergraph: {} }, noSource("supergraph", "supergraph.graphql")],
    "a supergraph without a value": [{ supergraph: null }, noSource("supergraph", "supergraph.graphql")],
    "two supergraphs": [{ supergraph: { sdl: "type Query { a: Int }", url: { urls: ["https://g/"] } } }, /supergraph\.sdl and supergraph\.url are both set: remove one of them/],
    "a supergraph and schemas": [{ supergraph: { existingConfigMap: "a", directory: { existingConfigMaps: ["b"] } } }, /supergraph\.existingConfigMap and supergraph\.directory are both set/],
    "schemas and ConfigMaps with schemas": [{ supergraph: { directory: { schemas: { "a.graphql": "a" }, existingConfigMaps: ["b"] } } }, /directory\.schemas and supergraph\.directory\.existingConfigMaps are both set/],
    "a schema without an ending": [{ supergraph: { directory: { schemas: { products: "a" } } } }, /additional properties 'products' not allowed/],
    "a hidden schema": [{ supergraph: { directory: { schemas: { ".a.graphql": "a" } } } }, /additional properties '\.a\.graphql' not allowed/],
    "two schemas of a subgraph": [{ supergraph: { directory: { schemas: { "a.graphql": "a", "a.gql": "b" } } } }, /a\.gql and a\.graphql are both the schema of the subgraph a/],
    "a folder beside a ConfigMap with everything": [{ existingConfigMap: "c", supergraph: { directory: { existingConfigMaps: ["b"] } } }, /existingConfigMap is set: remove supergraph\.directory/],
    "more schemas than a ConfigMap holds": [{ supergraph: { directory: { schemas: { "a.graphql": HALF, "b.graphql": `${HALF}#` } } } }, /directory\.schemas has 1048577 bytes, and a ConfigMap holds 1048576/],
    "a graph larger than a ConfigMap": [withGraphs({ supergraph: { sdl: `${HALF}${HALF}#` } }), /graphs\[0\]\.supergraph\.sdl has 1048577 bytes/],
    "a graph without a name": [withGraphs({ name: undefined }), /at '\/graphs\/0': missing property 'name'/],
    "a graph with a name that objects cannot have": [withGraphs({ name: "Beta" }), /at '\/graphs\/0\/name'/],
    "a graph with the name of the first one": [withGraphs({ name: "default" }), /graphs\[0\]\.name is default, which is the graph of supergraph/],
    "two graphs with one name": [withGraphs({}, { path: "/b" }), /graphs\[1\]\.name is a, as is graphs\[0\]\.name/],
    "a graph without a condition": [withGraphs({ path: undefined }), /graphs\[0\] \(a\) has no condition: add path, host or header/],
    "half of a condition": [withGraphs({ header: { name: "x-graph" } }), /at '\/graphs\/0\/header': missing property 'value'/],
    "a graph without a supergraph": [
      withGraphs({ supergraph: {} }), noSource("graphs[0].supergraph", "graph-a.graphql"),
    ],
    "a graph with two supergraphs": [withGraphs({ supergraph: { sdl: "a", existingConfigMap: "b" } }), /graphs\[0\]\.supergraph\.sdl and graphs\[0\]\.supergraph\.existingConfigMap are both set/],
    "two lists of graphs": [{ ...withGraphs({}), configuration: { graphs: [{ name: "b" }] } }, /graphs and configuration\.graphs are both set/],
    "graphs beside a ConfigMap with everything": [{ ...withGraphs({}), existingConfigMap: "c" }, /existingConfigMap is set: remove graphs/],
    "no time to end": [{ shutdown: { marginSeconds: 0 } }, /at '\/shutdown\/marginSeconds'/],
    "more than the most": [{ autoscaling: { enabled: true, minReplicas: 9, maxReplicas: 3 } }, /maxReplicas is smaller than/],
    "nothing to scale by": [{ autoscaling: { enabled: true, cpuPercent: 0 } }, /nothing to scale by/],
    "a signal without a value": [{ autoscaling: { signals: [{ metric: "a" }] } }, /missing property 'averageValue'/],
    "a monitor without a service": [{ serviceMonitor: { enabled: true }, adminService: { enabled: false } }, /set adminService\.enabled/],
  };
  for (const [name, [values, reason]] of Object.entries(refusals)) {
    it(`refuses ${name}`, async () => {
      const { code, error } = await runHelm(["template", "starling", CHART], values);
      assert.equal(code, 1);
      assert.match(error, reason);
    });
  }

  it("has a schema for each of its values", async () => {
    const values = parse(await readFile(path.join(CHART, "values.yaml"), "utf8"));
    const { properties } = JSON.parse(await readFile(path.join(CHART, "values.schema.json"), "utf8"));
    const compare = (object, schema, place) => {
      for (const [name, value] of Object.entries(object)) {
        const part = schema[name];
        assert.ok(part, `${place}${name} is not in the schema`);
        if (part.properties) compare(value, part.properties, `${place}${name}.`);
      }
    };
    compare(values, properties, "");
    const known = Object.keys(properties).filter((name) => name !== "global").sort();
    assert.deepEqual(Object.keys(values).sort(), known);
  });

  it("is what the plain manifests are made of", async () => {
    const values = path.join(DEPLOYMENT, "kubernetes-values.yaml");
    const words = ["template", "starling", CHART, "--kube-version", "1.30.0", "--values", values, "--skip-tests"];
    const { code, out, error } = await run(helm(), words);
    assert.equal(code, 0, error);
    const file = path.join(DEPLOYMENT, "kubernetes.yaml");
    if (process.env.UPDATE_EXPECT === "1") await writeFile(file, out);
    const advice = "examples/deployment/kubernetes.yaml differs from the chart; UPDATE_EXPECT=1 writes it";
    assert.equal(await readFile(file, "utf8"), out, advice);
  });

  it("has the version of the router", async () => {
    const chart = parse(await readFile(path.join(CHART, "Chart.yaml"), "utf8"));
    const version = (await readFile(path.join(ROOT, "Cargo.toml"), "utf8")).match(/^version = "(.*)"$/m)[1];
    assert.deepEqual([chart.version, chart.appVersion], [version, version]);
  });
});

describe("the Docker Compose file", () => {
  const FOLDER = path.join(DEPLOYMENT, "compose");

  it("is accepted by the reader of Docker Compose, and mounts files that exist", { skip: skipWithout(composeGo, "compose-go") }, async () => {
    const { code, out, error } = await run(composeGo(), ["-format", "json", "compose.yaml"], { cwd: DEPLOYMENT });
    assert.equal(code, 0, error);
    const { services } = JSON.parse(out);
    assert.deepEqual(Object.keys(services).sort(), ["grafana", "kafka", "nats", "prometheus", "redis", "router", "subgraphs"]);
    const mounted = Object.values(services).flatMap(({ volumes = [] }) => volumes.filter(({ type }) => type === "bind"));
    assert.ok(mounted.length >= 7);
    for (const { source } of mounted) assert.ok(existsSync(source), source);
    const ports = Object.values(services).flatMap(({ ports = [] }) => ports);
    assert.ok(ports.length >= 7);
    for (const { host_ip, published } of ports) assert.equal(host_ip, "127.0.0.1", `port ${published} is open for others`);
    assert.equal(services.router.build.context, ROOT);
    assert.ok(existsSync(path.join(ROOT, services.router.build.dockerfile)));

    // A service that the router names must be one of the file.
    const configuration = parse(await readFile(path.join(FOLDER, "starling.yaml"), "utf8"));
    const { nats, redis, kafka } = configuration.events.providers;
    for (const address of [nats[0].url, ...redis[0].urls, ...kafka[0].brokers]) {
      assert.ok(services[address.replace(/^\w+:\/\//, "").split(":")[0]], address);
    }
    // The router has time to leave.
    const seconds = (text) => Number(text.match(/^(\d+)s$/)[1]);
    const needed = seconds(configuration.shutdown.delay) + seconds(configuration.subscriptions.drain_period);
    assert.ok(seconds(services.router.stop_grace_period) > needed);
  });

  it("is refused by that reader with a mistake", { skip: skipWithout(composeGo, "compose-go") }, async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-compose-"));
    try {
      const text = await readFile(path.join(DEPLOYMENT, "compose.yaml"), "utf8");
      await writeFile(path.join(folder, "compose.yaml"), text.replace("read_only: true", "readonly: true"));
      const { code, error } = await run(composeGo(), [path.join(folder, "compose.yaml")]);
      assert.notEqual(code, 0);
      assert.match(error, /readonly/);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("has a configuration of the router without mistakes", async () => {
    const { code, out, error } = await run(process.env.STARLING_BIN, ["check", "--config", path.join(FOLDER, "starling.yaml")]);
    assert.deepEqual([code, error], [0, ""], out);
  });

  it("has a configuration of Prometheus without mistakes", { skip: skipWithout(promtool, "promtool") }, async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-prometheus-"));
    try {
      // The places in the container.
      await copyFile(path.join(FOLDER, "prometheus.yaml"), path.join(folder, "prometheus.yaml"));
      await cp(path.join(ROOT, "examples/monitoring/alerts.yaml"), path.join(folder, "alerts.yaml"));
      const { code, out, error } = await run(promtool(), ["check", "config", path.join(folder, "prometheus.yaml")]);
      assert.equal(code, 0, out + error);
      assert.match(out, /\d+ rules found/);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

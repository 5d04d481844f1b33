// Several graphs in one process: chosen by path, host and header, reloaded one by one, with brokers, subgraphs and caches
// in common.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, afterEach, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { assertAccessible } from "../accessibility.mjs";
import { event, expectedFlight, memorySupergraph, startSubgraphs, SUBSCRIPTION } from "../board.mjs";
import { launchBrowser, openPage, skipWithoutBrowser } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import { startCollector } from "../collector.mjs";
import { cells, readConsole, rowOf } from "../console_api.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

/** The graph with one more field of the root type. */
const withField = (name) =>
  memorySupergraph().replace(
    "airports: [Airport!]!",
    `${name}: [Airport!]! @join__field(graph: AIRPORTS)\n  airports: [Airport!]!`,
  );

const FIELDS = '{ __type(name: "Query") { fields { name } } }';

/** The sum of a history of the console. */
const sum = (column) => column.reduce((sum, it) => sum + (it ?? 0), 0);

describe("several graphs", () => {
  const keep = closeAfterEach();
  let subgraphs;
  const folders = [];
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  afterEach(async () => {
    await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true, force: true })));
  });
  after(() => subgraphs?.stop());

  const GRAPHS = [
    { name: "flagged", header: { name: "x-graph", value: "flagged" }, supergraph: { file: "flagged.graphql" } },
    { name: "by-host", host: "beta.example.com", supergraph: { file: "by-host.graphql" } },
    { name: "partners", path: "/partners/graphql", supergraph: { file: "partners.graphql" } },
  ];

  /** A router with a graph for each condition. Each has a field of its own that has its name. */
  async function route({ graphs = GRAPHS, ports, ...config } = {}) {
    return keep(await startServe({
      supergraph: withField("first"),
      ports,
      config: { subgraphs: subgraphs.configuration, graphs: await written(graphs), ...config },
    }));
  }

  /** Writes the files of graphs, and returns the graphs with their paths. */
  async function written(graphs) {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-graphs-"));
    folders.push(folder);
    return Promise.all(graphs.map(async (graph) => {
      const file = path.join(folder, graph.supergraph.file);
      await writeFile(file, withField(graph.name.replace("-", "_")));
      return { ...graph, supergraph: { file } };
    }));
  }

  const fileOf = async (router, name) => {
    const config = JSON.parse(await readFile(path.join(router.folder, "starling.yaml"), "utf8"));
    return config.graphs.find((it) => it.name === name).supergraph.file;
  };

  /** Writes a manifest of these operations, and returns its path. */
  async function manifest(operations) {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-graphs-"));
    folders.push(folder);
    const file = path.join(folder, "manifest.json");
    await writeFile(file, JSON.stringify(operations));
    return file;
  }

  /** Sends a query, or another request, with any host, which `fetch` does not. */
  function ask(router, request, { at = "/graphql", headers = {} } = {}) {
    const body = JSON.stringify(typeof request === "string" ? { query: request } : request);
    const { port } = new URL(router.url);
    return new Promise((resolve, reject) => {
      const sent = http.request({
        host: "127.0.0.1", port, path: at, method: "POST", agent: false,
        headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body), ...headers },
      }, async (response) => {
        let text = "";
        for await (const part of response) text += part;
        resolve({ status: response.statusCode, text, body: response.statusCode === 404 ? null : JSON.parse(text) });
      });
      sent.on("error", reject);
      sent.end(body);
    });
  }

  async function ownField(router, where) {
    const { body } = await ask(router, FIELDS, where);
    const names = body.data.__type.fields.map(({ name }) => name);
    return names.filter((name) => ["first", "flagged", "by_host", "partners", "renewed"].includes(name));
  }

  it("a request reaches the first graph of which all conditions hold, and else the default", async () => {
    const router = await route();
    assert.deepEqual(await ownField(router), ["first"]);
    assert.deepEqual(await ownField(router, { headers: { "x-graph": "flagged" } }), ["flagged"]);
    assert.deepEqual(await ownField(router, { headers: { "x-graph": "other" } }), ["first"]);
    assert.deepEqual(await ownField(router, { headers: { host: "Beta.example.com:8443" } }), ["by_host"]);
    assert.deepEqual(await ownField(router, { headers: { host: "beta.example.com", "x-graph": "flagged" } }), ["flagged"]);
    assert.deepEqual(await ownField(router, { at: "/partners/graphql" }), ["partners"]);
    const both = { at: "/partners/graphql", headers: { "x-graph": "flagged" } };
    assert.deepEqual(await ownField(router, both), ["partners"], "the other graph is not at this path");
    const nowhere = await ask(router, FIELDS, { at: "/partners" });
    assert.equal(nowhere.status, 404);
    assert.match(nowhere.text, /The GraphQL endpoint is \/graphql/);
    const page = await fetch(`${router.url}/partners/graphql`, { headers: { accept: "text/html" } });
    assert.equal(page.status, 200);
    assert.match(await page.text(), /\/partners\/graphql/);
  });

  it("each graph is reloaded and rolled back on its own, and its metrics have its name", async () => {
    const router = await route();
    const post = async (what, graph) => {
      const response = await fetch(`${router.admin}/admin/${what}?graph=${graph}`, { method: "POST" });
      return { status: response.status, text: await response.text() };
    };
    const unknown = await post("reload", "nothing");
    assert.equal(unknown.status, 404);
    assert.match(unknown.text, /there are: default, flagged, by-host, partners/);
    const file = await fileOf(router, "partners");
    await writeFile(file, withField("renewed"));
    await eventually(
      async () => (await ownField(router, { at: "/partners/graphql" }))[0] === "renewed", "the renewed graph",
    );
    assert.deepEqual(await ownField(router), ["first"]);
    const loads = await scrape(router);
    assert.equal(loads.value("starling_graph_loads_total", { graph: "partners", result: "loaded" }), 2);
    assert.equal(loads.value("starling_graph_loads_total", { graph: "default", result: "loaded" }), 1);

    assert.equal(JSON.parse((await post("rollback", "partners")).text).result, "rolled_back");
    assert.deepEqual(await ownField(router, { at: "/partners/graphql" }), ["partners"]);
    assert.equal((await post("rollback", "default")).status, 409);
    await writeFile(file, "type Query { broken");
    await eventually(() => /refused/.test(router.output()), "the refusal in the log");
    const line = router.output().split("\n").find((it) => it.includes("refused"));
    assert.match(line, /graph"?[=:] ?"?partners/);
    assert.deepEqual(await ownField(router, { at: "/partners/graphql" }), ["partners"]);
  });

  it("events reach the subscribers of each graph, and a graph's reload drops none of them", async () => {
    const router = await route();
    const subscribe = (url, options = {}) => {
      class Socket extends WebSocket {
        constructor(address, protocols) {
          super(address, protocols, options);
        }
      }
      const client = createClient({ url, webSocketImpl: Socket, retryAttempts: 0 });
      return { client, results: client.iterate({ query: SUBSCRIPTION }) };
    };
    const all = [
      subscribe(router.socket),
      subscribe(router.socket, { headers: { "x-graph": "flagged" } }),
      subscribe(router.socket.replace("/graphql", "/partners/graphql")),
    ];
    const next = async ({ results }) => (await results.next()).value;
    const received = Promise.all(all.map(next));
    const labels = [{ graph: "default" }, { graph: "flagged" }, { graph: "partners" }];
    const subscribers = async () => {
      const metrics = await scrape(router);
      return labels.map((label) => metrics.value("starling_hub_subscribers", label));
    };
    await eventually(async () => (await subscribers()).every((it) => it === 1), "a subscriber of each graph");
    await router.publish("memory/default", "flights.moved", event("1", 1000));
    for (const { data, errors } of await received) {
      assert.equal(errors, undefined);
      assert.deepEqual(data.flightMoved, expectedFlight("1", 1000));
    }
    const file = await fileOf(router, "partners");
    await writeFile(file, withField("renewed"));
    await eventually(
      async () => (await ownField(router, { at: "/partners/graphql" }))[0] === "renewed", "the renewed graph",
    );
    const again = Promise.all(all.map(next));
    await router.publish("memory/default", "flights.moved", event("1", 2000));
    for (const { data } of await again) assert.deepEqual(data.flightMoved, expectedFlight("1", 2000));
    for (const { client } of all) await client.dispose();
  });

  it("a cursor is valid in its own graph only", async () => {
    const router = await route({
      cursor: { memory: true, keys: ["a key of more than 16 bytes"] },
      events: { providers: { memory: [{ id: "default", ring_events: 1000 }] } },
    });
    const own = { default: router.socket, partners: router.socket.replace("/graphql", "/partners/graphql") };
    const query = "subscription { flightMoved { id altitude } }";
    const publish = (altitude) => router.publish("memory/default", "flights.moved", event("1", altitude));
    /** The first result of a subscription, or the code of the error that refuses it. */
    const first = async (graph, extensions, act = () => {}) => {
      const client = createClient({ url: own[graph], webSocketImpl: WebSocket, retryAttempts: 0 });
      const result = client.iterate({ query, extensions }).next().then(
        ({ value }) => value, ([error]) => error.extensions.code,
      );
      const received = await repeatUntil(result, act, `a result of ${graph}`);
      await client.dispose();
      return received;
    };
    const cursors = {};
    for (const graph of Object.keys(own)) {
      const { extensions: { cursor } } = await first(graph, undefined, publish);
      assert.ok(cursor, graph);
      cursors[graph] = cursor;
    }
    await publish(5000);
    for (const graph of Object.keys(own)) {
      for (const [of, cursor] of Object.entries(cursors)) {
        const received = await first(graph, { cursor });
        if (of === graph) assert.equal(received.data?.flightMoved.id, "1", JSON.stringify(received));
        else assert.equal(received, "CURSOR_FOREIGN", `a cursor of ${of} in ${graph}`);
      }
    }
  });

  /** Sends a request for airports to a graph. The operation is prepared already for the first client. */
  async function askPrepared(router, graph, where, request) {
    const figures = async () => {
      const metrics = await scrape(router);
      const of = (name) => metrics.value(`starling_operations_prepared_${name}_total`, { graph });
      return { hits: of("hits"), misses: of("misses") };
    };
    const { hits, misses } = await figures();
    const { body } = await ask(router, request, where);
    assert.ok(body.data?.airports.length > 0, JSON.stringify(body));
    assert.deepEqual(await figures(), { hits: hits + 1, misses }, graph);
  }

  const PARTNERS = { at: "/partners/graphql" };
  const FLAGGED = { headers: { "x-graph": "flagged" } };

  it("persisted documents are prepared ahead for each graph, at the start and for its next version", async () => {
    const file = await manifest({ all: "{ airports { code } }", partners: "{ partners { code } }" });
    const router = await route({
      persisted_documents: { manifests: [{ file }] }, warming: { persisted_documents: true },
    });
    const invalid = async () => {
      const metrics = await scrape(router);
      const graphs = ["default", ...GRAPHS.map(({ name }) => name)];
      return graphs.map((graph) => metrics.value("starling_persisted_documents_invalid", { graph }));
    };
    assert.deepEqual(await invalid(), [1, 1, 1, 0]);
    for (const [graph, where] of [["default", {}], ["flagged", FLAGGED], ["partners", PARTNERS]]) {
      await askPrepared(router, graph, where, { documentId: "all" });
    }
    const lines = router.output().split("\n").filter((it) => /persisted documents are not valid/.test(it));
    const warnings = lines.filter((it) => /warn/i.test(it));
    assert.deepEqual([lines.length, warnings.length], [3, 1], lines.join("\n"));

    await writeFile(await fileOf(router, "partners"), withField("renewed"));
    await eventually(async () => (await invalid())[3] === 1, "the documents of the next version");
    assert.deepEqual(await invalid(), [1, 1, 1, 1]);
    await writeFile(file, JSON.stringify({ all: "{ airports { name } }" }));
    await eventually(async () => (await invalid()).every((it) => it === 0), "the new documents");
    await askPrepared(router, "partners", PARTNERS, { documentId: "all" });
  });

  it("a new router prepares the operations that another one uses, for each graph", async () => {
    const busy = await route();
    const top = { default: "query First { airports { code } }", partners: "query Partners { airports { name } }" };
    for (let times = 0; times < 2; times += 1) {
      await ask(busy, top.default);
      await ask(busy, top.partners, PARTNERS);
    }
    const url = `${busy.admin}/admin/operations?limit=10`;
    const router = await route({ warming: { operations: { url } } });
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_warming_operations_total", { result: "prepared" }), 2);
    assert.equal(metrics.value("starling_warming_source_failures_total"), 0);
    await askPrepared(router, "default", {}, top.default);
    await askPrepared(router, "partners", PARTNERS, top.partners);
  });

  it("a peer without a graph is one failure, and the other graphs are prepared", async () => {
    const busy = await route({ graphs: GRAPHS.slice(0, 2) });
    for (let times = 0; times < 2; times += 1) await ask(busy, "{ airports { code } }", FLAGGED);
    const router = await route({ warming: { operations: { url: `${busy.admin}/admin/operations` } } });
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_warming_source_failures_total"), 1);
    assert.equal(metrics.value("starling_warming_operations_total", { result: "prepared" }), 1);
    const warning = router.output().split("\n").find((it) => /`warming.operations` cannot be read/.test(it));
    assert.match(warning, /graph"?[=:] ?"?partners/);
    await askPrepared(router, "flagged", FLAGGED, "{ airports { code } }");
  });

  it("the operations of a file are tried for each graph", async () => {
    const file = await manifest({ all: "{ airports { code } }", partners: "{ partners { code } }" });
    const router = await route({ warming: { operations: { file } } });
    const metrics = await scrape(router);
    const results = ["prepared", "invalid"];
    const counts = results.map((result) => metrics.value("starling_warming_operations_total", { result }));
    assert.deepEqual(counts, [5, 3]);
    await askPrepared(router, "flagged", FLAGGED, "{ airports { code } }");
  });

  it("no graph serves what another one has stored, and an invalidation reaches all", async () => {
    const router = await route({ cache: { enabled: true, subgraphs: { all: { ttl: "1h" } } } });
    const places = [{}, { headers: { "x-graph": "flagged" } }, { at: "/partners/graphql" }];
    const requests = async () =>
      (await scrape(router)).value("starling_subgraph_requests_total", { subgraph: "airports" });
    const before = await requests();
    const askAll = async () => {
      for (const place of places) {
        const { body } = await ask(router, "{ airports { code } }", place);
        assert.ok(body.data.airports.length > 0);
      }
    };
    await askAll();
    assert.equal(await requests() - before, places.length);
    await askAll();
    assert.equal(await requests() - before, places.length, "the second responses are from the cache");
    const response = await fetch(`${router.admin}/admin/invalidate`, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify([{ kind: "subgraph", subgraph: "airports" }]),
    });
    assert.ok(response.ok, await response.text());
    await askAll();
    assert.equal(await requests() - before, 2 * places.length);
  });

  it("subgraphs of one name with different servers have counters of their own", async () => {
    const { airports, ...others } = subgraphs.configuration;
    const folder = await mkdtemp(path.join(tmpdir(), "starling-graphs-"));
    folders.push(folder);
    const file = path.join(folder, "elsewhere.graphql");
    // Nothing listens at the URL of `airports` there.
    await writeFile(file, withField("elsewhere"));
    const router = keep(await startServe({
      supergraph: withField("first").replace("http://127.0.0.1:9/airports", airports.url),
      config: { subgraphs: others, graphs: [{ name: "elsewhere", path: "/elsewhere", supergraph: { file } }] },
    }));
    const query = "{ airports { code } }";
    assert.ok((await ask(router, query)).body.data.airports.length > 0);
    assert.ok((await ask(router, query, { at: "/elsewhere" })).body.errors.length > 0);
    const metrics = await scrape(router);
    const requests = metrics.all("starling_subgraph_requests_total", { subgraph: "airports" });
    const counted = requests.map(({ labels, value }) => [labels.graph ?? "", value]);
    assert.deepEqual(counted.sort(), [["", 1], ["elsewhere", 1]]);
    assert.equal(metrics.all("starling_subgraph_requests_total", { subgraph: "flights" }).length, 1);

    // The console has both, and the unhealthy one on the overviews that it belongs to.
    for (let times = 0; times < 10; times += 1) await ask(router, query, { at: "/elsewhere" });
    const overview = async (graph) => {
      const { body } = await readConsole(router, "overview", graph ? { graph } : {});
      const unhealthy = body.problems.filter(({ kind }) => kind === "subgraph").map(({ name }) => name);
      return { subgraphs: body.subgraphs.map(({ name }) => name).sort(), unhealthy };
    };
    const other = "airports (elsewhere)";
    assert.deepEqual(await overview(), { subgraphs: ["airports", other, "flights"], unhealthy: [other] });
    assert.deepEqual(await overview("default"), { subgraphs: ["airports", "flights"], unhealthy: [] });
    assert.deepEqual(await overview("elsewhere"), { subgraphs: [other, "flights"], unhealthy: [other] });
    const { body: one } = await readConsole(router, "subgraph", { name: other });
    assert.ok(sum(one.series.subgraphErrors) > 0, JSON.stringify(one));
    assert.equal(sum((await readConsole(router, "subgraph", { name: "airports" })).body.series.subgraphErrors), 0);
  });

  it("the overview of the console has the figures of each graph, and their sums", async () => {
    const router = await route();
    await followInPartners(router);
    await ask(router, "{ airports { code } }");
    for (let times = 0; times < 2; times += 1) await ask(router, "{ airports { code } }", PARTNERS);
    await ask(router, "{ unknown }", PARTNERS);
    const overview = async (graph) => (await readConsole(router, "overview", graph ? { graph } : {})).body;
    const figures = ({ graph, series }) =>
      [graph, sum(series.requests), sum(series.errors), series.subscribers.at(-1)];
    const [all, first, partners] = [await overview(), await overview("default"), await overview("partners")];
    // The subscription is a request, too.
    assert.deepEqual(figures(all), [null, 5, 1, 1]);
    assert.deepEqual(figures(first), ["default", 1, 0, 0]);
    assert.deepEqual(figures(partners), ["partners", 4, 1, 1]);
    if (all.minute.seconds < 60) {
      const latencies = [all, first, partners].map(({ minute }) => minute.latency.count);
      assert.deepEqual(latencies, [3, 1, 2], "of queries and mutations");
    }
    assert.ok(sum(partners.series.events) > 0 && sum(first.series.events) === 0);
    for (const { minute, seconds, series } of [all, first, partners]) {
      assert.ok(minute.memory > 1e6 && minute.connections > 0, "figures of the process");
      assert.equal(series.latency.p99.length, seconds.length);
    }
    const generations = [all, first, partners].map(({ generation }) => generation);
    assert.equal(generations[0], null);
    assert.notEqual(generations[1], generations[2]);
    const { body: graph } = await readConsole(router, "graph", { graph: "partners" });
    assert.equal(generations[2], graph.generation);
    assert.equal((await readConsole(router, "overview", { graph: "nothing" })).status, 404);

    // What Prometheus counts are still the sums.
    const metrics = await scrape(router);
    assert.equal(metrics.value("starling_operations_total", { kind: "query", outcome: "ok" }), 3);
    assert.equal(metrics.sum("starling_operations_refused_total"), 1);
  });

  /** Sends a query to each of two graphs, and one to a path that belongs to no graph. */
  const askSome = (router) => Promise.all([
    ask(router, "query First { airports { code } }"),
    ask(router, "query Partners { airports { code } }", PARTNERS),
    ask(router, "query Nowhere { airports { code } }", { at: "/nowhere" }),
  ]);

  /** Follows the flights in the graph `partners` over a WebSocket, and waits for an event. */
  async function followInPartners(router) {
    const socket = keep(openSocket({ socket: router.socket.replace("/graphql", PARTNERS.at) }, {}));
    const moves = socket.subscribe(SUBSCRIPTION);
    const publish = () => router.publish("memory/default", "flights.moved", event("1", 1000));
    await repeatUntil(moves.next(), publish, "an event");
    return { socket, moves };
  }

  it("lines of the access log name the graph of requests, operations and subscriptions", async () => {
    const router = await route({ access_log: { enabled: true } });
    await askSome(router);
    const { socket, moves } = await followInPartners(router);
    await socket.subscribe("query Once { airports { code } }").next();
    moves.stop();
    const lines = await eventually(() => {
      const found = router.output().split("\n").filter((it) => it.startsWith('{"time":')).map(JSON.parse);
      return found.some((it) => it.event === "subscription_ended") && found;
    }, "the last line");
    assert.deepEqual(lines.map((it) => [it.event, it.path ?? it.operation, it.graph]).sort(), [
      ["operation", "Once", "partners"],
      ["request", "/graphql", "default"],
      ["request", "/nowhere", undefined],
      ["request", "/partners/graphql", "partners"],
      ["request", "/partners/graphql", "partners"],
      ["subscription_ended", "Moves", "partners"],
      ["subscription_started", "Moves", "partners"],
    ]);
  });

  it("spans of requests, of operations on WebSockets and of events name the graph", async () => {
    const collector = keep(await startCollector());
    const otlp = { endpoint: collector.endpoint, interval: "20ms" };
    const router = await route({ tracing: { enabled: true, sample: { ratio: "100%" }, otlp } });
    await askSome(router);
    await followInPartners(router);
    const graphOf = async (name) => (await collector.named(name))[0].attributes["starling.graph.name"];
    assert.equal(await graphOf("POST /graphql"), "default");
    assert.equal(await graphOf("POST /partners/graphql"), "partners");
    assert.equal(await graphOf("POST"), undefined, "another path belongs to no graph");
    assert.equal(await graphOf("WebSocket operation"), "partners");
    assert.equal(await graphOf("process flightMoved"), "partners");
  });

  /** A router with a slow request to each of two graphs on its console. */
  async function routeWithRecorder() {
    // A request that first connects to a subgraph takes longer than that on every machine.
    const router = await route({ admin: { console: { recorder: { enabled: true, slow: "1ms" } } } });
    await askSome(router);
    return router;
  }

  it("slow requests on the console name their graph", async () => {
    const router = await routeWithRecorder();
    const slow = (operation) => eventually(async () => {
      const { body } = await readConsole(router, "slow");
      return body.traces.find((it) => it.operation === operation);
    }, `the slow request of ${operation}`);
    assert.equal((await slow("First")).graph, "default");
    const { number, graph } = await slow("Partners");
    assert.equal(graph, "partners");
    const { body: trace } = await readConsole(router, "trace", { number });
    assert.equal(trace.graph, "partners");
    assert.equal(trace.spans[0].attributes["starling.graph.name"], "partners");
  });

  it("the console has the plans, types, reloads and live subscriptions of each graph", async () => {
    const router = await route();
    await followInPartners(router);
    const of = (graph) => (name, parameters, options) =>
      readConsole(router, name, { ...parameters, ...(graph && { graph }) }, options);
    const [first, partners] = [of(), of("partners")];
    const names = ["default", "flagged", "by-host", "partners"];
    assert.deepEqual((await first("graphs")).body, { graphs: names });
    assert.equal((await first("slow")).headers.get("starling-graphs"), names.join(","));
    const unknown = await of("nothing")("live");
    assert.equal(unknown.status, 404);
    assert.equal(unknown.headers.get("starling-graphs"), names.join(","), "a refusal says what there is");
    assert.match(unknown.text, /there are: default, flagged, by-host, partners/);

    assert.equal((await first("live")).body.subscribers, 0);
    const { body: live } = await partners("live");
    assert.equal(live.subscribers, 1);
    const group = live.triggers[0].groups[0].id;
    assert.equal((await first("subscribers", { group })).status, 404);
    const [{ id }] = (await partners("subscribers", { group })).body.subscribers;
    assert.equal((await partners("watch", { id }, { method: "POST" })).body.id, id);
    assert.equal((await partners("subscriber", { id })).status, 200);
    assert.equal((await first("subscriber", { id })).status, 404);

    const fieldsOf = async (graph) => (await graph("type", { name: "Query" })).body.fields.map(({ name }) => name);
    assert.ok((await fieldsOf(first)).includes("first"));
    assert.ok((await fieldsOf(partners)).includes("partners"));
    const explain = (graph) => graph("explain", {}, { method: "POST", body: "{ partners { code } }" });
    assert.equal((await explain(first)).status, 400);
    assert.equal((await explain(partners)).body.plan.fetches.length, 1);

    const query = "query Own { partners { code } }";
    await ask(router, query, PARTNERS);
    const operation = async (graph) => (await graph("operation", { name: "Own", kind: "query" })).body;
    assert.equal((await operation(first)).text, null, "it is not among the prepared ones of the graph");
    assert.equal((await operation(partners)).text, query);

    await writeFile(await fileOf(router, "partners"), withField("renewed"));
    const lastReload = async (graph) => (await graph("graph")).body.lastReload;
    await eventually(() => lastReload(partners), "the reload of the graph");
    assert.equal(await lastReload(first), null);
  });

  it("the console has a choice of the graph where it matters", { skip: skipWithoutBrowser() }, async () => {
    const router = await routeWithRecorder();
    await followInPartners(router);
    const browser = await launchBrowser();
    keep({ stop: () => browser.close() });
    const { page, problems } = await openPage(browser, router.admin, "/console/#live");
    await page.getByText("0 subscribers in 0 groups on 0 triggers.").waitFor();
    await page.locator("#selected-graph").selectOption("partners");
    await page.getByText("1 subscriber in 1 group on 1 trigger.").waitFor();
    await page.reload();
    await page.getByText("1 subscriber in 1 group on 1 trigger.").waitFor();
    await page.evaluate(() => {
      location.hash = "#slow";
    });
    const row = await cells(rowOf(page, "Slow, failed and selected requests", "query Partners"));
    assert.equal(row[4], "partners");
    assert.ok(await page.locator("#selected-graph").isHidden());
    assert.deepEqual(problems, []);
  });

  it("the overview has a choice of the graph, and of all graphs", { skip: skipWithoutBrowser() }, async () => {
    const router = await route();
    await followInPartners(router);
    const browser = await launchBrowser();
    keep({ stop: () => browser.close() });
    const { page, problems } = await openPage(browser, router.admin, "/console/");
    const choice = page.locator("#selected-graph");
    const subscribers = (text) => page.locator("#now-subscribers").filter({ hasText: text }).waitFor();
    const headings = () => page.locator(".figures h2").allTextContents();
    await subscribers(/^1$/);
    assert.deepEqual(await choice.locator("option").allTextContents(), [
      "All graphs", "default", "flagged", "by-host", "partners",
    ]);
    assert.equal(await choice.inputValue(), "");
    assert.deepEqual(await headings(), ["All graphs", "Process"]);

    await choice.focus();
    await choice.selectOption("default");
    await subscribers(/^0$/);
    assert.deepEqual(await headings(), ["Graph default", "Process"]);
    assert.equal(await page.evaluate(() => document.activeElement.id), "selected-graph", "the focus stays");
    await choice.selectOption("partners");
    await subscribers(/^1$/);
    await page.getByRole("heading", { name: "The last hour of the graph partners" }).waitFor();
    await page.getByRole("heading", { name: "The last hour of the process" }).waitFor();
    assert.match(await page.locator("#now-memory").textContent(), /^[\d.]+ MiB$/);
    await assertAccessible(page);

    // The selection holds for other pages, of which those of one graph have no sum.
    await page.evaluate(() => {
      location.hash = "#live";
    });
    await page.getByText("1 subscriber in 1 group on 1 trigger.").waitFor();
    assert.equal(await choice.locator("option").count(), 4);
    await page.evaluate(() => {
      location.hash = "#overview";
    });
    await choice.selectOption({ label: "All graphs" });
    await page.getByRole("heading", { name: "All graphs", exact: true }).waitFor();
    await page.evaluate(() => {
      location.hash = "#live";
    });
    await page.getByText("0 subscribers in 0 groups on 0 triggers.").waitFor();
    assert.equal(await choice.inputValue(), "default");
    assert.deepEqual(problems, []);
  });

  it("an open console follows the graphs of the next router", { skip: skipWithoutBrowser() }, async () => {
    const router = await route();
    /** Replaces the router by one with other graphs behind the same address. */
    const replace = async (current, graphs) => {
      await current.stop();
      return route({ graphs, ports: current.ports });
    };
    const browser = await launchBrowser();
    keep({ stop: () => browser.close() });
    const { page, problems } = await openPage(browser, router.admin, "/console/#live");
    const refused = new Set();
    page.on("response", (it) => {
      if (it.status() === 404) refused.add(new URL(it.url()).search);
    });
    const choice = page.locator("#selected-graph");
    const note = (text) => page.locator("#graph-note").filter({ hasText: text }).waitFor();
    const offered = (names) =>
      eventually(async () => {
        const texts = await choice.locator("option").allTextContents();
        return texts.join() === names.join();
      }, `a choice of ${names}`);
    await offered(["default", "flagged", "by-host", "partners"]);
    await Promise.all([
      page.waitForResponse((it) => it.url().endsWith("live?graph=partners") && it.ok()),
      choice.selectOption("partners"),
    ]);
    await choice.focus();

    const renamed = { ...GRAPHS[2], name: "renamed", supergraph: { file: "renamed.graphql" } };
    const second = await replace(router, [...GRAPHS.slice(0, 2), renamed]);
    await note("The graph “partners” is gone. The graph “default” is selected instead.");
    await offered(["default", "flagged", "by-host", "renamed"]);
    assert.equal(await choice.inputValue(), "default");
    assert.equal(await page.evaluate(() => document.activeElement.id), "selected-graph", "the focus stays");
    await page.getByText("0 subscribers in 0 groups on 0 triggers.").waitFor();
    await assertAccessible(page);

    // A page with forms keeps what is typed.
    await choice.selectOption("renamed");
    assert.equal(await page.locator("#graph-note").textContent(), "", "a person has selected a graph");
    await page.evaluate(() => {
      location.hash = "#tools";
    });
    await page.locator("#explain textarea").fill("{ renamed { code } }");
    await choice.focus();
    await replace(second, []);
    await note("The graph “renamed” is gone. The graph “default” is selected instead.");
    await choice.waitFor({ state: "hidden" });
    assert.equal(await page.evaluate(() => document.activeElement.id), "page", "the focus is not lost");
    assert.equal(await page.locator("#explain textarea").inputValue(), "{ renamed { code } }");
    await page.evaluate(() => {
      location.hash = "#graph";
    });
    await page.getByText("The graph has not changed since the start.").waitFor();
    assert.equal(await page.locator("#graph-note").textContent(), "", "another page is open");
    // The browser reports what a router that was starting did not respond to, and the refusal of a graph that is gone.
    const isExpected = (it) => /net::ERR_|404 \(Not Found\)/.test(it);
    assert.deepEqual(problems.filter((it) => !isExpected(it)), []);
    assert.deepEqual([...refused], ["?graph=partners"]);
  });

  it("a graph that does not load is named, by the check and by the start", async () => {
    const router = await route();
    const file = await fileOf(router, "by-host");
    await router.stop();
    await writeFile(file, "type Query { broken");
    const config = path.join(router.folder, "starling.yaml");
    for (const command of ["check", "serve"]) {
      const ended = await new Promise((resolve) => {
        execFile(process.env.STARLING_BIN, [command, "--config", config], (error, stdout, stderr) =>
          resolve({ code: error?.code ?? 0, output: stdout + stderr }));
      });
      assert.notEqual(ended.code, 0, command);
      assert.match(ended.output, /graph `by-host`: /, command);
    }
  });
});

// The metrics of single operations, clients and subgraphs: a known load, whose figures must come out.
// Runs alone: it compares times.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { SUBSCRIPTION, event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { compose } from "../composition.mjs";
import { GraphqlResponse, startSubgraph } from "../counting_subgraph.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil } from "../waiting.mjs";

const PRODUCTS = `
  type Query { products: [Product!] slow: String broken: String codeless: String }
  type Mutation { rename(id: ID!): Product }
  type Product @key(fields: "id") { id: ID! name: String }`;
const REVIEWS = "type Product @key(fields: \"id\") { id: ID! reviews: Int }";

/** Equal queries in flight would be done once. */
const UNSHARED = { operations: false, subgraph_queries: false };

const WEB = { "graphql-client-name": "web", "graphql-client-version": "1.2.3" };

describe("metrics of single operations and clients", () => {
  const keep = closeAfterEach();
  let products, reviews, supergraph;

  before(async () => {
    products = await startSubgraph(async ({ query }) => {
      if (query.includes("slow")) {
        await pause(300);
        return { slow: "done" };
      }
      if (query.includes("broken")) {
        return new GraphqlResponse({ broken: null }, [{ message: "why", extensions: { code: "SOLD_\"OUT\"" } }]);
      }
      if (query.includes("codeless")) return new GraphqlResponse({ codeless: null }, [{ message: "why" }]);
      if (query.includes("rename")) return { rename: { __typename: "Product", id: "1", name: "new" } };
      return { products: ["1", "2"].map((id) => ({ __typename: "Product", id, name: `Product ${id}` })) };
    });
    reviews = await startSubgraph((body) => {
      const [list] = Object.values(body.variables);
      return { _entities: list.map(({ id }) => ({ __typename: "Product", id, reviews: 7 })) };
    });
    supergraph = await compose({
      products: { sdl: PRODUCTS, url: products.url }, reviews: { sdl: REVIEWS, url: reviews.url },
    });
  });
  after(async () => {
    for (const subgraph of [products, reviews]) await subgraph?.stop();
  });

  const open = async (config = {}) => keep(await startServe({ supergraph, config: { sharing: UNSHARED, ...config } }));

  async function send(router, body, headers = {}, method = "POST") {
    const content = typeof body === "string" ? { query: body } : body;
    const url = new URL(router.graphql);
    if (method === "GET") url.search = new URLSearchParams(content);
    const response = await fetch(url, {
      method,
      headers: { "content-type": "application/json", "apollo-require-preflight": "1", ...headers },
      body: method === "GET" ? undefined : JSON.stringify(content),
    });
    return { status: response.status, text: await response.text() };
  }

  const named = (metrics, name, labels) => metrics.value(`starling_named_operation_${name}`, labels);

  it("count a known load", async () => {
    const router = await open({ cost: { mode: "measure" } });
    let bytes = 0;
    for (let number = 0; number < 5; number += 1) {
      bytes += (await send(router, "query Top { products { name reviews } }", WEB)).text.length;
    }
    for (let number = 0; number < 3; number += 1) await send(router, "query Broken { broken }", WEB);
    await send(router, "query Broken { codeless }");
    await send(router, "query Slow { slow }", { ...WEB, "graphql-client-version": "2.0" });
    await send(router, 'mutation Rename { rename(id: "1") { name } }', { "apollographql-client-name": "batch job" });
    const metrics = await scrape(router);

    const top = { operation: "Top", kind: "query" };
    assert.equal(named(metrics, "requests_total", top), 5);
    assert.equal(named(metrics, "subgraph_requests_total", top), 10, "one to each subgraph");
    assert.equal(named(metrics, "response_bytes_total", top), bytes);
    assert.ok(named(metrics, "cost_total", top) >= 5, "each response costs something");
    assert.equal(metrics.all("starling_named_operation_errors_total", top).length, 0);
    assert.equal(named(metrics, "duration_seconds_count", top), 5);
    assert.equal(named(metrics, "duration_seconds_bucket", { ...top, le: "+Inf" }), 5);
    const busy = named(metrics, "cpu_seconds_total", top);
    const took = named(metrics, "duration_seconds_sum", top);
    assert.ok(busy > 0 && busy <= took, `${busy} s of ${took} s`);

    const slow = { operation: "Slow", kind: "query" };
    // A timer of Node.js may fire a millisecond early.
    const waited = named(metrics, "duration_seconds_sum", slow) - named(metrics, "cpu_seconds_total", slow);
    assert.ok(waited >= 0.29, `waiting is no work: ${waited} s`);
    assert.equal(named(metrics, "duration_seconds_bucket", { ...slow, le: "0.25" }), 0);

    const broken = { operation: "Broken", kind: "query" };
    assert.equal(named(metrics, "requests_total", broken), 4);
    assert.equal(named(metrics, "errors_total", { ...broken, code: "DOWNSTREAM_SERVICE_ERROR" }), 4);
    assert.equal(named(metrics, "requests_total", { operation: "Rename", kind: "mutation" }), 1);
    assert.equal(named(metrics, "requests_total", { operation: "other" }), 0);

    const client = (name, client_version, labels = {}) => ({ client: name, client_version, ...labels });
    assert.equal(metrics.value("starling_client_requests_total", client("web", "1.2.3")), 8);
    assert.equal(metrics.value("starling_client_requests_total", client("web", "2.0")), 1);
    assert.equal(metrics.value("starling_client_requests_total", client("batch job", "")), 1);
    assert.equal(metrics.value("starling_client_requests_total", client("unnamed", "")), 1);
    const ofClient = (name, labels) => metrics.value(`starling_client_${name}`, labels);
    const web = client("web", "1.2.3");
    assert.equal(ofClient("duration_seconds_count", web), 8);
    assert.equal(ofClient("subgraph_requests_total", web), 13, "5 with two each, and 3 with one");
    assert.ok(ofClient("response_bytes_total", web) > bytes);
    assert.ok(ofClient("cost_total", web) >= 5);
    assert.ok(ofClient("cpu_seconds_total", web) >= busy);
    assert.ok(ofClient("duration_seconds_sum", client("web", "2.0")) >= 0.29, "it waits for a slow operation");
    const failed = client("web", "1.2.3", { code: "DOWNSTREAM_SERVICE_ERROR" });
    assert.equal(metrics.value("starling_client_errors_total", failed), 3);

    const errors = (code) => metrics.value("starling_subgraph_errors_total", { subgraph: "products", code });
    assert.deepEqual([errors('SOLD_"OUT"'), errors("none"), errors("other")], [3, 1, 0]);
    assert.equal(metrics.value("starling_subgraph_requests_total", { subgraph: "products" }), 11);
    assert.equal(metrics.value("starling_subgraph_requests_total", { subgraph: "reviews" }), 5);
    const ofReviews = (name) => metrics.value(`starling_subgraph_${name}`, { subgraph: "reviews" });
    assert.equal(ofReviews("request_duration_seconds_count"), 5);
    assert.ok(ofReviews("request_duration_seconds_sum") < took, "the subgraph is a part of what `Top` waits for");
    // Heads and bodies of five requests and responses have more than a hundred bytes each.
    for (const name of ["sent_bytes_total", "received_bytes_total"]) {
      assert.ok(ofReviews(name) > 500, `${name}: ${ofReviews(name)}`);
    }
    const waitedForProducts = metrics.value("starling_subgraph_request_duration_seconds_sum", { subgraph: "products" });
    assert.ok(waitedForProducts >= 0.29, `it has been slow once: ${waitedForProducts} s`);
    assert.equal(metrics.value("starling_metrics_names", { table: "operations" }), 4);
    assert.equal(metrics.value("starling_metrics_names_max", { table: "operations" }), 500);
  });

  it("count what is refused", async () => {
    const router = await open({ block: { rules: [{ when: "operation.name == 'Blocked'" }] } });
    await send(router, "query Blocked { slow }", WEB);
    await send(router, "query Invalid { nothing }", WEB);
    await send(router, "{ ", WEB);
    await send(router, { query: "mutation Rename { rename(id: 1) { name } }" }, WEB, "GET");
    const metrics = await scrape(router);
    const blocked = { operation: "Blocked", kind: "query" };
    assert.equal(named(metrics, "requests_total", blocked), 1);
    assert.equal(named(metrics, "errors_total", { ...blocked, code: "OPERATION_BLOCKED" }), 1);
    assert.equal(named(metrics, "errors_total", { operation: "Rename", code: "BAD_REQUEST" }), 1);
    assert.equal(metrics.all("starling_named_operation_requests_total", { operation: "Invalid" }).length, 0,
      "names of operations that do not exist are nobody's");
    const codes = metrics.all("starling_client_errors_total", { client: "web" }).map((it) => [it.labels.code, it.value]);
    assert.deepEqual(codes.sort(), [
      ["BAD_REQUEST", 1], ["GRAPHQL_PARSE_FAILED", 1], ["GRAPHQL_VALIDATION_FAILED", 1], ["OPERATION_BLOCKED", 1],
    ]);
  });

  it("tell anonymous operations apart, and count each operation of a batch", async () => {
    const router = await open({ http: { batching: { enabled: true } } });
    await send(router, "{ products { name } }");
    await send(router, "query { products { name } }");
    await send(router, "{ products { id } }");
    await send(router, [{ query: "query A { slow }" }, { query: "query B { slow }" }], WEB);
    const metrics = await scrape(router);
    const anonymous = metrics.all("starling_named_operation_requests_total")
      .filter((it) => /^anonymous:[0-9a-f]{16}$/.test(it.labels.operation)).map((it) => it.value);
    assert.deepEqual(anonymous.sort(), [1, 2], "a keyword does not make another operation");
    for (const operation of ["A", "B"]) {
      assert.equal(named(metrics, "requests_total", { operation }), 1);
      assert.ok(named(metrics, "cpu_seconds_total", { operation }) > 0);
    }
    assert.equal(metrics.value("starling_client_requests_total", { client: "web" }), 2);
  });

  it("count a shared or stored response for each operation, and its requests to subgraphs once", async () => {
    const router = await open({
      sharing: {}, cache: { enabled: true, subgraphs: { all: { ttl: "60s" } } },
    });
    await Promise.all(Array.from({ length: 4 }, () => send(router, "query Slow { slow }")));
    await send(router, "query Slow { slow }");
    const metrics = await scrape(router);
    const slow = { operation: "Slow", kind: "query" };
    assert.equal(named(metrics, "requests_total", slow), 5);
    assert.equal(named(metrics, "subgraph_requests_total", slow), 1);
    const plans = (result) => named(metrics, "plan_lookups_total", { ...slow, result }) ?? 0;
    assert.equal(plans("hit") + plans("miss"), 5);
    assert.equal(plans("miss"), 1, "the first one prepares it, and the others wait");
    const responses = (result) => named(metrics, "response_lookups_total", { ...slow, result }) ?? 0;
    assert.deepEqual([responses("hit"), responses("stale"), responses("miss")], [1, 0, 4]);
    assert.equal(named(metrics, "shared_total", slow), 3);
  });

  it("keep the names in use, and stay small, whatever names clients make up", async () => {
    const router = await open({ metrics: { operations: { max: 20 }, clients: { max: 10 } } });
    const inUse = ["One", "Two", "Three"];
    // The made-up names come first and fill both tables.
    for (let round = 0; round < 40; round += 1) {
      const madeUp = Array.from({ length: 25 }, (_, index) =>
        send(router, `query Made_${round}_${index} { products { id } }`, {
          "graphql-client-name": `made up "${round}" \\ ${index}`,
        }));
      await Promise.all(madeUp);
      await Promise.all(inUse.map((name) => send(router, `query ${name} { products { id } }`, WEB)));
    }
    const metrics = await scrape(router);
    assert.equal(metrics.all("starling_named_operation_requests_total").length, 21);
    assert.equal(metrics.all("starling_client_requests_total").length, 11);
    assert.equal(metrics.sum("starling_named_operation_requests_total"), 1_120, "nothing is lost");
    assert.equal(metrics.sum("starling_client_requests_total"), 1_120);
    // The first uses were counted as `other`, until the names had a row.
    for (const operation of inUse) {
      assert.ok(named(metrics, "requests_total", { operation }) >= 30, `${operation}:\n${metrics.text}`);
    }
    assert.ok(metrics.value("starling_client_requests_total", { client: "web" }) >= 100);
    assert.ok(metrics.value("starling_metrics_names_replaced_total", { table: "operations" }) >= 3);
  });

  it("leave all metrics small and quick to read when each place is taken by a long name", async () => {
    const router = await open();
    const long = (number) => `${"N".repeat(56)}${String(number).padStart(8, "0")}`;
    for (let number = 0; number < 600; number += 20) {
      await Promise.all(Array.from({ length: 20 }, (_, index) =>
        send(router, `query ${long(number + index)} { products { name reviews } broken }`, {
          "graphql-client-name": long(number + index), "graphql-client-version": "9".repeat(32),
        })));
    }
    const taken = await scrape(router);
    for (const [table, places] of [["operations", 500], ["clients", 200]]) {
      assert.equal(taken.value("starling_metrics_names", { table }), places);
    }
    const times = [];
    for (let count = 0; count < 20; count += 1) {
      const began = performance.now();
      const text = await (await fetch(`${router.admin}/metrics`)).text();
      times.push(performance.now() - began);
      assert.ok(text.length < 5_000_000, `${text.length}`);
    }
    // The shortest time is that without other work of the machine.
    assert.ok(Math.min(...times) < 100, `${times} ms`);
  });

  it("have series of the 500 most used of 600 operations, and all others are `other`", async () => {
    const router = await open();
    const PLACES = 500;
    // They come first and take places, of which the operations that come last have to get some.
    const rare = Array.from({ length: 100 }, (_, index) => `Rare${index}`);
    const early = Array.from({ length: PLACES - rare.length }, (_, index) => `Early${index}`);
    const late = Array.from({ length: rare.length }, (_, index) => `Late${index}`);
    const sent = new Map();
    async function sendEach(names) {
      for (let from = 0; from < names.length; from += 20) {
        await Promise.all(names.slice(from, from + 20).map(async (name) => {
          sent.set(name, (sent.get(name) ?? 0) + 1);
          const { status } = await send(router, `query ${name} { products { id } }`, { "graphql-client-name": name });
          assert.equal(status, 200);
        }));
      }
    }
    const REQUESTS = "starling_named_operation_requests_total";
    await sendEach(rare);
    for (let round = 0; round < 4; round += 1) await sendEach([...early, ...late]);
    // A place changes hands at most every 5 ms, so it takes further requests until all of them have one.
    let metrics, waiting;
    for (let round = 0; round < 50; round += 1) {
      metrics = await scrape(router);
      waiting = late.filter((operation) => metrics.value(REQUESTS, { operation }) === undefined);
      if (waiting.length === 0) break;
      await sendEach(waiting);
    }
    assert.deepEqual(waiting, []);

    const series = metrics.all(REQUESTS);
    const names = series.map(({ labels }) => labels.operation);
    assert.deepEqual(names.toSorted(), [...early, ...late, "other"].toSorted());
    for (const operation of early) assert.equal(metrics.value(REQUESTS, { operation }), sent.get(operation), operation);
    for (const operation of late) {
      const counted = metrics.value(REQUESTS, { operation });
      assert.ok(counted > 0 && counted < sent.get(operation), `${operation}: ${counted} of ${sent.get(operation)}`);
    }
    const all = [...sent.values()].reduce((sum, count) => sum + count, 0);
    const own = series.filter(({ labels }) => labels.operation !== "other").reduce((sum, it) => sum + it.value, 0);
    assert.equal(metrics.value(REQUESTS, { operation: "other" }), all - own);
    for (const name of [REQUESTS, "starling_named_operation_duration_seconds_count",
      "starling_client_requests_total", "starling_client_duration_seconds_count"]) {
      assert.equal(metrics.sum(name), all, name);
    }
    assert.equal(metrics.sum("starling_named_operation_subgraph_requests_total"), all);
    assert.equal(metrics.all("starling_client_requests_total").length, 201);
    assert.equal(metrics.value("starling_metrics_names", { table: "operations" }), PLACES);
    assert.ok(metrics.value("starling_metrics_names_replaced_total", { table: "operations" }) >= late.length);
  });

  it("can be turned off", async () => {
    const router = await open({ metrics: { operations: { max: 0 }, clients: { max: 0 } } });
    await send(router, "query Top { products { name } }", WEB);
    const metrics = await scrape(router);
    assert.doesNotMatch(metrics.text, /starling_named_operation|starling_client_|starling_metrics_names/);
  });
});

describe("metrics of operations on WebSockets", () => {
  let subgraphs, router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        websocket: { init_payload_headers: ["graphql-client-name"] },
        subscriptions: { max_topics_per_connection: 1 },
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  it("count queries and opened subscriptions", async () => {
    const socket = openSocket(router, { "graphql-client-name": "tv" });
    await socket.subscribe("query All { flights { number } }").next();
    const moves = socket.subscribe(SUBSCRIPTION);
    await repeatUntil(
      moves.next(), () => router.publish("memory/default", "flights.moved", event("1", 5)), "an event",
    );
    const metrics = await scrape(router);
    const subscribed = { operation: "Moves", kind: "subscription" };
    assert.equal(metrics.value("starling_named_operation_requests_total", subscribed), 1, "events are no requests");
    assert.equal(metrics.value("starling_named_operation_requests_total", { operation: "All", kind: "query" }), 1);
    assert.equal(metrics.value("starling_client_requests_total", { client: "tv" }), 2);
    await socket.dispose();
  });

  it("count a refused subscription once, with its code", async () => {
    const socket = openSocket(router, { "graphql-client-name": "radio" });
    const query = SUBSCRIPTION.replace("Moves", "Heard");
    const { error } = await Promise.race([query, query].map((it) => socket.subscribe(it).ended()));
    assert.equal(error[0].extensions.code, "OVERLOADED");
    const metrics = await scrape(router);
    const heard = { operation: "Heard", kind: "subscription" };
    const code = "OVERLOADED";
    assert.equal(metrics.value("starling_named_operation_requests_total", heard), 2);
    assert.equal(metrics.value("starling_named_operation_errors_total", { ...heard, code }), 1);
    assert.equal(metrics.value("starling_client_requests_total", { client: "radio" }), 2);
    assert.equal(metrics.value("starling_client_errors_total", { client: "radio", code }), 1);
    assert.equal(metrics.value("starling_operations_refused_total", { code }), 1);
    assert.equal(metrics.value("starling_operations_total", { kind: "subscription", outcome: "errors" }), 0);
    await socket.dispose();
  });
});

// The console on the admin listener: its data and its pages show the figures of a known load.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { assertAccessible } from "../accessibility.mjs";
import { SUBSCRIPTION, event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { browserForTests, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import { cells, readConsole, rowOf, updated } from "../console_api.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { readProfile } from "../pprof.mjs";
import { freePort, startServe } from "../router.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const SECRET = "hunter2-in-a-literal";
const BOARD = `query Board { flights { number to { city } } }`;
const WITH_LITERAL = `query One { flight(id: "${SECRET}") { number } }`;
const WEB = { "graphql-client-name": "web", "graphql-client-version": "1.2.3" };

/** A request is slow from this time on, which a subgraph that does not respond exceeds. */
const SLOW_MS = 200;

describe("the console", () => {
  const keep = closeAfterEach();
  let subgraphs, router;

  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        admin: { console: { recorder: { enabled: true, slow: `${SLOW_MS}ms` } } },
        cost: { mode: "measure" },
      },
    });
    // The load that all tests know: 6 queries with two requests to subgraphs each, one with a literal, one that takes
    // long, and 3 that are refused.
    for (let times = 0; times < 6; times += 1) await send(BOARD, WEB);
    await send(WITH_LITERAL, { "graphql-client-name": "mobile" });
    for (let times = 0; times < 3; times += 1) await send("query Wrong { unknown }");
    subgraphs.pause();
    const slow = send("query Waiting { airports { name } }");
    await pause(2 * SLOW_MS);
    subgraphs.resume();
    await slow;
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  async function send(query, headers = {}) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query }),
    });
    return response.json();
  }

  const api = (name, parameters, options) => readConsole(router, name, parameters, options);

  const publish = (altitude) => router.publish("memory/default", "flights.moved", event("1", altitude));

  /** Subscribes over a WebSocket until the end of the test, and waits for an event. */
  async function follow() {
    const moves = keep(openSocket(router, {})).subscribe(SUBSCRIPTION);
    await repeatUntil(moves.next(), () => publish(5), "an event");
    return moves;
  }

  /** Subscribes to one group over two WebSockets and a stream, and to another one over a stream. */
  async function followByTransports() {
    for (let times = 0; times < 2; times += 1) await follow();
    const streams = keep(openStreams(router));
    for (const query of [SUBSCRIPTION, "subscription Ticker { flightMoved { id } }"]) {
      await repeatUntil(streams.subscribe(query).next(), () => publish(5), "an event");
    }
    // The subscribers of earlier tests leave in a moment.
    await eventually(async () => (await api("live")).body.subscribers === 4, "four subscribers");
  }

  const sum = (column) => column.reduce((sum, it) => sum + (it ?? 0), 0);

  describe("has data", () => {
    it("about the last hour of the router and its subgraphs", async () => {
      const { status, body } = await api("overview");
      assert.equal(status, 200);
      const { series, seconds, minute, subgraphs: rows, problems, providers } = body;
      assert.equal(sum(series.requests), 11);
      assert.equal(sum(series.errors), 3);
      assert.deepEqual(
        [series.requests.length, series.memory.length, series.latency.p99.length],
        [seconds.length, seconds.length, seconds.length],
      );
      assert.ok(series.memory.at(-1) > 1e6 && sum(series.cpu) > 0, JSON.stringify(series));
      assert.ok(Math.max(...series.latency.p99) >= SLOW_MS / 1_000, JSON.stringify(series.latency));
      // Times without requests have no quantiles.
      const quantiles = seconds
        .map((_, at) => ["p50", "p90", "p99"].map((name) => series.latency[name][at]))
        .filter(([p50]) => p50 !== null);
      assert.ok(
        quantiles.length > 0 && quantiles.every(([p50, p90, p99]) => 0 < p50 && p50 <= p90 && p90 <= p99),
        JSON.stringify(series.latency),
      );
      // A test that runs longer than a minute has the same figures since the start.
      if (minute.seconds < 60) assert.deepEqual([minute.requests, minute.errors, minute.latency.count], [11, 3, 8]);
      const flights = rows.find((it) => it.name === "flights");
      assert.deepEqual([flights.requestsSinceStart, flights.breaker], [7, "closed"]);
      assert.deepEqual(problems, []);
      assert.deepEqual(
        providers.map(({ name, state }) => [name, state]),
        [["memory/default", "connected"]],
      );

      const one = await api("subgraph", { name: "airports" });
      assert.equal(sum(one.body.series.subgraphRequests), 7);
      assert.ok(one.body.series.subgraphLatency.p99.some((it) => it >= SLOW_MS / 1_000));
      assert.equal((await api("subgraph", { name: "unknown" })).status, 404);
    });

    it("about operations, their clients, plans and texts without values", async () => {
      const { body } = await api("operations");
      const board = body.operations.find((it) => it.name === "Board");
      assert.deepEqual([board.kind, board.requests, board.failed, board.subgraphRequests], ["query", 6, 0, 12]);
      // Only the first of six requests prepares the operation.
      assert.ok(Math.abs(board.hitRatios.plan - 5 / 6) < 1e-3, JSON.stringify(board.hitRatios));
      const web = body.clients.find((it) => it.name === "web");
      assert.deepEqual([web.requests, web.failed, web.subgraphRequests], [6, 0, 12]);
      // Of a response: three flights with an airport each, no flight, because there is none with that id, and three
      // airports.
      const costOf = (name) => body.operations.find((it) => it.name === name).costMean;
      assert.deepEqual(["Board", "One", "Waiting"].map(costOf), [6, 0, 3]);
      assert.equal(web.costMean, 6);
      assert.ok(web.latency.p50 > 0 && web.cpuSeconds > 0 && web.bytesMean > 0, JSON.stringify(web));

      const { body: one } = await api("operation", { name: "Board", kind: "query" });
      assert.deepEqual(one.clients, [{ name: "web", version: "1.2.3", requests: 6 }]);
      assert.equal(one.text, BOARD);
      assert.deepEqual(
        one.plan.fetches.map(({ subgraph, wave, dependsOn }) => [subgraph, wave, dependsOn]),
        [
          ["flights", 1, []],
          ["airports", 2, [0]],
        ],
      );
      for (const { measured } of one.plan.fetches) {
        assert.deepEqual([measured.requests, measured.samples], [6, 6]);
        assert.ok(measured.p50 > 0 && measured.p50 <= measured.p90, JSON.stringify(measured));
      }
      const { body: waiting } = await api("operation", { name: "Waiting", kind: "query" });
      const [{ measured }] = waiting.plan.fetches;
      assert.equal(measured.requests, 1);
      assert.ok(measured.p50 >= SLOW_MS / 1_000, JSON.stringify(measured));

      const secret = await api("operation", { name: "One", kind: "query" });
      assert.match(secret.body.text, /flight\(id: "…"\)/);
      assert.ok(!secret.text.includes(SECRET), secret.text);
      assert.equal((await api("operation", { name: "Unknown", kind: "query" })).status, 404);
    });

    it("about the graph: traffic between subgraphs, and fields with the operations that select them", async () => {
      const { body } = await api("graph");
      // The fetches of 6 + 1 queries for flights and of 1 query for airports, by way of what `Board` joins.
      const traffic = body.traffic.map(({ from, to, requests }) => `${from} > ${to}: ${requests}`);
      assert.deepEqual(traffic.toSorted(), ["flights > airports: 6", "null > airports: 1", "null > flights: 7"]);
      assert.deepEqual(body.subgraphs.map(({ name, kind }) => [name, kind]).toSorted(), [
        ["airports", "server"],
        ["events", "events"],
        ["flights", "server"],
      ]);
      const { body: type } = await api("type", { name: "Airport" });
      const city = type.fields.find((it) => it.name === "city");
      assert.deepEqual(
        [city.type, city.subgraphs, city.operationCount, city.operations],
        ["String!", ["airports"], 1, ["Board"]],
      );
      const { requests, clients, clientCount, lastUsed } = city.usage;
      assert.deepEqual([requests, clientCount], [6, 1]);
      assert.deepEqual(clients, [{ name: "web", version: "1.2.3", requests: 6 }]);
      assert.ok(Math.abs(lastUsed * 1_000 - Date.now()) < 600_000, String(lastUsed));
      const minutes = new Map(body.subgraphs.map(({ name, minute }) => [name, minute]));
      assert.equal(minutes.get("events"), null, "a subgraph of events has no server");
      assert.ok(minutes.get("flights").requestsSinceStart >= 7 && minutes.get("flights").breaker === "closed");
      assert.ok(body.minuteSeconds > 0);
      assert.equal((await api("type", { name: "Unknown" })).status, 404);
    });

    it("about traffic that was sent: preparing operations for a new graph is none", async () => {
      const supergraph = memorySupergraph();
      const target = keep(await startServe({ supergraph, config: { subgraphs: subgraphs.configuration } }));
      const graph = async () => (await readConsole(target, "graph")).body;
      const traffic = async () =>
        (await graph()).traffic.map(({ from, to, requests }) => `${from} > ${to}: ${requests}`).toSorted();
      for (let times = 0; times < 4; times += 1) await target.query(BOARD);
      assert.deepEqual(await traffic(), ["flights > airports: 4", "null > flights: 4"]);
      await writeFile(path.join(target.folder, "supergraph.graphql"), `${supergraph}\nscalar Added`);
      await eventually(async () => (await graph()).generation === 2, "the next graph");
      // The operation is prepared, with half of its uses to its credit.
      const { body: type } = await readConsole(target, "type", { name: "Airport" });
      assert.equal(type.fields.find(({ name }) => name === "city").operationCount, 1);
      assert.deepEqual(await traffic(), []);
      await target.query(BOARD);
      assert.deepEqual(await traffic(), ["flights > airports: 1", "null > flights: 1"]);
    });

    it("about requests that a condition has selected", async () => {
      const recorder = { enabled: true, slow: "1m", when: "operation.name == 'Picked' && client.name == 'web'" };
      const target = keep(await startServe({
        supergraph: memorySupergraph(),
        config: { subgraphs: subgraphs.configuration, admin: { console: { recorder } } },
      }));
      const sendAs = async (name, client) => {
        const response = await fetch(target.graphql, {
          method: "POST",
          headers: { "content-type": "application/json", "graphql-client-name": client },
          body: JSON.stringify({ query: `query ${name} { airports { name } }` }),
        });
        assert.equal(response.status, 200, await response.text());
      };
      await sendAs("NotPicked", "web");
      await sendAs("Picked", "mobile");
      await sendAs("Picked", "web");
      const traces = () => readConsole(target, "slow").then(({ body }) => body.traces);
      await eventually(async () => (await traces()).length > 0, "a trace");
      assert.deepEqual(
        (await traces()).map(({ operation, reason }) => [operation, reason]),
        [["Picked", "selected"]],
      );
    });

    it("about slow requests, with their steps", async () => {
      const { body } = await api("slow");
      // On a busy machine others are slow, too.
      const slow = body.traces.find((it) => it.operation === "Waiting");
      assert.deepEqual([slow.kind, slow.reason], ["query", "slow"]);
      assert.ok(slow.micros >= SLOW_MS * 1_000);
      const { body: trace } = await api("trace", { number: slow.number });
      const fetch = trace.spans.find((it) => it.name === "POST airports");
      assert.ok(fetch.micros >= SLOW_MS * 1_000 && fetch.micros <= trace.micros, JSON.stringify(trace));
      assert.equal(fetch.attributes["http.response.status_code"], 200);
      assert.equal((await api("trace", { number: 999_999 })).status, 404);
    });

    it("about slow events, from the message to the sockets", async () => {
      const recorder = { enabled: true, slow: "1ms" };
      const target = keep(await startServe({
        supergraph: memorySupergraph(),
        config: { subgraphs: subgraphs.configuration, admin: { console: { recorder } } },
      }));
      const moves = keep(openSocket(target, {})).subscribe(SUBSCRIPTION);
      const publishThere = () => target.publish("memory/default", "flights.moved", event("1", 5));
      await repeatUntil(moves.next(), publishThere, "an event");
      const slow = await eventually(async () => {
        await publishThere();
        const { traces } = (await readConsole(target, "slow")).body;
        return traces.find(({ name }) => name === "process flightMoved");
      }, "an event of more than a millisecond");
      assert.deepEqual([slow.operation, slow.kind, slow.reason], ["Moves", "subscription", "slow"]);
      const { spans } = (await readConsole(target, "trace", { number: slow.number })).body;
      const names = new Set(spans.map(({ name }) => name));
      for (const name of ["subscription Moves", "POST flights", "print", "broadcast"]) {
        assert.ok(names.has(name), `${name} among ${[...names]}`);
      }
    });

    it("about a broker that cannot be reached", async () => {
      const nats = [{ id: "default", url: `nats://127.0.0.1:${await freePort()}` }];
      const target = keep(await startServe({
        supergraph: memorySupergraph(),
        config: { subgraphs: subgraphs.configuration, events: { providers: { nats } } },
      }));
      const { problems, providers } = (await readConsole(target, "overview")).body;
      assert.deepEqual(
        problems.map(({ severity, kind, name }) => [severity, kind, name]),
        [["error", "provider", "nats/default"]],
      );
      assert.match(problems[0].text, /^The broker is (connecting|disconnected)\.$/);
      const states = new Map(providers.map(({ name, state }) => [name, state]));
      assert.equal(states.get("memory/default"), "connected");
      assert.notEqual(states.get("nats/default"), "connected");
    });

    it("about live subscriptions", async () => {
      await follow();
      const { body } = await api("live");
      const [trigger] = body.triggers;
      assert.match(trigger.id, /^\d+$/);
      assert.deepEqual(
        [trigger.provider, trigger.topics, trigger.subscribers, trigger.groups[0].operationName],
        ["memory/default", ["flights.moved"], 1, "Moves"],
      );
      const websocket = body.transports.find((it) => it.transport === "websocket");
      assert.deepEqual([websocket.streams, websocket.subscriptions], [1, 1]);
    });

    it("about the transports of each group", async () => {
      await followByTransports();
      const [trigger] = (await api("live")).body.triggers;
      assert.deepEqual(trigger.transports, [
        { transport: "websocket", subscribers: 2 },
        { transport: "sse", subscribers: 2 },
      ]);
      assert.deepEqual(
        trigger.groups.map(({ operationName, transports }) => [operationName, transports]),
        [
          ["Moves", [{ transport: "websocket", subscribers: 2 }, { transport: "sse", subscribers: 1 }]],
          ["Ticker", [{ transport: "sse", subscribers: 1 }]],
        ],
      );
    });

    it("that no page of another origin can change, and that has a policy for its own", async () => {
      const foreign = { method: "POST", headers: { origin: "https://evil.example" }, body: "{}" };
      const { status } = await api("publish", { provider: "memory/default", topic: "flights.moved" }, foreign);
      assert.equal(status, 403);
      assert.equal((await api("publish")).status, 405);
      assert.equal((await api("unknown")).status, 404);
      const page = await fetch(`${router.admin}/console`);
      assert.equal(page.url, `${router.admin}/console/`);
      assert.match(page.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'/);
    });

    it("for those with the token only, if there is one, and none if it is turned off", async () => {
      const token = "0123456789abcdef0123";
      const supergraph = memorySupergraph();
      const config = (console) => ({ subgraphs: subgraphs.configuration, admin: { console } });
      const closed = keep(await startServe({ supergraph, config: config({ token, path: "/ops/" }) }));
      const get = (headers) => fetch(`${closed.admin}/ops/api/overview`, { headers });
      const refused = await get({});
      assert.deepEqual([refused.status, refused.headers.get("starling-graphs")], [401, null]);
      assert.equal((await get({ authorization: "Bearer 0123456789abcdef0124" })).status, 401);
      const allowed = await get({ authorization: `Bearer ${token}` });
      assert.deepEqual([allowed.status, allowed.headers.get("starling-graphs")], [200, "default"]);
      assert.ok(!(await allowed.text()).includes(token));
      assert.ok(!closed.output().includes(token));
      const off = keep(await startServe({ supergraph, config: config({ enabled: false }) }));
      assert.equal((await fetch(`${off.admin}/console/`)).status, 404);
    });
  });

  describe("in a browser", { skip: skipWithoutBrowser() }, () => {
    const browser = browserForTests();

    const open = (address, { target = router, prefix = "/console/", ...options } = {}) =>
      browser.openPage(target.admin, prefix + address, options);

    it("the overview shows figures, charts that are read by keyboard, and the charts of a subgraph", async () => {
      const { page, problems, close } = await open("");
      await updated(page);
      await page.getByText("No subgraph or broker is unhealthy.").waitFor();
      assert.match(await page.locator("#now-memory").textContent(), /^[\d.]+ MiB$/);
      for (const tile of ["#now-p50", "#now-p99"]) {
        assert.match(await page.locator(tile).textContent(), /^[\d.]+ (µs|ms|s)$|^–$/);
      }
      const flights = await cells(rowOf(page, "Subgraphs, in the last minute", "flights"));
      // Events of other tests are joined with flights, too.
      const { requestsSinceStart } = (await api("subgraph", { name: "flights" })).body.subgraph;
      assert.deepEqual(
        [flights[0], flights[1], flights.at(-1)],
        ["flights", "healthy", String(requestsSinceStart)],
      );
      assert.match(await page.locator("#chart-memory path.line").getAttribute("d"), /^M/);
      const legend = await page.locator("#chart-latency .legend li").allTextContents();
      assert.deepEqual(legend.map((it) => it.split(" ")[0]), ["p50", "p90", "p99"]);
      for (const line of await page.locator("#chart-latency path.line").all()) {
        assert.match(await line.getAttribute("d"), /^M/);
      }

      await page.locator("#chart-memory .plot").focus();
      await page.keyboard.press("End");
      await page.locator("#chart-memory .at").filter({ hasText: "now" }).waitFor();
      assert.match(await page.locator("#chart-memory [aria-live]").textContent(), /^now: memory [\d.]+ MiB$/);
      await page.keyboard.press("Escape");

      await page.getByLabel("Filter subgraphs in").fill("airp");
      assert.equal(await page.locator("table").filter({ hasText: "Subgraphs" }).locator("tbody tr").count(), 1);
      await page.getByRole("button", { name: "airports" }).press("Enter");
      await page.locator("#subgraph-latency").waitFor();
      assert.equal(await page.evaluate(() => location.hash), "#overview/airports");
      assert.deepEqual(problems, []);
      await close();
    });

    it("the overview shows how many subscribers there are", async () => {
      await follow();
      const { page, problems, close } = await open("");
      // The subscribers of earlier tests leave in a moment.
      await page.locator("#now-subscribers").filter({ hasText: /^1$/ }).waitFor();
      assert.deepEqual(problems, []);
      await close();
    });

    it("the overview shows what fails and what is refused, and the recorder keeps what has failed", async () => {
      // Nothing listens at the address of airports. Of five operations with the limit, three are refused.
      const target = keep(await startServe({
        supergraph: memorySupergraph(),
        config: {
          subgraphs: { flights: subgraphs.configuration.flights },
          rate_limits: [{ name: "few", when: "operation.name == 'Limited'", rate: 2, per: "1h" }],
          admin: { console: { recorder: { enabled: true, slow: "1m" } } },
        },
      }));
      for (let times = 0; times < 12; times += 1) await target.query("query Broken { airports { name } }");
      for (let times = 0; times < 5; times += 1) await target.query("query Limited { flights { number } }");
      const { page, problems, close } = await open("", { target });
      const failing = /^subgraph airports .*failed in the last minute\.$/;
      await page.locator("#problems li").filter({ hasText: failing }).waitFor();
      assert.equal(await page.locator("#problems li").count(), 1);
      // 12 with errors and 3 refused ones, of 17.
      assert.equal(await page.locator("#now-errors").textContent(), "88 %");
      const caption = "Subgraphs, in the last minute";
      const flights = await cells(rowOf(page, caption, "flights"));
      const airports = await cells(rowOf(page, caption, "airports"));
      assert.deepEqual([flights[1], flights[3], flights.at(-1)], ["healthy", "0 %", "2"]);
      assert.notEqual(airports[1], "healthy");
      assert.notEqual(airports[3], "0 %");
      const refused = await cells(rowOf(page, "Refused or dropped in the last minute", "rate limit: few"));
      assert.deepEqual(refused, ["rate limit: few", "3"]);
      await assertAccessible(page);
      await takePicture(page, "console-overview-problems");

      await page.getByRole("link", { name: "Slow requests" }).click();
      const broken = await cells(rowOf(page, "Slow, failed and selected requests", "Broken"));
      assert.deepEqual([broken[0], broken[3]], ["query Broken", "failed"]);
      const { traces } = (await readConsole(target, "slow")).body;
      assert.deepEqual(traces.map(({ operation }) => operation), Array(12).fill("Broken"));
      assert.deepEqual(problems, []);
      await close();
    });

    it("operations are sorted by their columns, and one is shown with its plan as a drawing", async () => {
      const { page, problems, close } = await open("#operations");
      await updated(page);
      const board = await cells(rowOf(page, "Operations", "Board"));
      assert.deepEqual(board.slice(0, 4), ["Board", "query", "6", "0 %"]);
      const names = () => page.locator("table").first().locator("tbody th").allTextContents();
      assert.equal((await names())[0], "Board", "the most used one is first");
      await page.getByRole("button", { name: "Operation", exact: true }).click();
      assert.deepEqual(
        await names(),
        (await names()).toSorted((a, b) => a.localeCompare(b)),
      );
      assert.equal(board[8], "6", "the mean cost");
      await page.locator("table").first().getByRole("button", { name: "Cost", exact: true }).click();
      const byCost = await names();
      assert.equal(byCost[0], "Board", "the dearest one is first");
      assert.ok(byCost.indexOf("Waiting") < byCost.indexOf("One"), byCost.join());

      await page.getByRole("button", { name: "Board" }).click();
      await page.locator(".plan svg .node").nth(1).waitFor();
      assert.deepEqual(await page.locator(".plan svg .name").allTextContents(), ["flights", "airports"]);
      assert.equal(await page.locator(".plan svg .edge").count(), 1);
      for (const text of await page.locator(".plan svg .times").allTextContents()) {
        assert.match(text, /^p50 [\d.]+ (µs|ms|s), p90 [\d.]+ (µs|ms|s)$/);
      }
      assert.match(await page.locator(".plan summary").first().textContent(), /\(wave 1\), 6 requests, p50 /);
      // The drawing stays while its times change.
      await page.locator(".plan svg").evaluate((drawing) => drawing.setAttribute("data-kept", "yes"));
      await send(BOARD, WEB);
      await page.locator(".plan summary").filter({ hasText: ", 7 requests, p50 " }).first().waitFor();
      assert.equal(await page.locator(".plan svg[data-kept]").count(), 1);
      await page.getByText("2 fetches in 2 waves.").waitFor();
      await page.locator(".plan svg .node").nth(1).click();
      await page.locator(".plan details[open] pre").filter({ hasText: "_entities" }).waitFor();
      assert.match(await page.locator("#operation-text").textContent(), /^query Board \{\n {2}flights \{\n/);
      assert.deepEqual(await cells(rowOf(page, "Clients of the operation", "web")), ["web", "1.2.3", "7"]);
      assert.deepEqual(problems, []);
      await close();
    });

    it("two clients whose joined names are equal have a row each", async () => {
      for (const [name, version] of [
        ["a b", "c"],
        ["a", "b c"],
      ]) {
        await send("query Names { airports { code } }", {
          "graphql-client-name": name,
          "graphql-client-version": version,
        });
      }
      const { page, problems, close } = await open("#operations/query%2FNames");
      await updated(page);
      const rows = page.locator("table").filter({ hasText: "Clients of the operation" }).locator("tbody tr");
      await rows.nth(1).waitFor();
      const shown = await Promise.all((await rows.all()).map(cells));
      assert.deepEqual(shown.toSorted(), [
        ["a b", "c", "1"],
        ["a", "b c", "1"],
      ]);
      assert.deepEqual(problems, []);
      await close();
    });

    it("the graph is a drawing of the traffic, and shows the fields of a type", async () => {
      const { page, problems, close } = await open("#graph");
      await updated(page);
      assert.deepEqual((await page.locator("svg .name").allTextContents()).toSorted(), [
        "airports",
        "clients",
        "flights",
      ]);
      const { traffic } = (await api("graph")).body;
      const labels = traffic.map(({ requests }) => String(requests));
      assert.deepEqual((await page.locator("svg .flow").allTextContents()).toSorted(), labels.toSorted());
      const { requests } = traffic.find(({ from, to }) => from === "flights" && to === "airports");
      assert.ok(requests >= 6);
      const row = await cells(rowOf(page, "Traffic", "flightsairports"));
      assert.deepEqual(row.slice(0, 3), ["flights", "airports", String(requests)]);
      for (const text of await page.locator("svg .node .times").allTextContents()) {
        assert.match(text, /^[\d.]+ % failed$/);
      }
      await page.getByRole("button", { name: "Airport", exact: true }).click();
      const city = await cells(rowOf(page, "Fields of Airport", "city"));
      assert.deepEqual(city.slice(0, 3), ["city", "String!", "airports"]);
      assert.match(city[4], /web 1\.2\.3 \(\d+\)/);
      assert.match(city[7], /Board/);
      await send(BOARD, WEB);
      // The next update knows the rate.
      await page.locator("svg .rate").filter({ hasText: /^[\d.]+\/s$/ }).first().waitFor();
      await page.getByText("The graph has not changed since the start.").waitFor();
      assert.deepEqual(problems, []);
      await close();
    });

    it("the graph shows what the last reload has changed", async () => {
      const supergraph = memorySupergraph();
      const target = keep(await startServe({ supergraph, config: { subgraphs: subgraphs.configuration } }));
      const { page, problems, close } = await open("#graph", { target });
      await page.getByText("The graph has not changed since the start.").waitFor();
      const known = "airports: [Airport!]! @join__field(graph: AIRPORTS)";
      const next = supergraph.replace(known, `${known}\n  hubs: [Airport!]! @join__field(graph: AIRPORTS)`);
      assert.notEqual(next, supergraph);
      await writeFile(path.join(target.folder, "supergraph.graphql"), next);
      await page.locator("#reload li").filter({ hasText: /^added: Query\.hubs$/ }).waitFor();
      assert.equal(await page.locator("#reload li").count(), 1);
      await page.getByText(/^Graph 2: 3 subgraphs, /).waitFor();
      assert.deepEqual(problems, []);
      await close();
    });

    it("live data shows the way of events with rates", async () => {
      await follow();
      const { page, problems, close } = await open("#live");
      await updated(page);
      await page.getByText("1 subscriber in 1 group on 1 trigger.").waitFor();
      assert.deepEqual(await page.locator("svg .name").allTextContents(), [
        "Moves",
        "flights.moved",
        "memory/default",
        "websocket",
      ]);
      assert.equal((await cells(rowOf(page, "Groups of equal subscribers", "Moves")))[2], "1");
      // A rate is known from the second update on.
      await eventually(async () => {
        await publish(6);
        return /\(0\.\d+\/s\)|\([1-9][\d.]*\/s\)/.test(
          (await cells(rowOf(page, "Providers", "memory/default")))[2],
        );
      }, "a rate");
      assert.deepEqual(problems, []);
      await takePicture(page, "console-live-subscribed");
      await close();
    });

    it("live data joins each group with the transports of its subscribers, with their numbers", async () => {
      await followByTransports();
      const { page, problems, close } = await open("#live");
      await updated(page);
      await page.getByText("4 subscribers in 2 groups on 1 trigger.").waitFor();
      const arrows = await page.locator("svg .edge title").allTextContents();
      assert.deepEqual(arrows.filter((it) => / to (websocket|sse)/.test(it)).sort(), [
        "Moves to sse: 1 subscriber",
        "Moves to websocket: 2 subscribers",
        "Ticker to sse: 1 subscriber",
      ]);
      assert.deepEqual((await page.locator("svg .flow").allTextContents()).sort(), ["1", "1", "2"]);
      const moves = await cells(rowOf(page, "Groups of equal subscribers", "Moves"));
      assert.deepEqual([moves[2], moves[3]], ["3", "websocket (2), sse (1)"]);
      await assertAccessible(page);
      await takePicture(page, "console-live-transports");
      assert.deepEqual(problems, []);
      await close();
    });

    it("a slow request is shown as a waterfall", async () => {
      const { page, problems, close } = await open("#slow");
      await updated(page);
      const row = await cells(rowOf(page, "Slow, failed and selected requests", "Waiting"));
      assert.deepEqual([row[0], row[3]], ["query Waiting", "slow"]);
      await page.getByRole("button", { name: "query Waiting" }).click();
      const fetch = page.locator(".waterfall li").filter({ hasText: "POST airports" });
      await fetch.locator("summary").click();
      await fetch.getByText("starling.subgraph").waitFor();
      const track = await fetch.locator(".track").boundingBox();
      const bar = await fetch.locator(".span").boundingBox();
      assert.ok(bar.width > track.width / 2, "nearly all of the time is spent on the subgraph");
      assert.deepEqual(problems, []);
      await takePicture(page, "console-waterfall");
      await close();
    });

    it("tools publish events, explain plans, and change the level of the log for some minutes", async () => {
      const moves = await follow();
      const { page, problems, close } = await open("#tools");
      await updated(page);
      await page.getByLabel("Topic").fill("flights.moved");
      await page.locator("#publish textarea").fill(JSON.stringify(event("3", 777)));
      await page.locator("#publish button").press("Enter");
      await page.getByText("Published.").waitFor();
      await eventually(async () => (await moves.next()).data.flightMoved.altitude === 777, "the event");

      await page.locator("#explain textarea").fill(BOARD);
      await page.locator("#explain button").click();
      await page.locator("#explained svg .node").nth(1).waitFor();
      assert.deepEqual(await page.locator("#explained svg .name").allTextContents(), ["flights", "airports"]);
      await page.locator("#explain textarea").fill("{ unknown }");
      await page.locator("#explain button").click();
      await page.locator("#explain output.bad").filter({ hasText: "unknown" }).waitFor();

      await page.locator("#log button").click();
      await page.getByText("The log has the level debug for another 5 minutes.").waitFor();
      await eventually(
        () => router.output().includes("an operator changes the level of the log"),
        "a line in the log",
      );
      await page.locator("#log select").selectOption("error");
      await page.locator("#log button").click();
      await page.getByText("The log has the level error for another 5 minutes.").waitFor();
      await eventually(
        () => router.output().split("an operator changes the level of the log").length === 3,
        "a line about the level that hides it",
      );
      await page.locator("#log select").selectOption("configured");
      await page.locator("#log button").click();
      await page.getByText("The log has its configured level.").waitFor();
      // The browser reports the response with status 400.
      assert.deepEqual(
        problems.filter((it) => !it.includes("400 (Bad Request)")),
        [],
      );
      await close();
    });

    it("a profile is saved under the name that the router gives it, or its refusal is shown", async () => {
      const config = { subgraphs: subgraphs.configuration, admin: { profiling: true } };
      const target = keep(await startServe({ supergraph: memorySupergraph(), config }));
      const { page, close } = await open("#tools", { target });
      await updated(page);
      // No test starts the router with the heap profiler.
      const refusal = await fetch(`${target.admin}/debug/pprof/heap`);
      assert.ok(refusal.status >= 400, String(refusal.status));
      const reason = (await refusal.text()).trim();
      assert.ok(reason.length > 10, reason);
      await page.locator("#heap-profile button").click();
      await page.locator("#heap-profile output.bad").filter({ hasText: reason }).waitFor();
      await page.route("**/debug/pprof/heap", (route) =>
        route.fulfill({
          status: 200,
          headers: { "content-disposition": 'attachment; filename="starling-heap.pb"' },
          body: "a profile",
        }),
      );
      const [saved] = await Promise.all([
        page.waitForEvent("download"),
        page.locator("#heap-profile button").click(),
      ]);
      assert.equal(saved.suggestedFilename(), "starling-heap.pb");
      await page.getByText("Saved as starling-heap.pb.").waitFor();
      await close();
    });

    it("a CPU profile is saved as a file that pprof reads", async () => {
      const config = { subgraphs: subgraphs.configuration, admin: { profiling: true } };
      const target = keep(await startServe({ supergraph: memorySupergraph(), config }));
      const { page, close } = await open("#tools", { target });
      await updated(page);
      const button = page.locator("#cpu-profile button");
      const probe = await fetch(`${target.admin}/debug/pprof/profile?seconds=1`);
      if (probe.status === 501) {
        // The build or the system has no profiler.
        const reason = (await probe.text()).trim();
        await button.click();
        await page.locator("#cpu-profile output.bad").filter({ hasText: reason }).waitFor();
        return close();
      }
      assert.equal(probe.status, 200);
      await probe.arrayBuffer();

      const SECONDS = 2;
      const asked = [];
      await page.route("**/debug/pprof/profile?*", (route) => {
        const url = new URL(route.request().url());
        asked.push(url.search);
        url.searchParams.set("seconds", String(SECONDS));
        return route.continue({ url: url.href });
      });
      // Only a busy router has samples.
      let isOver = false;
      const load = (async () => {
        while (!isOver) await target.query(BOARD);
      })();
      let saved;
      try {
        [saved] = await Promise.all([page.waitForEvent("download"), button.click()]);
      } finally {
        isOver = true;
        await load;
      }
      assert.deepEqual(asked, ["?seconds=30"], "as the button says");
      assert.equal(saved.suggestedFilename(), "starling-profile.pb");
      await page.getByText("Saved as starling-profile.pb.").waitFor();
      const { types, samples, seconds } = readProfile(await readFile(await saved.path()));
      assert.deepEqual(types, ["samples count", "cpu nanoseconds"]);
      assert.ok(seconds >= SECONDS && seconds < 30, `${seconds} s`);
      assert.ok(samples.length > 0 && samples.every(({ values }) => values.every((value) => value > 0)));
      const threads = new Set(samples.map(({ thread }) => thread));
      assert.ok([...threads].some((name) => name.startsWith("worker-")), `threads: ${[...threads]}`);
      const functions = new Set(samples.flatMap(({ stack }) => stack));
      assert.ok([...functions].some((name) => name.includes("::")), `functions: ${[...functions].slice(0, 20)}`);
      await close();
    });

    it("asks for the token, and keeps it for the pages of one window", async () => {
      const token = "0123456789abcdef0123";
      const config = { subgraphs: subgraphs.configuration, admin: { console: { token, path: "/ops" } } };
      const target = keep(await startServe({ supergraph: memorySupergraph(), config }));
      const { page, close } = await open("", { target, prefix: "/ops/" });
      await page.getByLabel("Token").fill("wrong");
      await page.keyboard.press("Enter");
      await page.getByText("The token is missing or wrong.").waitFor();
      await page.getByLabel("Token").fill(token);
      await page.keyboard.press("Enter");
      await updated(page);
      await page.reload();
      await updated(page);
      assert.ok(await page.locator("#login").isHidden());
      await close();
    });

    it("has dark and light colours, which a person can choose", async () => {
      const { page, close } = await open("", { colorScheme: "dark" });
      const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      await updated(page);
      assert.equal(await background(), "rgb(17, 20, 23)");
      await page.locator("#theme").selectOption("light");
      assert.equal(await background(), "rgb(246, 247, 248)");
      await page.reload();
      assert.equal(await background(), "rgb(246, 247, 248)");
      await close();
    });

    for (const name of [
      "overview",
      "operations",
      "operations/query%2FBoard",
      "graph",
      "graph/Airport",
      "live",
      "slow",
      "slow/1",
      "tools",
    ]) {
      for (const [width, colorScheme] of [
        [1280, "light"],
        [390, "dark"],
      ]) {
        it(`${name} fits into ${width} pixels, and is accessible in ${colorScheme} colours`, async () => {
          const { page, problems, close } = await open(`#${name}`, { width, colorScheme });
          await updated(page);
          await assertAccessible(page);
          const file = `console-${name.replaceAll(/[^a-z]/gi, "-")}-${width}-${colorScheme}`;
          const picture = await takePicture(page, file);
          assert.equal(picture.width, width);
          assert.deepEqual(problems, []);
          await close();
        });
      }
    }
  });
});

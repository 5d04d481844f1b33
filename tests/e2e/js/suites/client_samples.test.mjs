// The samples of resuming clients in docs/, unchanged: each must receive every event of a stored stream, in order,
// while the router is killed, drained and restarted.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile, readdir, mkdtemp, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { after, before, describe, it } from "node:test";
import { connect } from "nats";
import { chromium } from "playwright-core";
import { event, jetStreamSupergraph, startSubgraphs } from "../board.mjs";
import { adopt } from "../children.mjs";
import { blocksOf } from "../documentation/blocks.mjs";
import "../documentation/preload.mjs";
import { startNats } from "../nats.mjs";
import * as programs from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const DOCUMENTATION = path.join(import.meta.dirname, "../documentation");

/** Numbered events. The router is killed after a quarter of them, drained after half, killed after three quarters. */
const EVENTS = 200;

/** How often the router ends, and with it every connection. */
const RECONNECTIONS = 3;

/** Time until all clients have reconnected and received everything, on a busy machine. */
const PASSING_MS = 120_000;

/** Samples that other samples import, and the samples that are run instead. */
const MODULES = new Set(["resume.js"]);
/** Samples that need a program around them: a file of `documentation/`. */
const DRIVERS = { "environment.js": "relay_driver.mjs" };

/** Blocks of all pages with `setup=resume`. A block without a file name uses that of its page. */
const samples = [];
for (const name of (await readdir(path.join(ROOT, "docs"))).filter((file) => file.endsWith(".md")).sort()) {
  const blocks = blocksOf(await readFile(path.join(ROOT, "docs", name), "utf8"), `docs/${name}`);
  samples.push(...blocks.filter((block) => block.annotation.setup === "resume").map((block) => ({
    ...block, file: block.annotation.file ?? `${path.parse(name).name}_${block.line}.js`,
  })));
}
const names = samples.map((block) => block.file).filter((name) => !MODULES.has(name));
/** The same sample with another option, because the page says that both work. */
const VARIANTS = { "graphql_sse_single.js": ["graphql_sse.js", "singleConnection: false", "singleConnection: true"] };

describe("client samples", { skip: programs.skipWithout(programs.natsServer, "nats-server") }, () => {
  let subgraphs;
  let nats;
  let publisher;
  let router;
  let browser;
  let folder;
  const clients = new Map();

  const start = (ports) => startServe({
    supergraph: jetStreamSupergraph(),
    ports,
    config: {
      subgraphs: subgraphs.configuration,
      // The same key for each router that replaces another one.
      cursor: { keys: ["a key of more than 16 bytes"], heartbeat: "1s" },
      events: { providers: { nats: [{ id: "default", url: nats.url }] } },
    },
  });

  const publish = (number) => publisher.jetstream().publish("flights.moved", JSON.stringify(event("1", number)));

  before(async () => {
    [subgraphs, nats] = await Promise.all([startSubgraphs(), startNats(-1, { stores: true })]);
    publisher = await connect({ servers: nats.url });
    await (await publisher.jetstreamManager()).streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
    router = await start();
    await startClients();
    await playEvents();
  });
  after(async () => {
    for (const client of clients.values()) client.child?.kill("SIGKILL");
    await browser?.close();
    await publisher?.close();
    await router?.stop();
    await nats?.stop();
    await subgraphs?.stop();
  });

  /** Every sample runs in its own process; that of EventSource in a page of a browser. */
  async function startClients() {
    folder = await mkdtemp(path.join(tmpdir(), "starling-clients-"));
    await writeFile(path.join(folder, "package.json"), '{"type": "module"}');
    await symlink(path.join(DOCUMENTATION, "../node_modules"), path.join(folder, "node_modules"));
    const texts = new Map(samples.map((block) => [block.file, block.text]));
    for (const [name, [original, from, to]] of Object.entries(VARIANTS)) {
      const text = texts.get(original);
      assert.ok(text.includes(from), `${original} has ${from}`);
      texts.set(name, text.replace(from, to));
    }
    for (const [name, text] of texts) {
      const here = text.replaceAll("127.0.0.1:4000", `127.0.0.1:${router.ports.graphql}`);
      await writeFile(path.join(folder, name), here);
      if (MODULES.has(name)) continue;
      if (name === "event_source.js") await startPage(name, here);
      else startProcess(name);
    }
  }

  const newClient = (name) => {
    const client = { numbers: [], output: "", child: null };
    clients.set(name, client);
    return client;
  };

  /** A sample prints an event as `{ id: '1', altitude: 7 }` or the same as JSON. */
  const addOutput = (client, text) => {
    client.output += text;
    client.numbers = [...client.output.matchAll(/altitude"?: ?(\d+)/g)].map(([, number]) => Number(number));
  };

  function startProcess(name) {
    const file = DRIVERS[name] ? path.join(DOCUMENTATION, DRIVERS[name]) : path.join(folder, name);
    const client = newClient(name);
    client.child = spawn(
      process.execPath, ["--import", path.join(DOCUMENTATION, "preload.mjs"), file, path.join(folder, name)],
      { cwd: folder, stdio: ["ignore", "pipe", "pipe"] },
    );
    adopt(client.child, folder);
    for (const stream of [client.child.stdout, client.child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => addOutput(client, text));
    }
  }

  async function startPage(name, text) {
    if (!programs.chromium()) return;
    browser = await chromium.launch({
      executablePath: programs.chromium(),
      args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"],
    });
    const tab = await browser.newPage();
    const client = newClient(name);
    tab.on("console", async (message) => {
      const values = await Promise.all(message.args().map((value) => value.jsonValue().catch(() => "?")));
      addOutput(client, `${values.map((value) => JSON.stringify(value)).join(" ")}\n`);
    });
    // Any page of the router's origin.
    await tab.goto(router.graphql);
    await tab.evaluate(`(() => {${text}})()`);
  }

  async function playEvents() {
    const everyone = [...clients.values()];
    const has = (number) => () => everyone.every((client) => client.numbers.includes(number));
    /**
     * Returns whether the condition was met in time. If not, the tests below report which client has missed which
     * event.
     */
    const wait = (condition, what) => eventually(condition, what, PASSING_MS).then(() => true, (error) => {
      assert.ok(error.message.startsWith("waited"), error.message);
      return false;
    });
    // No protocol reports when a subscription has started: 0 is published until each client has received it.
    const haveBegun = await wait(async () => {
      await publish(0);
      return has(0)();
    }, "the first event of each client");
    if (!haveBegun) return;
    for (let number = 1; number <= EVENTS; number += 1) {
      await publish(number);
      const signal = { [EVENTS / 4]: "SIGKILL", [EVENTS / 2]: "SIGTERM", [(3 * EVENTS) / 4]: "SIGKILL" }[number];
      if (!signal) continue;
      // Each client has received part of the stream and now misses events.
      if (!await wait(has(number), `event ${number} at each client`)) return;
      const { ports } = router;
      await router.kill(signal);
      await publish(number += 1);
      router = await start(ports);
    }
    await wait(has(EVENTS), "the last event at each client");
  }

  for (const name of [...names, ...Object.keys(VARIANTS)]) {
    const needsBrowser = name === "event_source.js" && programs.skipWithout(programs.chromium, "chromium");
    it(`${name} receives every event in order while its router is killed and drained`, { skip: needsBrowser }, () => {
      const { numbers, output } = clients.get(name);
      const distinct = [...new Set(numbers)];
      const expected = Array.from({ length: EVENTS + 1 }, (_, number) => number);
      assert.deepEqual(distinct, expected, `${name} printed\n${output.slice(-3_000)}`);
      // A result may have been sent but not stored by the client when a connection is lost.
      const repeated = numbers.filter((number) => number > 0).length - EVENTS;
      assert.ok(repeated <= RECONNECTIONS, `${repeated} repeated`);
    });
  }

  it("resume.js resumes from the position in a ping if there was no event before the router was killed", async () => {
    const { socket, resumable } = await import(pathToFileURL(path.join(folder, "resume.js")));
    const { extensions, remember, forget } = resumable();
    const numbers = [];
    const problems = [];
    const stop = socket.subscribe({
      query: 'subscription { flightMovedById(id: "2") { id altitude } }', extensions,
    }, {
      next(result) {
        numbers.push(result.data.flightMovedById.altitude);
        remember(result);
      },
      error: (problem) => problems.push(problem),
      complete: forget,
    });
    await eventually(() => extensions.cursor, "a position");
    assert.deepEqual(numbers, []);
    const { ports } = router;
    await router.kill("SIGKILL");
    await publisher.jetstream().publish("flights.moved.2", JSON.stringify(event("2", 7)));
    router = await start(ports);
    await eventually(() => numbers.length > 0 || problems.length > 0, "the event that it missed", PASSING_MS);
    assert.deepEqual({ numbers, problems }, { numbers: [7], problems: [] });
    stop();
    forget();
    await socket.dispose();
  });

  it("are each in a separate file", () => {
    assert.equal(new Set(names).size, names.length, `${names}`);
  });
});

// A supergraph file that changes under a running router.
import assert from "node:assert/strict";
import { readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import {
  SUBSCRIPTION, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const withField = (name) =>
  memorySupergraph().replace(
    "airports: [Airport!]!",
    `${name}: [Airport!]! @join__field(graph: AIRPORTS)\n  airports: [Airport!]!`,
  );

describe("reload", () => {
  let subgraphs;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  /** As deployments do it: a new file replaces the old one. */
  async function replace(sdl) {
    const file = path.join(router.folder, "supergraph.graphql");
    await writeFile(`${file}.new`, sdl);
    await rename(`${file}.new`, file);
  }

  async function queryFields() {
    const { body } = await router.query('{ __type(name: "Query") { fields { name } } }');
    return body.data.__type.fields.map(({ name }) => name);
  }

  async function refused() {
    const text = await (await fetch(`${router.admin}/metrics`)).text();
    return Number(text.match(/^starling_graph_loads_total\{result="refused"\} (\d+)/m)?.[1] ?? 0);
  }

  it("a valid new graph becomes the next generation", async () => {
    await replace(withField("landmarks"));
    await eventually(async () => (await queryFields()).includes("landmarks"), "the new field");
  });

  it("an invalid graph is refused, logged and counted, and the old one stays", async () => {
    const fields = await queryFields();
    const before = await refused();
    await replace("type Query { broken");
    await eventually(async () => await refused() > before, "the refusal to be counted");
    assert.match(router.output(), /refused/);
    assert.deepEqual(await queryFields(), fields);
    const { body } = await router.query('{ flight(id: "1") { number } }');
    assert.deepEqual(body, { data: { flight: { number: "ST 101" } } });
  });

  it("the next valid graph after a refused one is loaded, on SIGHUP too", async () => {
    await replace(withField("monuments"));
    process.kill(router.pid, "SIGHUP");
    await eventually(async () => (await queryFields()).includes("monuments"), "the new field");
  });

  it("a changed configuration is not reloaded, and SIGHUP reports it", async () => {
    const file = path.join(router.folder, "starling.yaml");
    const before = await readFile(file, "utf8");
    await writeFile(file, JSON.stringify({ ...JSON.parse(before), limits: { depth: 7 } }));
    try {
      process.kill(router.pid, "SIGHUP");
      await eventually(
        () => /differs from the running configuration/.test(router.output()), "the warning");
      await writeFile(file, '{"limits": {"deepth": 7}}');
      process.kill(router.pid, "SIGHUP");
      await eventually(() => /would not start with it/.test(router.output()), "the error");
      assert.match(router.output(), /unknown key `deepth`/);
    } finally {
      await writeFile(file, before);
    }
  });

  it("a live subscription continues: nothing is lost, repeated or out of order", async () => {
    const client = createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0,
    });
    const subscription = client.iterate({ query: SUBSCRIPTION });
    const publish = (number) =>
      router.publish("memory/default", "flights.moved", event("1", number));
    let published = -1;
    const first = await repeatUntil(
      subscription.next(),
      (number) => publish(published = number),
      "an event before the reload",
    );
    const { altitude } = first.value.data.flightMoved;

    for (const field of ["harbours", "lakes", "rivers"]) {
      await replace(withField(field));
      await eventually(async () => {
        await publish(published += 1);
        return (await queryFields()).includes(field);
      }, `the field ${field}`);
    }
    for (let expected = altitude + 1; expected <= published; expected += 1) {
      const { value } = await within(subscription.next(), `event ${expected}`);
      assert.deepEqual(value, { data: { flightMoved: expectedFlight("1", expected) } });
    }
    await within(client.dispose(), "the client to leave");
  });

  it("operations that are no longer valid end with the reason, and others continue", async () => {
    const client = createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0, lazyCloseTimeout: 1_000,
    });
    const stays = client.iterate({ query: SUBSCRIPTION });
    const ends = client.iterate({ query: "subscription { flightMovedById(id: 1) { altitude } }" });
    const publish = async (number) => {
      await router.publish("memory/default", "flights.moved", event("1", number));
      await router.publish("memory/default", "flights.moved.1", event("1", number));
    };
    await repeatUntil(Promise.all([stays.next(), ends.next()]), publish, "events before the reload");
    await replace(memorySupergraph().replaceAll("flightMovedById", "flightMovedByNumber"));
    const outcome = (async () => {
      for (;;) await ends.next();
    })();
    await assert.rejects(within(outcome, "its end"), ([error]) => {
      assert.equal(error.extensions.code, "GRAPH_RELOADED");
      assert.match(error.message, /does not have a field `flightMovedById`/);
      return true;
    });
    await repeatUntil(
      (async () => {
        for (;;) {
          const { value } = await stays.next();
          if (value.data.flightMoved.altitude >= 100_000) return;
        }
      })(),
      (number) => publish(100_000 + number),
      "an event for the neighbour",
    );
    await within(client.dispose(), "the client to leave");
  });
});

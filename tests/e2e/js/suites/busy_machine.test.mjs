// Guarantees that must also hold on a machine without idle processors: clients and load balancers rely on them while
// other programs, or the router itself, need all of the CPU.
// Runs alone: it keeps all processors busy.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { loadProcessors } from "../busy_processors.mjs";
import { skipWithout } from "../programs.mjs";
import { SOURCES } from "../resume/brokers.mjs";
import { KILL, PAUSE, runScenario } from "../resume/scenario.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { REVIEW_ADDED, createReviews, expectedReview, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { SERVERS } from "../subgraphs/servers.mjs";
import { eventually, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const DELAY_MS = 3_000;
const SIGNS_OF_LIFE = 5;
const CLIENTS = 8;

const jetStream = SOURCES.find(({ name }) => name === "jetstream");

describe("on a busy machine", () => {
  let endBurning;
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
    endBurning = loadProcessors();
  });
  after(async () => {
    endBurning?.();
    await subgraphs?.stop();
  });

  const serve = (config) =>
    startServe({ supergraph: memorySupergraph(), config: { subgraphs: subgraphs.configuration, ...config } });

  it("a router that shuts down serves for `shutdown.delay` while it is not ready", async () => {
    const router = await serve({ shutdown: { delay: `${DELAY_MS}ms` } });
    try {
      const begin = Date.now();
      const ended = router.kill("SIGTERM");
      await eventually(
        async () => (await fetch(`${router.admin}/health/ready`)).status === 503, "the readiness check to fail");
      let served = 0;
      let refusedAfter;
      while (refusedAfter === undefined) {
        try {
          const { status } = await router.query("{ flight(id: 1) { to { city } } }");
          assert.equal(status, 200);
          served += 1;
        } catch (error) {
          if (error instanceof assert.AssertionError) throw error;
          refusedAfter = Date.now() - begin;
        }
      }
      assert.ok(served > 0, "requests are served while the router is not ready");
      assert.ok(refusedAfter >= DELAY_MS, `a request failed ${refusedAfter} ms after SIGTERM`);
      await ended;
      assert.equal(await router.stop(), 0);
    } finally {
      await router.stop();
    }
  });

  it("idle streams carry heartbeats, and then their event", async () => {
    const router = await serve({ subscriptions: { heartbeat: "1s" } });
    const leave = new AbortController();
    try {
      const response = await fetch(router.graphql, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "text/event-stream" },
        body: JSON.stringify({ query: "subscription { flightMoved { id altitude } }" }),
        signal: leave.signal,
      });
      const chunks = response.body.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
      let text = "";
      const readUntil = async (isThere) => {
        while (!isThere()) {
          const { value, done } = await chunks.next();
          assert.ok(!done, `the stream ended: ${text}`);
          text += value;
        }
      };
      const signs = () => text.split("\n").filter((line) => line.startsWith(":")).length;
      const begin = Date.now();
      await within(readUntil(() => signs() >= SIGNS_OF_LIFE), "signs of life");
      assert.ok(Date.now() - begin >= (SIGNS_OF_LIFE - 2) * 1_000, "no more often than they are configured");
      assert.ok(!text.includes("event:"), text);
      await router.publish(PROVIDER, "flights.moved", event("1", 9_100));
      await within(readUntil(() => text.includes("9100")), "the event");
    } finally {
      leave.abort();
      await router.stop();
    }
  });

  it("requests of a client with more than its share wait until nothing else is to do", async () => {
    const router = await serve({
      sharing: { operations: false, subgraph_queries: false },
      admission: { limit: { initial: 1_000, min: 1_000, max: 1_000 }, fair_by: "request.headers['x-client']" },
    });
    const send = async (client) => {
      const response = await fetch(router.graphql, {
        method: "POST",
        headers: { "content-type": "application/json", "x-client": client },
        body: JSON.stringify({ query: "{ flights { number } }" }),
      });
      return { status: response.status, text: await response.text() };
    };
    const gaveWay = () => readMetric(router, "starling_admission_gave_way_total");
    try {
      // The only operation that is known has the weight of an average operation.
      assert.equal((await send("other")).status, 200);
      subgraphs.pause();
      const held = Array.from({ length: 20 }, () => send("other"));
      for (let number = 0; number < 60; number += 1) held.push(send("greedy"));
      await eventually(async () => {
        held.push(send("greedy"));
        return await gaveWay() > 0;
      }, "a request to give way");
      subgraphs.resume();
      for (const { status, text } of await Promise.all(held)) assert.equal(status, 200, text);
      const before = await gaveWay();
      assert.equal((await send("other")).status, 200);
      assert.equal((await send("greedy")).status, 200);
      assert.equal(await gaveWay(), before, "nothing else is in flight");
      assert.equal(await readMetric(router, "starling_admission_giving_way"), 0);
    } finally {
      subgraphs.resume();
      await router.stop();
    }
  });

  it("clients that resume receive every stored event, in order", { skip: skipWithout(jetStream.program, "nats-server") }, async () => {
    const broker = await jetStream.start();
    try {
      const row = await runScenario({
        broker, topic: "moves.busy", events: 1_500, perSecond: 300, clients: CLIENTS,
        disturbance: { name: "busy", at: [[0.1, PAUSE], [0.4, KILL], [0.9, KILL]] },
      });
      assert.deepEqual(row.details, [], row.details.join("\n"));
      assert.ok(row.reconnections >= CLIENTS, `${row.reconnections} reconnections: no router was killed`);
    } finally {
      await broker.stop();
    }
  });

  for (const { name, start } of SERVERS.filter((server) => !server.name.endsWith("fixed"))) {
    it(`${name}: subscriptions of a subgraph survive its loss, each is opened once, and no client is dropped`, async () => {
      const reviews = createReviews();
      const [server, products] = await Promise.all([start(reviews), startProducts()]);
      const router = await startRouter({ reviews: { ...server, sdl: reviews.sdl }, products });
      const clients = Array.from({ length: CLIENTS }, () => openSocket(router));
      try {
        const subscriptions = clients.map((client) => client.subscribe(REVIEW_ADDED));
        const joined = async () => await readMetric(router, "starling_subscriptions_open") === CLIENTS;
        await eventually(joined, "all clients to subscribe");
        for (let number = 1; number <= 3; number++) {
          await eventually(() => reviews.operations() === 1, "one operation for all clients");
          reviews.publish(review(number));
          for (const subscription of subscriptions) {
            const { data } = await subscription.next();
            assert.deepEqual(data, { reviewAdded: expectedReview(number) });
          }
          const begun = reviews.started.length;
          await server.kill();
          // No connection belongs to a subscription by callback, so it is not begun again.
          if (/callback/.test(name)) continue;
          await eventually(() => reviews.started.length === begun + 1, "the operation to begin again");
        }
      } finally {
        for (const client of clients) await client.dispose();
        await router.stop();
        await server.stop();
        await products.stop();
      }
    });
  }
});

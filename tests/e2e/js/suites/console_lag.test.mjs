// The lag of a topic behind a real broker: the figure of the Live page is the number of stored events that the router
// has not read, and zero when it has read them.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import { connect } from "nats";
import WebSocket from "ws";
import { SUBSCRIPTION, event, jetStreamSupergraph, startSubgraphs } from "../board.mjs";
import { browserForTests, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import { cells, readConsole, updated } from "../console_api.mjs";
import { scrape } from "../metrics.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const TOPIC = "flights.moved";

/** The events that a subscriber has missed: three times as many as the queue of a stream in the router holds. */
const MISSED = 3_000;

/** The events that are stored while the router reads none of those. */
const FURTHER = 500;

/** While a stream is not read the router asks for its lag every ten seconds. This is several times as long. */
const LAG_MS = 60_000;

/** Time until all events have arrived, on a busy machine. */
const PASSING_MS = 120_000;

const skip = skipWithout(natsServer, "nats-server") || skipWithoutBrowser();

describe("the lag on the Live page", { skip }, () => {
  const browser = browserForTests();
  const keep = closeAfterEach();
  let subgraphs, nats, publisher;

  before(async () => {
    [subgraphs, nats] = await Promise.all([startSubgraphs(), startNats(-1, { stores: true })]);
    publisher = await connect({ servers: nats.url });
    const manager = await publisher.jetstreamManager();
    await manager.streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
  });
  after(async () => {
    await publisher?.close();
    await nats?.stop();
    await subgraphs?.stop();
  });

  const start = async () => keep(await startServe({
    supergraph: jetStreamSupergraph(),
    config: {
      subgraphs: subgraphs.configuration,
      cursor: { keys: ["a key of more than 16 bytes"] },
      // Requests wait until the subgraphs respond again.
      traffic: { all: { timeout: "10m", max_in_flight_share: 100 } },
      events: { providers: { nats: [{ id: "default", url: nats.url }] } },
    },
  }));

  const clientOf = (router) =>
    keep(createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 }));

  let published = -1;
  /** Stores the next events. Each has its number as its altitude. */
  async function publish(count) {
    const last = published + count;
    while (published < last) {
      published += 1;
      await publisher.jetstream().publish(TOPIC, JSON.stringify(event("1", published)));
    }
  }

  /** The figures of the topic: `{received, lagEvents, lagSeconds}`. */
  async function figures(router) {
    const { body } = await readConsole(router, "live");
    const { topics } = body.providers.find(({ name }) => name === "nats/default");
    return topics.find(({ topic }) => topic === TOPIC);
  }

  /** The text of the column "Behind" on the page. */
  async function behind(page) {
    const rows = page.getByRole("table", { name: "Topics", exact: true }).locator("tbody tr");
    const [topic, , , , text] = await cells(rows.filter({ hasText: TOPIC }));
    assert.equal(topic, TOPIC);
    return text;
  }

  it("is the number of events that a slow subgraph keeps at the broker, and then zero", async () => {
    const moves = clientOf(await start()).iterate({ query: SUBSCRIPTION });
    const { value } = await repeatUntil(moves.next(), () => publish(1), "an event");
    await moves.return();
    const { cursor } = value.extensions;
    const first = value.data.flightMoved.altitude + 1;
    await publish(MISSED);
    const missed = published - first + 1;

    // A router that has none of these events in memory. Each event needs a subgraph, which does not respond.
    const router = await start();
    subgraphs.pause();
    const received = [];
    // The subscription stays open after all events: a topic without streams has no lag, not one of zero.
    const following = new Promise((resolve, reject) => {
      const follow = async () => {
        const resumed = clientOf(router).iterate({ query: SUBSCRIPTION, extensions: { cursor } });
        for await (const { data, errors, extensions } of resumed) {
          assert.equal(errors, undefined, JSON.stringify(errors));
          assert.deepEqual([extensions.gap, extensions.lost], [undefined, undefined]);
          received.push(data.flightMoved.altitude);
          if (received.length === missed + FURTHER) resolve();
        }
        assert.fail("the subscription has ended");
      };
      follow().catch(reject);
    });
    following.catch(() => {});
    // The stream for the subscriber is full when it has read about a third of the events.
    await Promise.race([following, eventually(async () => {
      const it = await figures(router);
      return it.received > 0 && it.received < missed && it.lagEvents === missed - it.received;
    }, "the lag of the events that are not read", LAG_MS)]);

    const { page, problems, close } = await browser.openPage(router.admin, "/console/#live");
    await updated(page);
    await publish(FURTHER);
    // The stream for new subscribers has read the further events, and the stream for this one has not.
    await eventually(async () => {
      const it = await figures(router);
      return it.lagEvents === missed + FURTHER - (it.received - FURTHER);
    }, "the lag of all events that are not read", LAG_MS);
    const { lagEvents, lagSeconds } = await figures(router);
    assert.ok(lagEvents > FURTHER && lagEvents < missed + FURTHER && lagSeconds > 0, `${lagEvents}, ${lagSeconds} s`);
    assert.deepEqual(received, []);
    const shown = `${lagEvents.toLocaleString("en")} events, `;
    await eventually(async () => (await behind(page)).startsWith(shown), `${shown}on the page`);
    assert.equal((await scrape(router)).value("starling_events_topic_lag", { topic: TOPIC }), lagEvents);
    await takePicture(page, "console-live-behind");

    subgraphs.resume();
    await within(following, "all events", PASSING_MS);
    assert.deepEqual(received, Array.from({ length: missed + FURTHER }, (_, index) => first + index));
    await eventually(async () => (await figures(router)).lagEvents === 0, "no lag", LAG_MS);
    await eventually(async () => (await behind(page)) === "0 events", "no lag on the page");
    assert.deepEqual(problems, []);
    await close();
  });
});

// The console's list of subscribers, and the history of one that an operator watches: figures of a known load.
import assert from "node:assert/strict";
import http from "node:http";
import http2 from "node:http2";
import { describe, it } from "node:test";
import { assertAccessible } from "../accessibility.mjs";
import { SUBSCRIPTION, event } from "../board.mjs";
import { serveBoard } from "../board_router.mjs";
import { browserForTests, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import { cells, readConsole, rowOf, updated } from "../console_api.mjs";
import { openSocket } from "../live_client.mjs";
import { scrape } from "../metrics.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const PROVIDER = "memory/default";
const TOPIC = "flights.moved";

/** The results that may wait for a subscriber. */
const QUEUE_EVENTS = 4;

/** The subscribers that may be watched at a time. */
const WATCHED_MAX = 16;

/** Follows the events of which a test does not know the number. */
const MARKER = event("3", 0);

/** A subscription to events that are so large that few of them fill a socket. */
const LARGE = "subscription Large { flightMoved { id } }";
const LARGE_EVENT = event("7".repeat(60_000), 5);

describe("the subscribers on the console", () => {
  const keep = closeAfterEach();
  const board = serveBoard({
    subscriptions: { policy: "drop_oldest", queue_events: QUEUE_EVENTS, kernel_queue_bytes: 4_096 },
  });

  const api = (name, parameters, options) => readConsole(board.router, name, parameters, options);
  const publish = (altitude = 5) => board.router.publish(PROVIDER, TOPIC, event("1", altitude));
  const watch = (id) => api("watch", { id }, { method: "POST" });

  /** Subscribes over a WebSocket, and waits until all events have come that were published for that. */
  async function follow(query = SUBSCRIPTION, socket = keep(openSocket(board.router, {}))) {
    const moves = socket.subscribe(query);
    await repeatUntil(moves.next(), publish, "an event");
    await board.router.publish(PROVIDER, TOPIC, MARKER);
    await moves.find(({ data }) => data.flightMoved.id === MARKER.id, "the last of these events");
    return moves;
  }

  /** The group of the operation with that name, once it has that many subscribers. */
  const groupOf = (name, members = 1) =>
    eventually(async () => {
      const { triggers } = (await api("live")).body;
      const group = triggers.flatMap(({ groups }) => groups).find(({ operationName }) => operationName === name);
      return group?.subscribers === members && group.id;
    }, `a group ${name} of ${members}`);

  /** The subscribers of a group. */
  const subscribersOf = async (group) => (await api("subscribers", { group })).body;

  /** The history of a watched subscriber, once it fulfils the condition. */
  const history = (id, condition, what) =>
    eventually(async () => {
      const { body } = await api("subscriber", { id });
      return condition(body) && body;
    }, what);

  const publishLarge = () => board.router.publish(PROVIDER, TOPIC, LARGE_EVENT);

  /** Publishes until results wait for the first listed subscriber of the group, and returns that subscriber. */
  const slowSubscriberOf = (group) =>
    eventually(async () => {
      await publishLarge();
      const [first] = (await subscribersOf(group)).subscribers;
      return first.waiting > 0 && first;
    }, "a slow subscriber");

  const steps = ({ entries }) => entries.map(({ step }) => step);

  it("are listed by group, and one of them has a history from the time on at which it is watched", async () => {
    const socket = keep(openSocket(board.router, {}));
    const moves = await follow(SUBSCRIPTION, socket);
    const group = await groupOf("Moves");
    const { count, operationName, field, provider, topics, subscribers } = await subscribersOf(group);
    assert.deepEqual(
      { count, operationName, field, provider, topics },
      { count: 1, operationName: "Moves", field: "Subscription.flightMoved", provider: PROVIDER, topics: [TOPIC] },
    );
    const [{ id, transport, waiting, seconds }] = subscribers;
    assert.deepEqual({ transport, waiting }, { transport: "websocket", waiting: 0 });
    assert.ok(seconds < 60, String(seconds));

    assert.equal((await api("subscriber", { id })).status, 404, "it is not watched yet");
    const { status, body: first } = await watch(id);
    assert.equal(status, 200);
    assert.deepEqual([first.id, first.totals.delivered, first.entries], [id, 0, []]);
    const known = moves.results.length;
    for (let altitude = 1; altitude <= 3; altitude += 1) await publish(altitude);
    await eventually(() => moves.results.length === known + 3, "three events");
    const bytes = moves.results.slice(-3).reduce((sum, it) => sum + JSON.stringify(it).length, 0);
    const three = await history(id, ({ totals }) => totals.delivered === 3, "three deliveries");
    assert.deepEqual([three.totals.bytes, three.totals.dropped, three.totals.lost], [bytes, 0, 0]);
    assert.ok(steps(three).every((step) => step === "delivered"), JSON.stringify(three.entries));

    moves.stop();
    const over = await history(id, ({ entries }) => entries.at(-1)?.step === "ended", "the end");
    assert.equal(over.entries.at(-1).reason, "client_completed");
    await socket.dispose();
    assert.equal((await watch(id)).body.entries.at(-1).reason, "client_completed", "a history stays after the end");
  });

  it("that read too slowly come first, with their waiting times and losses", async () => {
    await follow(LARGE);
    const reader = await openStalledStream(board.router, LARGE);
    keep({ stop: () => reader.request.destroy() });
    const group = await groupOf("Large", 2);
    const slow = await slowSubscriberOf(group);
    assert.equal(slow.transport, "sse");
    const { body: began } = await watch(slow.id);
    // The kernel may have taken what waited before.
    assert.equal(began.behindSeconds !== null, began.waiting > 0, JSON.stringify(began));
    const behind = await eventually(async () => {
      await publishLarge();
      const { body } = await api("subscriber", { id: slow.id });
      return body.totals.dropped >= 2 && body;
    }, "dropped results");
    assert.ok(behind.waiting <= QUEUE_EVENTS, JSON.stringify(behind));
    for (const step of ["queued", "dropped"]) assert.ok(steps(behind).includes(step), JSON.stringify(behind));

    reader.response.resume();
    const caughtUp = await history(slow.id, ({ behindSeconds }) => behindSeconds === null, "the end of the backlog");
    const { dropped, lost, longestWait, behind: behindFor } = caughtUp.totals;
    assert.ok(caughtUp.entries.some(({ step, waited }) => step === "caughtUp" && waited > 0), JSON.stringify(caughtUp));
    assert.ok(longestWait > 0 && behindFor >= longestWait, JSON.stringify(caughtUp.totals));
    // Every dropped result was announced to the client.
    assert.ok(lost >= dropped && dropped >= 2, JSON.stringify(caughtUp.totals));
    assert.equal(caughtUp.waiting, 0);
    await eventually(async () => {
      const { slowReaders } = (await api("live")).body;
      return slowReaders.find(({ policy }) => policy === "drop_oldest").count >= dropped;
    }, "the dropped results among those of slow readers");
    // That of the client that reads has waited for nothing.
    const others = (await subscribersOf(group)).subscribers.filter(({ id }) => id !== slow.id);
    assert.deepEqual(others.map(({ waiting }) => waiting), [0]);
  });

  it("get the results that wait for them also after the end, and their history has them", async () => {
    const reader = await openStalledStream(board.router, "subscription Ending { flightMoved { id } }");
    keep({ stop: () => reader.request.destroy() });
    const { id } = await slowSubscriberOf(await groupOf("Ending"));
    await watch(id);
    for (let number = 0; number < 2 * QUEUE_EVENTS; number += 1) await publishLarge();
    const target = new URL(`/admin/complete?${new URLSearchParams({ topic: TOPIC })}`, board.router.admin);
    assert.equal((await fetch(target, { method: "POST" })).status, 200);
    const ended = await history(id, (it) => steps(it).includes("ended"), "the end");
    reader.response.resume();
    const written = await history(id, ({ waiting }) => waiting === 0, "the last result");
    assert.equal(written.totals.delivered, ended.totals.delivered + ended.waiting);
    assert.deepEqual([written.totals.dropped, written.behindSeconds], [ended.totals.dropped, null]);
    assert.equal(written.entries.find(({ step }) => step === "ended").reason, "source_completed");
  });

  it("are found and watched on streams over HTTP/2, too", async () => {
    const session = http2.connect(board.router.url);
    keep({ stop: () => session.destroy() });
    const stream = session.request({
      ":method": "POST", ":path": "/graphql", "content-type": "application/json", accept: "text/event-stream",
    });
    stream.on("error", () => {});
    let text = "";
    stream.setEncoding("utf8").on("data", (piece) => {
      text += piece;
    });
    stream.end(JSON.stringify({ query: "subscription Streamed { flightMoved { id altitude } }" }));
    const group = await groupOf("Streamed");
    const [{ id, transport }] = (await subscribersOf(group)).subscribers;
    assert.equal(transport, "sse");
    const has = (sign) => eventually(() => text.includes(sign), sign);
    await repeatUntil(has("event: next"), publish, "an event");
    await board.router.publish(PROVIDER, TOPIC, MARKER);
    await has(`"id":"${MARKER.id}"`);
    await watch(id);
    await publish(4_711);
    const one = await history(id, ({ totals }) => totals.delivered === 1, "a delivery");
    assert.deepEqual([one.totals.queued, one.waiting, steps(one)], [0, 0, ["delivered"]]);
    await has("4711");
    stream.close();
    const over = await history(id, ({ entries }) => entries.at(-1).step === "ended", "the end");
    assert.equal(over.entries.at(-1).reason, "connection_closed");
  });

  it("are watched up to a maximum, and one that has ended makes room", async () => {
    const socket = keep(openSocket(board.router, {}));
    const all = [];
    for (let index = 0; index <= WATCHED_MAX; index += 1) {
      all.push(socket.subscribe("subscription Many { flightMoved { id } }"));
    }
    const group = await groupOf("Many", all.length);
    const { subscribers } = await subscribersOf(group);
    assert.equal(subscribers.length, all.length);
    // Those of earlier tests have ended, and give way.
    const refused = [];
    for (const { id } of subscribers) {
      const { status, text } = await watch(id);
      if (status !== 200) refused.push([id, status, text]);
    }
    assert.equal(refused.length, 1, JSON.stringify(refused));
    const [[id, status, text]] = refused;
    assert.equal(status, 429);
    assert.match(text, /^16 subscribers are watched, the maximum/);
    const metrics = await scrape(board.router);
    assert.equal(metrics.value("starling_subscribers_not_watched_total"), 1);
    await eventually(
      async () => (await scrape(board.router)).value("starling_subscribers_watched") === WATCHED_MAX,
      "the number of watched subscribers",
    );
    await socket.dispose();
    await eventually(async () => (await api("live")).body.triggers.length === 0, "the end of all");
    assert.equal((await watch(id)).status, 404, "it has ended");
    await follow();
    const [next] = (await subscribersOf(await groupOf("Moves"))).subscribers;
    assert.equal((await watch(next.id)).status, 200);
    for (const unknown of ["", "x", "r0-1-2", "s9999-0"]) assert.equal((await watch(unknown)).status, 404, unknown);
    assert.equal((await api("subscribers", { group: "x" })).status, 404);
  });

  describe("in a browser", { skip: skipWithoutBrowser() }, () => {
    const browser = browserForTests();

    for (const [width, colorScheme] of [
      [1280, "light"],
      [390, "dark"],
    ]) {
      it(`are reached from their group, at ${width} pixels in ${colorScheme} colours`, async () => {
        const moves = await follow();
        await groupOf("Moves");
        const { page, problems, close } = await browser.openPage(board.router.admin, "/console/#live", {
          width, colorScheme,
        });
        await updated(page);
        await page.getByRole("button", { name: "Moves" }).press("Enter");
        const row = await cells(rowOf(page, "Subscribers of the group", "websocket"));
        assert.deepEqual([row[1], row[3]], ["websocket", "0"]);
        await assertAccessible(page);
        await takePicture(page, `console-group-${width}-${colorScheme}`);

        await page.getByRole("button", { name: row[0] }).press("Enter");
        await page.getByText("It reads its results in time.").waitFor();
        for (let altitude = 1; altitude <= 3; altitude += 1) await publish(altitude);
        await page.locator(".tiles div").filter({ hasText: /^Delivered3$/ }).waitFor();
        assert.match((await cells(rowOf(page, "History of the subscriber", "delivered")))[2], /^[123]$/);
        await assertAccessible(page);
        await takePicture(page, `console-subscriber-${width}-${colorScheme}`);

        moves.stop();
        await page.getByText("It has ended: its client has completed it.").waitFor();
        await rowOf(page, "History of the subscriber", "ended: client_completed").waitFor();
        assert.deepEqual(problems, []);
        await close();
      });
    }
  });
});

/** Subscribes by server-sent events over HTTP/1.1, and reads nothing of the response until it is resumed. */
function openStalledStream(router, query) {
  return new Promise((resolve, reject) => {
    const request = http.request(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
    });
    request.on("error", reject);
    request.on("response", (response) => {
      response.on("error", () => {});
      resolve({ request, response });
    });
    request.end(JSON.stringify({ query }));
  });
}

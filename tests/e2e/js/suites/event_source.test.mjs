// The EventSource of a real browser, which reconnects automatically and sends its position.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { after, before, describe, it } from "node:test";
import { chromium } from "playwright-core";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import * as programs from "../programs.mjs";
import { startServe } from "../router.mjs";
import { WAIT_TIMEOUT_MS, eventually } from "../waiting.mjs";

const PROVIDER = "memory/default";
const QUERY = "subscription { flightMoved { id altitude } }";

/** A block with an id and no data: a position. */
const POSITION = /(?:^|\n)id: \S+\n\n/;

describe("EventSource", { skip: programs.skipWithout(programs.chromium, "chromium") }, () => {
  let subgraphs;
  let router;
  let line;
  let browser;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        cursor: { memory: true, keys: ["a key of more than 16 bytes"], heartbeat: "1s" },
        events: { providers: { memory: [{ id: "default", ring_events: 1000 }] } },
      },
    });
    line = await startLine(Number(new URL(router.url).port));
    browser = await chromium.launch({
      executablePath: programs.chromium(),
      args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"],
    });
  });
  after(async () => {
    await browser?.close();
    line?.stop();
    await router?.stop();
    await subgraphs?.stop();
  });

  /** A network connection that can be cut: forwards connections to `port`, and records the responses. */
  async function startLine(port) {
    const open = new Set();
    const network = { isUp: true, received: "" };
    const server = net.createServer((near) => {
      if (!network.isUp) return near.destroy();
      const far = net.connect(port, "127.0.0.1");
      open.add(near);
      near.on("close", () => { open.delete(near); far.destroy(); }).on("error", () => {});
      far.on("close", () => near.end()).on("error", () => {});
      far.on("data", (bytes) => { network.received += bytes.toString("latin1"); });
      near.pipe(far);
      far.pipe(near, { end: false });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    return Object.assign(network, {
      url: `http://127.0.0.1:${server.address().port}`,
      /** Forwarded data arrives; nothing follows, and new connections fail. */
      async cut() {
        network.isUp = false;
        const closed = [...open].map((near) => once(near, "close"));
        for (const near of open) near.end();
        await Promise.all(closed);
        network.received = "";
      },
      stop() {
        server.close();
        for (const near of open) near.destroy();
      },
    });
  }

  const publish = (altitude) => router.publish(PROVIDER, "flights.moved", event("1", altitude));

  it("resumes after its connection was cut, from an event or from a position", async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(WAIT_TIMEOUT_MS);
    // The response does not matter, because the page only needs the router's origin.
    await page.goto(`${line.url}/graphql`);
    await page.evaluate((query) => {
      window.altitudes = [];
      window.source = new EventSource(`/graphql?query=${encodeURIComponent(query)}`);
      window.source.addEventListener("next", ({ data }) => {
        window.altitudes.push(JSON.parse(data).data.flightMoved.altitude);
      });
    }, QUERY);
    const altitudes = () => page.evaluate(() => window.altitudes);

    // No event has arrived yet when the connection is lost, so the client only has a position.
    await eventually(() => POSITION.test(line.received), "a position");
    await line.cut();
    for (const altitude of [1, 2, 3]) await publish(altitude);
    line.isUp = true;
    await eventually(async () => (await altitudes()).length >= 3, "what it missed");
    assert.deepEqual(await altitudes(), [1, 2, 3]);

    await line.cut();
    for (const altitude of [4, 5]) await publish(altitude);
    line.isUp = true;
    await eventually(async () => (await altitudes()).length >= 5, "what it missed the second time");
    assert.deepEqual(await altitudes(), [1, 2, 3, 4, 5]);
    await publish(6);
    await eventually(async () => (await altitudes()).length >= 6, "what comes live");
    assert.deepEqual(await altitudes(), [1, 2, 3, 4, 5, 6]);
    await page.evaluate(() => window.source.close());
    await page.close();
  });
});

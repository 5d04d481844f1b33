// The console without a mouse: the keyboard reaches everything on each page, the focus is seen, and what is opened and
// closed keeps the place of the person.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { assertAccessible } from "../accessibility.mjs";
import { SUBSCRIPTION, event } from "../board.mjs";
import { serveBoard } from "../board_router.mjs";
import { browserForTests, skipWithoutBrowser } from "../browser_page.mjs";
import { rowOf, updated } from "../console_api.mjs";
import { tabTo, walkByTab } from "../keyboard.mjs";
import { openSocket } from "../live_client.mjs";
import { repeatUntil } from "../waiting.mjs";

const BOARD = "query Board { flights { number to { city } } }";

/** The elements of the frame: a link to the page, six links to pages, a check box and a menu. */
const IN_FRAME = 9;

describe("the console by keyboard", { skip: skipWithoutBrowser() }, () => {
  const board = serveBoard({
    admin: { profiling: true, console: { recorder: { enabled: true, slow: "1m", when: "operation.name == 'Board'" } } },
    cache: { enabled: true },
  });
  const browser = browserForTests();
  let socket;

  before(async () => {
    for (let times = 0; times < 3; times += 1) {
      const { body } = await board.router.query(BOARD);
      assert.equal(body.errors, undefined, JSON.stringify(body));
    }
    socket = openSocket(board.router);
    await repeatUntil(
      socket.subscribe(SUBSCRIPTION).next(),
      () => board.router.publish("memory/default", "flights.moved", event("1", 5)),
      "an event",
    );
  });
  after(() => socket?.dispose());

  /** A test that opens the page at that address, and ends without problems on it. */
  const itOnPage = (address, name, test) => it(name, async () => {
    const { page, problems, close } = await browser.openPage(board.router.admin, `/console/${address}`);
    await updated(page);
    await test(page);
    assert.deepEqual(problems, []);
    await close();
  });

  /** Moves the focus to an element and presses Enter. */
  async function pressEnter(page, target) {
    await tabTo(page, target);
    await page.keyboard.press("Enter");
  }

  /** Checks that the Tab key reaches all elements in order, and that the focus is seen. Returns their number. */
  async function assertWalkable(page) {
    const { missed, hidden, count } = await walkByTab(page);
    assert.deepEqual({ missed, hidden }, { missed: [], hidden: [] });
    return count;
  }

  /** Waits until an element that fits to the selector and has that text has the focus. */
  const focusOn = (page, selector, hasText) => page.locator(`${selector}:focus`).filter({ hasText }).waitFor();

  for (const name of [
    "overview", "overview/flights", "operations", "operations/query%2FBoard", "graph", "graph/Airport", "live", "slow",
    "slow/1", "tools",
  ]) {
    itOnPage(`#${name}`, `${name}: the Tab key reaches all that can be used, and the focus is seen`, async (page) => {
      // The page stays as it is meanwhile.
      await page.getByLabel("Update").uncheck();
      const count = await assertWalkable(page);
      assert.ok(count > IN_FRAME, `${count}`);
    });
  }

  itOnPage("#graph", "the first link skips the header of the page that is open", async (page) => {
    await page.keyboard.press("Tab");
    await focusOn(page, ".skip", "Skip to the page");
    await page.keyboard.press("Enter");
    await page.locator("main:focus").waitFor();
    assert.equal(await page.evaluate(() => location.hash), "#graph");
    await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.querySelector("main").contains(document.activeElement)));
  });

  itOnPage("", "updates are stopped by Space, and the colours are chosen from a menu", async (page) => {
    const update = page.getByLabel("Update");
    await tabTo(page, update);
    await page.keyboard.press("Space");
    assert.ok(!(await update.isChecked()));
    await tabTo(page, page.locator("#theme"));
    // The first letter of "Dark".
    await page.keyboard.press("d");
    await page.locator("html[data-theme='dark']").waitFor();
  });

  itOnPage("", "a table is filtered and sorted, and a closed operation returns the focus to its row", async (page) => {
    await pressEnter(page, page.getByRole("link", { name: "Operations", exact: true }));
    await rowOf(page, "Operations", "Board").waitFor();

    await tabTo(page, page.getByLabel("Filter operations in: Operations"));
    await page.keyboard.type("boa");
    // The table is filtered when the key has been handled.
    assert.deepEqual(await page.locator("table").first().locator("tbody th").allTextContents(), ["Board"]);

    // The name of the button contains an arrow while the table is sorted by the column.
    const sort = page.locator("button.sort").filter({ hasText: /^Operation$/ });
    await tabTo(page, sort);
    for (const [key, order] of [["Enter", "ascending"], ["Space", "descending"]]) {
      await page.keyboard.press(key);
      assert.equal(await sort.locator("xpath=..").getAttribute("aria-sort"), order);
    }

    await pressEnter(page, page.getByRole("button", { name: "Board", exact: true }));
    await focusOn(page, "h2", "query Board");
    await page.keyboard.press("Shift+Tab");
    await focusOn(page, "a", "All operations");
    await page.keyboard.press("Enter");
    await focusOn(page, "button", "Board");
  });

  itOnPage(
    "#operations/query%2FBoard",
    "a plan is one stop: arrow keys move between its fetches, Enter and Space show the text of one",
    async (page) => {
      const nodes = page.locator(".plan svg .node");
      await tabTo(page, nodes.first());
      await page.keyboard.press("ArrowRight");
      await focusOn(page, ".plan svg .node", "airports");
      assert.deepEqual(await nodes.evaluateAll((all) => all.map((it) => it.getAttribute("tabindex"))), ["-1", "0"]);
      await page.keyboard.press("Enter");
      await focusOn(page, ".plan details[open] summary", "airports");
      await page.locator(".plan details[open] pre").filter({ hasText: "_entities" }).waitFor();
      await assertAccessible(page);

      for (const text of ["flights", "airports"]) {
        await page.keyboard.press("Shift+Tab");
        await focusOn(page, text === "flights" ? ".plan summary" : ".plan svg .node", text);
      }
      await page.keyboard.press("Home");
      await focusOn(page, ".plan svg .node", "flights");
      await page.keyboard.press("Space");
      await focusOn(page, ".plan details[open] summary", "flights");
    },
  );

  itOnPage("#live", "a group of subscribers is opened and closed again", async (page) => {
    await pressEnter(page, page.getByRole("button", { name: "Moves", exact: true }));
    await focusOn(page, "h2", "Moves");
    await rowOf(page, "Subscribers of the group", "websocket").waitFor();
    await assertWalkable(page);
    await pressEnter(page, page.getByRole("link", { name: "All groups" }));
    await focusOn(page, "button", "Moves");
  });

  itOnPage("#slow", "the steps of a recorded request are shown by Enter", async (page) => {
    await pressEnter(page, page.getByRole("button", { name: "query Board" }).first());
    await focusOn(page, "h2", "query Board");
    await pressEnter(page, page.locator(".waterfall summary").filter({ hasText: "POST airports" }));
    await page.locator(".waterfall details[open]").getByText("starling.subgraph").waitFor();
  });

  itOnPage("#tools", "an event is published with a form", async (page) => {
    await tabTo(page, page.getByLabel("Topic"));
    await page.keyboard.type("flights.moved");
    await tabTo(page, page.locator("#publish textarea"));
    await page.keyboard.press("ControlOrMeta+A");
    await page.keyboard.type(JSON.stringify(event("2", 9)));
    await pressEnter(page, page.locator("#publish button"));
    await page.getByText("Published.").waitFor();
  });
});

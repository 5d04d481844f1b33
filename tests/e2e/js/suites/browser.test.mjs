// The page in a real browser, as users see it: GraphiQL, and the plain page beside it.
import assert from "node:assert/strict";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { chromium } from "playwright-core";
import * as programs from "../programs.mjs";
import { startDemo } from "../router.mjs";
import { WAIT_TIMEOUT_MS, eventually } from "../waiting.mjs";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

describe("browser", { skip: programs.skipWithout(programs.chromium, "chromium") }, () => {
  let router;
  let browser;
  before(async () => {
    router = await startDemo();
    browser = await chromium.launch({ executablePath: programs.chromium(), args: FLAGS });
  });
  after(async () => {
    await browser?.close();
    if (router) assert.equal(await router.stop(), 0, router.output());
  });

  /** Opens `path` in a fresh profile; errors of the page are collected in `problems`. */
  async function open(path, server = router) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_TIMEOUT_MS);
    const problems = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") problems.push(message.text());
    });
    // All files of the page come from the router, as in a browser without network access.
    await context.route("**/*", (route) => {
      const url = route.request().url();
      if (url.startsWith(`${server.url}/`) || url.startsWith("data:")) return route.continue();
      problems.push(`asked for ${url}`);
      return route.abort();
    });
    await page.goto(server.url + path);
    return { page, problems, close: () => context.close() };
  }

  /** Checks a response with data from joined objects and without errors. */
  function assertJoined(response) {
    assert.equal(response.errors, undefined, JSON.stringify(response.errors));
    const depth = (value) =>
      value !== null && typeof value === "object"
        ? 1 + Math.max(0, ...Object.values(value).map(depth))
        : 0;
    assert.ok(depth(response.data) >= 3, JSON.stringify(response));
    assert.ok(!JSON.stringify(response.data).includes("null"), JSON.stringify(response));
  }

  /** The result that GraphiQL shows, as soon as `accept` accepts it. */
  const shownResult = (page, accept) =>
    eventually(async () => {
      const text = await page.locator(".result-window .CodeMirror")
        .evaluate((editor) => editor.CodeMirror.getValue());
      const value = text === "" ? null : JSON.parse(text);
      return value && accept(value) && value;
    }, "a result on the page");

  it("GraphiQL runs the first query and shows two ticks of the subscription", async (test) => {
    const { page, problems, close } = await open("/");
    if (await page.locator("#page").count() === 0) {
      await close();
      test.skip(programs.skipBecause("this build has no GraphiQL"));
      return;
    }
    await page.locator(".graphiql-execute-button").click();
    let shown = await shownResult(page, () => true);
    assertJoined(shown);

    await page.locator(".graphiql-tab").nth(1).click();
    await page.locator(".graphiql-execute-button").click();
    for (let ticks = 0; ticks < 2; ticks += 1) {
      const before = JSON.stringify(shown);
      shown = await shownResult(page, (value) => JSON.stringify(value) !== before);
      assertJoined(shown);
    }
    await page.locator(".graphiql-execute-button").click();
    assert.deepEqual(problems, []);
    await close();
  });

  it("GraphiQL knows the schema", async (test) => {
    const { page, problems, close } = await open("/");
    if (await page.locator("#page").count() === 0) {
      await close();
      test.skip(programs.skipBecause("this build has no GraphiQL"));
      return;
    }
    await page.getByRole("button", { name: "Show Documentation Explorer" }).click();
    await page.locator(".graphiql-doc-explorer").getByText("Subscription").first().waitFor();
    assert.deepEqual(problems, []);
    await close();
  });

  it("the plain page runs the first query and streams the subscription", async () => {
    const { page, problems, close } = await open("/ide/plain");
    await page.locator("#run").click();
    await page.locator("#results pre").first().waitFor();
    const results = async () => {
      const texts = await page.locator("#results pre").allTextContents();
      return texts.map((text) => JSON.parse(text.slice(text.indexOf("{"))));
    };
    assertJoined((await results())[0]);

    await page.locator("#tabs button").nth(1).click();
    await page.locator("#run").click();
    const ticks = await eventually(async () => {
      // The response of the query is no longer shown once the first event has arrived.
      const shown = await page.locator("#results pre .when").count() >= 2 && await results();
      return shown && shown.slice(-2);
    }, "two ticks");
    ticks.forEach(assertJoined);
    assert.notDeepEqual(ticks[0], ticks[1]);
    await page.locator("#stop").click();
    await page.getByText("stopped").waitFor();
    assert.deepEqual(problems, []);
    await close();
  });

  it("the plain page shows the errors of an invalid operation", async () => {
    const { page, close } = await open("/ide/plain");
    await page.locator("#query").fill("{ nonsense }");
    await page.locator("#run").click();
    const failed = page.locator("#results pre.failed");
    await failed.waitFor();
    assert.match(await failed.textContent(), /nonsense/);
    await close();
  });

  describe("while the router is down", () => {
    /** Runs `use` with a page of its own router, which `use` may kill. */
    async function withOwnRouter(path, use) {
      const own = await startDemo();
      const { page, close } = await open(path, own);
      try {
        await use(page, async () => {
          process.kill(own.pid, "SIGKILL");
          await eventually(() => !own.isRunning(), "the router to be gone");
        });
      } finally {
        await close();
        await own.stop();
      }
    }

    it("the plain page reports that the stream was lost, and that the router does not respond", () =>
      withOwnRouter("/ide/plain", async (page, kill) => {
        await page.locator("#tabs button").nth(1).click();
        await page.locator("#run").click();
        await page.locator("#results pre .when").first().waitFor();
        await kill();
        await page.getByText(/^The connection was lost after \d+ events?: /).waitFor();
        await page.locator("#run").click();
        await page.getByText(/^The router does not respond at http:.*\/graphql\. Check that/).waitFor();
      }));

    it("GraphiQL reports that the router does not respond", (test) =>
      withOwnRouter("/", async (page, kill) => {
        if (await page.locator("#page").count() === 0) {
          test.skip(programs.skipBecause("this build has no GraphiQL"));
          return;
        }
        await page.locator(".graphiql-execute-button").click();
        assertJoined(await shownResult(page, () => true));
        await kill();
        await page.locator(".graphiql-execute-button").click();
        const { errors } = await shownResult(page, (value) => value.errors);
        assert.equal(errors.length, 1);
        assert.match(errors[0].message, /^The router does not respond at http:.*\/graphql \(.+\)\. Check that/);
        assert.deepEqual(Object.keys(errors[0]), ["message"], "no stack of the page's own code");
      }));

    it("GraphiQL reports it for a running subscription", (test) =>
      withOwnRouter("/", async (page, kill) => {
        if (await page.locator("#page").count() === 0) {
          test.skip(programs.skipBecause("this build has no GraphiQL"));
          return;
        }
        await page.locator(".graphiql-tab").nth(1).click();
        await page.locator(".graphiql-execute-button").click();
        await shownResult(page, (value) => value.data);
        await kill();
        // By then it has tried to reconnect several times.
        const { errors } = await shownResult(page, (value) => value.errors);
        assert.match(errors[0].message, /^The router (does not respond|closed the connection)/);
      }));
  });
});

// The page in a real browser, as users see it: GraphiQL, and the plain page beside it.
import assert from "node:assert/strict";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { memorySupergraph, startSubgraphs } from "../board.mjs";
import { launchBrowser, openPage, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { closeAfterEach } from "../closing.mjs";
import * as programs from "../programs.mjs";
import { startDemo, startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

describe("browser", { skip: skipWithoutBrowser() }, () => {
  const keep = closeAfterEach();
  let router;
  let browser;
  before(async () => {
    router = await startDemo();
    browser = await launchBrowser();
  });
  after(async () => {
    await browser?.close();
    if (router) assert.equal(await router.stop(), 0, router.output());
  });

  const open = (path, server = router) => openPage(browser, server.url, path, { height: 800 });

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

  it("GraphiQL shows the plan of a query with its requests as a waterfall", async (test) => {
    const subgraphs = keep(await startSubgraphs());
    const traced = keep(await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration, trace: { enabled: true } },
    }));
    const { page, problems, close } = await open("/", traced);
    if (await page.locator("#page").count() === 0) {
      await close();
      test.skip(programs.skipBecause("this build has no GraphiQL"));
      return;
    }
    await page.getByRole("button", { name: "Show Trace" }).click();
    await page.getByLabel("Trace queries and mutations").check();
    await page.locator(".graphiql-query-editor .CodeMirror")
      .evaluate((editor) => editor.CodeMirror.setValue("{ flights { number to { city } } }"));
    await page.locator(".graphiql-execute-button").click();
    const waves = page.locator(".starling-wave");
    await waves.nth(1).waitFor();
    assert.deepEqual(await waves.locator("h3").allTextContents(), ["Wave 1", "Wave 2"]);
    const titles = (await waves.locator("li > p:first-child").allTextContents()).map((text) => text.trim());
    assert.deepEqual(titles, ["flights root fields", "airports entities, after flights"]);
    for (const text of await waves.locator(".starling-facts").allTextContents()) {
      assert.match(text, /^status 200, \d+ bytes(, \d+ entities)? in [\d.]+ (µs|ms|s)$/);
    }
    const requests = await waves.locator(".starling-contents pre").allTextContents();
    assert.equal(requests.length, 2);
    assert.match(requests[1], /_entities/);
    const [first, second] = await Promise.all(
      (await waves.locator(".starling-track > span").all()).map((bar) => bar.boundingBox()),
    );
    assert.ok(first.x + first.width <= second.x + 1, "the second wave begins after the first one");
    await takePicture(page, "graphiql-trace");
    const { extensions } = await shownResult(page, (value) => value.extensions);
    assert.equal(extensions.trace.plan.length, 2);
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

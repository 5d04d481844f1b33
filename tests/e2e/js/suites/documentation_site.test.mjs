// The documentation site: built as `cargo xtask docs --site` does, without broken links, accessible, and used in a
// browser without network.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { checkLinks } from "../../../../site/check_links.mjs";
import { anchorOf, linksOf } from "../../../../site/markdown.mjs";
import { serveFolder } from "../../../../site/serve.mjs";
import { isInstalled, stage } from "../../../../site/stage.mjs";
import { closeAfterEach } from "../closing.mjs";
import { savePicture } from "../pictures.mjs";
import * as programs from "../programs.mjs";
import { WAIT_TIMEOUT_MS } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** The site is not at the root of its server, as on common hosts of pages. */
const PARENT = "/starling/";

/** A version that was built before. */
const OLDER = "0.0.9";

/** Pages of each kind: the start page, guides, tables, diagrams, generated pages, files and folders. */
const PAGES = [
  "index", "overview", "quick-start", "subscriptions", "metrics", "errors", "query-flow", "architecture",
  "composition/codes/KEY_INVALID_FIELDS", "repository/examples/composition/event-directives.graphql",
];

const run = promisify(execFile);

async function temporaryFolder() {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-site-test-"));
  return { folder, remove: () => rm(folder, { recursive: true, force: true }) };
}

describe("links of documents", () => {
  const keep = closeAfterEach();

  it("are found outside code, with their lines", () => {
    const text = "see [a](b.md#c) and `[f](g)`\n```sh\n[h](i)\n```\n<!-- [j](k) -->\n"
      + "![l](m.png \"title\") [`n`](o)\n\n[p]: q\n";
    assert.deepEqual(linksOf(text).map(({ target, isImage, line }) => [target, isImage, line]), [
      ["b.md#c", false, 1], ["m.png", true, 6], ["o", false, 6], ["q", false, 8],
    ]);
  });

  it("have the anchors of GitHub", () => {
    assert.deepEqual(
      ["What is, really?", "1. Two subgraphs", "`log` & `trace_id`", "A – b"].map(anchorOf),
      ["what-is-really", "1-two-subgraphs", "log--trace_id", "a--b"],
    );
  });

  it("that lead to no file are refused with their place", async () => {
    const { folder } = keep(await temporaryFolder());
    await mkdir(path.join(folder, "docs"));
    await writeFile(path.join(folder, "docs/a.md"), "# A\n\n[b](b.md), [out](../../x.md), [a](a.md)\n");
    const { problems } = stage(folder, "/");
    assert.deepEqual(problems.filter((it) => it.startsWith("docs/")), [
      "docs/a.md:3: b.md: no such file", "docs/a.md:3: ../../x.md: no such file",
    ]);
  });

  it("of built pages are checked with their anchors, and so is what a page loads", async () => {
    const { folder } = keep(await temporaryFolder());
    await writeFile(path.join(folder, "a.html"), `
      <link rel="stylesheet" href="https://fonts.example/x.css"><script src="/v/app.js"></script>
      <a href="./b.html#there">1</a> <a href="./b.html#gone">2</a> <a href="/v/c.html">3</a> <a href="/other/">4</a>
      <a href="https://example.com/">5</a> <a href="#own&amp;1">6</a> <h1 id="own&amp;1">A</h1>`);
    await writeFile(path.join(folder, "b.html"), '<h2 id="there">B</h2>');
    await writeFile(path.join(folder, "style.css"), "@import url(//fonts.example/y.css); a { background: url(x.png) }");
    assert.deepEqual(checkLinks(folder, "/v/"), {
      pages: 2,
      links: 6,
      problems: [
        "a.html: loads https://fonts.example/x.css from another server",
        "a.html: /v/app.js: no such page",
        "a.html: ./b.html#gone: no such heading",
        "a.html: /v/c.html: no such page",
        "a.html: /other/: leads out of the site",
        "style.css: loads //fonts.example/y.css from another server",
      ],
    });
  });
});

const skip = isInstalled() ? false : programs.skipBecause("the packages of site/ are not installed (`npm ci`)");
describe("the documentation site", { skip }, () => {
  let output, version, printed, server, browser, axe;

  before(async () => {
    output = await temporaryFolder();
    version = /^version = "(.+)"$/m.exec(await readFile(path.join(ROOT, "Cargo.toml"), "utf8"))[1];
    await mkdir(path.join(output.folder, OLDER));
    await writeFile(path.join(output.folder, OLDER, "index.html"), "<!doctype html><link rel=icon href=data:,><title>older</title>");
    const words = ["--version", version, "--output", output.folder, "--base", PARENT];
    printed = (await run("node", [path.join(ROOT, "site/build.mjs"), ...words], { maxBuffer: 1e7 })).stdout;
    server = await serveFolder(output.folder, { base: PARENT });
  });
  after(async () => {
    server?.close();
    server?.closeAllConnections();
    await output?.remove();
  });

  const built = (name) => readFile(path.join(output.folder, version, name), "utf8");

  it("has a page for each document, and no link that leads nowhere", async () => {
    const [, pages, links] = /(\d+) pages and (\d+) links/.exec(printed);
    assert.ok(Number(pages) > 150 && Number(links) > 10_000, printed);
    const { problems } = checkLinks(path.join(output.folder, version), `${PARENT}${version}/`);
    assert.deepEqual(problems, []);
  });

  it("is readable without scripts, with diagrams and the names of all sections", async () => {
    const page = await built("query-flow.html");
    assert.match(page, /<h1[^>]*>How a query flows/);
    assert.match(page, /<svg role="img" aria-label="The path of a query\. [^"]+"/);
    for (const section of ["Start", "Guides", "Reference", "Concepts", "Project"]) {
      assert.match(page, new RegExp(`<h2 class="text"[^>]*>${section}</h2>`));
    }
  });

  it("shows text as the documents have it", async () => {
    const overview = await built("overview.html");
    assert.match(overview, /<li><p><strong>Queries\.<\/strong> Operations|<li><strong>Queries\.<\/strong> Operations/);
    assert.match(await built("events/directives.html"), /<code>\{\{ args\.id \}\}<\/code>/);
    assert.match(await built("quick-start.html"), /id="1-two-subgraphs"/);
  });

  it("lists its versions, the newest first, and leads to that", async () => {
    assert.deepEqual(JSON.parse(await readFile(path.join(output.folder, "versions.json"), "utf8")), [version, OLDER]);
    assert.match(await readFile(path.join(output.folder, "index.html"), "utf8"), new RegExp(`url=${version}/`));
  });

  describe("in a browser", { skip: programs.skipWithout(programs.chromium, "chromium") }, () => {
    before(async () => {
      axe = await readFile(AXE, "utf8");
      browser = await chromium.launch({ executablePath: programs.chromium(), args: FLAGS });
    });
    after(() => browser?.close());

    async function open(name, { width = 1280, colorScheme = "light" } = {}) {
      const origin = `http://127.0.0.1:${server.address().port}`;
      const viewport = { width, height: 900 };
      const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
      const page = await context.newPage();
      page.setDefaultTimeout(WAIT_TIMEOUT_MS);
      const problems = [];
      page.on("pageerror", (error) => problems.push(error.message));
      page.on("console", (message) => {
        if (message.type() === "error") problems.push(message.text());
      });
      // As in a browser without network access.
      await context.route("**/*", (route) => {
        const url = route.request().url();
        if (url.startsWith(`${origin}${PARENT}`) || url.startsWith("data:")) return route.continue();
        problems.push(`asked for ${url}`);
        return route.abort();
      });
      await page.goto(`${origin}${PARENT}${version}/${name}.html`, { waitUntil: "load" });
      // The page is hydrated once the chooser has asked for the versions.
      await page.locator(".versions li").nth(1).waitFor({ state: "attached" });
      return { page, problems, close: () => context.close() };
    }

    async function checkPage(name, options) {
      const { page, problems, close } = await open(name, options);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(overflow <= 0, `${overflow} pixels too wide`);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run());
      const picture = `site-${name.replaceAll("/", "-")}-${options.width}-${options.colorScheme}`;
      assert.equal((await savePicture(page, picture)).width, options.width);
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((it) => it.html)]), []);
      assert.deepEqual(problems, []);
      await close();
    }

    PAGES.forEach((name, index) => {
      // Each page once on a large and once on a small screen, half of them light and half dark.
      const schemes = index % 2 === 0 ? ["light", "dark"] : ["dark", "light"];
      [1280, 390].forEach((width, at) => {
        it(`${name}: axe finds nothing at ${width} pixels, ${schemes[at]}, and nothing is too wide`, () =>
          checkPage(name, { width, colorScheme: schemes[at] }));
      });
    });

    it("a search by keyboard finds a page and opens it", async () => {
      const { page, problems, close } = await open("index");
      await page.keyboard.press("Control+k");
      await page.locator(".VPLocalSearchBox input").waitFor();
      await page.keyboard.type("coordinated omission");
      // The list may show results for a part of the words before.
      await page.locator(".VPLocalSearchBox .result.selected[href*='load-testing']").waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL(/\/load-testing\.html/);
      await page.locator("main").getByText("coordinated omission").waitFor();
      assert.deepEqual(problems, []);
      await close();
    });

    it("the keyboard reaches the text first, then the navigation and the versions", async () => {
      const { page, problems, close } = await open("overload");
      const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
      await page.keyboard.press("Tab");
      assert.equal(await focused(), "Skip to content");
      const summary = page.locator(".versions.wide summary");
      for (let step = 0; step < 20 && !(await summary.evaluate((it) => it === document.activeElement)); step += 1) {
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press("Enter");
      await page.locator(".versions.wide").getByRole("link", { name: OLDER }).waitFor();
      await page.keyboard.press("Escape");
      await page.locator(".versions.wide").getByRole("link", { name: OLDER }).waitFor({ state: "hidden" });
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await page.waitForURL(new RegExp(`${PARENT}${OLDER}/$`));
      assert.deepEqual(problems, []);
      await close();
    });

    it("dark mode is chosen by a switch, stays, and colours diagrams", async () => {
      const { page, problems, close } = await open("event-flow");
      const colour = () => page.locator(".diagram svg text").first().evaluate((it) => getComputedStyle(it).fill);
      const light = await colour();
      await page.locator(".VPNavBarAppearance button").click();
      const dark = await colour();
      assert.notEqual(dark, light);
      await page.reload();
      await page.locator("html.dark").waitFor({ state: "attached" });
      assert.equal(await colour(), dark);
      assert.deepEqual(problems, []);
      await close();
    });
  });
});

// The console of a graph with 200 subgraphs: it shows all of them, stays usable, and is hardly slower than that of a
// graph with three.
// Runs alone: it compares times.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { assertAccessible } from "../accessibility.mjs";
import { browserForTests, skipWithoutBrowser, takePicture } from "../browser_page.mjs";
import { cells, readConsole, rowOf, updated } from "../console_api.mjs";
import { representations, startSubgraph } from "../counting_subgraph.mjs";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";
import { firstContentMs, longestFrameMs, recordFirstContent } from "../page_times.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

/** The names of the subgraphs. Each has one field of `Item`, and the first one has the field of `Query`. */
const SUBGRAPHS = Array.from({ length: 200 }, (_, index) => `s${String(index).padStart(3, "0")}`);
const fieldOf = (subgraph) => subgraph.replace("s", "value");

/** The fields of one operation. */
const FIELDS_AT_ONCE = 40;
const OPERATIONS = SUBGRAPHS.length / FIELDS_AT_ONCE;

/** The subgraphs that the drawing of the graph has, besides the node of the clients. */
const DRAWN_MAX = 24;

/** The elements that a page may have: some 20 for each subgraph, and those of the frame, the charts and the drawing. */
const ELEMENTS_MAX = 6_000;

/** The subgraphs of the graph whose console is the measure of time. */
const FEW_SUBGRAPHS = SUBGRAPHS.slice(0, 3);

/** A time of the large graph may be this many times that of the small one, and some milliseconds more. */
const TIMES_MAX = 5;
const FIRST_CONTENT_MORE_MS = 500;
const FRAME_MORE_MS = 100;

/** How often each page is opened and updated. The shortest time is that without other work of the machine. */
const MEASUREMENTS = 3;

describe("the console of a graph with 200 subgraphs", () => {
  let subgraph, router, small;

  before(async () => {
    subgraph = await startSubgraph((body) => {
      const names = body.query.match(/value\d{3}/g) ?? [];
      const item = { __typename: "Item", id: "1", ...Object.fromEntries(names.map((name) => [name, name])) };
      return body.query.includes("_entities") ? { _entities: representations(body).map(() => item) } : { item };
    });
    router = await startServe({ supergraph: supergraphOf(SUBGRAPHS, subgraph.url) });
    small = await startServe({ supergraph: supergraphOf(FEW_SUBGRAPHS, subgraph.url) });
    const few = await small.query(`query Part0 { item { ${FEW_SUBGRAPHS.map(fieldOf).join(" ")} } }`);
    assert.equal(few.body.errors, undefined, JSON.stringify(few.body));
    // Each subgraph is asked once for its field, and the first one for the item, too.
    for (let part = 0; part < OPERATIONS; part += 1) {
      const fields = SUBGRAPHS.slice(part * FIELDS_AT_ONCE, (part + 1) * FIELDS_AT_ONCE).map(fieldOf);
      const { body } = await router.query(`query Part${part} { item { ${fields.join(" ")} } }`);
      assert.deepEqual(body, { data: { item: Object.fromEntries(fields.map((name) => [name, name])) } });
    }
  });
  after(async () => {
    await router?.stop();
    await small?.stop();
    await subgraph?.stop();
  });

  it("has the traffic and the figures of each subgraph", async () => {
    const { traffic, subgraphs } = (await readConsole(router, "graph")).body;
    const [first, ...others] = SUBGRAPHS;
    assert.deepEqual(
      traffic.map(({ from, to, requests }) => `${from} > ${to}: ${requests}`).toSorted(),
      [`null > ${first}: ${OPERATIONS}`, ...others.map((name) => `${first} > ${name}: 1`)].toSorted(),
    );
    assert.deepEqual(subgraphs.map(({ name }) => name).toSorted(), SUBGRAPHS);
    const { body } = await readConsole(router, "overview");
    const requests = new Map(body.subgraphs.map((it) => [it.name, it.requestsSinceStart]));
    assert.equal(requests.size, SUBGRAPHS.length);
    for (const name of SUBGRAPHS) assert.equal(requests.get(name), name === first ? OPERATIONS : 1, name);
  });

  describe("in a browser", { skip: skipWithoutBrowser() }, () => {
    const browser = browserForTests();

    async function open(address, { target = router, ...options } = {}) {
      const opened = await browser.openPage(target.admin, `/console/${address}`, options);
      await updated(opened.page);
      return opened;
    }

    /** The rows of the table with exactly that caption. */
    const rowsOf = (page, caption) => page.getByRole("table", { name: caption, exact: true }).locator("tbody tr");

    const updatesOf = async (page) => Number(await page.locator("main").getAttribute("data-updated"));

    /** How many elements two updates of the page add outside of drawings, which are drawn again. */
    async function addedByUpdates(page) {
      await page.evaluate(() => {
        window.added = [];
        const isCounted = (node) => node instanceof HTMLElement && !node.closest(".drawing");
        const note = (records) => {
          const nodes = records.flatMap(({ addedNodes }) => [...addedNodes]);
          window.added.push(...nodes.filter(isCounted).map((it) => it.outerHTML.slice(0, 100)));
        };
        new MutationObserver(note).observe(document.querySelector("main"), { childList: true, subtree: true });
      });
      const from = await updatesOf(page);
      await eventually(async () => (await updatesOf(page)) >= from + 2, "two updates");
      return page.evaluate(() => window.added);
    }

    const elementsOf = (page) => page.evaluate(() => document.querySelectorAll("*").length);

    it("the graph lists all subgraphs, and draws those with the most traffic", async () => {
      const { page, problems, close } = await open("#graph");
      assert.equal(await rowsOf(page, "Subgraphs").count(), SUBGRAPHS.length);
      assert.equal(await rowsOf(page, "Traffic").count(), SUBGRAPHS.length);
      const names = await rowsOf(page, "Subgraphs").locator("th").allTextContents();
      assert.deepEqual(names.toSorted(), SUBGRAPHS);
      assert.equal(await page.locator("svg .node").count(), DRAWN_MAX + 1);
      await page.getByText(`and ${SUBGRAPHS.length - DRAWN_MAX} subgraphs with less traffic`).waitFor();
      const item = await cells(rowsOf(page, "Types").filter({ hasText: "Item" }));
      assert.equal(item[3], `${SUBGRAPHS.slice(0, 8).join(", ")} and 192 more`);
      const elements = await elementsOf(page);
      assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);

      await page.getByLabel("Filter subgraphs in: Subgraphs").fill("s117");
      assert.equal(await rowsOf(page, "Subgraphs").count(), 1);
      await page.getByLabel("Filter subgraphs in: Subgraphs").fill("");
      assert.equal(await rowsOf(page, "Subgraphs").count(), SUBGRAPHS.length);
      await assertAccessible(page);
      await takePicture(page, "console-large-graph");
      assert.deepEqual(problems, []);
      await close();
    });

    it("the overview lists all subgraphs, and shows the charts of one", async () => {
      const { page, problems, close } = await open("");
      const caption = "Subgraphs, in the last minute";
      assert.equal(await rowsOf(page, caption).count(), SUBGRAPHS.length);
      const elements = await elementsOf(page);
      assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);
      await assertAccessible(page);
      await takePicture(page, "console-large-overview");

      await page.getByLabel(`Filter subgraphs in: ${caption}`).fill("s117");
      assert.equal(await rowsOf(page, caption).count(), 1);
      const row = await cells(rowOf(page, caption, "s117"));
      assert.deepEqual([row[0], row[1], row.at(-1)], ["s117", "healthy", "1"]);
      await page.getByRole("button", { name: "s117" }).press("Enter");
      await page.locator("#subgraph-latency").waitFor();
      assert.deepEqual(problems, []);
      await close();
    });

    for (const name of ["overview", "graph"]) {
      it(`an update of the ${name} builds no part of its tables again`, async () => {
        const { page, problems, close } = await open(`#${name}`);
        // The order of the rows stays, also when the requests are older than a minute.
        await page.locator("button.sort").filter({ hasText: /^Subgraph$/ }).click();
        const added = await addedByUpdates(page);
        // The lines of empty tables and of the last reload are made again, and problems come and go.
        assert.ok(added.length < 10, `${added.length} elements, such as ${added[0]}`);
        assert.deepEqual(problems, []);
        await close();
      });
    }

    /** The times of one visit of a page, in milliseconds. */
    async function visit(target, name) {
      const { page, close } = await open(`#${name}`, { target, script: recordFirstContent });
      const times = { content: await firstContentMs(page), frame: await longestFrameMs(page, MEASUREMENTS) };
      await close();
      return times;
    }

    for (const name of ["overview", "operations", "graph", "live", "slow", "tools"]) {
      it(`${name} is shown and updated hardly more slowly than that of a small graph`, async (test) => {
        const best = { large: { content: Infinity, frame: Infinity }, small: { content: Infinity, frame: Infinity } };
        for (let count = 0; count < MEASUREMENTS; count += 1) {
          // In turn, so that other work of the machine affects both.
          for (const [size, target] of [["small", small], ["large", router]]) {
            for (const [figure, took] of Object.entries(await visit(target, name))) {
              best[size][figure] = Math.min(best[size][figure], took);
            }
          }
        }
        for (const [figure, what, more] of [
          ["content", "until its data is shown", FIRST_CONTENT_MORE_MS],
          ["frame", "the longest frame of an update", FRAME_MORE_MS],
        ]) {
          const [took, base] = [best.large[figure], best.small[figure]];
          const text = `${name}, ${what}: ${took.toFixed(0)} ms, with three subgraphs ${base.toFixed(0)} ms`;
          test.diagnostic(text);
          assert.ok(took <= TIMES_MAX * base + more, text);
        }
      });
    }

    it("the plan of an operation over 40 subgraphs is one stop of the Tab key", async () => {
      const { page, problems, close } = await open("#operations/query%2FPart1");
      const nodes = page.locator(".plan svg .node");
      // The item comes from the first subgraph, and each of the fields from another one.
      assert.equal(await nodes.count(), FIELDS_AT_ONCE + 1);
      assert.equal(await page.locator(".plan svg .node[tabindex='0']").count(), 1);
      await assertAccessible(page);
      assert.deepEqual(problems, []);
      await close();
    });
  });
});

/** A supergraph with all of its subgraphs at one address. */
function supergraphOf(subgraphs, url) {
  const graphs = subgraphs.map((name) => name.toUpperCase());
  return `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION)
{
  query: Query
}

${JOIN_DEFINITIONS}
enum join__Graph {
${subgraphs.map((name) => `  ${name.toUpperCase()} @join__graph(name: "${name}", url: "${url}")`).join("\n")}
}

type Query
${graphs.map((graph) => `  @join__type(graph: ${graph})`).join("\n")}
{
  item: Item @join__field(graph: ${graphs[0]})
}

type Item
${graphs.map((graph) => `  @join__type(graph: ${graph}, key: "id")`).join("\n")}
{
  id: ID!
${subgraphs.map((name) => `  ${fieldOf(name)}: String @join__field(graph: ${name.toUpperCase()})`).join("\n")}
}
`;
}

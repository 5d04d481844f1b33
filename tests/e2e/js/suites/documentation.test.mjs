// Every sample of README.md and the pages below docs, run as if a reader copied it.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { blocksOf, commandsOf, strayAnnotations } from "../documentation/blocks.mjs";
import { RUN_ELSEWHERE, openPage, runBlock } from "../documentation/page.mjs";
import { startDemo } from "../router.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");

/** More pages would only wait for the two cores that the tests are designed for. */
const PAGES_AT_ONCE = 2;

const documents = (await readdir(path.join(ROOT, "docs"), { recursive: true })).filter((name) => name.endsWith(".md")).sort();
const pages = ["README.md", ...documents.map((name) => `docs/${name}`)]
  .filter((name) => !process.env.STARLING_TEST_PAGE || name.includes(process.env.STARLING_TEST_PAGE));

// Pages have separate folders and ports.
describe("documentation", { concurrency: PAGES_AT_ONCE }, () => {
  let demo;
  before(async () => {
    demo = await startDemo();
  });
  after(async () => {
    await demo?.stop();
  });

  for (const name of pages) {
    it(`${name}: every sample works as documented`, async (test) => {
      const markdown = await readFile(path.join(ROOT, name), "utf8");
      assert.deepEqual(strayAnnotations(markdown, name), [], "annotations that belong to no block");
      const blocks = blocksOf(markdown, name);
      const page = await openPage(demo, blocks);
      const problems = [];
      try {
        for (const block of blocks) {
          const elsewhere = RUN_ELSEWHERE[block.annotation.setup];
          try {
            const how = elsewhere ? `run by ${elsewhere}.test.mjs` : await runBlock(page, block);
            test.diagnostic(`${block.place} ${block.language || "-"}: ${how}`);
          } catch (error) {
            problems.push(`${block.place}: ${error.message}`);
          }
        }
      } finally {
        await page.close();
      }
      assert.equal(problems.length, 0, problems.join("\n\n"));
    });
  }
});

describe("blocks of a page", () => {
  it("have their position, language, annotation, and text without indentation", () => {
    const markdown = "1. A step:\n\n   <!-- test: background until=\"listens on \\\"x\\\"\" file=a.yaml -->\n   ```sh\n   one\n     two\n   ```\n";
    assert.deepEqual(blocksOf(markdown, "page.md"), [{
      page: "page.md", line: 4, place: "page.md:4", language: "sh",
      annotation: { background: true, until: 'listens on "x"', file: "a.yaml" }, text: "one\n  two\n",
    }]);
  });

  it("refuse annotations without effect", () => {
    const withAnnotation = (annotation) => `<!-- test: ${annotation} -->\n\`\`\`sh\ntrue\n\`\`\`\n`;
    assert.throws(() => blocksOf(withAnnotation("backgruond"), "p"), /p:2: the annotation has an unknown word `backgruond`/);
    assert.throws(() => blocksOf(withAnnotation("fil=x"), "p"), /unknown key `fil`/);
    assert.throws(() => blocksOf(withAnnotation("not-run"), "p"), /needs a `reason`/);
    assert.throws(() => blocksOf("```sh\ntrue\n", "p"), /p:1: the fence is never closed/);
    assert.deepEqual(strayAnnotations("<!-- test: errors -->\n\n```sh\n", "p"), ["p:1"]);
  });

  it("are divided into commands that may span lines", () => {
    const text = "# first\ncurl -N a \\\n  -d 'x { a { \ny'\nfor i in 1 2; do\n  echo $i\ndone\ncat <<END\nz\nEND\nls\n";
    assert.deepEqual(commandsOf(text), [
      "curl -N a \\\n  -d 'x { a { \ny'", "for i in 1 2; do\n  echo $i\ndone", "cat <<END\nz\nEND", "ls",
    ]);
  });
});

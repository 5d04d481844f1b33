// The output of the demo contains the first commands that a new user tries.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { assertGood, outcome, parseCurl, sendPrintedCommands } from "../printed_curl.mjs";
import { startDemo } from "../router.mjs";

describe("demo", () => {
  let router;
  before(async () => {
    router = await startDemo();
  });
  after(async () => {
    if (router) assert.equal(await router.stop(), 0, router.output());
  });

  it("prints an address to open and two curl commands, and both work", async () => {
    await sendPrintedCommands(router);
    assert.ok(router.output().includes(`${router.url}/`), router.output());
  });

  it("matches the curl commands of the README", async () => {
    const readme = await readFile(path.join(import.meta.dirname, "../../../../README.md"), "utf8");
    const lines = readme.replace(/\\\n\s*/g, "").split("\n").map((line) => line.trim())
      .filter((line) => line.startsWith("curl "))
      .map((line) => line
        .replaceAll("http://127.0.0.1:4000", router.url)
        .replaceAll("http://127.0.0.1:8088", router.admin));
    assert.ok(lines.length >= 2, "the README shows curl lines");
    for (const line of lines) assertGood(await outcome(parseCurl(line)));
  });
});

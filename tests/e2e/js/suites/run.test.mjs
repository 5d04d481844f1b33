// The runner of the suites repeats files that failed while the machine stood still, and only those.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";

const RUNNER = path.join(import.meta.dirname, "../run.mjs");

/** The clock of a machine that stood still for a minute when a file came into being. */
const jumpingClock = (marker) => `data:text/javascript,${encodeURIComponent(`
import { existsSync } from "node:fs";
import { performance } from "node:perf_hooks";
const now = performance.now.bind(performance);
performance.now = () => now() + (existsSync(${JSON.stringify(marker)}) ? 60_000 : 0);
`)}`;

/** A suite whose test fails in its first run. */
const suite = (marker) => `
import { existsSync, writeFileSync } from "node:fs";
import { it } from "node:test";
it("passes when it is repeated", async () => {
  if (existsSync(${JSON.stringify(marker)})) return;
  writeFileSync(${JSON.stringify(marker)}, "");
  throw new Error("the first run");
});
it("always passes", () => {});
`;

describe("the runner of the suites", () => {
  let folder;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-run-"));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  /** Runs the suite on a machine that stands still meanwhile, or on another one. */
  async function run({ standsStill }) {
    const suites = await mkdtemp(path.join(folder, "suites-"));
    const report = path.join(suites, "report.json");
    const marker = path.join(suites, "marker");
    await writeFile(path.join(suites, "a.test.mjs"), suite(marker));
    const clock = standsStill ? ["--import", jumpingClock(marker)] : [];
    const env = { ...process.env };
    // Set by the runner of this file: the inner one would print for it, and not for people.
    delete env.NODE_TEST_CONTEXT;
    const output = await new Promise((resolve) => {
      const command = [...clock, RUNNER, report, "60000", suites];
      execFile(process.execPath, command, { env }, (_error, stdout) => resolve(stdout));
    });
    return { output, ...JSON.parse(await readFile(report, "utf8")) };
  }

  it("repeats a file that failed while the machine stood still", async () => {
    const { output, ...report } = await run({ standsStill: true });
    assert.match(output, /The machine stood still for 6\d{4} ms. What failed meanwhile runs again: a\.test\.mjs/);
    assert.deepEqual(report, { passed: 2, failed: [], skipped: [] });
  });

  it("repeats no other file that failed", async () => {
    const { output, passed, failed } = await run({ standsStill: false });
    assert.doesNotMatch(output, /stood still/);
    assert.equal(passed, 1);
    assert.equal(failed.length, 1);
    assert.match(failed[0], /a\.test\.mjs: passes when it is repeated: Error: the first run/);
  });
});

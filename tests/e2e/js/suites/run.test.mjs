// The runner of the suites repeats files that failed while the machine stood still, and only those.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";

const RUNNER = path.join(import.meta.dirname, "../run.mjs");

/** Stops the runner, as a hypervisor stops a machine, for longer than any load would delay it. */
const STAND_STILL = `
process.kill(process.ppid, "SIGSTOP");
await setTimeout(12_000);
process.kill(process.ppid, "SIGCONT");
`;

/** A suite whose test fails in its first run. */
const suite = (marker, standstill) => `
import { existsSync, writeFileSync } from "node:fs";
import { it } from "node:test";
import { setTimeout } from "node:timers/promises";
it("passes when it is repeated", async () => {
  if (existsSync(${JSON.stringify(marker)})) return;
  writeFileSync(${JSON.stringify(marker)}, "");
  ${standstill}
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

  async function run(standstill) {
    const suites = await mkdtemp(path.join(folder, "suites-"));
    const report = path.join(suites, "report.json");
    await writeFile(path.join(suites, "a.test.mjs"), suite(path.join(suites, "marker"), standstill));
    const env = { ...process.env };
    // Set by the runner of this file: the inner one would print for it, and not for people.
    delete env.NODE_TEST_CONTEXT;
    const output = await new Promise((resolve) => {
      execFile(process.execPath, [RUNNER, report, "60000", suites], { env }, (_error, stdout) => resolve(stdout));
    });
    return { output, ...JSON.parse(await readFile(report, "utf8")) };
  }

  it("repeats a file that failed while the machine stood still", async () => {
    const { output, ...report } = await run(STAND_STILL);
    assert.match(output, /The machine stood still for 1\d{4} ms. What failed meanwhile runs again: a\.test\.mjs/);
    assert.deepEqual(report, { passed: 2, failed: [], skipped: [] });
  });

  it("repeats no other file that failed", async () => {
    const { output, passed, failed } = await run("");
    assert.doesNotMatch(output, /stood still/);
    assert.equal(passed, 1);
    assert.equal(failed.length, 1);
    assert.match(failed[0], /a\.test\.mjs: passes when it is repeated: Error: the first run/);
  });
});

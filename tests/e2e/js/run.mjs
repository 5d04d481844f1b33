// Runs the suites with the test runner of Node.js: `node run.mjs REPORT TIMEOUT_MS FOLDER [FILTER]`, where the timeout
// applies to one file. Two files run at a time, because one leaves half of two cores idle. Then those run one after the
// other that have a line `// Runs alone: REASON` in their first comment, because others would change what they measure.
// Prints the report of Node.js and, if suites have taken pictures of pages, their folder. Writes
// `{passed, failed: ["file: name: reason"], skipped: ["name: reason"]}` to REPORT.
// A filter that is part of a suite's file name selects the whole suite, otherwise the tests or groups whose name
// contains it. Files that fail while the machine stands still run once more: a hypervisor that takes a snapshot stops
// all programs for longer than the timeouts of load balancers, and that says nothing about the router.
import { readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { Readable } from "node:stream";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { watchStandstills } from "./machine_standstills.mjs";
import { PICTURES, countPictures } from "./pictures.mjs";

/** Node.js 20 reports a filtered test as skipped with this reason; newer versions do not. */
const LEFT_OUT = "test name does not match pattern";

/** The files that run at a time. */
const FILES_AT_ONCE = 2;

/** The characters that are reported of a failed test. */
const FAILURE_LENGTH_MAX = 4000;

const [reportFile, timeout, suites, filter] = process.argv.slice(2);
const folder = path.resolve(suites);
const all = (await readdir(folder)).filter((name) => name.endsWith(".test.mjs")).sort();
const named = filter ? all.filter((name) => name.includes(filter)) : all;
const files = (named.length > 0 ? named : all).map((name) => path.join(folder, name));
const byName = filter && named.length === 0;

const began = Date.now();
const alone = [];
const beside = [];
for (const file of files) (await runsAlone(file) ? alone : beside).push(file);
/** `{passed, failed, skipped}` of each file. */
const results = new Map();
await runAndRepeat(beside, FILES_AT_ONCE);
for (const file of alone) await runAndRepeat([file], 1);
const report = { passed: 0, failed: [], skipped: [] };
for (const { passed, failed, skipped } of results.values()) {
  report.passed += passed;
  report.failed.push(...failed);
  report.skipped.push(...skipped);
}
const pictures = await countPictures(began);
if (pictures > 0) console.log(`${pictures} pictures of pages are in ${PICTURES}`);
await writeFile(reportFile, JSON.stringify(report));
process.exitCode = report.failed.length > 0 ? 1 : 0;

/** Tells whether the first comment of a suite says that it runs alone. */
async function runsAlone(file) {
  const text = await readFile(file, "utf8");
  return text.split("\n").some((line, index, lines) =>
    line.startsWith("// Runs alone: ") && lines.slice(0, index).every((earlier) => earlier.startsWith("//")));
}

/** Runs files, and once more those that failed if the machine stood still meanwhile. */
async function runAndRepeat(files, concurrency) {
  const standstills = watchStandstills();
  await runFiles(files, concurrency);
  const longest = standstills.stop();
  const failed = files.filter((file) => results.get(file)?.failed.length > 0);
  if (longest === 0 || failed.length === 0) return;
  const names = failed.map((file) => path.basename(file)).join(", ");
  console.log(`The machine stood still for ${longest} ms. What failed meanwhile runs again: ${names}`);
  for (const file of failed) results.delete(file);
  await runFiles(failed, 1);
}

/** Runs files, up to `concurrency` of them at a time, and prints their report. */
async function runFiles(files, concurrency) {
  // Without files, Node.js would look for some.
  if (files.length === 0) return;
  const events = run({
    files,
    concurrency,
    timeout: Number(timeout),
    testNamePatterns: byName ? [new RegExp(filter.replace(/[^\w ]/g, "\\$&"))] : undefined,
  });
  await new Promise((resolve, reject) => {
    Readable.from(counted(events)).compose(new spec()).on("error", reject).on("end", resolve)
      .pipe(process.stdout, { end: false });
  });
}

/** Returns the suite, the name and the beginning of the reason of a failed test. */
function failure({ file, name, details }) {
  const reason = details?.error?.cause?.stack ?? details?.error?.message ?? "no reason";
  return `${path.basename(file ?? "")}: ${name}: ${reason}`.slice(0, FAILURE_LENGTH_MAX);
}

/** The result of a file so far. */
function resultOf(file) {
  const result = results.get(file) ?? { passed: 0, failed: [], skipped: [] };
  results.set(file, result);
  return result;
}

/** Forwards events and counts tests, without groups and filtered tests. */
async function* counted(source) {
  for await (const event of source) {
    const { type, data } = event;
    if (type === "test:pass" || type === "test:fail") {
      const result = resultOf(data.file);
      const isGroup = data.details?.type === "suite";
      if (type === "test:fail" && data.todo === undefined) {
        // The failed tests of a group have been counted already.
        if (data.details?.error?.failureType !== "subtestsFailed") result.failed.push(failure(data));
      } else if (data.skip === LEFT_OUT) {
        // Neither passed nor skipped. The reporter still needs the event.
      } else if (data.skip !== undefined || data.todo !== undefined) {
        result.skipped.push(`${data.name}: ${data.skip ?? data.todo}`);
      } else if (!isGroup) {
        result.passed += 1;
      }
    }
    // The runner's own totals count filtered tests as skipped.
    if (byName && type === "test:diagnostic" && data.nesting === 0) continue;
    yield event;
  }
}

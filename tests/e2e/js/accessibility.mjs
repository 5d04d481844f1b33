// Checks of pages that hold for all of them: they fit into the window, and axe finds nothing.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Fails if a page is wider than its window, or is not accessible. */
export async function assertAccessible(page) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${overflow} pixels too wide`);
  // Evaluated by the debugger, which the policy of the page does not concern.
  await page.evaluate(await readFile(AXE, "utf8"));
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((it) => it.html)]), []);
}

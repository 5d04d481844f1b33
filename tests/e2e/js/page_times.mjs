// The times of pages of the console, measured in the browser itself: until a page shows its data, and of its frames
// while it is updated.
import { WAIT_TIMEOUT_MS, eventually } from "./waiting.mjs";

/** For the option `script` of `openPage`: records when the data of a page is painted for the first time. */
export function recordFirstContent() {
  const observer = new MutationObserver(() => {
    observer.disconnect();
    // The frame with the data is painted between this callback and the next task.
    requestAnimationFrame(() => setTimeout(() => {
      window.firstContentMs = performance.now();
    }));
  });
  observer.observe(document, { attributes: true, subtree: true, attributeFilter: ["data-updated"] });
}

/** The milliseconds from the start of the navigation until the data was painted. */
export const firstContentMs = (page) =>
  eventually(() => page.evaluate(() => window.firstContentMs ?? null), "the data to be painted");

/**
 * Updates the page `count` times, and returns the longest time between two frames in the best of these updates, in
 * milliseconds: other work of the machine only adds to it.
 */
export const longestFrameMs = (page, count) => page.evaluate(async ({ count, limit }) => {
  const main = document.querySelector("main");
  const frame = () => new Promise(requestAnimationFrame);
  let best = Infinity;
  for (let number = 0; number < count; number += 1) {
    const before = main.dataset.updated;
    const began = await frame();
    let [last, longest, isShown] = [began, 0, false];
    // An update of the page comes with this, and not only after some seconds.
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    for (let isPainted = false; !isPainted;) {
      const now = await frame();
      if (now - began > limit) throw new Error(`no update within ${limit} ms`);
      longest = Math.max(longest, now - last);
      last = now;
      // The frame that follows the update has waited for its layout.
      isPainted = isShown;
      isShown = main.dataset.updated !== before;
    }
    best = Math.min(best, longest);
  }
  return best;
}, { count, limit: WAIT_TIMEOUT_MS });

// Waiting for things that happen elsewhere, always with a deadline.
import { setTimeout as pause } from "node:timers/promises";

/** Until a router, a broker or a page has done what a test waits for, on a busy machine. */
export const PATIENCE_MS = 30_000;

/** How often a condition that nobody announces is looked at. */
const POLL_MS = 20;

/** Settles as `promise` does, or fails after `ms` naming `what`. */
export async function within(promise, what, ms = PATIENCE_MS) {
  const timer = new AbortController();
  const late = pause(ms, undefined, { signal: timer.signal }).then(
    () => Promise.reject(new Error(`waited ${ms} ms for ${what}`)),
    () => new Promise(() => {}),
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}

/** The first truthy answer of `look`, asked again and again. A `look` that throws is asked again. */
export async function eventually(look, what, ms = PATIENCE_MS) {
  const deadline = Date.now() + ms;
  let problem = "";
  for (;;) {
    try {
      const answer = await look();
      if (answer) return answer;
    } catch (error) {
      if (error.fatal) throw error;
      problem = `: ${error.message}`;
    }
    if (Date.now() >= deadline) throw new Error(`waited ${ms} ms for ${what}${problem}`);
    await pause(POLL_MS);
  }
}

/**
 * Does `act(n)` for n = 0, 1, 2, … until `done` settles, and answers with its value. For events
 * that nobody keeps for a subscriber who comes later: no protocol says when a subscription has
 * reached the broker, so a test publishes until one has arrived.
 */
export async function repeatUntil(done, act, what) {
  let over = false;
  const finished = within(done, what).finally(() => {
    over = true;
  });
  finished.catch(() => {});
  for (let number = 0; !over; number += 1) {
    await act(number);
    await Promise.race([finished.catch(() => {}), pause(POLL_MS * 2)]);
  }
  return finished;
}

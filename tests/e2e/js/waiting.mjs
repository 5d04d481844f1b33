// Waiting for conditions in other processes, always with a timeout.
import { setTimeout as pause } from "node:timers/promises";

/** Time until a router, a broker or a page has reached the condition of a test, on a busy machine. */
export const WAIT_TIMEOUT_MS = 30_000;

/** How often a condition without a notification is checked. */
const POLL_MS = 20;

/** Settles as `promise` does, or fails after `ms` with a message that contains `condition`. */
export async function within(promise, condition, ms = WAIT_TIMEOUT_MS) {
  const timer = new AbortController();
  const late = pause(ms, undefined, { signal: timer.signal }).then(
    () => Promise.reject(new Error(`waited ${ms} ms for ${condition}`)),
    () => new Promise(() => {}),
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}

/** The first truthy result of `probe`, which is called repeatedly. An exception counts as no result. */
export async function eventually(probe, condition, ms = WAIT_TIMEOUT_MS) {
  const deadline = Date.now() + ms;
  let problem = "";
  for (;;) {
    try {
      const value = await probe();
      if (value) return value;
    } catch (error) {
      if (error.fatal) throw error;
      problem = `: ${error.message}`;
    }
    if (Date.now() >= deadline) throw new Error(`waited ${ms} ms for ${condition}${problem}`);
    await pause(POLL_MS);
  }
}

/**
 * Calls `act(n)` for n = 0, 1, 2, … until `done` settles, and returns its value. For events that are not stored for
 * later subscribers: no protocol reports when a subscription has reached the broker, so a test publishes until an
 * event has arrived.
 */
export async function repeatUntil(done, act, condition) {
  let over = false;
  const finished = within(done, condition).finally(() => {
    over = true;
  });
  finished.catch(() => {});
  for (let number = 0; !over; number += 1) {
    await act(number);
    await Promise.race([finished.catch(() => {}), pause(POLL_MS * 2)]);
  }
  return finished;
}

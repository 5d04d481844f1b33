// Notices that the whole machine stood still: a hypervisor stopped it, for example to take a snapshot, and its clocks
// went on. Timeouts of all programs are over then, although nothing was slow.
import { performance } from "node:perf_hooks";

/** A process that does next to nothing is not delayed this long by load. */
const STANDSTILL_MS = 10_000;

const TICK_MS = 1_000;

/** Watches from now on. `stop()` returns the longest standstill in milliseconds, or 0 if there was none. */
export function watchStandstills() {
  let last = performance.now();
  let longest = 0;
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, TICK_MS);
  return {
    stop() {
      look();
      clearInterval(timer);
      return longest < STANDSTILL_MS ? 0 : Math.round(longest);
    },
  };
}

// Rates of counters, from their differences between two readings.

/**
 * Returns a function that begins a reading at a time in seconds, which is now by default. It returns a function for the
 * rate of a counter since the reading before, by the names of the counter; null if that is not known.
 */
export function counterRates() {
  let before = new Map();
  let beforeAt = null;
  return (now = performance.now() / 1_000) => {
    const earlier = before;
    const elapsed = beforeAt === null ? 0 : now - beforeAt;
    const counts = new Map();
    ((before = counts), (beforeAt = now));
    return (names, value) => {
      const key = JSON.stringify(names);
      counts.set(key, value);
      const known = earlier.get(key);
      // A counter that is smaller than before has begun again.
      return elapsed <= 0 || known === undefined || value < known ? null : (value - known) / elapsed;
    };
  };
}

// Rates of counters, from their differences between two readings, and the rate of failures at which a subgraph fails.

/** The share of requests with errors from which a subgraph counts as failing. */
const FAILED_SHARE = 0.1;

/** The minimum number of requests for this: of fewer, one with an error is no rate. */
const REQUESTS_MIN = 10;

/** True if a subgraph with these requests and errors fails. */
export const isFailing = ({ requests, errors }) =>
  requests >= REQUESTS_MIN && errors >= FAILED_SHARE * requests;

/**
 * Returns a function that begins a reading. It returns a function for the rate per second of a counter since the
 * reading before, by the names of the counter; null if that is not known.
 */
export function counterRates() {
  let before = new Map();
  let beforeAt = null;
  return () => {
    const now = performance.now() / 1_000;
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

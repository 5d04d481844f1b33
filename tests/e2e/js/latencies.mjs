// The latencies of requests to several routers, which are measured in turn so that other work of the machine affects
// all of them.

/** The requests to each router before those that are measured, for connections and caches. */
const WARM_UP = 30;

/**
 * Sends `count` requests to each side, one after the other and side by side. `sides` are functions by name that send a
 * request and resolve with its response. Returns `{median, p99}` by name, in milliseconds.
 */
export async function measureInTurn(sides, count) {
  const took = new Map(Object.keys(sides).map((name) => [name, []]));
  for (let number = 0; number < WARM_UP + count; number += 1) {
    const entries = Object.entries(sides);
    // In every second round in the reverse order: the first request after a pause may be slower.
    for (const [name, send] of number % 2 === 0 ? entries : entries.reverse()) {
      const began = performance.now();
      await send();
      if (number >= WARM_UP) took.get(name).push(performance.now() - began);
    }
  }
  return Object.fromEntries([...took].map(([name, times]) => {
    times.sort((one, other) => one - other);
    return [name, { median: quantile(times, 0.5), p99: quantile(times, 0.99) }];
  }));
}

/**
 * Measures until no side is slower than the side `base` by more than `bounds` allow, at most `attempts` times, and
 * returns what exceeded them the last time, as texts. `bounds` are by figure: `{median: {times, more}}`, where `more`
 * are milliseconds.
 */
export async function slowerThan(base, sides, { count, bounds, attempts }) {
  let problems = [];
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const measured = await measureInTurn(sides, count);
    problems = Object.keys(sides).flatMap((name) =>
      Object.entries(bounds).flatMap(([figure, { times, more }]) => {
        const [own, other] = [measured[name][figure], measured[base][figure]];
        const most = other * times + more;
        return own <= most ? [] : [`${name}, ${figure}: ${own.toFixed(2)} ms, ${base}: ${other.toFixed(2)} ms`];
      }));
    if (problems.length === 0) break;
  }
  return problems;
}

/** The smallest of the ascending values that at least this share of them does not exceed. */
function quantile(values, share) {
  return values[Math.ceil(share * values.length) - 1];
}

// A small seeded generator of random numbers: the same seed gives the same federations on every machine.

/** Returns random choices that depend only on `seed` (the algorithm mulberry32). */
export function seededRandom(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const integer = (least, most) => least + Math.floor(next() * (most - least + 1));
  const chance = (probability) => next() < probability;
  const pick = (values) => values[Math.floor(next() * values.length)];
  const shuffled = (values) => {
    const result = [...values];
    for (let last = result.length - 1; last > 0; last -= 1) {
      const other = integer(0, last);
      [result[last], result[other]] = [result[other], result[last]];
    }
    return result;
  };
  /** Returns `count` different values, or all if there are fewer, in the order of `values`. */
  const sample = (values, count) => {
    const chosen = new Set(shuffled(values.map((_, index) => index)).slice(0, count));
    return values.filter((_, index) => chosen.has(index));
  };
  return { integer, chance, pick, shuffled, sample };
}

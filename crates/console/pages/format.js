// Numbers as people read them.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const rounded = (value, digits) =>
  new Intl.NumberFormat("en", { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);

/** A whole number. */
export const count = (value) => plain.format(value);

/** A number with three significant digits at most; large ones with a unit. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${short(value / 1e9)} G`;
  if (size >= 1e6) return `${short(value / 1e6)} M`;
  if (size >= 1e4) return `${short(value / 1e3)} k`;
  if (size >= 100 || Number.isInteger(value)) return plain.format(value);
  return rounded(value, size >= 10 ? 1 : 2);
}

/** A rate. */
export const perSecond = (value) => (value === null ? "–" : `${short(value)}/s`);

/** A duration in seconds with its unit. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 ms";
  if (seconds < 0.001) return `${short(seconds * 1e6)} µs`;
  if (seconds < 1) return `${short(seconds * 1e3)} ms`;
  if (seconds < 120) return `${short(seconds)} s`;
  if (seconds < 7200) return `${rounded(seconds / 60, 0)} min`;
  return seconds < 172_800 ? `${rounded(seconds / 3600, 0)} h` : `${rounded(seconds / 86_400, 0)} days`;
}

/** A size in bytes with its unit. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${rounded(value, unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
}

/** A share from 0 to 1. */
export function percent(share) {
  if (share === null || !Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${rounded(value, value === 0 || value >= 10 ? 0 : 1)} %`;
}

/** The first names of a list, and the number of the others. */
export function listed(names, most = 8) {
  const left = names.length - most;
  return left > 0 ? `${names.slice(0, most).join(", ")} and ${count(left)} more` : names.join(", ");
}

/** A number with its noun. */
export const counted = (value, one, several = `${one}s`) => `${count(value)} ${value === 1 ? one : several}`;

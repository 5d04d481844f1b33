// The folder with pictures of pages that the suites take in a browser. `run.mjs` prints its path at the end.
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import process from "node:process";

/** The target folder, which Git ignores, for suites without a router. */
const TARGET = path.resolve(import.meta.dirname, "../../../target");

/** `STARLING_TEST_PICTURES`, otherwise a folder beside the router's binary, in the target folder. */
export const PICTURES = path.resolve(process.env.STARLING_TEST_PICTURES
  ?? path.join(process.env.STARLING_BIN ? path.dirname(process.env.STARLING_BIN) : TARGET, "test-pictures"));

/** Offsets of the width and the height in a PNG file. */
const [WIDTH_AT, HEIGHT_AT] = [16, 20];

/**
 * Writes a picture of a page in a browser to the folder, and returns its size in pixels. `options` are those of
 * Playwright's `screenshot`.
 */
export async function savePicture(page, name, options = {}) {
  const image = await page.screenshot({ ...options, path: path.join(PICTURES, `${name}.png`) });
  return { width: image.readUInt32BE(WIDTH_AT), height: image.readUInt32BE(HEIGHT_AT) };
}

/** The number of pictures that were written since a time, in milliseconds since 1970. */
export async function countPictures(since) {
  const names = await readdir(PICTURES).catch(() => []);
  const files = await Promise.all(names.map((name) => stat(path.join(PICTURES, name))));
  return files.filter(({ mtimeMs }) => mtimeMs >= since).length;
}

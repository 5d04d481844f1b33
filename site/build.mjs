// Builds the documentation site: `node build.mjs --version 0.1.0 --output FOLDER [--base PATH] [--root FOLDER]`.
//
// The site of a version is the folder VERSION of the output, with the address PATH/VERSION/. `versions.json` beside it
// lists all versions that are there, which the chooser of each page reads, and `index.html` leads to the newest. Any
// server of static files can serve the output, under any address that ends with PATH.
//
// Pages are staged in a temporary folder with the configuration and the theme, so that the checkout is only read. The
// build fails if a link or an anchor leads nowhere, or if a page would load anything from another server.
import { cp, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "vitepress";
import { checkLinks } from "./check_links.mjs";
import { stage } from "./stage.mjs";

const HERE = import.meta.dirname;

const { values: options } = parseArgs({
  options: {
    version: { type: "string" },
    output: { type: "string" },
    base: { type: "string", default: "/" },
    root: { type: "string", default: path.join(HERE, "..") },
  },
});

/** A folder of a version: a semantic version. */
const VERSION = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;

function fail(lines) {
  console.error(`site: ${[lines].flat().join("\n  ")}`);
  process.exit(1);
}

if (!options.output) fail("`--output FOLDER` is missing");
if (!VERSION.test(options.version ?? "")) fail("`--version` needs a version such as 0.1.0");
if (!/^\/(.*\/)?$/.test(options.base)) fail("`--base` needs a path that begins and ends with `/`");

const output = path.resolve(options.output);
const base = `${options.base}${options.version}/`;
const site = stage(path.resolve(options.root), base);
if (site.problems.length > 0) fail(["links that lead nowhere:", ...site.problems]);

const work = await mkdtemp(path.join(tmpdir(), "starling-site-"));
try {
  await prepare(work);
  const built = path.join(work, "built");
  await build(work, { outDir: built });
  const { pages, links, problems } = checkLinks(built, base);
  if (problems.length > 0) throw new Error(["the site has links that lead nowhere:", ...problems].join("\n  "));
  await publish(built);
  console.log(`site: ${pages} pages and ${links} links in ${path.join(output, options.version)}`);
} catch (error) {
  await rm(work, { recursive: true, force: true });
  fail(error.message);
}
await rm(work, { recursive: true, force: true });

/** Writes the pages, the configuration and the theme. */
async function prepare(folder) {
  await symlink(path.join(HERE, "node_modules"), path.join(folder, "node_modules"));
  await writeFile(path.join(folder, "package.json"), '{"type": "module"}');
  const write = async (name, text) => {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await writeFile(path.join(folder, name), text);
  };
  for (const [address, text] of site.pages) await write(address, text);
  for (const [address, file] of site.assets) await cp(file, path.join(folder, address));
  await cp(path.join(HERE, "pages"), folder, { recursive: true });
  await cp(path.join(HERE, "public"), path.join(folder, "public"), { recursive: true });
  await cp(path.join(HERE, "theme"), path.join(folder, ".vitepress/theme"), { recursive: true });
  const facts = { version: options.version, parent: options.base, base, sidebar: site.sidebar };
  const module = JSON.stringify(path.join(HERE, "configuration.mjs"));
  await write(
    ".vitepress/config.mjs",
    `import { configuration } from ${module};\nexport default configuration(${JSON.stringify(facts)});\n`,
  );
}

/** Moves the site to its place, and lists the versions that are there. */
async function publish(built) {
  const target = path.join(output, options.version);
  await rm(target, { recursive: true, force: true });
  await mkdir(output, { recursive: true });
  await rename(built, target).catch(() => cp(built, target, { recursive: true }));
  const entries = await readdir(output, { withFileTypes: true });
  const versions = entries.filter((it) => it.isDirectory() && VERSION.test(it.name)).map((it) => it.name).sort(compare);
  await writeFile(path.join(output, "versions.json"), `${JSON.stringify(versions)}\n`);
  const newest = `${versions[0]}/`;
  await writeFile(
    path.join(output, "index.html"),
    `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Starling</title>
<meta http-equiv="refresh" content="0; url=${newest}">
<p><a href="${newest}">The documentation of Starling ${versions[0]}</a></p>
</html>
`,
  );
}

/** Orders versions, the newest first. A version with a suffix comes before the release. */
function compare(a, b) {
  const [left, right] = [a, b].map((version) => {
    const [numbers, suffix] = version.split(/-(.*)/s);
    return { numbers: numbers.split(".").map(Number), suffix };
  });
  for (const index of [0, 1, 2]) {
    const difference = right.numbers[index] - left.numbers[index];
    if (difference !== 0) return difference;
  }
  if (left.suffix === undefined || right.suffix === undefined) return left.suffix === undefined ? -1 : 1;
  return right.suffix.localeCompare(left.suffix, "en", { numeric: true });
}

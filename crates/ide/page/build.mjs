// Bundles the page: `node build.mjs OUT`. ../build.rs runs it in a copy of this folder, after `npm ci`. Writes
// graphiql.js, graphiql.css, a gzipped copy of each and third-party.txt.
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const out = path.resolve(process.argv[2]);
await mkdir(out, { recursive: true });

const { metafile } = await build({
  entryPoints: { graphiql: "src/main.jsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
  // The notices of every bundled package are in third-party.txt.
  legalComments: "none",
  loader: { ".woff2": "dataurl", ".woff": "dataurl", ".ttf": "dataurl", ".svg": "dataurl" },
  logLevel: "warning",
  metafile: true,
});

for (const name of ["graphiql.js", "graphiql.css"]) {
  const file = path.join(out, name);
  const bytes = await readFile(file);
  // A browser without network must be able to show the page: style sheets, fonts and scripts must not come from
  // another origin. Links for users are allowed and not checked.
  const foreign = bytes.toString().match(/@import\s*(?:url\()?["']?https?:|url\(["']?https?:/);
  if (foreign) {
    throw new Error(`${name} would load from another origin: ${foreign[0]}`);
  }
  await writeFile(`${file}.gz`, gzipSync(bytes, { level: constants.Z_BEST_COMPRESSION }));
}
await writeFile(path.join(out, "third-party.txt"), await notices(metafile));

/** Returns name, version, licence and licence text of each package with a byte in the bundle. */
async function notices({ outputs }) {
  const folders = new Set();
  for (const output of Object.values(outputs)) {
    for (const input of Object.keys(output.inputs)) {
      const found = input.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//);
      if (found) folders.add(found[1]);
    }
  }
  const parts = ["Third-party packages in the GraphiQL page of Starling.\n"];
  for (const folder of [...folders].sort()) {
    const about = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((name) => /^(licen[cs]e|copying)/i.test(name));
    const text = file ? await readFile(path.join(folder, file), "utf8") : "(no licence file)\n";
    parts.push(`== ${about.name} ${about.version} (${about.license})\n\n${text.trim()}\n`);
  }
  return parts.join("\n");
}

// A registry for `npm install` with the packages of a `node_modules` folder, so that documented commands run unchanged
// and without network. It has one version of most packages: the installed one.
import { spawn } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";

/** Fields of a manifest that npm needs to resolve dependencies. */
const FIELDS = [
  "name", "version", "bin", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta",
  "engines", "os", "cpu",
];

/** Starts a registry, and returns `{url, stop()}`. */
export async function startNpmRegistry(modules) {
  const packages = new Map();
  for (const folder of await packageFolders(modules)) {
    const manifest = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    if (!manifest.name || !manifest.version) continue;
    const versions = packages.get(manifest.name) ?? new Map();
    if (!versions.has(manifest.version)) versions.set(manifest.version, { folder, manifest });
    packages.set(manifest.name, versions);
  }
  const server = createServer((request, response) => {
    respond(packages, `http://${request.headers.host}`, request.url).then(
      ({ status, type, body }) => response.writeHead(status, { "content-type": type }).end(body),
      (error) => response.writeHead(500).end(error.message),
    );
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    stop: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}

/** The folders of all packages, also of those below the `node_modules` of a package. */
async function packageFolders(modules) {
  const names = await readdir(modules).catch(() => []);
  const folders = [];
  for (const name of names.filter((it) => !it.startsWith("."))) {
    const folder = path.join(modules, name);
    if (name.startsWith("@")) {
      for (const scoped of await readdir(folder)) folders.push(path.join(folder, scoped));
    } else {
      folders.push(folder);
    }
  }
  const nested = await Promise.all(folders.map((folder) => packageFolders(path.join(folder, "node_modules"))));
  return [...folders, ...nested.flat()];
}

/** `/NAME` is the list of versions, `/NAME/-/VERSION.tgz` the archive of one. */
async function respond(packages, origin, target) {
  const [name, version] = decodeURIComponent(new URL(target, origin).pathname.slice(1)).split(/\/-\/(.*)\.tgz$/);
  const versions = packages.get(name);
  const found = version === undefined ? versions : versions?.get(version);
  if (!found) return { status: 404, type: "application/json", body: '{"error":"not found"}' };
  if (version !== undefined) {
    return { status: 200, type: "application/octet-stream", body: await archive(found.folder) };
  }
  const listed = [...versions].map(([number, { manifest }]) => [number, {
    ...Object.fromEntries(FIELDS.filter((field) => manifest[field]).map((field) => [field, manifest[field]])),
    dist: { tarball: `${origin}/${name}/-/${number}.tgz` },
  }]);
  const newest = [...versions.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  const document = { name, "dist-tags": { latest: newest }, versions: Object.fromEntries(listed) };
  return { status: 200, type: "application/json", body: JSON.stringify(document) };
}

/** Packs a package as npm does: its files below `package/`. */
async function archive(folder) {
  const tar = spawn("tar", ["-cz", "--exclude=./node_modules", "--transform=s,^\\.,package,", "-C", folder, "."]);
  const parts = [];
  tar.stdout.on("data", (part) => parts.push(part));
  const code = await new Promise((resolve, reject) => {
    tar.once("error", reject);
    tar.once("close", resolve);
  });
  if (code !== 0) throw new Error(`tar of ${folder} ended with ${code}`);
  return Buffer.concat(parts);
}

// The files that a pod sees of its ConfigMaps, in the layout in which the kubelet writes and updates them.
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import path from "node:path";

/**
 * Writes the projected volumes of a pod (`PodSpec`) below the folder `root`, the root of the container.
 * `configMaps` is `{name: {key: text}}`. A second call updates the files.
 */
export async function writeVolumes(root, { containers, volumes }, configMaps) {
  for (const { name, mountPath } of containers[0].volumeMounts) {
    const projected = volumes.find((it) => it.name === name)?.projected;
    if (projected) await replaceFiles(path.join(root, mountPath), filesOf(projected.sources, configMaps));
  }
}

/** The files of a projected volume, `{name: text}`. */
function filesOf(sources, configMaps) {
  const files = sources.map(({ configMap: { name, items } }) => {
    const data = configMaps[name];
    assert.ok(data, `there is no ConfigMap ${name}`);
    return items ? Object.fromEntries(items.map((item) => [item.path, data[item.key]])) : data;
  });
  const names = files.flatMap((it) => Object.keys(it));
  assert.equal(new Set(names).size, names.length, `a file hides another one: ${names}`);
  return Object.assign({}, ...files);
}

/** The steps of the kubelet: a hidden folder with all files, the link `..data` to it, and a link for each file. */
async function replaceFiles(folder, files) {
  await mkdir(folder, { recursive: true });
  const before = await readdir(folder);
  const current = before.includes("..data") ? await readlink(path.join(folder, "..data")) : null;
  const next = await mkdtemp(path.join(folder, "..2026_"));
  for (const [name, text] of Object.entries(files)) {
    assert.equal(typeof text, "string", `no ConfigMap has the text of ${name}`);
    await writeFile(path.join(next, name), text);
  }
  await symlink(path.basename(next), path.join(folder, "..data_tmp"));
  await rename(path.join(folder, "..data_tmp"), path.join(folder, "..data"));
  for (const name of Object.keys(files)) {
    if (!before.includes(name)) await symlink(path.join("..data", name), path.join(folder, name));
  }
  for (const name of before) {
    if (!name.startsWith("..") && !(name in files)) await rm(path.join(folder, name));
  }
  if (current) await rm(path.join(folder, current), { recursive: true });
}

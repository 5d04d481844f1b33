// Root folders for `chroot`: a small machine of its own, without mounts and without a container engine. It shares the
// network with this machine.
import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { busybox, skipBecause } from "./programs.mjs";
import { run } from "./release_archives.mjs";

/** The libraries of glibc and of GCC that the router may load. Every Debian has them, also `--variant=minbase`. */
const LIBRARIES = /^(ld-linux.*|libc|libm|libdl|libpthread|librt|libgcc_s)\.so\.\d+$/;

/** The paths of the libraries that a program loads. */
async function librariesOf(program) {
  const { out } = await run("ldd", [program]);
  return [...out.matchAll(/(\/\S+) \(0x/g)].map(([, library]) => library);
}

/**
 * Makes a root folder with the named tools, all from busybox, and with the libraries that the router may load and
 * nothing else. Returns `{folder, command(words)}`: `command` are the words that run a program in it.
 */
export async function makeRoot(tools) {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-root-"));
  for (const name of ["bin", "dev", "tmp"]) await mkdir(path.join(folder, name));
  await cp(busybox(), path.join(folder, "bin/busybox"), { dereference: true });
  for (const tool of ["sh", ...tools]) await symlink("busybox", path.join(folder, "bin", tool));
  // Of Debian's two packages of busybox one is linked statically.
  const own = await librariesOf(busybox());
  const routers = await librariesOf(process.env.STARLING_BIN);
  for (const library of [...own, ...routers.filter((library) => LIBRARIES.test(path.basename(library)))]) {
    await mkdir(path.join(folder, path.dirname(library)), { recursive: true });
    await cp(library, path.join(folder, library), { dereference: true });
  }
  // Its path outside is also a path inside, so that commands with absolute paths run on either side.
  await mkdir(path.join(folder, path.dirname(folder)), { recursive: true });
  await symlink("/", path.join(folder, folder));
  const { code, error } = await run("mknod", ["-m", "666", path.join(folder, "dev/null"), "c", "1", "3"]);
  assert.equal(code, 0, error);
  return {
    folder,
    command: (words) => ["/usr/sbin/chroot", folder, ...words],
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Tries what [`makeRoot`] does with the rights of root, in the folder of its parameter. */
const TRIAL = 'mknod "$0/null" c 1 3 && : >"$0/null" && /usr/sbin/chroot / true';

/** For the `skip` option of a test: false, or the reason. Throws under CI=true. */
export async function skipWithoutRoots() {
  if (process.getuid() !== 0) return skipBecause("only root can enter a root folder with `chroot`");
  const folder = await mkdtemp(path.join(tmpdir(), "starling-root-"));
  const { code, error } = await run("sh", ["-c", TRIAL, folder]);
  await rm(folder, { recursive: true, force: true });
  return code === 0 ? false : skipBecause(`a root folder cannot be entered here: ${error.split("\n")[0]}`);
}

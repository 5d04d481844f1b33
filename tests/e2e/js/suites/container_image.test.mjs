// The container image of examples/deployment/Dockerfile, built without a registry and started without an engine.
//
// The first stage compiles the router and needs a registry, so the test builds the last stage from the files that
// packaging/image-root.sh collects, as the first stage does. A start has what an engine gives to a container: the
// user, the working folder and the command of the image, a read-only root file system, and mounts of its own.
//
// The limit on the size holds for a build of packages: `cargo build --profile dist --features full`, then this suite
// with STARLING_BIN=target/dist/starling.
import assert from "node:assert/strict";
import { chmod, copyFile, cp, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { buildah, skipBecause, skipWithout } from "../programs.mjs";
import { filesBelow, run } from "../release_archives.mjs";
import { freePort, start } from "../router.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");

/** With the host, so that buildah searches no registry. */
const IMAGE = "localhost/starling";

/** The most that a pull may transfer. */
const COMPRESSED_BYTES_MAX = 40_000_000;

/** The size of a debug build says nothing. The folder of cargo's profile tells a build of packages. */
const isDist = path.basename(path.dirname(process.env.STARLING_BIN ?? "")) === "dist";

/** Makes the folder $1 a root file system that cannot be written to, with devices, processes, and the files of $2. */
const READ_ONLY_ROOT = `set -e
root=$1 files=$2; shift 2
mkdir -p "$root/dev" "$root/proc"
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$files/config" "$root/etc/starling"
mount --bind "$files/hosts" "$root/etc/hosts"
mount -o remount,bind,ro "$root"
mount -o remount,bind,ro "$root/etc/starling"
mount -o remount,bind,ro "$root/etc/hosts"
exec "$@"`;

/** Tries [`READ_ONLY_ROOT`] with an empty folder, and the user of the image. */
async function skipWithoutMounts() {
  if (process.getuid() !== 0) return skipBecause("only root can mount the root file system of an image");
  const folder = await mkdtemp(path.join(tmpdir(), "starling-mount-"));
  for (const name of ["config", "etc/starling"]) await mkdir(path.join(folder, name), { recursive: true });
  for (const name of ["hosts", "etc/hosts"]) await writeFile(path.join(folder, name), "");
  const asUser = ["unshare", "--root=/", "--setgid=65532", "--setuid=65532", "true"];
  const { code, error } = await run("unshare", ["--mount", "sh", "-c", READ_ONLY_ROOT, "sh", folder, folder, ...asUser]);
  await rm(folder, { recursive: true });
  return code === 0 ? false : skipBecause(`a root file system cannot be mounted here: ${error.split("\n")[0]}`);
}

const skip = skipWithout(buildah, "buildah") || await skipWithoutMounts();

describe("the container image", () => {
  let folder, config, root;

  /** Runs buildah with a storage of its own, which needs no driver of the kernel. */
  async function runBuildah(...words) {
    const [storage, state] = [path.join(folder, "storage"), path.join(folder, "state")];
    const options = ["--storage-driver", "vfs", "--root", storage, "--runroot", state];
    const env = { ...process.env, TMPDIR: folder };
    const { code, out, error } = await run(buildah(), [...options, ...words], { env });
    assert.equal(code, 0, `buildah ${words.join(" ")}: ${error}`);
    return out.trim();
  }

  /** Builds the last stage of the Dockerfile from the files of a folder. */
  async function build(files, ...words) {
    const dockerfile = await readFile(path.join(ROOT, "examples/deployment/Dockerfile"), "utf8");
    const last = dockerfile.slice(dockerfile.lastIndexOf("\nFROM scratch\n"));
    const stage = last.replace("\nCOPY --from=build /image /\n", "\nCOPY . /\n");
    assert.notEqual(stage, last, "the last stage copies /image");
    const file = path.join(folder, "Dockerfile");
    await writeFile(file, stage);
    // Images in the format of OCI have no HEALTHCHECK.
    await runBuildah("build", "--isolation", "chroot", "--format", "docker", ...words, "--file", file, files);
  }

  /** The words that start a program of the image as an engine does. */
  const inContainer = (words) => {
    const [user, group] = config.User.split(":");
    return [
      "/usr/bin/unshare", "--mount", "sh", "-c", READ_ONLY_ROOT, "sh", root, folder, "setpriv", "--no-new-privs",
      "unshare", `--root=${root}`, `--wd=${config.WorkingDir}`, `--setgid=${group}`, `--setuid=${user}`, ...words,
    ];
  };

  async function runInContainer(words) {
    const [program, ...rest] = inContainer(words);
    return run(program, rest);
  }

  before(async () => {
    if (skip) return;
    folder = await mkdtemp(path.join(tmpdir(), "starling-image-"));
    // The user of the image must reach what is mounted.
    await chmod(folder, 0o755);
    const collected = await run("sh", [
      path.join(ROOT, "packaging/image-root.sh"), process.env.STARLING_BIN, path.join(folder, "image"),
    ]);
    assert.deepEqual([collected.code, collected.error], [0, ""]);
    await build(path.join(folder, "image"), "--tag", IMAGE);
    config = JSON.parse(await runBuildah("inspect", "--type", "image", IMAGE)).Docker.config;
    root = await runBuildah("mount", await runBuildah("from", IMAGE));
  });
  after(() => folder && rm(folder, { recursive: true, force: true }));

  it("has a user, a health check and nothing but the router with what it loads", { skip }, async () => {
    assert.equal(config.User, "65532:65532");
    assert.deepEqual(config.Healthcheck.Test.slice(0, 3), ["CMD", "/usr/local/bin/starling", "healthcheck"]);
    const files = await filesBelow(root);
    const libraries = files.filter((file) => /^(usr\/)?lib(64)?\//.test(file));
    for (const library of libraries) {
      assert.match(path.basename(library), /^(ld-linux.*|lib(c|m|gcc_s))\.so\.\d+$/);
    }
    assert.deepEqual(files.filter((file) => !libraries.includes(file)), [
      "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt", "usr/local/bin/starling",
    ]);
  });

  it("serves as its user on a root file system that cannot be written to", { skip }, async () => {
    const ports = { graphql: await freePort(), admin: await freePort() };
    await mkdir(path.join(folder, "config"));
    const supergraph = path.join(ROOT, "fixtures/federation-benchmark/supergraph.graphql");
    await copyFile(supergraph, path.join(folder, "config/supergraph.graphql"));
    const settings = { admin: { listen: `127.0.0.1:${ports.admin}` }, supergraph: { file: "supergraph.graphql" } };
    await writeFile(path.join(folder, "config/starling.yaml"), JSON.stringify(settings));
    await writeFile(path.join(folder, "hosts"), "127.0.0.1 localhost\n");
    await writeFile(path.join(root, "etc/hosts"), "");

    const health = config.Healthcheck.Test.slice(1);
    const early = await runInContainer(health);
    assert.equal(early.code, 1);
    assert.match(early.error, /connection failed/);

    const router = await start(config.Cmd, { ports, command: inContainer(config.Entrypoint) });
    try {
      assert.deepEqual(await runInContainer(health), { code: 0, out: "ready\n", error: "" });
      assert.equal((await router.query("{ __typename }")).body.data.__typename, "Query");
      const status = await readFile(`/proc/${router.pid}/status`, "utf8");
      assert.match(status, /^Uid:\t65532\t65532\t65532\t65532$/m);
      assert.match(status, /^Gid:\t65532\t65532\t65532\t65532$/m);
      assert.match(status, /^Groups:\s*$/m);
      assert.match(status, /^CapEff:\t0+$/m);
      const mounts = await readFile(`/proc/${router.pid}/mounts`, "utf8");
      assert.match(mounts, /^\S+ \/ \S+ ro[, ]/m);
      // Names of /etc/hosts resolve, which needs files of glibc.
      const url = `http://localhost:${ports.admin}/health/live`;
      const named = await runInContainer([...config.Entrypoint, "healthcheck", "--url", url]);
      assert.deepEqual(named, { code: 0, out: "live\n", error: "" });
    } finally {
      assert.equal(await router.stop(), 0, router.output());
    }
  });

  it("is built for each architecture by the same Dockerfile", { skip }, async () => {
    // The files of this machine stand in for those of the other one: nothing in the last stage runs them.
    const files = path.join(folder, "small");
    await mkdir(files);
    await cp(path.join(folder, "image/etc"), path.join(files, "etc"), { recursive: true });
    await build(files, "--platform", "linux/amd64,linux/arm64", "--manifest", `${IMAGE}-all`);
    const { manifests } = JSON.parse(await runBuildah("manifest", "inspect", `${IMAGE}-all`));
    const platforms = manifests.map(({ platform }) => `${platform.os}/${platform.architecture}`);
    assert.deepEqual(platforms.sort(), ["linux/amd64", "linux/arm64"]);
  });

  it("is small", { skip }, async (test) => {
    const { size } = await stat(path.join(root, "usr/local/bin/starling"));
    test.diagnostic(`the program has ${size} bytes${isDist ? "" : " in this debug build, for which there is no limit"}`);
    if (!isDist) return;
    const packed = await run("sh", ["-c", 'tar -cC "$0" . | gzip | wc -c', path.join(folder, "image")]);
    test.diagnostic(`compressed, the image has ${packed.out.trim()} bytes`);
    assert.ok(Number(packed.out) < COMPRESSED_BYTES_MAX, packed.out);
  });
});

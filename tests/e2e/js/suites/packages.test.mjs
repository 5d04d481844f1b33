// The archives of a release, as `cargo xtask dist` makes them, and the script that installs them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { Spec, Validation } from "@cyclonedx/cyclonedx-library";
import { adopt } from "../children.mjs";
import { skipBecause } from "../programs.mjs";
import {
  ARCHIVES, INSTALLER_TOOLS, NAME, TARGET, VERSION, filesBelow, run, skipWithoutArchives,
} from "../release_archives.mjs";
import { startServe } from "../router.mjs";
import { within } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const INSTALLER = path.join(ROOT, "packaging/install.sh");

const hasDpkg = existsSync("/usr/bin/dpkg-deb");

/** Debian's `sh`, which has nothing but POSIX. */
const SHELL = existsSync("/usr/bin/dash") ? "/usr/bin/dash" : "/bin/sh";

const PACKAGE = ARCHIVES && path.join(ARCHIVES, `starling_${VERSION}_${process.arch === "arm64" ? "arm64" : "amd64"}.deb`);

/** Runs the installer in Debian's `sh`. */
const install = (words, env = process.env, script = INSTALLER) => run(SHELL, [script, ...words], { env });

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

describe("the installer", () => {
  let folder;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-install-"));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  let releases = 0;

  /**
   * A folder with an archive, as `cargo xtask dist` makes it, with a script as its program. `extra` are more man pages.
   */
  async function release({ version = "1.0.0", extra = [], program = `echo "starling ${version}"` } = {}) {
    const place = path.join(folder, `release-${releases++}`);
    const name = `starling-${version}-${TARGET}`;
    const files = {
      starling: `#!/bin/sh\n${program}\n`,
      "completions/starling": "", "completions/_starling": "", "completions/starling.fish": "",
      "man/starling.1": "", "licences/LICENSE-MIT": "MIT", "examples/starling.yaml": "", "CHANGELOG.md": "",
      "INSTALLATION.md": "", "sbom.cdx.json": "{}",
      "systemd/starling.service": "ExecStart=/usr/local/bin/starling serve\n",
      ...Object.fromEntries(extra.map((page) => [`man/${page}`, ""])),
    };
    for (const [file, text] of Object.entries(files)) {
      await mkdir(path.join(place, name, path.dirname(file)), { recursive: true });
      await writeFile(path.join(place, name, file), text);
    }
    await chmod(path.join(place, name, "starling"), 0o755);
    const archive = path.join(place, `${name}.tar.gz`);
    assert.equal((await run("tar", ["-czf", archive, "-C", place, name])).code, 0);
    await rm(path.join(place, name), { recursive: true });
    await writeSums(place);
    return { place, archive };
  }

  async function writeSums(place) {
    const names = (await readdir(place)).filter((name) => name !== "SHA256SUMS");
    const lines = await Promise.all(names.map(async (name) => `${sha256(await readFile(path.join(place, name)))}  ${name}\n`));
    await writeFile(path.join(place, "SHA256SUMS"), lines.join(""));
  }

  const newPrefix = () => path.join(folder, `prefix-${releases++}`, "usr local");

  /** The environment with a PATH that has every tool of the installer but those in `missing`. */
  async function withoutTools(...missing) {
    const tools = path.join(folder, `tools-${releases++}`);
    await mkdir(tools);
    for (const tool of [...INSTALLER_TOOLS, "curl"].filter((tool) => !missing.includes(tool))) {
      const places = process.env.PATH.split(path.delimiter).map((place) => path.join(place, tool));
      await symlink(places.find((place) => existsSync(place)), path.join(tools, tool));
    }
    return { ...process.env, PATH: tools };
  }

  it("installs below a prefix, and removes everything again", async () => {
    const { place } = await release();
    const prefix = newPrefix();
    // The prefix may hold files of others.
    await mkdir(path.join(prefix, "bin"), { recursive: true });
    await writeFile(path.join(prefix, "bin/other"), "");
    const installed = await install(["--from", place, "--prefix", prefix], await withoutTools());
    assert.deepEqual([installed.code, installed.error], [0, ""]);
    assert.match(installed.out, /^Installed starling 1\.0\.0 in .*usr local\/bin\.\n.*not in PATH/);
    assert.deepEqual(await filesBelow(prefix), [
      "bin/other", "bin/starling", "lib/systemd/system/starling.service",
      "share/bash-completion/completions/starling", "share/doc/starling/CHANGELOG.md",
      "share/doc/starling/INSTALLATION.md", "share/doc/starling/examples/starling.yaml",
      "share/doc/starling/licences/LICENSE-MIT", "share/doc/starling/sbom.cdx.json",
      "share/fish/vendor_completions.d/starling.fish", "share/man/man1/starling.1", "share/starling/installed-files",
      "share/zsh/site-functions/_starling",
    ]);
    const unit = await readFile(path.join(prefix, "lib/systemd/system/starling.service"), "utf8");
    assert.equal(unit, `ExecStart=${prefix}/bin/starling serve\n`);
    assert.equal((await run(path.join(prefix, "bin/starling"), [])).out, "starling 1.0.0\n");

    const removed = await install(["--uninstall", "--prefix", prefix], await withoutTools());
    assert.deepEqual([removed.code, removed.error], [0, ""]);
    assert.deepEqual(await filesBelow(prefix), ["bin/other"]);
    assert.deepEqual(await readdir(prefix), ["bin"]);
    const again = await install(["--uninstall", "--prefix", prefix]);
    assert.equal(again.code, 1);
    assert.match(again.error, /nothing is installed under/);
  });

  it("finds the archives beside itself", async () => {
    const { place } = await release();
    const prefix = newPrefix();
    const script = path.join(place, "install.sh");
    await cp(INSTALLER, script);
    assert.equal((await install(["--prefix", prefix], process.env, script)).code, 0);
    assert.ok(existsSync(path.join(prefix, "bin/starling")));
  });

  it("replaces an earlier version while it runs, and removes files that the new one lacks", async () => {
    const prefix = newPrefix();
    const program = 'if [ "$1" = -V ]; then echo "starling 1.0.0"; else cat; fi';
    const first = await release({ version: "1.0.0", extra: ["starling-old.1"], program });
    assert.equal((await install(["--from", first.place, "--prefix", prefix])).code, 0);
    const running = spawn(path.join(prefix, "bin/starling"), [], { stdio: ["pipe", "ignore", "ignore"] });
    adopt(running);
    const second = await release({ version: "1.1.0", extra: ["starling-new.1"] });
    const upgraded = await install(["--from", second.place, "--prefix", prefix], await withoutTools());
    assert.deepEqual([upgraded.code, upgraded.error], [0, ""]);
    assert.equal(running.exitCode, null);
    const ended = once(running, "exit");
    running.stdin.end();
    await within(ended, "the end of the earlier version");
    assert.deepEqual(await readdir(path.join(prefix, "share/man/man1")), ["starling-new.1", "starling.1"]);
    assert.equal((await run(path.join(prefix, "bin/starling"), [])).out, "starling 1.1.0\n");
  });

  it("installs from an address", async () => {
    const { place } = await release();
    const server = createServer(async (request, response) => {
      const file = path.join(place, path.basename(request.url));
      if (!existsSync(file) || !request.url.startsWith("/releases/")) return response.writeHead(404).end();
      response.end(await readFile(file));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = `http://127.0.0.1:${server.address().port}`;
    try {
      for (const tool of ["curl", "wget"]) {
        if (!process.env.PATH.split(path.delimiter).some((place) => existsSync(path.join(place, tool)))) continue;
        const prefix = newPrefix();
        const env = await withoutTools("curl");
        await symlink(`/usr/bin/${tool}`, path.join(env.PATH, tool));
        const { code, error } = await install(["--from", `${address}/releases/`, "--prefix", prefix], env);
        assert.deepEqual([code, error], [0, ""], tool);
        assert.ok(existsSync(path.join(prefix, "bin/starling")));
      }
      const missing = await install(["--from", `${address}/other`, "--prefix", newPrefix()]);
      assert.equal(missing.code, 1);
      assert.match(missing.error, /cannot read .*\/other\/SHA256SUMS/);
      const noClient = await install(["--from", address, "--prefix", newPrefix()], await withoutTools("curl"));
      assert.match(noClient.error, /neither 'curl' nor 'wget'/);
    } finally {
      server.close();
    }
  });

  it("chooses among versions only by name", async () => {
    const { place } = await release({ version: "1.0.0" });
    const other = await release({ version: "1.1.0" });
    await cp(other.archive, path.join(place, path.basename(other.archive)));
    await writeSums(place);
    const prefix = newPrefix();
    const open = await install(["--from", place, "--prefix", prefix]);
    assert.equal(open.code, 1);
    assert.match(open.error, /archives of several versions; name one by --version/);
    const named = await install(["--from", place, "--prefix", prefix, "--version", "1.1.0"]);
    assert.equal(named.code, 0, named.error);
    assert.match(named.out, /Installed starling 1\.1\.0/);
    const none = await install(["--from", place, "--prefix", newPrefix(), "--version", "9.9.9"]);
    assert.match(none.error, /no archive for .* in version 9\.9\.9/);
  });

  const refusals = {
    "an archive with another sum": {
      async spoil({ archive }) {
        await writeFile(archive, Buffer.concat([await readFile(archive), Buffer.from("x")]));
      },
      error: /is damaged or was replaced, and is not installed:\n {2}expected SHA-256 [0-9a-f]{64}\n {2}found {12}[0-9a-f]{64}/,
    },
    "a list without the archive": {
      spoil: ({ place }) => writeFile(path.join(place, "SHA256SUMS"), ""),
      error: /has no archive for/,
    },
    "a folder without a list": {
      spoil: ({ place }) => rm(path.join(place, "SHA256SUMS")),
      error: /cannot read .*SHA256SUMS/,
    },
    "a list whose archive is missing": { spoil: ({ archive }) => rm(archive), error: /cannot read .*tar\.gz/ },
    "an archive that is none": {
      async spoil({ place, archive }) {
        await writeFile(archive, "text");
        await writeSums(place);
      },
      error: /cannot expand/,
    },
    "a program that does not run here": { release: { program: "echo 'no such library' >&2; exit 127" }, error: /does not run on this machine; its reason: no such library/ },
    "another platform": { words: ["--target", "sparc64-unknown-linux-gnu"], error: /has no archive for sparc64/ },
    "a folder that does not exist": { words: ["--from", "/no/such/folder"], error: /there is no folder \/no\/such\/folder/ },
    "a prefix that cannot be written to": { words: ["--prefix", "/proc/starling"], error: /cannot write|--prefix "\$HOME\/\.local"/ },
    "a machine without tar": { missing: ["tar"], error: /the program 'tar' is missing/ },
    "a machine without a program for sums": { missing: ["sha256sum"], error: /none of the programs 'sha256sum', 'shasum' and 'openssl'/ },
    "an unknown argument": { words: ["--prefx", "/tmp"], code: 2, error: /unknown argument '--prefx'/ },
    "an option without its value": { words: ["--version"], code: 2, error: /--version needs a value/ },
  };
  for (const [name, { spoil, words = [], missing = [], error, code = 1, release: options }] of Object.entries(refusals)) {
    it(`refuses ${name}, and writes nothing`, async () => {
      const made = await release(options);
      await spoil?.(made);
      const prefix = newPrefix();
      const outcome = await install(["--from", made.place, "--prefix", prefix, ...words], await withoutTools(...missing));
      assert.equal(outcome.code, code, outcome.out);
      assert.match(outcome.error, error);
      assert.deepEqual(await filesBelow(prefix), []);
    });
  }

  it("removes nothing outside the prefix, whatever its list says", async () => {
    const { place } = await release();
    const prefix = newPrefix();
    assert.equal((await install(["--from", place, "--prefix", prefix])).code, 0);
    const victim = path.join(folder, "victim");
    await writeFile(victim, "");
    for (const line of [victim, `../../${path.basename(victim)}`]) {
      await writeFile(path.join(prefix, "share/starling/installed-files"), `${line}\n`);
      const { code, error } = await install(["--uninstall", "--prefix", prefix]);
      assert.equal(code, 1);
      assert.match(error, /installed-files was changed/);
      assert.ok(existsSync(victim));
    }
  });
});

describe("the archives of a release", () => {
  const skip = skipWithoutArchives();
  let folder, unpacked;
  before(async () => {
    if (skip) return;
    folder = await mkdtemp(path.join(tmpdir(), "starling-packages-"));
    for (const name of [`${NAME}.tar.gz`, `${NAME}.debug.tar.gz`]) {
      const { code, error } = await run("tar", ["-xzf", path.join(ARCHIVES, name), "-C", folder]);
      assert.equal(code, 0, error);
    }
    unpacked = path.join(folder, NAME);
  });
  after(() => folder && rm(folder, { recursive: true, force: true }));

  it("are listed with their sums", { skip }, async () => {
    const lines = (await readFile(path.join(ARCHIVES, "SHA256SUMS"), "utf8")).trim().split("\n");
    const listed = lines.map((line) => line.split("  "));
    const names = (await readdir(ARCHIVES)).filter((name) => name !== "SHA256SUMS").sort();
    assert.deepEqual(listed.map(([, name]) => name), names);
    const archives = [`${NAME}.cdx.json`, `${NAME}.debug.tar.gz`, `${NAME}.tar.gz`, "install.sh"];
    assert.deepEqual(names, hasDpkg ? [...archives, path.basename(PACKAGE)].sort() : archives);
    for (const [sum, name] of listed) assert.equal(sha256(await readFile(path.join(ARCHIVES, name))), sum, name);
  });

  it("contain everything that belongs to the program", { skip }, async () => {
    const files = await filesBelow(unpacked);
    const pages = files.filter((file) => file.startsWith("man/"));
    for (const page of ["starling.1", "starling-serve.1", "starling-healthcheck.1", "starling-config-init.1"]) {
      assert.ok(pages.includes(`man/${page}`), page);
    }
    assert.deepEqual(files.filter((file) => !pages.includes(file)), [
      "CHANGELOG.md", "INSTALLATION.md", "completions/_starling", "completions/starling", "completions/starling.fish",
      "examples/starling.yaml", "licences/LICENSE-APACHE", "licences/LICENSE-MIT", "licences/third-party.txt",
      "sbom.cdx.json", "starling", "starling.debug", "systemd/starling.service",
    ]);
    const unit = await readFile(path.join(unpacked, "systemd/starling.service"), "utf8");
    assert.match(unit, /^LimitNOFILE=1048576$/m);
    assert.match(unit, /^NoNewPrivileges=yes$/m);
  });

  it("contain the program that was built, without its debug symbols", { skip }, async () => {
    const program = path.join(unpacked, "starling");
    const { out } = await run(program, ["--version"]);
    assert.equal(out, (await run(process.env.STARLING_BIN, ["--version"])).out);
    assert.match(out, /\nfeatures: aws, kafka, profiling, rego, zstd\n/);
    const sections = async (file) => (await run("readelf", ["-S", "-W", file])).out;
    assert.doesNotMatch(await sections(program), /\.debug_info/);
    assert.match(await sections(program), /\.symtab/, "profiles need the names of functions");
    assert.match(await sections(program), /\.gnu_debuglink/);
    const buildId = async (file) => (await run("readelf", ["-n", file])).out.match(/Build ID: (\w+)/)[1];
    assert.equal(await buildId(path.join(unpacked, "starling.debug")), await buildId(program));
  });

  it("contain a bill of materials that the CycloneDX project accepts", { skip }, async () => {
    const text = await readFile(path.join(unpacked, "sbom.cdx.json"), "utf8");
    assert.equal(await readFile(path.join(ARCHIVES, `${NAME}.cdx.json`), "utf8"), text);
    const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6);
    assert.equal(await validator.validate(text), null);
    // The check can fail.
    assert.notEqual(await validator.validate(text.replace('"type": "application"', '"type": "router"')), null);

    const { components, dependencies, metadata } = JSON.parse(text);
    assert.equal(metadata.component.version, VERSION);
    const references = new Set(components.map((component) => component["bom-ref"]));
    assert.equal(references.size, components.length);
    for (const name of ["pkg:cargo/tokio@", "pkg:cargo/rdkafka-sys@", "pkg:npm/graphiql@"]) {
      assert.ok([...references].some((reference) => reference.startsWith(name)), name);
    }
    for (const { ref, dependsOn } of dependencies) {
      assert.ok(ref === "starling" || references.has(ref), ref);
      for (const used of dependsOn) assert.ok(references.has(used), used);
    }
    const withoutLicence = components.filter(({ licenses }) => !licenses).map(({ purl }) => purl);
    assert.deepEqual(withoutLicence, []);
  });

  it("contain the licences of all components", { skip }, async () => {
    const notices = await readFile(path.join(unpacked, "licences/third-party.txt"), "utf8");
    const { components } = JSON.parse(await readFile(path.join(unpacked, "sbom.cdx.json"), "utf8"));
    for (const { name, version, purl } of components.filter(({ purl }) => purl.startsWith("pkg:cargo/"))) {
      assert.ok(notices.includes(`${name} ${version} (`), purl);
    }
    for (const text of ["Permission is hereby granted", "Apache License", "librdkafka - Apache Kafka C driver library"]) {
      assert.ok(notices.includes(text), text);
    }
  });

  const skipDebian = skip || (hasDpkg ? false : skipBecause("dpkg-deb is not installed"));
  it("become a Debian package with the same program", { skip: skipDebian }, async () => {
    const field = async (name) => (await run("dpkg-deb", ["--field", PACKAGE, name])).out.trim();
    assert.deepEqual([await field("Package"), await field("Version")], ["starling", VERSION]);
    assert.match(await field("Depends"), /^adduser, libc6 \(>= 2\.\d+\), libgcc-s1$/);
    const listed = (await run("dpkg-deb", ["--contents", PACKAGE])).out.trim().split("\n");
    for (const line of listed) assert.match(line, /^[-d]rw[-x]r-[-x]r-[-x] root\/root /, line);

    const place = path.join(folder, "debian");
    assert.equal((await run("dpkg-deb", ["--raw-extract", PACKAGE, place])).code, 0);
    assert.equal(
      sha256(await readFile(path.join(place, "usr/bin/starling"))), sha256(await readFile(path.join(unpacked, "starling"))),
    );
    const unit = await readFile(path.join(place, "usr/lib/systemd/system/starling.service"), "utf8");
    assert.match(unit, /^ExecStart=\/usr\/bin\/starling serve /m);
    assert.doesNotMatch(unit, /usr\/local/);
    const unpackedFiles = (await filesBelow(unpacked)).filter((file) => file !== "starling.debug");
    const inPackage = await filesBelow(path.join(place, "usr"));
    assert.equal(inPackage.length, unpackedFiles.length + 1, "every file of the archive, and the copyright");
    for (const script of ["postinst", "prerm"]) {
      assert.equal((await run(SHELL, ["-n", path.join(place, "DEBIAN", script)])).code, 0, script);
      // Other actions of dpkg do nothing.
      assert.deepEqual(await run(path.join(place, "DEBIAN", script), ["abort-upgrade"]), { code: 0, out: "", error: "" });
    }
  });

  it("install a router that serves, and are removed without a trace", { skip }, async () => {
    const prefix = path.join(folder, "prefix");
    const script = path.join(ARCHIVES, "install.sh");
    const installed = await install(["--prefix", prefix], process.env, script);
    assert.deepEqual([installed.code, installed.error], [0, ""]);
    const program = path.join(prefix, "bin/starling");
    const supergraph = await readFile(path.join(ROOT, "fixtures/federation-benchmark/supergraph.graphql"), "utf8");
    const config = path.join(folder, "starling.yaml");
    await cp(path.join(prefix, "share/doc/starling/examples/starling.yaml"), config);
    await writeFile(path.join(folder, "supergraph.graphql"), supergraph);
    const checked = await run(program, ["check", "--config", config]);
    assert.deepEqual([checked.code, checked.out], [0, "Everything is in order.\n"]);
    const router = await startServe({ supergraph, command: [program] });
    try {
      const health = await run(program, ["healthcheck", "--url", `${router.admin}/health/ready`]);
      assert.deepEqual(health, { code: 0, out: "ready\n", error: "" });
      assert.equal((await router.query("{ __typename }")).body.data.__typename, "Query");
    } finally {
      assert.equal(await router.stop(), 0);
    }
    assert.equal((await install(["--prefix", prefix, "--uninstall"], process.env, script)).code, 0);
    assert.deepEqual(await readdir(prefix), []);
  });
});

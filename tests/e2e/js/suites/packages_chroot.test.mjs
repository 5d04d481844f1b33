// The archive of a release on a machine without Rust and Node.js: a root folder that has busybox, glibc and nothing
// else. What is typed runs in it, from the installation to the ten-minute guide and the removal.
//
// Of the guide, every `starling` command runs in the root folder, exactly as printed. The subgraphs are programs for
// Node.js, so they run outside, as on another machine, and so do `npm`, `curl` and the publisher of events.
import assert from "node:assert/strict";
import { cp, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { blocksOf } from "../documentation/blocks.mjs";
import { openPage, runBlock } from "../documentation/page.mjs";
import { sendPrintedCommands } from "../printed_curl.mjs";
import { busybox, natsServer, skipWithout } from "../programs.mjs";
import { ARCHIVES, INSTALLER_TOOLS, VERSION, filesBelow, run, skipWithoutArchives } from "../release_archives.mjs";
import { makeRoot, skipWithoutRoots } from "../root_folder.mjs";
import { startDemo } from "../router.mjs";

const GUIDE = "docs/quick-start.md";

/** The program in the root folder. */
const STARLING = "/usr/local/bin/starling";

const skip = skipWithoutArchives() || skipWithout(busybox, "busybox") || await skipWithoutRoots();

describe("a machine without Rust and Node.js", () => {
  let root, prefix;
  before(async () => {
    if (skip) return;
    root = await makeRoot(INSTALLER_TOOLS);
    prefix = path.join(root.folder, "usr/local");
    const release = path.join(root.folder, "release");
    await mkdir(release);
    const needed = (await readdir(ARCHIVES)).filter((name) => !/\.debug\.|\.deb$|\.cdx\.json$/.test(name));
    for (const name of needed) await cp(path.join(ARCHIVES, name), path.join(release, name));
  });
  after(() => root?.remove());

  /** Runs a program in the root folder, with the `PATH` of a login. */
  function runInside(...words) {
    const [program, ...rest] = root.command(words);
    return run(program, rest, { cwd: root.folder, env: { PATH: "/usr/local/bin:/bin" } });
  }

  it("installs from a folder", { skip }, async () => {
    for (const program of ["cargo", "rustc", "node", "npm", "starling"]) {
      assert.equal((await runInside("sh", "-c", `command -v ${program}`)).out, "", program);
    }
    // The second run replaces the first.
    for (const from of [[], ["--from", "/release"]]) {
      const installed = await runInside("sh", "/release/install.sh", ...from);
      assert.deepEqual([installed.code, installed.error], [0, ""]);
      assert.equal(installed.out.split("\n")[0], `Installed starling ${VERSION} in /usr/local/bin.`);
    }
    const version = await runInside("starling", "--version");
    assert.deepEqual([version.code, version.error], [0, ""]);
    assert.match(version.out, new RegExp(`^starling ${VERSION}\n(.*\n)*features: aws, kafka,`));
  });

  it("runs the demo, which responds to the printed commands from outside", { skip }, async () => {
    const demo = await startDemo({ command: root.command([STARLING]) });
    try {
      await sendPrintedCommands(demo);
    } finally {
      assert.equal(await demo.stop(), 0, demo.output());
    }
  });

  const skipGuide = skip || skipWithout(natsServer, "nats-server");
  it("runs the ten-minute guide as printed", { skip: skipGuide }, async (test) => {
    const markdown = await readFile(path.join(import.meta.dirname, "../../../..", GUIDE), "utf8");
    const blocks = blocksOf(markdown, GUIDE);
    const demo = await startDemo({ command: root.command([STARLING]) });
    const page = await openPage(demo, blocks, path.join(root.folder, "tmp"));
    const calls = path.join(root.folder, "calls");
    const wrapper = path.join(root.folder, "starling-inside");
    // The path of the page's folder is the same inside.
    const inside = root.command(["/bin/sh", "-c", `cd "$0" && exec ${STARLING} "$@"`]);
    const quoted = inside.map((word) => `'${word}'`).join(" ");
    await writeFile(wrapper, `#!/bin/sh\necho "$1" >>'${calls}'\nexec ${quoted} "$PWD" "$@"\n`, { mode: 0o755 });
    page.environment.STARLING_BIN = wrapper;
    try {
      for (const block of blocks) test.diagnostic(`${block.place}: ${await runBlock(page, block)}`);
    } finally {
      await page.close();
      await demo.stop();
    }
    const commands = new Set((await readFile(calls, "utf8")).trim().split("\n"));
    for (const command of ["compose", "check", "serve", "plan"]) assert.ok(commands.has(command), command);
  });

  it("removes the router without a trace", { skip }, async () => {
    assert.ok((await filesBelow(prefix)).includes("bin/starling"));
    const removed = await runInside("sh", "/release/install.sh", "--uninstall");
    assert.deepEqual([removed.code, removed.error], [0, ""]);
    assert.deepEqual(await readdir(prefix), []);
    assert.equal((await runInside("sh", "-c", "command -v starling")).out, "");
  });
});

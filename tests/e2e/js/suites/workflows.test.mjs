// The workflows of hosted CI, and the list of what updates of dependencies look at.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { actionlint, skipWithout } from "../programs.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const WORKFLOWS = path.join(ROOT, ".github/workflows");

const lint = (files) => new Promise((resolve) => {
  execFile(actionlint(), ["-no-color", "-shellcheck=", "-pyflakes=", ...files], (failure, out) => {
    resolve({ code: failure ? failure.code : 0, out });
  });
});

describe("the workflows of hosted CI", () => {
  const skip = skipWithout(actionlint, "actionlint");

  it("have no mistakes", { skip }, async () => {
    const names = await readdir(WORKFLOWS);
    assert.deepEqual(names.sort(), ["ci.yaml", "dist.yaml"]);
    assert.deepEqual(await lint(names.map((name) => path.join(WORKFLOWS, name))), { code: 0, out: "" });
  });

  it("would not pass with a mistake", { skip }, async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-workflow-"));
    try {
      const file = path.join(folder, "dist.yaml");
      const text = await readFile(path.join(WORKFLOWS, "dist.yaml"), "utf8");
      await writeFile(file, text.replace("matrix.target }}", "matrix.tagret }}"));
      const { code, out } = await lint([file]);
      assert.equal(code, 1);
      assert.match(out, /"tagret" is not defined/);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("run nothing that the repository lacks, with no more rights than reading", async () => {
    const ci = parse(await readFile(path.join(WORKFLOWS, "ci.yaml"), "utf8"));
    const dist = parse(await readFile(path.join(WORKFLOWS, "dist.yaml"), "utf8"));
    for (const workflow of [ci, dist]) assert.deepEqual(workflow.permissions, { contents: "read" });
    const commands = [ci, dist].flatMap(({ jobs }) => Object.values(jobs).flatMap(({ steps }) => steps.map(({ run }) => run)));
    assert.ok(commands.includes("bash .ci/run"));
    assert.ok(existsSync(path.join(ROOT, ".ci/run")));
    assert.ok(commands.some((run) => run?.startsWith("cargo xtask dist ")));
  });

  it("install a fixed version of cargo-deny, without which .ci/run checks no advisories", async () => {
    const { jobs } = parse(await readFile(path.join(WORKFLOWS, "ci.yaml"), "utf8"));
    const commands = jobs.test.steps.map(({ run }) => run ?? "");
    const installs = commands.findIndex((run) => /^cargo install --locked cargo-deny@\d+\.\d+\.\d+$/.test(run));
    assert.ok(installs >= 0 && installs < commands.indexOf("bash .ci/run"), commands.join("\n"));
    assert.match(await readFile(path.join(ROOT, ".ci/run"), "utf8"), /^ +step cargo deny --locked check advisories/m);
  });
});

describe("the updates of dependencies", () => {
  it("look at every lock file of the repository", async () => {
    const { updates } = parse(await readFile(path.join(ROOT, ".github/dependabot.yml"), "utf8"));
    const folders = (ecosystem) => updates.filter((update) => update["package-ecosystem"] === ecosystem)
      .flatMap(({ directory, directories }) => directories ?? [directory]).sort();
    const tracked = await new Promise((resolve, reject) => {
      execFile("git", ["ls-files"], { cwd: ROOT }, (error, out) => (error ? reject(error) : resolve(out.split("\n"))));
    });
    const places = (name) => tracked.filter((file) => path.basename(file) === name).map((file) => path.posix.join("/", path.dirname(file))).sort();
    assert.deepEqual(folders("cargo"), places("Cargo.lock"));
    // That of the console's pages has no dependencies: it only says that the scripts are modules.
    const isUpdated = (place) => !place.startsWith("/benches") && place !== "/crates/console/pages";
    assert.deepEqual(folders("npm"), places("package.json").filter(isUpdated));
    for (const ecosystem of ["docker", "docker-compose"]) {
      for (const folder of folders(ecosystem)) {
        const names = await readdir(path.join(ROOT, folder));
        assert.ok(names.some((name) => /^(Dockerfile|compose\.yaml)$/.test(name)), folder);
      }
    }
  });
});

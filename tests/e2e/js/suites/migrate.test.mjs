// `starling migrate`: samples of the documentation of other routers become configurations that `starling check` accepts.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { createCertificate } from "../certificates.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const FIXTURES = path.join(ROOT, "crates/migrate/tests/fixtures");
const SUPERGRAPH = path.join(ROOT, "fixtures/federation-benchmark/supergraph.graphql");

/** A manifest of persisted documents, for those that samples name. */
const MANIFEST = {
  format: "apollo-persisted-query-manifest",
  version: 1,
  operations: [{ id: "name", name: "Name", type: "query", body: "query Name { __typename }" }],
};

/** Runs the program, whatever its exit code is. */
function starling(words, options = {}) {
  return new Promise((resolve) => {
    const child = execFile(process.env.STARLING_BIN, words, options, (error, stdout, stderr) => {
      resolve({ code: error ? error.code : 0, stdout, stderr });
    });
    child.stdin.end(options.input ?? "");
  });
}

/** The variables that samples refer to. */
async function environment() {
  const text = await readFile(path.join(FIXTURES, "environment.txt"), "utf8");
  return Object.fromEntries(text.trim().split("\n").map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
}

/** The files that a configuration names, by what they are. */
function filesOf(yaml) {
  const named = [...yaml.matchAll(/^\s*(?:- )?(?:cert|key|client_ca|ca|certificate|file): "?(\/?[^\s"]+)"?$/gm)].map(([, file]) => file);
  return named.filter((file) => /\.(pem|key|json)$/.test(file));
}

describe("samples of the documentation of other routers", { concurrency: 2 }, async () => {
  let folder;
  let certificate;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-migrate-"));
    certificate = await createCertificate();
  });
  after(async () => {
    await certificate.remove();
    await rm(folder, { recursive: true, force: true });
  });

  const cases = [];
  for (const router of ["apollo", "cosmo", "hive"]) {
    const names = await readdir(path.join(FIXTURES, router));
    cases.push(...names.sort().map((name) => [router, name]));
  }

  it("are at least fifty", () => assert.ok(cases.length >= 50, `${cases.length}`));

  for (const [router, name] of cases) {
    it(`${router}/${name}: starling check accepts the result`, async () => {
      const home = path.join(folder, router, name);
      await mkdir(home, { recursive: true });
      await cp(path.join(FIXTURES, router, name, "input.yaml"), path.join(home, "input.yaml"));
      const words = ["migrate", "--from", router, "input.yaml", "--output", "starling.yaml"];
      const migrated = await starling(words, { cwd: home });
      assert.equal(migrated.code, 0, migrated.stderr);
      let yaml = await readFile(path.join(home, "starling.yaml"), "utf8");
      assert.equal(yaml, await readFile(path.join(FIXTURES, router, name, "starling.yaml"), "utf8"));

      // The check would ask the server in the sample: the supergraph is in the default file instead.
      yaml = yaml.replace(/^supergraph:\n  url:\n(?:    .*\n)+/m, "");
      await cp(SUPERGRAPH, path.join(home, "supergraph.graphql"));
      for (const file of filesOf(yaml)) {
        // Files of the system in a sample are those of the test.
        const local = file.replace(/^\//, "");
        if (local !== file) yaml = yaml.replaceAll(file, local);
        await mkdir(path.dirname(path.join(home, local)), { recursive: true });
        const text = local.endsWith("jwks.json") ? '{"keys": []}' : JSON.stringify(MANIFEST);
        const content = local.endsWith(".json") ? text : local.endsWith(".key") ? certificate.key : certificate.cert;
        await writeFile(path.join(home, local), content);
      }
      await writeFile(path.join(home, "starling.yaml"), yaml);
      const env = { ...process.env, ...(await environment()) };
      const checked = await starling(["check", "--config", "starling.yaml"], { cwd: home, env });
      assert.equal(checked.code, 0, `${checked.stderr}\n${checked.stdout}\n${yaml}`);
    });
  }
});

describe("starling migrate", () => {
  const INPUT = "supergraph:\n  listen: 0.0.0.0:4000\n  path: /graphql\nlimits:\n  max_dept: 3\n";

  it("reads standard input, prints the configuration, and reports each key with its line", async () => {
    const { code, stdout, stderr } = await starling(["migrate", "--from", "apollo", "-"], { input: INPUT });
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^listen: 0\.0\.0\.0:4000$/m);
    assert.match(stderr, /^standard input:2: converted: supergraph\.listen → listen$/m);
    assert.match(stderr, /^standard input:5: unknown: limits\.max_dept: the migration knows `max_depth`$/m);
    assert.match(stderr, /^2 converted, 1 unknown, 4 added\.$/m);
  });

  it("writes JSON for programs", async () => {
    const { code, stdout } = await starling(["migrate", "--from", "apollo", "-", "--format", "json"], { input: INPUT });
    assert.equal(code, 0);
    const { configuration, findings } = JSON.parse(stdout);
    assert.match(configuration, /^path: \/graphql$/m);
    assert.deepEqual(findings[0], { outcome: "converted", line: 2, key: "supergraph.listen", to: "listen", note: "" });
  });

  it("keeps an existing file unless it is forced", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-migrate-"));
    try {
      const file = path.join(folder, "starling.yaml");
      await writeFile(file, "mine");
      const words = ["migrate", "--from", "apollo", "-", "--output", file];
      const refused = await starling(words, { input: INPUT });
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, /--force/);
      assert.equal(await readFile(file, "utf8"), "mine");
      assert.equal((await starling([...words, "--force"], { input: INPUT })).code, 0);
      assert.match(await readFile(file, "utf8"), /^listen:/m);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("gives the file the permissions of its source, which may contain secrets", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-migrate-"));
    try {
      const file = (name) => path.join(folder, name);
      await writeFile(file("router.yaml"), INPUT);
      await chmod(file("router.yaml"), 0o600);
      await writeFile(file("existing.yaml"), "mine");
      await chmod(file("existing.yaml"), 0o644);
      for (const words of [["new.yaml"], ["existing.yaml", "--force"]]) {
        const migrated = await starling(["migrate", "--from", "apollo", "router.yaml", "--output", ...words], { cwd: folder });
        assert.equal(migrated.code, 0, migrated.stderr);
        assert.equal((await stat(file(words[0]))).mode & 0o777, 0o600, words[0]);
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("refuses files that are no configuration, with the place", async () => {
    const broken = await starling(["migrate", "--from", "cosmo", "-"], { input: "a: [\n" });
    assert.equal(broken.code, 1);
    assert.match(broken.stderr, /standard input:\d+:\d+/);
    const missing = await starling(["migrate", "--from", "hive", "none.yaml"]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /cannot read none\.yaml/);
  });
});

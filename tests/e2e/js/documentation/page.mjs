// Runs the blocks of one page in order, in one scratch folder, as if a reader copied each of them.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { parse } from "graphql";
import { startNats } from "../nats.mjs";
import { freePort } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";
import { commandsOf } from "./blocks.mjs";
import {
  checkServed, composeEventSubgraph, composeSmallGraph, isEventSubgraph, isSupergraphExcerpt,
} from "./event_subgraph.mjs";
import { startNpmRegistry } from "./npm_registry.mjs";
import { installWrappers, startShell } from "./shell.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const JS = path.join(import.meta.dirname, "..");

/** Provides a global `WebSocket`, which browsers and newer versions of Node.js have. */
const PRELOAD = path.join(import.meta.dirname, "preload.mjs");

/** The time that one block may take, on a busy machine. */
const BLOCK_MS = 60_000;

/** Files that samples use without showing them: the graph of the federation benchmark. */
const GIVEN_FILES = {
  "supergraph.graphql": "fixtures/federation-benchmark/supergraph.graphql",
  "operation.graphql": "fixtures/federation-benchmark/operation.graphql",
  "query.graphql": "fixtures/federation-benchmark/operation.graphql",
};

/** Replacements of these files in a setup. */
const SETUP_FILES = {
  "override-label": {
    "supergraph.graphql": "crates/plan/tests/fixtures/override/supergraph.graphql",
    "operation.graphql": "crates/plan/tests/fixtures/override/operation.label.graphql",
  },
};

/** Setups that other suites run: `setup=NAME` → the suite. */
export const RUN_ELSEWHERE = { delivery: "supergraph_delivery", renewal: "token_renewal", resume: "client_samples" };

/**
 * Opens the scratch folder of a page with these blocks, in the folder `parent`. `demo` is the router whose ports stand in
 * for 4000 and 8088.
 */
export async function openPage(demo, blocks, parent = tmpdir()) {
  const folder = await mkdtemp(path.join(parent, "starling-page-"));
  const bin = await installWrappers(folder);
  await copyFiles(folder, GIVEN_FILES);
  await writeFile(path.join(folder, "variables.json"), "{}");
  await writeFile(path.join(folder, "events.ndjson"), '{"__typename":"Flight","id":"ST101"}\n'.repeat(2));
  await writeFile(path.join(folder, "package.json"), '{"type": "module"}');
  await symlink(path.join(ROOT, "fixtures"), path.join(folder, "fixtures"));
  await symlink(path.join(JS, "node_modules"), path.join(folder, "node_modules"));
  const page = {
    folder, bin,
    ports: { graphql: await freePort(), admin: await freePort() },
    subgraphPorts: new Map([["4001", await freePort()], ["4002", await freePort()]]),
    routerUrl: demo.url,
    adminUrl: demo.admin,
    running: [],
    graphs: new Map(),
    // The ordinary subgraphs that the page shows: name → SDL.
    subgraphs: new Map(
      blocks.filter(({ annotation }) => annotation.subgraph).map(({ annotation, text }) => [annotation.subgraph, text]),
    ),
    nats: null,
    npm: null,
    /** Variables of the environment, in addition to those of this process. */
    environment: {},
    blocks: 0,
  };
  return Object.assign(page, {
    async close() {
      await Promise.all(page.running.map((shell) => shell.end()));
      await page.nats?.stop();
      await page.npm?.stop();
      await rm(folder, { recursive: true, force: true });
    },
  });
}

/** Starts the subgraphs of the quick start at the page's ports 4001 and 4002. */
async function startQuickStart(page) {
  const folder = path.join(page.folder, "subgraphs");
  await cp(path.join(ROOT, "examples/quick-start"), folder, { recursive: true });
  for (const name of ["products", "stock"]) {
    const program = path.join(folder, `${name}.mjs`);
    await writeFile(program, withAddresses(page, await readFile(program, "utf8")));
    const shell = startShell(`cd subgraphs && node ${name}.mjs`, page);
    page.running.push(shell);
    await untilPrinted(page, shell, `${name} is ready`, program);
  }
}

/** Makes the folder one without packages, where `npm install` gets those of the suites from this machine. */
async function startNpm(page) {
  await rm(path.join(page.folder, "node_modules"));
  await rm(path.join(page.folder, "package.json"));
  page.npm = await startNpmRegistry(path.join(JS, "node_modules"));
  Object.assign(page.environment, {
    npm_config_registry: page.npm.url, npm_config_cache: path.join(page.folder, ".npm"),
    npm_config_userconfig: path.join(page.folder, ".npmrc"), npm_config_audit: "false", npm_config_fund: "false",
    npm_config_update_notifier: "false", npm_config_fetch_retries: "0",
  });
}

async function copyFiles(folder, files) {
  for (const [name, source] of Object.entries(files)) {
    await copyFile(path.join(ROOT, source), path.join(folder, name));
  }
}

/** Runs one block and returns how it was run. Throws an error that describes the failure. */
export async function runBlock(page, block) {
  page.blocks += 1;
  const { annotation, language } = block;
  if (annotation["not-run"]) return `not run: ${annotation.reason}`;
  if (annotation.setup === "nats") page.nats ??= await startNats(-1, { stores: true });
  else if (annotation.setup === "subgraphs") await startQuickStart(page);
  else if (annotation.setup === "npm") await startNpm(page);
  else if (SETUP_FILES[annotation.setup]) await copyFiles(page.folder, SETUP_FILES[annotation.setup]);
  else if (annotation.setup) throw new Error(`${block.place}: no setup is called \`${annotation.setup}\``);
  // Nothing is replaced in schemas.
  const text = language === "graphql" ? block.text : withAddresses(page, block.text);
  if (annotation.file) {
    const target = path.join(page.folder, annotation.file);
    await mkdir(path.dirname(target), { recursive: true });
    await writeFile(target, text);
  }
  // A later block reads the file, and its command checks it.
  if (annotation.input) return `stored as ${annotation.file}`;
  const run = RUNNERS[language];
  if (run) return run(page, block, text);
  if (annotation.file) return `stored as ${annotation.file}`;
  throw new Error(`${block.place}: nothing runs a block in \`${language || "no language"}\`; give it an annotation`);
}

/** Replaces the addresses in samples by those of the routers of the test. */
function withAddresses(page, text) {
  const port = (url) => new URL(url).port;
  return text
    .replace(/(127\.0\.0\.1|localhost|0\.0\.0\.0):4000\b/g, `$1:${port(page.routerUrl)}`)
    .replace(/(127\.0\.0\.1|localhost|0\.0\.0\.0):8088\b/g, `$1:${port(page.adminUrl)}`)
    // The ports of subgraphs, also in programs that listen on them.
    .replace(/\b400[12]\b/g, (number) => `${page.subgraphPorts.get(number)}`)
    .replace(/(127\.0\.0\.1|localhost):4222\b/g, page.nats ? `$1:${page.nats.port}` : "$&");
}

const RUNNERS = {
  sh: runShell,
  js: runScript,
  yaml: checkConfiguration,
  graphql: loadSchema,
  json: (page, block, text) => {
    JSON.parse(text);
    return "parsed as JSON";
  },
  // Output and pictures.
  text: () => "output",
  "": () => "output",
};

/** Starts the page's own router instead of the previous one. From then on it replaces ports 4000 and 8088. */
async function serve(page, configuration) {
  await page.served?.end();
  usePorts(page);
  const shell = startShell(`starling serve --config ${configuration}`, page);
  page.served = shell;
  page.running.push(shell);
  await untilPrinted(page, shell, "ready", `starling serve --config ${configuration}`);
}

function usePorts(page) {
  page.routerUrl = `http://127.0.0.1:${page.ports.graphql}`;
  page.adminUrl = `http://127.0.0.1:${page.ports.admin}`;
}

/**
 * Waits until `shell` has printed text that matches `until`; "ready" stands for the readiness endpoint of the page's own
 * router.
 */
async function untilPrinted(page, shell, until, what) {
  const wanted = new RegExp(until, "m");
  await eventually(async () => {
    if (until === "ready") {
      if ((await fetch(`http://127.0.0.1:${page.ports.admin}/health/ready`).catch(() => ({ ok: false }))).ok) return true;
    } else if (wanted.test(shell.output())) {
      return true;
    }
    if (!shell.isRunning()) throw Object.assign(new Error("it has ended"), { fatal: true });
    return false;
  }, `${what} to be ready`, BLOCK_MS).catch((error) => {
    throw new Error(`${what}: ${error.message}\n${shell.output()}`);
  });
}

async function runShell(page, block, text) {
  const { annotation, place } = block;
  if (annotation.serve) await serve(page, annotation.serve);
  if (annotation.background) usePorts(page);
  const source = withAddresses(page, block.text).replace(/cargo run --release -- /g, "starling ");
  const prompts = source.split("\n").some((line) => line.startsWith("$ "));
  const commands = prompts
    ? source.split("\n").filter((line) => line.startsWith("$ ")).map((line) => line.slice(2))
    : commandsOf(source);
  if (annotation.until) return keepRunning(page, block, commands);
  if (annotation.terminals) return runTerminals(page, block, commands);

  const shell = startShell(commands.join("\n"), page);
  page.running.push(shell);
  const code = await within(shell.ended, `${place} to end`, BLOCK_MS).catch((error) => {
    throw new Error(`${error.message}\n${shell.output()}`);
  });
  const output = shell.output();
  assert.equal(code === 0, !annotation.fails, `${place}: exit code ${code}\n${output}`);
  checkOutput(block, output);
  if (prompts) checkTranscript(block, output);
  return "run";
}

/** Runs the commands until something is printed; they then continue in the background or are stopped as by Ctrl-C. */
async function keepRunning(page, { annotation, place }, commands) {
  const groups = annotation.terminals ? commands : [commands.join("\n")];
  const isRouter = commands.some((command) => /\bstarling (serve|dev|demo)\b/.test(command));
  // A page has one router at a time: a reader stops it before starting it with another configuration.
  if (isRouter) await page.served?.end();
  const started = [];
  for (const [index, command] of groups.entries()) {
    const shell = startShell(command, page);
    started.push(shell);
    page.running.push(shell);
    if (isRouter) page.served = shell;
    const isLast = index === groups.length - 1;
    await untilPrinted(page, shell, isLast ? annotation.until : ".", place);
  }
  if (annotation.background) return "keeps running";
  await Promise.all(started.map((shell) => shell.end()));
  return "run until it has printed what it shows";
}

/** Runs each command in its own terminal and waits for the expected output of one before all are closed. */
async function runTerminals(page, block, commands) {
  const { annotation, place } = block;
  const wanted = new RegExp(annotation.expect ?? "^data: .", "m");
  const [first, ...others] = commands;
  const environment = { ...page.environment, ...(annotation.expect && { STREAM_OPEN: "1" }) };
  const subscriber = startShell(first, { ...page, environment });
  page.running.push(subscriber);
  const shown = eventually(async () => {
    // No protocol reports when a subscription has reached its topic, so the later commands are repeated.
    for (const command of others) {
      const shell = startShell(command, page);
      const code = await within(shell.ended, `${place} to end`, BLOCK_MS);
      if (code !== 0) {
        throw Object.assign(new Error(`${command}\nexit code ${code}\n${shell.output()}`), { fatal: true });
      }
    }
    if (!subscriber.isRunning() && !wanted.test(subscriber.output())) {
      throw Object.assign(new Error(`the first terminal has ended`), { fatal: true });
    }
    return wanted.test(subscriber.output());
  }, `${place} to print ${wanted}`, BLOCK_MS);
  await shown.catch((error) => {
    throw new Error(`${error.message}\n${subscriber.output()}`);
  });
  checkOutput({ ...block, annotation: { ...annotation, expect: undefined } }, subscriber.output());
  return "run in terminals";
}

function checkOutput({ annotation, place }, output) {
  if (!annotation.errors) assert.doesNotMatch(output, /"errors":/, `${place} prints errors`);
  if (annotation.expect) assert.match(output, new RegExp(annotation.expect), place);
}

/** The lines that are not commands are the output of the command, with `…` for any text. */
function checkTranscript({ text, place }, output) {
  const printed = output.replace(/\r/g, "");
  for (const line of text.split("\n")) {
    if (line.startsWith("$ ") || line.trim() === "" || line.trim() === "…") continue;
    const pattern = line.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*");
    assert.match(printed, new RegExp(pattern, "m"), `${place}: the output has no line \`${line}\``);
  }
}

async function runScript(page, block, text) {
  if (block.annotation.fragment) return parseScript(page, block, text);
  if (block.annotation.serve) await serve(page, block.annotation.serve);
  const file = path.join(page.folder, block.annotation.file ?? `sample-${block.line}.mjs`);
  await writeFile(file, withAddresses(page, block.text));
  const shell = startShell(`node --import ${PRELOAD} ${file}`, page);
  page.running.push(shell);
  if (block.annotation.until) {
    await untilPrinted(page, shell, block.annotation.until, block.place);
    if (!block.annotation.background) await shell.end();
    return "run until it has printed what it shows";
  }
  const code = await within(shell.ended, `${block.place} to end`, BLOCK_MS);
  assert.equal(code, 0, `${block.place}: exit code ${code}\n${shell.output()}`);
  checkOutput(block, shell.output());
  return "run";
}

async function parseScript(page, block, text) {
  const file = path.join(page.folder, `fragment-${block.line}.mjs`);
  await writeFile(file, text);
  await promisify(execFile)(process.execPath, ["--check", file]).catch((error) => {
    throw new Error(`${block.place}: ${error.stderr}`);
  });
  return "parsed as JavaScript";
}

async function checkConfiguration(page, block, text) {
  const { annotation } = block;
  const file = path.join(page.folder, `checked-${block.line}.yaml`);
  if (annotation.composition) {
    await writeFile(file, text);
    await runWithVariables(page, block, `starling compose --config ${file}`);
    return "composed";
  }
  let whole = text;
  if (!/^supergraph:/m.test(text)) {
    const supergraph = `supergraph-${block.line}.graphql`;
    const graph = annotation.graph ? page.graphs.get(annotation.graph) : await smallGraph(page, block);
    if (!graph) throw new Error(`${block.place}: no block before it has the annotation graph=${annotation.graph}`);
    await writeFile(path.join(page.folder, supergraph), graph);
    whole = `supergraph: {file: ${supergraph}}\n${text}`;
    // A later block starts the router with this file.
    if (annotation.file) await writeFile(path.join(page.folder, annotation.file), whole);
  }
  for (const [name] of text.matchAll(/[\w./-]+\.(pem|key|creds)\b/g)) await giveSecret(page, name);
  await writeFile(file, whole);
  await runWithVariables(page, block, `starling check --config ${file}`);
  return "checked as a configuration";
}

/** Runs a command with a value for each variable that the YAML of the block names. */
async function runWithVariables(page, { annotation, place, text }, command) {
  const named = new Set([...text.matchAll(/\$\{(?:env\.)?(\w+)\}/g)].map(([, name]) => name));
  const variables = [...named].map((name) => `export ${name}="\${${name}:-${"a value for tests, of enough bytes 0123456789"}}"`);
  const shell = startShell([...variables, command].join("\n"), page);
  page.running.push(shell);
  const code = await within(shell.ended, `${place} to be checked`, BLOCK_MS);
  assert.equal(code, annotation.fails ? 1 : 0, `${place}\n${shell.output()}`);
  if (annotation.expect) assert.match(shell.output(), new RegExp(annotation.expect), place);
}

/** A graph for a configuration without one, with the subgraphs that it configures. */
async function smallGraph(page, { line, text }) {
  const names = [];
  for (const [, section] of text.matchAll(/^(?: *)subgraphs:\n((?: +.*\n)+)/gm)) {
    const indentation = /^ */.exec(section)[0];
    for (const entry of section.split("\n")) {
      const name = new RegExp(`^${indentation}([\\w-]+):`).exec(entry);
      if (name) names.push(name[1]);
    }
  }
  const wanted = names.length > 0 ? [...new Set(names)] : ["things"];
  return composeSmallGraph(path.join(page.folder, `composed-${line}`), wanted);
}

/** Creates a certificate with its key, or another file that a configuration contains. */
async function giveSecret(page, name) {
  const file = path.resolve(page.folder, name);
  if (!file.startsWith(page.folder)) return;
  await mkdir(path.dirname(file), { recursive: true });
  if (!page.certificate) {
    page.certificate = path.join(page.folder, ".certificate");
    await promisify(execFile)("openssl", [
      "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
      "-subj", "/CN=starling.test", "-addext", "subjectAltName=DNS:starling.test",
      "-keyout", `${page.certificate}.key`, "-out", `${page.certificate}.pem`,
    ]);
  }
  const isKey = /\.key$|key\.pem$/.test(name);
  await copyFile(`${page.certificate}.${isKey ? "key" : "pem"}`, file);
}

async function loadSchema(page, block, text) {
  const { annotation, place } = block;
  const { definitions } = parse(text);
  if (annotation.subgraph) return "composed with the event subgraphs of the page";
  if (isSupergraphExcerpt(text)) return "parsed as GraphQL";
  if (definitions.every((definition) => definition.kind === "OperationDefinition")) return "parsed as an operation";
  const isBound = isEventSubgraph(text);
  if (annotation.fragment) {
    // A later block of the page composes the file.
    if (isBound && !annotation.file) throw new Error(`${place}: \`fragment\` hides an event subgraph from composition`);
    return "parsed as GraphQL";
  }
  if (!isBound) throw new Error(`${place}: an ordinary subgraph needs the annotation subgraph=NAME or fragment`);
  const supergraph = await composeEventSubgraph(path.join(page.folder, `composed-${block.line}`), text, page.subgraphs);
  if (annotation.graph) page.graphs.set(annotation.graph, supergraph);
  await checkServed(supergraph, text);
  return "composed and served as an event subgraph";
}

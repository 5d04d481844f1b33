import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import process from "node:process";
import test from "node:test";

const PRODUCTS = `
  extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@shareable"])
  type Query { products: [Product!]! }
  type Product @key(fields: "id") { id: ID! name: String }
`;
const REVIEWS = `
  extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@shareable"])
  type Product @key(fields: "id") { id: ID! rating: Float }
`;

function federation(name, ...sdls) {
  const subgraphs = sdls.map((sdl, index) => ({ name: `s${index}`, url: `http://s${index}.example`, sdl }));
  return { name, subgraphs };
}

function runRig(federations, ...flags) {
  const input = federations.map((line) => JSON.stringify(line)).join("\n");
  const rig = path.join(import.meta.dirname, "rig.mjs");
  const { status, stdout, stderr } = spawnSync(process.execPath, [rig, ...flags], { input, encoding: "utf8" });
  const lines = stdout.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  return { status, lines, stderr };
}

test("each federation yields one line per package, in the order of the input", () => {
  const fails = federation("fails", PRODUCTS, REVIEWS.replace("rating: Float", "name: String"));
  const { lines } = runRig([federation("composes", PRODUCTS, REVIEWS), fails]);
  const outcome = (name, packageName, success, codes) => ({ name, package: packageName, success, codes, hints: [] });
  assert.deepEqual(lines, [
    outcome("composes", "@apollo/composition", true, []),
    outcome("composes", "@theguild/federation-composition", true, []),
    outcome("fails", "@apollo/composition", false, ["INVALID_FIELD_SHARING"]),
    outcome("fails", "@theguild/federation-composition", false, ["INVALID_FIELD_SHARING"]),
  ]);
});

test("the supergraph, messages and a single package are optional", () => {
  const [line, ...others] = runRig(
    [federation("composes", PRODUCTS, REVIEWS)],
    "--supergraph", "--messages", "--package", "@apollo/composition",
  ).lines;
  assert.deepEqual(others, []);
  assert.match(line.supergraph, /type Product\s+@join__type\(graph: S0, key: "id"\)/);
  assert.deepEqual(line.messages, []);
});

test("SDL that does not parse is INVALID_GRAPHQL in every package", () => {
  const { lines } = runRig([federation("unclosed", "type Query {")]);
  assert.deepEqual(lines.map((line) => line.codes), [["INVALID_GRAPHQL"], ["INVALID_GRAPHQL"]]);
});

test("an unknown package is refused", () => {
  const { status, stderr } = runRig([], "--package", "rover");
  assert.equal(status, 2);
  assert.match(stderr, /unknown package rover/);
});

import assert from "node:assert/strict";
import test from "node:test";

import { compareResults, reportLines } from "./agreement.mjs";
import { normalForm } from "./normal_form.mjs";

const success = (name, packageName, more = {}) => (
  { name, package: packageName, success: true, codes: [], hints: [], ...more }
);
const failure = (name, packageName, ...codes) => ({ name, package: packageName, success: false, codes, hints: [] });

test("outcomes, codes, hints and supergraphs are compared, and crashes are left out", () => {
  const results = [
    success("same", "one", { supergraph: "type A { b: Int c: Int }" }),
    success("same", "other", { supergraph: "type A { c: Int b: Int }" }),
    success("hints", "one", { hints: ["UNUSED_ENUM_TYPE"] }), success("hints", "other"),
    failure("codes", "one", "NO_QUERIES"), failure("codes", "other", "INVALID_GRAPHQL"),
    failure("equal", "one", "NO_QUERIES"), failure("equal", "other", "NO_QUERIES"),
    success("outcome", "one"), failure("outcome", "other", "NO_QUERIES"),
    { ...failure("crash", "one"), crash: "stack overflow" }, success("crash", "other"),
    success("alone", "one"),
  ];
  const summary = compareResults(results, "one", "other");
  assert.deepEqual(reportLines(summary, "one", "other", 1), [
    "one and other: 5 federations, 1 left out because of a crash",
    "same success or failure: 4 of 5 (80.0 %)",
    "same codes in shared failures: 1 of 2 (50.0 %)",
    "same hints in shared successes: 1 of 2 (50.0 %)",
    "same supergraph in shared successes: 1 of 2 (50.0 %)",
    "    1  NO_QUERIES | INVALID_GRAPHQL  (codes)",
    "    1  composes | NO_QUERIES  (outcome)",
  ]);
  assert.deepEqual(summary.otherSupergraphs, ["hints"]);
});

test("supergraphs that differ in order and in specifications have the same normal form", () => {
  const one = `
    schema @link(url: "https://specs.apollo.dev/join/v0.3") @link(url: "https://specs.apollo.dev/tag/v0.3") {
      query: Query
    }
    directive @join__type(graph: join__Graph!) on OBJECT
    directive @unused on OBJECT
    enum join__Graph { A B }
    type Query { one: Int @tag(name: "x") @tag(name: "y") two(b: Int, a: Int): Int }
  `;
  const other = `
    type Query { two(a: Int, b: Int): Int one: Int @tag(name: "y") @tag(name: "x") }
    enum join__Graph { B A }
    schema @link(url: "https://specs.apollo.dev/tag/v0.3") @link(url: "https://specs.apollo.dev/join/v0.5") {
      query: Query
    }
    scalar join__FieldSet
  `;
  assert.equal(normalForm(one), normalForm(other));
  assert.notEqual(normalForm(one), normalForm(other.replace("b: Int", "b: ID")));
  assert.notEqual(normalForm(one), normalForm(`${other} directive @traced on FIELD`));
});

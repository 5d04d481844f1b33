import assert from "node:assert/strict";
import test from "node:test";

import { compose, REFERENCE } from "./packages.mjs";
import { reduceFederation } from "./reduce.mjs";

test("everything that does not matter for the outcome is removed", async () => {
  const link = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@shareable"])';
  const catalog = `${link}
    type Query { products: [Product!]! "The shop." shop: String }
    type Product @key(fields: "id") { id: ID! name: String weight(unit: String): Int }
    enum Unused { A B }`;
  const stock = `${link} type Product @key(fields: "id") { id: ID! name: String stock: Int }`;
  const other = "type Query { other: String }";
  const subgraphs = Object.entries({ catalog, stock, other }).map(([name, sdl]) => ({ name, url: "", sdl }));
  const isSame = (candidate) => compose(REFERENCE, candidate).codes.join() === "INVALID_FIELD_SHARING";
  const reduced = await reduceFederation(subgraphs, isSame);
  assert.deepEqual(reduced.map(({ name, sdl }) => `${name}: ${sdl.replace(/\s+/g, " ")}`), [
    "catalog: type Query { products: [Product!]! } type Product { id: ID! }",
    `stock: ${link} type Product { id: ID! }`,
  ]);
});

test("the outcome of a federation that cannot be smaller is kept", async () => {
  const subgraphs = [{ name: "catalog", url: "", sdl: "type Query { a: String }" }];
  const isSame = (candidate) => compose(REFERENCE, candidate).success;
  assert.match((await reduceFederation(subgraphs, isSame))[0].sdl, /type Query \{\s+a: String\s+\}/);
});

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { buildSubgraphSchema } from "@apollo/subgraph";
import { parse } from "graphql";
import { createHandler } from "graphql-http/lib/use/http";

const products = [
  { id: "1", name: "Kettle", price: 40 },
  { id: "2", name: "Teapot", price: 25 },
];

const schema = buildSubgraphSchema({
  typeDefs: parse(readFileSync("products.graphql", "utf8")),
  resolvers: {
    Query: { products: () => products },
    Product: { __resolveReference: ({ id }) => products.find((product) => product.id === id) },
  },
});

createServer(createHandler({ schema })).listen(4001, "127.0.0.1", () => console.log("products is ready"));

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { buildSubgraphSchema } from "@apollo/subgraph";
import { parse } from "graphql";
import { createHandler } from "graphql-http/lib/use/http";

const stock = new Map([["1", 12], ["2", 3]]);
const find = (id) => (stock.has(id) ? { id, inStock: stock.get(id) } : null);

const schema = buildSubgraphSchema({
  typeDefs: parse(readFileSync("stock.graphql", "utf8")),
  resolvers: {
    Mutation: {
      sell(_, { id }) {
        if (stock.get(id) > 0) stock.set(id, stock.get(id) - 1);
        return find(id);
      },
    },
    Product: { __resolveReference: ({ id }) => find(id) },
  },
});

createServer(createHandler({ schema })).listen(4002, "127.0.0.1", () => console.log("stock is ready"));

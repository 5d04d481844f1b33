// An ordinary subgraph, served by graphql-http, which counts the requests that it gets.
import { buildSubgraphSchema } from "@apollo/subgraph";
import { createHandler } from "graphql-http/lib/use/http";
import { parse } from "graphql";
import { startListener } from "./listener.mjs";

export const PRODUCTS_SDL = `
  extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@external", "@requires"])
  type Query { product(upc: ID!): Product }
  type Product @key(fields: "upc") { upc: ID! name: String! }
  type Review @key(fields: "id") {
    id: ID!
    stars: Int! @external
    verdict: String! @requires(fields: "stars")
  }
`;

/** Starts the subgraph that adds names to products, and verdicts to reviews. */
export async function startProducts() {
  const product = ({ upc }) => ({ upc, name: `Name of ${upc}` });
  const schema = buildSubgraphSchema({
    typeDefs: parse(PRODUCTS_SDL),
    resolvers: {
      Query: { product: (_, args) => product(args) },
      Product: { __resolveReference: product },
      Review: {
        __resolveReference: (reference) => reference,
        verdict: ({ stars }) => (stars > 2 ? "good" : "bad"),
      },
    },
  });
  const requests = [];
  const handler = createHandler({ schema });
  const listener = await startListener((request, response) => {
    requests.push({ headers: request.headers });
    return handler(request, response);
  });
  return { ...listener, sdl: PRODUCTS_SDL, url: `${listener.origin}/graphql`, requests };
}

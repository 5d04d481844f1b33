// A second subgraph with a subscription, which must not notice what happens to the first one.
import { buildSubgraphSchema } from "@apollo/subgraph";
import { parse } from "graphql";
import { createEventLog } from "./event_log.mjs";

export const VISITED = "subscription Visited { visited { number } }";

/** The subgraph: `schema` and `sdl` for a server of this folder, `publish(number)`, `complete()` and `operations()`. */
export function createVisits() {
  const log = createEventLog();
  const sdl = `
    type Query { visits: Int! }
    type Subscription { visited: Visit }
    type Visit { number: Int! }
  `;
  const schema = buildSubgraphSchema({
    typeDefs: parse(sdl),
    resolvers: {
      Query: { visits: () => 7 },
      Subscription: { visited: { subscribe: () => log.begin(), resolve: (number) => ({ number }) } },
    },
  });
  return { sdl, schema, publish: log.publish, complete: log.complete, operations: log.count };
}

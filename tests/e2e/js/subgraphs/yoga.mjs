// GraphQL Yoga: queries, mutations and server-sent events at one URL, by POST and GET.
import { createYoga } from "graphql-yoga";
import { startListener } from "./listener.mjs";

/** Starts GraphQL Yoga with a subgraph such as `createReviews()`. `protocol` is `sse` or `sse_get`. */
export async function startYoga(subgraph, { protocol = "sse", port } = {}) {
  const yoga = createYoga({
    schema: subgraph.schema,
    // Errors of resolvers are for the router, which decides what clients see of them.
    maskedErrors: false,
    logging: false,
    graphiql: false,
    context: ({ request, params }) => ({
      headers: Object.fromEntries(request.headers), extensions: params.extensions,
    }),
  });
  const listener = await startListener(yoga, port);
  const url = `${listener.origin}/graphql`;
  return { ...listener, url, subscription: { protocol } };
}

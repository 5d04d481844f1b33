// The npm package graphql-sse in its distinct connections mode.
import { createHandler } from "graphql-sse/lib/use/http";
import { startListener } from "./listener.mjs";
import { queryHandler } from "./queries.mjs";

const PATH = "/stream";

/** Starts `graphql-sse` beside graphql-http, which serves queries. `protocol` is `sse` or `sse_get`. */
export async function startGraphqlSse(subgraph, { protocol = "sse", port, tls } = {}) {
  const streams = createHandler({
    schema: subgraph.schema,
    context: ({ raw }, { extensions }) => ({ headers: raw.headers, extensions }),
  });
  const queries = queryHandler(subgraph);
  const listener = await startListener(
    (request, response) => (request.url.startsWith(PATH) ? streams : queries)(request, response), port, tls,
  );
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { protocol, url: `${listener.origin}${PATH}` },
  };
}

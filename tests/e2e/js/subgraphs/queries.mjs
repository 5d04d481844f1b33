// The ordinary requests of subgraphs whose server of subscriptions has no place for them.
import { createHandler } from "graphql-http/lib/use/http";

/** Returns a request handler for queries and mutations, with the context that `createReviews()` expects. */
export const queryHandler = ({ schema }) =>
  createHandler({ schema, context: ({ raw, }) => ({ headers: raw.headers }) });

// A subgraph with subscriptions that it serves itself. The servers of this folder serve its schema, each over its
// protocol.
import { buildSubgraphSchema } from "@apollo/subgraph";
import { GraphQLError, parse, print } from "graphql";
import { createEventLog } from "./event_log.mjs";

const FEDERATION = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])';

export const REVIEWS_SDL = `
  ${FEDERATION}
  type Query { review(id: ID!): Review }
  type Mutation { addReview(id: ID!, product: ID!): Review }
  type Subscription {
    "The reviews of one product, or of all. For the product with the upc 'refused' it fails at once."
    reviewAdded(product: ID): Review
  }
  type Review @key(fields: "id") {
    id: ID!
    text: String!
    stars: Int!
    product: Product!
    "Always fails."
    author: String
  }
  type Product @key(fields: "upc", resolvable: false) { upc: ID! }
`;

/** The selection of most tests: fields of the event, of its entity stub, and one that `products` needs `stars` for. */
export const REVIEW_SELECTION = "{ id text verdict product { upc name } }";
export const REVIEW_ADDED =
  `subscription ReviewAdded($product: ID) { reviewAdded(product: $product) ${REVIEW_SELECTION} }`;

/** The text of an error that clients see only if `include_subgraph_errors` says so. */
export const AUTHOR_ERROR = "the author of this review is secret";
export const REFUSAL = "this product has no reviews";

/** A review, as `publish` takes it. */
export const review = (id, product = "kettle", stars = 5) => ({ id: String(id), text: `review ${id}`, stars, product });

/** The result for `review(id, product)` with `REVIEW_SELECTION`. */
export const expectedReview = (id, product = "kettle", stars = 5) => ({
  id: String(id),
  text: `review ${id}`,
  verdict: stars > 2 ? "good" : "bad",
  product: { upc: product, name: `Name of ${product}` },
});

/** The part of a context that this module sets; servers add members of their own. */
const shared = ({ headers, init, extensions }) => ({ headers, init, extensions });

/**
 * The subgraph: `schema` and `sdl`, and what its servers and tests share. The GraphQL context is
 * `{headers, init, extensions}`: the headers of the request, the payload of `connection_init` and the extensions of
 * the operation, as far as a protocol has them. `sdl` is another schema, with fewer fields that have no resolver.
 */
export function createReviews({ sdl = REVIEWS_SDL } = {}) {
  const log = createEventLog();
  const known = new Map();
  const started = [];
  const queried = [];
  let held = Promise.resolve();
  const schema = buildSubgraphSchema({
    typeDefs: parse(sdl),
    resolvers: {
      Query: {
        review(_, { id }, context) {
          queried.push(shared(context));
          return known.get(id);
        },
      },
      Mutation: {
        async addReview(_, { id, product }, context) {
          queried.push(shared(context));
          await held;
          publish(review(id, product));
          return known.get(id);
        },
      },
      Subscription: {
        reviewAdded: {
          subscribe(_, { product }, context, { operation, variableValues }) {
            if (product === "refused") throw new GraphQLError(REFUSAL, { extensions: { code: "NO_REVIEWS" } });
            started.push({ query: print(operation), variables: variableValues, ...shared(context) });
            return log.begin((event) => [undefined, null, event.product].includes(product));
          },
          resolve: (event) => event,
        },
      },
      Review: {
        __resolveReference: ({ id }) => known.get(id),
        product: ({ product }) => ({ upc: product }),
        author() {
          throw new GraphQLError(AUTHOR_ERROR, { extensions: { code: "SECRET" } });
        },
      },
    },
  });

  function publish(event) {
    known.set(event.id, event);
    log.publish(event);
  }

  return {
    sdl,
    schema,
    publish,
    complete: log.complete,
    /** The number of live operations. */
    operations: log.count,
    /** All operations that have begun: `{query, variables, headers, init, extensions}`. */
    started,
    /** The contexts of queries and mutations. */
    queried,
    /** Lets mutations wait until the returned function is called. */
    hold() {
      let release;
      held = new Promise((resolve) => {
        release = resolve;
      });
      return release;
    },
  };
}

// What the suites about traces share: a query over three subgraphs, its spans, and the identity of a client's trace.
import { representations, startSubgraph } from "./counting_subgraph.mjs";

/** The identity of a trace that a client or a publisher has begun, and of its span. */
export const TRACE = "0af7651916cd43dd8448eb211c80319c";
export const PARENT = "b7ad6b7169203331";

/** The name and the attributes of a router, in `tracing`, with which its traces equal those of `snapshots`. */
export const ROUTER_IDENTITY = { service_name: "shop", resource: { "deployment.environment.name": "test" } };

export const TOP = "query Top { products { name reviews stock } }";

/** The tree of the spans of `TOP`, as `treeOf` writes it. */
export const TOP_TREE = [
  "POST /graphql (server)",
  "  query Top",
  "    parse",
  "    plan",
  "    print",
  "    validate",
  "    wave 1",
  "      POST products (client)",
  "    wave 2",
  "      POST reviews (client)",
  "      POST stock (client)",
];

const REVIEWS = 'type Product @key(fields: "id") { id: ID! reviews: Int }';
const STOCK = 'type Product @key(fields: "id") { id: ID! stock: Int }';

export const product = (id) => ({ __typename: "Product", id, name: `Product ${id}` });

/**
 * Starts the subgraphs `products`, with this schema and this handler of requests, `reviews` and `stock`. `sources` are
 * those of `compose`; `link` is part of each schema. `onRequest(name, request)` is called with each request.
 */
export async function startTracedProducts({ sdl, link = "", respond, onRequest = () => {} }) {
  const entities = (field) =>
    startSubgraph((body, request) => {
      onRequest(field, request);
      return { _entities: representations(body).map(({ id }) => ({ __typename: "Product", id, [field]: 7 })) };
    });
  const products = await startSubgraph((body, request) => {
    onRequest("products", request);
    return respond(body);
  });
  const [reviews, stock] = [await entities("reviews"), await entities("stock")];
  return {
    products, reviews, stock,
    sources: {
      products: { sdl: `${link} ${sdl}`, url: products.url },
      reviews: { sdl: `${link} ${REVIEWS}`, url: reviews.url },
      stock: { sdl: `${link} ${STOCK}`, url: stock.url },
    },
    async stop() {
      for (const subgraph of [products, reviews, stock]) await subgraph.stop();
    },
  };
}

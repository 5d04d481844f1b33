// Apollo Server with its plugin for subscriptions over HTTP callbacks.
import { ApolloServer, HeaderMap } from "@apollo/server";
import { ApolloServerPluginSubscriptionCallback } from "@apollo/server/plugin/subscriptionCallback";
import { startListener } from "./listener.mjs";

/** The plugin's retries of a callback that the router did not take: few and short, so that a test ends soon. */
const RETRY = { retries: 2, minTimeout: 50, maxTimeout: 100 };

/** Starts Apollo Server. `fetcher` replaces the `fetch` with which the plugin sends callbacks. */
export async function startApolloCallback(subgraph, { port, fetcher } = {}) {
  const quiet = () => {};
  const logger = { debug: quiet, info: quiet, warn: quiet, error: quiet };
  const callbacks = [];
  const server = new ApolloServer({
    schema: subgraph.schema,
    logger,
    plugins: [ApolloServerPluginSubscriptionCallback({
      logger,
      retry: RETRY,
      maxConsecutiveHeartbeatFailures: 2,
      async fetcher(url, request) {
        const response = await (fetcher ?? fetch)(url, request);
        callbacks.push({ url, ...JSON.parse(request.body), status: response.status });
        return response;
      },
    })],
  });
  await server.start();
  const listener = await startListener(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    const parsed = body === "" ? null : JSON.parse(body);
    const headers = new HeaderMap(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const { search } = new URL(request.url, "http://localhost");
    const { status, headers: sent, body: result } = await server.executeHTTPGraphQLRequest({
      httpGraphQLRequest: { method: request.method.toUpperCase(), headers, search, body: parsed },
      context: async () => ({ headers: request.headers, extensions: parsed?.extensions }),
    });
    response.writeHead(status ?? 200, Object.fromEntries(sent)).end(result.string);
  }, port);
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { protocol: "callback" },
    /** The callbacks that were sent: `{url, action, id, verifier, payload, errors, status}`. */
    callbacks,
    async stop() {
      await server.stop();
      await listener.stop();
    },
  };
}

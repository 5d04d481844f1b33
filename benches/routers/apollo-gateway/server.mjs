// Apollo Gateway in front of the subgraphs of a supergraph. `authorization` reaches the subgraphs.
import { readFileSync } from "node:fs";
import process from "node:process";
import { ApolloGateway, RemoteGraphQLDataSource } from "@apollo/gateway";
import { ApolloServer } from "@apollo/server";
import { startStandaloneServer } from "@apollo/server/standalone";

class ForwardingSource extends RemoteGraphQLDataSource {
  willSendRequest({ request, context }) {
    if (context.authorization) request.http.headers.set("authorization", context.authorization);
  }
}

const gateway = new ApolloGateway({
  supergraphSdl: readFileSync(process.env.ROUTER_SUPERGRAPH, "utf8"),
  buildService: ({ url }) => new ForwardingSource({ url }),
});
const server = new ApolloServer({ gateway, introspection: false });
await startStandaloneServer(server, {
  listen: { host: "127.0.0.1", port: Number(process.env.ROUTER_PORT) },
  context: async ({ req }) => ({ authorization: req.headers.authorization }),
});

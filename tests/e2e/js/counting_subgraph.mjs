// A subgraph that keeps the requests that it gets, for tests of what the router asks for.
import { once } from "node:events";
import http from "node:http";

/** Data with errors. */
export class GraphqlResponse {
  constructor(data, errors) {
    Object.assign(this, { data, errors });
  }
}

/**
 * Starts a subgraph that keeps its `requests`. `respond(body, request)` returns the data, or a {@link GraphqlResponse},
 * or a promise of them; `headers` are those of responses, `extensions(body)` returns the member of that name, and `fails`
 * makes it respond with status 500.
 */
export async function startSubgraph(respond) {
  const subgraph = { requests: [], headers: {}, extensions: () => undefined, fails: false };
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts));
    subgraph.requests.push(body);
    const status = subgraph.fails ? 500 : 200;
    const responded = subgraph.fails ? { errors: [{ message: "broken" }] } : await respond(body, request);
    const content = subgraph.fails || responded instanceof GraphqlResponse ? responded : { data: responded };
    const sent = { ...content, extensions: subgraph.fails ? undefined : subgraph.extensions(body) };
    response.writeHead(status, { "content-type": "application/json", ...subgraph.headers }).end(JSON.stringify(sent));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  subgraph.url = `http://127.0.0.1:${server.address().port}/graphql`;
  subgraph.stop = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  return subgraph;
}

/** The representations in a request, by any variable. */
export const representations = (body) => Object.values(body.variables).flat().filter((it) => it?.__typename);

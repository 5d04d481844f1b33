// A server of subscriptions as `multipart/mixed`, written for these tests on graphql-js: no npm package serves
// subscriptions in the form with `subscriptionSpec=1.0`, and those that write the incremental form (GraphQL Yoga,
// graphql-helix) do so for queries with `@defer` only.
import { parse, subscribe, validate } from "graphql";
import { startListener } from "./listener.mjs";
import { queryHandler } from "./queries.mjs";

const PATH = "/multipart";

/** The content types of both forms; the second is that of `@defer`, where each part is a result. */
const CONTENT_TYPES = {
  subscription: 'multipart/mixed;boundary="graphql";subscriptionSpec=1.0',
  incremental: 'multipart/mixed; boundary="graphql"; deferSpec=20220824',
};

/** How often the form `subscription` sends an empty part. */
const HEARTBEAT_MS = 200;

/** Starts the server. `form` is `subscription` or `incremental`. */
export async function startMultipart(subgraph, { form = "subscription", port } = {}) {
  const queries = queryHandler(subgraph);
  const listener = await startListener((request, response) => {
    if (!request.url.startsWith(PATH)) return queries(request, response);
    return stream(subgraph, form, request, response);
  }, port);
  return {
    ...listener,
    url: `${listener.origin}/graphql`,
    subscription: { protocol: "multipart", url: `${listener.origin}${PATH}` },
  };
}

async function stream({ schema }, form, request, response) {
  if (!/\bmultipart\/mixed\b/.test(request.headers.accept ?? "")) {
    response.writeHead(406).end();
    return;
  }
  let body = "";
  for await (const part of request.setEncoding("utf8")) body += part;
  const { query, variables, operationName, extensions } = JSON.parse(body);
  const document = parse(query);
  const invalid = validate(schema, document);
  const source = invalid.length > 0 ? { errors: invalid } : await subscribe({
    schema, document, operationName, variableValues: variables, contextValue: { headers: request.headers, extensions },
  });
  const writer = partWriter(form, response);
  if (!source[Symbol.asyncIterator]) {
    writer.fail(source.errors);
    return;
  }
  response.once("close", () => source.return());
  for await (const result of source) writer.next(result);
  writer.complete();
}

/** Writes the parts of one response, each with the delimiter behind it, which tells the reader that it is complete. */
function partWriter(form, response) {
  response.writeHead(200, { "content-type": CONTENT_TYPES[form] });
  response.write("--graphql");
  const write = (value) =>
    response.write(`\r\ncontent-type: application/json; charset=utf-8\r\n\r\n${JSON.stringify(value)}\r\n--graphql`);
  const isEnvelope = form === "subscription";
  const heartbeat = isEnvelope ? setInterval(() => write({}), HEARTBEAT_MS) : undefined;
  const end = () => {
    clearInterval(heartbeat);
    response.end("--\r\n");
  };
  response.once("close", () => clearInterval(heartbeat));
  return {
    next: (result) => write(isEnvelope ? { payload: result } : { ...result, hasNext: true }),
    complete() {
      if (!isEnvelope) write({ hasNext: false });
      end();
    },
    fail(errors) {
      write(isEnvelope ? { payload: null, errors } : { data: null, errors, hasNext: false });
      end();
    },
  };
}

// Persisted documents with the manifests that foreign tools write, and the clients that go with them: Apollo's generator
// and link, the Relay compiler, graphql-ws, graphql-sse.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, it } from "node:test";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { generatePersistedQueryIdsFromManifest } from "@apollo/persisted-query-lists";
import { SUBSCRIPTION, event, expectedFlight, memorySupergraph, startSubgraphs } from "../board.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil } from "../waiting.mjs";

const run = promisify(execFile);

/** The part of the graph that the Relay compiler needs. */
const SCHEMA = `
type Query { flights: [Flight!]! }
type Flight { id: ID! number: String! }
`;

const AIRPORTS = "query Airports { airports { code city } }";
const FLIGHTS = "query Flights { flights { id number } }";

/** A program of an installed package. */
const program = (name) => fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url));

/** A manifest of Apollo's generator for the operations in `folder`. */
async function apolloManifest(folder) {
  await mkdir(path.join(folder, "apollo"));
  const source = `
    import { gql } from "@apollo/client";
    export const airports = gql\`${AIRPORTS}\`;
    export const moves = gql\`${SUBSCRIPTION}\`;
  `;
  await writeFile(path.join(folder, "apollo", "operations.js"), source);
  const config = { documents: [path.join(folder, "apollo", "*.js")], output: path.join(folder, "apollo.json") };
  await writeFile(path.join(folder, "apollo.config.json"), JSON.stringify(config));
  const generator = program("generate-persisted-query-manifest");
  await run(process.execPath, [generator, "--config", path.join(folder, "apollo.config.json")], { cwd: folder });
  return path.join(folder, "apollo.json");
}

/** The map that the Relay compiler writes. */
async function relayMap(folder) {
  const source = path.join(folder, "relay");
  await mkdir(source);
  await writeFile(path.join(source, "schema.graphql"), SCHEMA);
  await writeFile(
    path.join(source, "Board.js"),
    "const query = graphql`query BoardFlightsQuery { flights { id number } }`;\n",
  );
  await writeFile(path.join(source, "persisted.json"), "{}");
  const config = {
    src: ".", schema: "schema.graphql", language: "javascript",
    persistConfig: { file: "persisted.json", algorithm: "SHA256" },
  };
  await writeFile(path.join(source, "relay.config.json"), JSON.stringify(config));
  const compiler = program("relay-compiler");
  await run(process.execPath, [compiler, "relay.config.json"], { cwd: source });
  return path.join(source, "persisted.json");
}

/** A router with these `persisted_documents`. */
const startRouter = (subgraphs, documents) =>
  startServe({
    supergraph: memorySupergraph(),
    config: { subgraphs: subgraphs.configuration, persisted_documents: documents },
  });

describe("persisted documents", () => {
  let folder;
  let subgraphs;
  let router;
  let apollo;
  let relay;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "starling-documents-"));
    await mkdir(path.join(folder, "operations"));
    await writeFile(path.join(folder, "operations", "flights.graphql"), FLIGHTS);
    const files = [await apolloManifest(folder), await relayMap(folder)];
    [apollo, relay] = await Promise.all(files.map(async (it) => JSON.parse(await readFile(it, "utf8"))));
    subgraphs = await startSubgraphs();
    router = await startRouter(subgraphs, {
      mode: "require_id",
      manifests: [...files.map((file) => ({ file })), { folder: path.join(folder, "operations") }],
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const idOf = (name) => apollo.operations.find((it) => it.name === name).id;

  for (const useGETForHashedQueries of [false, true]) {
    it(`are used by Apollo Client with its manifest by ${useGETForHashedQueries ? "GET" : "POST"}`, async () => {
      const ids = generatePersistedQueryIdsFromManifest({ loadManifest: async () => apollo });
      const link = ApolloLink.from([
        new PersistedQueryLink({ ...ids, useGETForHashedQueries }),
        new HttpLink({ uri: router.graphql }),
      ]);
      const client = new ApolloClient({ link, cache: new InMemoryCache() });
      const { data } = await client.query({ query: gql(AIRPORTS) });
      client.stop();
      assert.equal(data.airports.length, 3);
    });
  }

  it("are used by Relay with its map, by POST and in the path", async () => {
    const [[id, text]] = Object.entries(relay);
    assert.match(text, /^query BoardFlightsQuery/);
    const { status, body } = await router.query({ documentId: id, variables: {} });
    assert.equal(status, 200);
    assert.equal(body.data.flights[0].number, "ST 101");
    const inPath = await fetch(`${router.graphql}/${id}?variables=${encodeURIComponent("{}")}`);
    assert.deepEqual(await inPath.json(), body);
  });

  it("are subscribed to over a WebSocket and an event stream", async () => {
    const id = idOf("Moves");
    for (const client of [openSocket(router), openStreams(router)]) {
      const failure = async (request) => {
        const { error, results } = await client.subscribe(request).ended();
        return JSON.stringify([error, results]);
      };
      assert.match(await failure({ query: "", documentId: "unknown" }), /PERSISTED_DOCUMENT_NOT_FOUND/);
      assert.match(await failure(SUBSCRIPTION), /PERSISTED_DOCUMENT_REQUIRED/);
      // graphql-ws requires that `query` is a string.
      const requests = [{ documentId: id }, { documentId: `sha256:${id}`, operationName: "Moves" }]
        .map((request) => ({ query: "", ...request }));
      const received = Promise.all(requests.map((it) => client.subscribe(it).next()));
      await repeatUntil(received, () => router.publish("memory/default", "flights.moved", event("1", 7)));
      for (const { data } of await received) {
        // Apollo's generator has added `__typename` to the selections.
        const { __typename, to: { __typename: ofAirport, ...to }, ...flight } = data.flightMoved;
        assert.deepEqual([__typename, ofAirport], ["Flight", "Airport"]);
        assert.deepEqual({ ...flight, to }, expectedFlight("1", 7));
      }
      await client.dispose();
    }
  });

  it("are the only operations that run", async () => {
    for (const request of [FLIGHTS, AIRPORTS, "{ __schema { queryType { name } } }"]) {
      const { status, body } = await router.query(request);
      assert.deepEqual([status, body.errors[0].extensions.code], [403, "PERSISTED_DOCUMENT_REQUIRED"]);
    }
  });

  it("are recognised by their texts where texts are allowed", async () => {
    const known = await startRouter(subgraphs, {
      mode: "require_known",
      manifests: [{ folder: path.join(folder, "operations") }],
    });
    try {
      for (const text of [FLIGHTS, "query Flights {\n  flights {\n    id, number # of the board\n  }\n}"]) {
        const { status, body } = await known.query(text);
        assert.deepEqual([status, body.data?.flights.length], [200, 3], text);
      }
      const { status, body } = await known.query("query Flights { flights { id } }");
      assert.deepEqual([status, body.errors[0].extensions.code], [403, "PERSISTED_DOCUMENT_REQUIRED"]);
    } finally {
      await known.stop();
    }
  });
});

// Automatic persisted queries of foreign clients: Apollo Client (`PersistedQueryLink`) and urql (`persistedExchange`) send
// the hash of an operation first, and its text with the hash if the router does not know it.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { BatchHttpLink } from "@apollo/client/link/batch-http";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { Client, fetchExchange } from "@urql/core";
import { persistedExchange } from "@urql/exchange-persisted";
import { SUBSCRIPTION, event, expectedFlight } from "../board.mjs";
import { serveBoard } from "../board_router.mjs";
import { openSocket, openStreams } from "../live_client.mjs";
import { repeatUntil } from "../waiting.mjs";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const persisted = (text) => ({ persistedQuery: { version: 1, sha256Hash: sha256(text) } });

/** How the requests of a client name their operations, in order: `hash`, `text`, or `both`. */
function watchRequests() {
  const sent = [];
  const nameOf = (request) => {
    const hasHash = JSON.stringify(request.extensions ?? "").includes("persistedQuery");
    return hasHash ? ("query" in request ? "both" : "hash") : "text";
  };
  const watch = (url, init) => {
    const body = init.body ? JSON.parse(init.body) : Object.fromEntries(new URL(url).searchParams);
    sent.push(...[body].flat().map((it) => `${init.method ?? "GET"} ${nameOf(it)}`));
    return fetch(url, init);
  };
  return { sent, fetch: watch };
}

function apolloClient(router, Link, options = {}) {
  const watched = watchRequests();
  const link = ApolloLink.from([
    new PersistedQueryLink({ sha256, ...options }),
    new Link({ uri: router.graphql, fetch: watched.fetch }),
  ]);
  const cache = new InMemoryCache();
  const defaultOptions = { query: { fetchPolicy: "no-cache" } };
  return { sent: watched.sent, client: new ApolloClient({ link, cache, defaultOptions }) };
}

const LINKS = [
  ["by POST", "POST", HttpLink, {}],
  ["by GET", "GET", HttpLink, { useGETForHashedQueries: true }],
  ["in a batch", "POST", BatchHttpLink, {}],
];

describe("a client with automatic persisted queries", () => {
  const board = serveBoard({ http: { batching: { enabled: true } } });

  LINKS.forEach(([name, method, Link, options], number) => {
    it(`sends a text once ${name}, and only its hash from then on`, async () => {
      // Each test has an operation of its own, which no other has stored.
      const query = gql(`query Flights${number} { flights { id } }`);
      const first = apolloClient(board.router, Link, options);
      const results = [await first.client.query({ query }), await first.client.query({ query })];
      const second = apolloClient(board.router, Link, options);
      results.push(await second.client.query({ query }));
      for (const { client } of [first, second]) client.stop();
      for (const { data, error } of results) {
        assert.equal(error, undefined);
        assert.equal(data.flights.length, 3);
      }
      assert.deepEqual(first.sent, [`${method} hash`, "POST both", `${method} hash`]);
      assert.deepEqual(second.sent, [`${method} hash`]);
    });
  });

  it("is served as urql", async () => {
    const watched = watchRequests();
    const client = new Client({
      url: board.router.graphql,
      fetch: watched.fetch,
      preferGetMethod: false,
      requestPolicy: "network-only",
      exchanges: [
        persistedExchange({ generateHash: async (text) => sha256(text), preferGetForPersistedQueries: true }),
        fetchExchange,
      ],
    });
    for (let times = 0; times < 2; times++) {
      const { data, error } = await client.query("query Urql { airports { code } }", {}).toPromise();
      assert.equal(error, undefined);
      assert.equal(data.airports.length, 3);
    }
    // urql sends the text by GET, too.
    assert.deepEqual(watched.sent, ["GET hash", "GET both", "GET hash"]);
  });

  for (const [name, open] of [["a WebSocket", openSocket], ["an event stream", openStreams]]) {
    it(`subscribes by the hash over ${name}`, async () => {
      // graphql-ws requires that `query` is a string.
      const client = open(board.router);
      const query = `${SUBSCRIPTION} # over ${name}`;
      const extensions = persisted(query);
      const { error, results } = await client.subscribe({ query: "", extensions }).ended();
      assert.match(JSON.stringify([error, results]), /PersistedQueryNotFound.*PERSISTED_QUERY_NOT_FOUND/);
      for (const request of [{ query, extensions }, { query: "", extensions }]) {
        const received = client.subscribe(request).next();
        await repeatUntil(received, () => board.router.publish("memory/default", "flights.moved", event("1", 7)));
        assert.deepEqual((await received).data, { flightMoved: expectedFlight("1", 7) });
      }
      await client.dispose();
    });
  }
});

describe("a client whose hashes the router does not store", () => {
  const board = serveBoard({ apq: { enabled: false }, http: { batching: { enabled: true } } });

  for (const [name, method, Link, options] of LINKS) {
    it(`falls back to the text ${name}, and sends no further hash`, async () => {
      const { sent, client } = apolloClient(board.router, Link, options);
      const first = await client.query({ query: gql`{ flights { id } }` });
      const second = await client.query({ query: gql`{ airports { code } }` });
      client.stop();
      assert.ok(first.data.flights.length > 0 && second.data.airports.length > 0);
      assert.deepEqual(sent, [`${method} hash`, "POST text", "POST text"]);
    });
  }
});

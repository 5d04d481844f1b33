// Apollo Client with automatic persisted queries (`PersistedQueryLink`), which sends the hash of an operation first.
// The router stores no operations by hash and reports that; the client then sends the text, and no further hashes.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { BatchHttpLink } from "@apollo/client/link/batch-http";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries";
import { serveBoard } from "../board_router.mjs";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");

describe("a client with automatic persisted queries", () => {
  const board = serveBoard({ http: { batching: { enabled: true } } });

  /** A client, and the requests that it has sent. */
  function client(Link, options = {}) {
    const sent = [];
    const watch = (url, init) => {
      const body = init.body ? JSON.parse(init.body) : Object.fromEntries(new URL(url).searchParams);
      sent.push(...[body].flat().map((it) => ("query" in it ? "text" : "hash")));
      return fetch(url, init);
    };
    const link = ApolloLink.from([
      new PersistedQueryLink({ sha256, ...options }),
      new Link({ uri: board.router.graphql, fetch: watch }),
    ]);
    return { sent, client: new ApolloClient({ link, cache: new InMemoryCache() }) };
  }

  for (const [name, Link, options] of [
    ["by POST", HttpLink, {}],
    ["by GET", HttpLink, { useGETForHashedQueries: true }],
    ["in a batch", BatchHttpLink, {}],
  ]) {
    it(`falls back to the text ${name}, and sends no further hash`, async () => {
      const { sent, client: apollo } = client(Link, options);
      const first = await apollo.query({ query: gql`{ flights { id } }` });
      const second = await apollo.query({ query: gql`{ airports { code } }` });
      apollo.stop();
      assert.ok(first.data.flights.length > 0 && second.data.airports.length > 0);
      assert.deepEqual(sent, ["hash", "text", "text"]);
    });
  }
});

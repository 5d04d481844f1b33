// Signatures of requests to subgraphs, verified by the sample in docs/subgraphs.md.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { pathToFileURL } from "node:url";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";
import { startServe } from "../router.mjs";

const SECRET = "a secret of the router and the subgraph, of 32 bytes and more";

const SUPERGRAPH = `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION) {
  query: Query
}
${JOIN_DEFINITIONS}
enum join__Graph { A @join__graph(name: "a", url: "http://127.0.0.1:1/graphql") }
type Query @join__type(graph: A) { greet(name: String): String }
`;

describe("signatures of requests", () => {
  let folder;
  let isFromRouter;
  let subgraph;
  let router;
  const received = [];
  before(async () => {
    const page = await readFile(new URL("../../../../docs/subgraphs.md", import.meta.url), "utf8");
    const [, sample] = page.match(/<!-- test: file=verify\.mjs -->\n```js\n([^]*?)```/);
    folder = await mkdtemp(path.join(tmpdir(), "starling-signatures-"));
    await writeFile(path.join(folder, "verify.mjs"), sample);
    ({ isFromRouter } = await import(pathToFileURL(path.join(folder, "verify.mjs"))));
    subgraph = http.createServer(async (request, response) => {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      received.push({ body: Buffer.concat(pieces), header: request.headers["x-starling-signature"] });
      response.setHeader("content-type", "application/json").end(`{"data":{"greet":"hello"}}`);
    }).listen(0, "127.0.0.1");
    await once(subgraph, "listening");
    router = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: {
          a: {
            url: `http://127.0.0.1:${subgraph.address().port}/graphql`,
            signature: { hmac: { secret: SECRET } },
          },
        },
        headers: { all: { request: [{ propagate: { named: "x-starling-signature" } }] } },
      },
    });
  });
  after(async () => {
    await router?.stop();
    subgraph?.close();
    subgraph?.closeAllConnections();
    await rm(folder, { recursive: true });
  });

  it("a subgraph verifies the body, and a client cannot replace the signature", async () => {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", "x-starling-signature": "sha256=00" },
      body: JSON.stringify({ query: "query($n: String) { greet(name: $n) }", variables: { n: "ä" } }),
    });
    assert.deepEqual(await response.json(), { data: { greet: "hello" } });
    const { body, header } = received.at(-1);
    assert.equal(isFromRouter(body, header, SECRET), true);
    assert.equal(isFromRouter(body, header, `${SECRET}!`), false);
    assert.equal(isFromRouter(Buffer.concat([body, Buffer.from(" ")]), header, SECRET), false);
    assert.equal(isFromRouter(body, undefined, SECRET), false);
    assert.ok(!router.output().includes(SECRET));
  });
});

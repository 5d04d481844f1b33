// Files in requests: npm's apollo-upload-client through the router to GraphQL Yoga, which reads them.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import net from "node:net";
import { after, before, describe, it } from "node:test";
import { ApolloClient, InMemoryCache, gql } from "@apollo/client";
import UploadHttpLink from "apollo-upload-client/UploadHttpLink.mjs";
import { createSchema } from "graphql-yoga";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";
import { startServe } from "../router.mjs";
import { startYoga } from "../subgraphs/yoga.mjs";
import { eventually } from "../waiting.mjs";

const SUPERGRAPH = `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION) {
  query: Query
  mutation: Mutation
}
${JOIN_DEFINITIONS}
enum join__Graph {
  FILES @join__graph(name: "files", url: "http://127.0.0.1:1/graphql")
  OTHERS @join__graph(name: "others", url: "http://127.0.0.1:1/graphql")
}
scalar Upload @join__type(graph: FILES) @join__type(graph: OTHERS)
input Attachment @join__type(graph: FILES) { title: String! file: Upload! }
type Stored @join__type(graph: FILES) @join__type(graph: OTHERS) { name: String size: Int! sha256: String! }
type Query @join__type(graph: FILES) @join__type(graph: OTHERS) {
  ready: Boolean @join__field(graph: FILES)
  inspect(file: Upload!): Stored @join__field(graph: FILES)
}
type Mutation @join__type(graph: FILES) @join__type(graph: OTHERS) {
  store(file: Upload!): Stored @join__field(graph: FILES)
  storeAll(files: [Upload!]!): [Stored!] @join__field(graph: FILES)
  attach(to: ID!, attachment: Attachment!): Stored @join__field(graph: FILES)
  storeElsewhere(file: Upload!): Stored @join__field(graph: OTHERS)
}
`;

const stored = async (file) => ({
  name: file.name,
  size: file.size,
  sha256: createHash("sha256").update(Buffer.from(await file.arrayBuffer())).digest("hex"),
});

const schema = createSchema({
  typeDefs: `scalar Upload
    input Attachment { title: String! file: Upload! }
    type Stored { name: String size: Int! sha256: String! }
    type Query { ready: Boolean inspect(file: Upload!): Stored }
    type Mutation {
      store(file: Upload!): Stored
      storeAll(files: [Upload!]!): [Stored!]
      attach(to: ID!, attachment: Attachment!): Stored
      storeElsewhere(file: Upload!): Stored
    }`,
  resolvers: {
    Query: { ready: () => true, inspect: (_, { file }) => stored(file) },
    Mutation: {
      store: (_, { file }) => stored(file),
      storeAll: (_, { files }) => Promise.all(files.map(stored)),
      attach: (_, { attachment }) => stored(attachment.file),
      storeElsewhere: (_, { file }) => stored(file),
    },
  },
});

const expected = (name, content) => ({
  name, size: content.length, sha256: createHash("sha256").update(content).digest("hex"),
});

const STORE = "mutation($file: Upload!) { store(file: $file) { name size sha256 } }";
const PREFLIGHT = { "apollo-require-preflight": "true" };

describe("file uploads", () => {
  let subgraph;
  let router;
  let client;
  before(async () => {
    subgraph = await startYoga({ schema });
    router = await startServe({
      supergraph: SUPERGRAPH,
      config: {
        subgraphs: { files: { url: subgraph.url }, others: { url: subgraph.url } },
        uploads: {
          enabled: true, max_files: 2, max_file_bytes: "2MiB", max_bytes: "3MiB", max_bytes_total: "8MiB",
        },
        include_subgraph_errors: { all: true },
      },
    });
    client = new ApolloClient({
      link: new UploadHttpLink({ uri: router.graphql, headers: PREFLIGHT }),
      cache: new InMemoryCache(),
      defaultOptions: { query: { fetchPolicy: "no-cache" }, mutate: { fetchPolicy: "no-cache" } },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraph?.stop();
  });

  /** A request with these parts, in this order. */
  async function send(parts, headers = PREFLIGHT) {
    const form = new FormData();
    for (const [name, value] of parts) {
      form.append(name, value instanceof Blob ? value : typeof value === "string" ? value : JSON.stringify(value));
    }
    const response = await fetch(router.graphql, { method: "POST", headers, body: form });
    const body = await response.json();
    return { status: response.status, body, message: body.errors?.[0]?.message };
  }

  const operations = (query = STORE, variables = { file: null }) => ["operations", { query, variables }];
  const map = ["map", { 0: ["variables.file"] }];
  const file = (size = 5) => new Blob(["x".repeat(size)], { type: "text/plain" });

  /** The bytes of requests with files that the router holds. */
  async function held() {
    const metrics = await (await fetch(`${router.admin}/metrics`)).text();
    return Number(metrics.match(/^starling_uploads_bytes (\d+)$/m)[1]);
  }

  /** The number of requests with files. */
  async function requests() {
    const metrics = await (await fetch(`${router.admin}/metrics`)).text();
    return Number(metrics.match(/^starling_uploads_total (\d+)$/m)[1]);
  }

  it("a file of Apollo Client arrives at the subgraph, byte for byte", async () => {
    const content = Buffer.alloc(1_500_000, "0123456789abcdef\r\n--\r\n");
    const { data } = await client.mutate({
      mutation: gql(STORE),
      variables: { file: new File([content], "photo \"1\" ü.png", { type: "image/png" }) },
    });
    const { name, size, sha256 } = data.store;
    const { size: sizeExpected, sha256: hash } = expected("", content);
    assert.deepEqual({ size, sha256 }, { size: sizeExpected, sha256: hash });
    assert.match(name, /^photo .* ü\.png$/);
    assert.equal(await held(), 0);
  });

  it("several files, files in input objects, and files of queries arrive", async () => {
    const named = (name) => new File([name], name, { type: "text/plain" });
    const { data } = await client.mutate({
      mutation: gql("mutation($files: [Upload!]!) { storeAll(files: $files) { name size sha256 } }"),
      variables: { files: [named("a.txt"), named("b.txt")] },
    });
    assert.deepEqual(data.storeAll.map(({ __typename, ...it }) => it), [
      expected("a.txt", "a.txt"), expected("b.txt", "b.txt"),
    ]);
    const attached = await client.mutate({
      mutation: gql(`mutation($attachment: Attachment!) {
        attach(to: "1", attachment: $attachment) { name size }
      }`),
      variables: { attachment: { title: "t", file: named("c.txt") } },
    });
    assert.equal(attached.data.attach.name, "c.txt");
    const inspected = await client.query({
      query: gql("query($file: Upload!) { inspect(file: $file) { name size } }"),
      variables: { file: named("d.txt") },
    });
    assert.equal(inspected.data.inspect.name, "d.txt");
  });

  it("a file for two subgraphs is refused, and the same file twice in one request is not", async () => {
    const both = `mutation($file: Upload!) {
      store(file: $file) { size } storeElsewhere(file: $file) { size }
    }`;
    const refused = await send([operations(both), map, ["0", file()]]);
    assert.match(refused.message, /is used by several requests to subgraphs/);
    const twice = "mutation($a: Upload!, $b: Upload!) { storeAll(files: [$a, $b]) { size } }";
    const { body } = await send([
      operations(twice, { a: null, b: null }), ["map", { 0: ["variables.a", "variables.b"] }], ["0", file(5)],
    ]);
    assert.deepEqual(body, { data: { storeAll: [{ size: 5 }, { size: 5 }] } });
  });

  it("forms that are too large, too many or malformed are refused with the reason", async () => {
    for (const [parts, status, message] of [
      [[operations(), map, ["0", file(2 * 1024 * 1024 + 1)]], 413, /uploads\.max_file_bytes/],
      [[
        operations("mutation($files: [Upload!]!) { storeAll(files: $files) { size } }", { files: [null, null] }),
        ["map", { 0: ["variables.files.0"], 1: ["variables.files.1"] }],
        ["0", file(1_800_000)], ["1", file(1_800_000)],
      ], 413, /uploads\.max_bytes/],
      [[operations(), ["map", { 0: ["variables.file"], 1: ["a"], 2: ["b"] }]], 413, /uploads\.max_files/],
      [[operations(), ["map", { 0: ["variables.other"] }], ["0", file()]], 400, /`variables\.other`/],
      [[operations(), map], 400, /the file `0` of `map` is missing/],
      [[map, operations(), ["0", file()]], 400, /`operations` is not where it belongs/],
      [[["0", file()], operations(), map], 400, /`operations` is not where it belongs/],
      [[["operations", [{ query: STORE }]], map, ["0", file()]], 400, /batches carry no files/],
      [[operations(), map, ["0", file()], ["1", file()]], 400, /a part that `map` does not name/],
    ]) {
      const refused = await send(parts);
      assert.equal(refused.status, status, JSON.stringify(refused));
      assert.match(refused.message, message);
    }
    assert.equal(await held(), 0);
  });

  it("a form without a required header is refused, whatever csrf says", async () => {
    const refused = await send([operations(), map, ["0", file()]], {});
    assert.equal(refused.status, 403);
    assert.match(refused.message, /apollo-require-preflight/);
  });

  it("an upload that breaks off or lies about its size gives its memory back", async () => {
    const head = (length) => `POST /graphql HTTP/1.1\r\nhost: localhost\r\napollo-require-preflight: 1\r\n`
      + `content-type: multipart/form-data; boundary=x\r\ncontent-length: ${length}\r\n\r\n`;
    const begin = `--x\r\ncontent-disposition: form-data; name="operations"\r\n\r\n`
      + `${JSON.stringify({ query: STORE, variables: { file: null } })}\r\n`
      + `--x\r\ncontent-disposition: form-data; name="map"\r\n\r\n{"0":["variables.file"]}\r\n`
      + `--x\r\ncontent-disposition: form-data; name="0"; filename="a"\r\n\r\n${"y".repeat(100_000)}`;
    const socket = net.connect(router.ports.graphql, "127.0.0.1");
    socket.on("error", () => {});
    const before = await requests();
    socket.write(head(1_000_000) + begin);
    await eventually(async () => await requests() > before, "the request to begin");
    socket.destroy();
    await eventually(async () => await held() === 0, "the memory to be given back");

    const short = net.connect(router.ports.graphql, "127.0.0.1");
    short.on("error", () => {});
    short.write(head(begin.length) + begin);
    const [response] = await once(short.setEncoding("latin1"), "data");
    assert.match(response, /^HTTP\/1\.1 400 /);
    short.destroy();

    const announced = net.connect(router.ports.graphql, "127.0.0.1");
    announced.on("error", () => {});
    announced.write(head(100_000_000) + begin);
    const [early] = await once(announced.setEncoding("latin1"), "data");
    assert.match(early, /^HTTP\/1\.1 413 /);
    announced.destroy();
    await eventually(async () => await held() === 0, "the memory to be given back");
  });

  it("a subgraph that is down is reported, and the file is not sent twice", async () => {
    const down = await startServe({
      supergraph: SUPERGRAPH,
      config: { uploads: { enabled: true }, traffic: { all: { retry: { retries: 0 } } } },
    });
    const form = new FormData();
    form.append("operations", JSON.stringify({ query: STORE, variables: { file: null } }));
    form.append("map", JSON.stringify({ 0: ["variables.file"] }));
    form.append("0", file());
    const response = await fetch(down.graphql, { method: "POST", headers: PREFLIGHT, body: form });
    const body = await response.json();
    assert.equal(body.errors[0].extensions.code, "SUBGRAPH_REQUEST_FAILED");
    await down.stop();
  });

  it("files are refused where uploads are not enabled", async () => {
    const closed = await startServe({ supergraph: SUPERGRAPH });
    const form = new FormData();
    form.append("operations", "{}");
    const response = await fetch(closed.graphql, { method: "POST", headers: PREFLIGHT, body: form });
    assert.equal(response.status, 415);
    await closed.stop();
  });
});

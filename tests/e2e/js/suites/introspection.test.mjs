// `introspection: {enabled, when, filter}`: which clients may query the schema, and which part of it each of them sees.
// The reference implementation builds a schema of every response and validates it.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { buildClientSchema, getIntrospectionQuery, printSchema, validateSchema } from "graphql";
import { memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { readMetric } from "../subgraphs/router.mjs";
import { startIssuer } from "../tokens.mjs";

/** The graph of the suites, with requirements on a root field, a type and a field. */
function graph() {
  let sdl = memorySupergraph();
  const replace = (what, by) => {
    assert.ok(sdl.includes(what), what);
    sdl = sdl.replace(what, by);
  };
  replace("for: EXECUTION)\n", `for: EXECUTION)
  @link(url: "https://specs.apollo.dev/authenticated/v0.1", for: SECURITY)
  @link(url: "https://specs.apollo.dev/requiresScopes/v0.1", for: SECURITY)
`);
  replace("airports: [Airport!]! @join__field(graph: AIRPORTS)", "$& @authenticated");
  replace("type Airport\n", 'type Airport @requiresScopes(scopes: [["airports"]])\n');
  replace("number: String! @join__field(graph: FLIGHTS)", '$& @requiresScopes(scopes: [["flights:read"]])');
  return sdl;
}

describe("introspection", () => {
  const keep = closeAfterEach();
  let subgraphs;
  let issuer;
  before(async () => {
    subgraphs = await startSubgraphs();
    issuer = await startIssuer();
  });
  after(async () => {
    await subgraphs?.stop();
    await issuer?.stop();
  });

  async function open(introspection, config = {}) {
    return keep(await startServe({
      supergraph: graph(),
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { issuers: [issuer.configuration] } },
        introspection,
        ...config,
      },
    }));
  }
  const bearer = (claims) => (claims ? { authorization: `Bearer ${issuer.issue(claims)}` } : {});

  async function ask(router, query, claims, variables) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: {
        "content-type": "application/json", accept: "application/graphql-response+json", ...bearer(claims),
      },
      body: JSON.stringify({ query, variables }),
    });
    const { data, errors } = await response.json();
    return { status: response.status, data, code: errors?.[0].extensions.code };
  }

  /** Introspects as a client with these claims, and returns the schema that it sees. */
  async function see(router, claims) {
    const { data, code } = await ask(router, getIntrospectionQuery({ descriptions: false }), claims);
    assert.equal(code, undefined);
    const schema = buildClientSchema(data);
    assert.deepEqual(validateSchema(schema).map(({ message }) => message), []);
    return { schema, text: printSchema(schema), fields: (type) => Object.keys(schema.getType(type)?.getFields() ?? {}) };
  }

  const ALL = { sub: "ann", scope: "airports flights:read" };

  it("shows each client the types and fields that its rights allow, as a valid schema", async () => {
    const router = await open({ filter: true });
    const anonymous = await see(router);
    assert.equal(anonymous.schema.getType("Airport"), undefined);
    assert.ok(!anonymous.fields("Query").includes("airports"), anonymous.text);
    assert.ok(anonymous.fields("Query").includes("flight"), anonymous.text);
    for (const field of ["number", "from", "to"]) assert.ok(!anonymous.fields("Flight").includes(field), field);
    assert.ok(!anonymous.text.includes("Airport"), anonymous.text);
    const reader = await see(router, { scope: "flights:read" });
    assert.ok(reader.fields("Flight").includes("number") && !reader.text.includes("Airport"), reader.text);
    const scoped = await see(router, { scope: "airports" });
    assert.ok(scoped.fields("Query").includes("airports") && scoped.fields("Airport").length > 1, scoped.text);
    assert.ok(!scoped.fields("Flight").includes("number"), scoped.text);
    const everything = await see(await open(true));
    assert.equal((await see(router, ALL)).text, everything.text);
  });

  it("hides types by name, too, also with variables, aliases and fragments, and over a WebSocket", async () => {
    const router = await open({ filter: true });
    const type = "query($name: String!) { a: __type(name: $name) { ...T } } fragment T on __Type { name fields { name } }";
    const [hidden, shown] = [undefined, ALL].map((claims) => ask(router, type, claims, { name: "Airport" }));
    assert.deepEqual((await hidden).data, { a: null });
    assert.equal((await shown).data.a.name, "Airport");
    const flight = await ask(router, type, undefined, { name: "Flight" });
    assert.ok(flight.data.a.fields.every(({ name }) => !["number", "from", "to"].includes(name)));
    // Beside other fields, which are served as always.
    const mixed = await ask(router, '{ flight(id: "1") { id } __type(name: "Airport") { name } }');
    assert.deepEqual(mixed.data, { flight: { id: "1" }, __type: null });
    const client = keep(openSocket(router, bearer({ scope: "flights:read" })));
    const overSocket = await client.subscribe('{ __type(name: "Airport") { name } }').next();
    assert.deepEqual(overSocket.data, { __type: null });
  });

  it("makes one schema for all clients with equal rights", async () => {
    const router = await open({ filter: true });
    const query = getIntrospectionQuery();
    for (let at = 0; at < 20; at += 1) {
      for (const scope of ["flights:read", "airports"]) {
        // Other texts are prepared anew, and share the schema.
        await ask(router, `${query} # ${at}`, { sub: `user-${at}`, scope });
      }
    }
    assert.equal(await readMetric(router, "starling_introspection_schemas_filtered_total"), 2);
    await ask(router, query, ALL);
    assert.equal(await readMetric(router, "starling_introspection_schemas_filtered_total"), 2, "the whole schema");
  });

  it("allows introspection under a condition only, and fails closed", async () => {
    const router = await open({ when: "claims.role == 'developer'", filter: true });
    const query = "{ __schema { queryType { name } } }";
    const refused = { status: 403, data: undefined, code: "OPERATION_BLOCKED" };
    for (const claims of [undefined, {}, { role: "user" }, { role: 7 }]) {
      assert.deepEqual(await ask(router, query, claims), refused);
      assert.equal((await ask(router, "{ __typename }", claims)).data.__typename, "Query");
    }
    assert.equal((await ask(router, query, { role: "developer" })).data.__schema.queryType.name, "Query");
    // The condition and `block.introspection` both apply.
    const both = await open({ when: "true" }, { block: { introspection: "claims.role == 'user'" } });
    assert.deepEqual(await ask(both, query, { role: "user" }), refused);
    assert.equal((await ask(both, query, { role: "developer" })).status, 200);
    const off = await open({ enabled: false });
    assert.deepEqual((await ask(off, query, ALL)).code, "GRAPHQL_VALIDATION_FAILED");
  });

  it("shows everything while field authorization only counts", async () => {
    const trying = await open({ filter: true }, { authorization: { dry_run: true } });
    assert.equal((await see(trying)).text, (await see(await open(true))).text);
  });
});

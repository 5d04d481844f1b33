// `@authenticated`, `@requiresScopes` and `@policy`: what clients with different tokens get, what subgraphs are asked,
// and which subscribers share a group.
import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { openSocket } from "../live_client.mjs";
import { startServe } from "../router.mjs";
import { readMetric } from "../subgraphs/router.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const PROVIDER = "memory/default";

/** The graph of the suites with requirements, as composition writes them. */
function graph({ number = '@requiresScopes(scopes: [["flights:read"], ["admin"]])' } = {}) {
  const replaced = (text, what, by) => {
    assert.ok(text.includes(what), what);
    return text.replace(what, by);
  };
  let sdl = memorySupergraph();
  sdl = replaced(sdl, 'for: EXECUTION)\n', `for: EXECUTION)
  @link(url: "https://specs.apollo.dev/authenticated/v0.1", for: SECURITY)
  @link(url: "https://specs.apollo.dev/requiresScopes/v0.1", for: SECURITY)
  @link(url: "https://specs.apollo.dev/policy/v0.1", for: SECURITY)
`);
  sdl = replaced(sdl, "airports: [Airport!]! @join__field(graph: AIRPORTS)", "$& @authenticated");
  sdl = replaced(sdl, "number: String! @join__field(graph: FLIGHTS)", `$& ${number}`);
  return replaced(sdl, "city: String! @join__field(graph: AIRPORTS)", '$& @policy(policies: [["residents"]])');
}

const FLIGHT = '{ flight(id: "1") { id number from { name } } }';
const MOVED = "subscription { flightMoved { id altitude to { code } from { name } } }";
const MOVED_NUMBER = "subscription { flightMoved { id altitude number } }";

describe("field authorization", () => {
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

  async function open(authorization = {}, supergraph = graph()) {
    const router = keep(await startServe({
      supergraph,
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { issuers: [issuer.configuration] } },
        authorization,
      },
    }));
    subgraphs.takeQueries();
    return router;
  }
  const bearer = (claims) => (claims ? { authorization: `Bearer ${issuer.issue(claims)}` } : {});

  async function ask(router, query, claims) {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: {
        "content-type": "application/json", accept: "application/graphql-response+json", ...bearer(claims),
      },
      body: JSON.stringify({ query }),
    });
    const { data, errors, extensions } = await response.json();
    const places = errors?.map((error) => [error.extensions.code, error.path.join(".")]);
    return { status: response.status, data, places, extensions, queries: subgraphs.takeQueries() };
  }

  it("leaves out what the client may not use, and asks no subgraph for it", async () => {
    const router = await open();
    const denied = "UNAUTHORIZED_FIELD_OR_TYPE";
    const reader = await ask(router, FLIGHT, { scope: "profile flights:read" });
    assert.deepEqual(reader.data, { flight: { id: "1", number: "ST 101", from: { name: "Helmut Schmidt" } } });
    assert.equal(reader.places, undefined);
    const admin = await ask(router, FLIGHT, { scp: ["admin"] });
    assert.deepEqual(admin.data, reader.data);
    for (const claims of [undefined, {}, { scope: "flights" }, { scope: 7 }]) {
      const { status, data, places, queries } = await ask(router, FLIGHT, claims);
      // `number` is not nullable, so the flight is null.
      assert.deepEqual([status, data, places], [200, { flight: null }, [[denied, "flight.number"]]]);
      assert.ok(queries.length > 0 && queries.every((query) => !query.includes("number")), queries.join("\n"));
    }
    const anonymous = await ask(router, "{ airports { code } }");
    assert.deepEqual([anonymous.data, anonymous.places, anonymous.queries], [null, [[denied, "airports"]], []]);
    const known = await ask(router, "{ airports { code } }", {});
    assert.equal(known.data.airports.length, 3);
    const policy = await ask(router, '{ flight(id: "2") { to { city } } }', { scope: "admin" });
    assert.deepEqual(policy.places, [[denied, "flight.to.city"]], "nothing decides policies");
    assert.ok(await readMetric(router, "starling_operations_denied_total", '"true"') >= 5);
  });

  it("grants nothing for a claim that is not a text or a list of texts, and serves other clients as before", async () => {
    const router = await open();
    const denied = [200, { flight: null }, [["UNAUTHORIZED_FIELD_OR_TYPE", "flight.number"]]];
    let deep = "flights:read";
    for (let level = 0; level < 20; level++) deep = [deep];
    for (const scope of [
      { "flights:read": true }, [["flights:read"]], deep, true, "", " ", "flights:read,admin", "flights:read\u0000",
      "FLIGHTS:READ", "flights:*", [{ name: "flights:read" }],
    ]) {
      const { status, data, places } = await ask(router, FLIGHT, { scope });
      assert.deepEqual([status, data, places], denied, JSON.stringify(scope));
      const client = keep(openSocket(router, bearer({ scope })));
      const { results } = await client.subscribe(FLIGHT).ended();
      assert.deepEqual(results[0].data, { flight: null }, JSON.stringify(scope));
    }
    const many = await ask(router, FLIGHT, { scope: Array.from({ length: 500 }, (_, at) => `scope:${at}`).join(" ") });
    assert.deepEqual([many.status, many.data, many.places], denied);
    const reader = await ask(router, FLIGHT, { scope: "flights:read" });
    assert.equal(reader.data.flight.number, "ST 101");
  });

  it("leaves introspection and types as they are", async () => {
    const router = await open();
    const asked = await ask(router, '{ __typename __type(name: "Flight") { fields { name } } flight(id: "1") { __typename } }');
    assert.equal(asked.places, undefined);
    assert.deepEqual([asked.data.__typename, asked.data.flight.__typename], ["Query", "Flight"]);
    assert.ok(asked.data.__type.fields.some(({ name }) => name === "number"));
  });

  it("can refuse the operation, name the places elsewhere, or only count", async () => {
    const rejecting = await open({ mode: "reject" });
    const refused = await ask(rejecting, FLIGHT);
    assert.deepEqual(
      [refused.status, refused.data, refused.places, refused.queries],
      [403, undefined, [["UNAUTHORIZED_FIELD_OR_TYPE", "flight.number"]], []],
    );
    const skipped = await ask(rejecting, '{ flight(id: "1") { id number @include(if: false) } }');
    assert.deepEqual(skipped.data, { flight: { id: "1" } });
    const elsewhere = await ask(await open({ errors: "extensions" }), FLIGHT);
    assert.deepEqual([elsewhere.data, elsewhere.places], [{ flight: null }, undefined]);
    assert.deepEqual(elsewhere.extensions.authorizationErrors.map(({ path }) => path), [["flight", "number"]]);
    const silent = await ask(await open({ errors: "none" }), FLIGHT);
    assert.deepEqual([silent.data, silent.places, silent.extensions], [{ flight: null }, undefined, undefined]);
    const trying = await open({ dry_run: true });
    const tried = await ask(trying, FLIGHT);
    assert.equal(tried.data.flight.number, "ST 101");
    assert.equal(await readMetric(trying, "starling_operations_denied_total", '"false"'), 1);
  });

  it("forms a group of all subscribers whose tokens have equal outcomes", async () => {
    const router = await open();
    const claims = (at) => ({ sub: `user-${at}`, ...(at % 2 ? { scope: "flights:read" } : {}) });
    const clients = Array.from({ length: 20 }, (_, at) => keep(openSocket(router, bearer(claims(at)))));
    const query = "subscription { flightMoved { id altitude flightNumber: number } }";
    const subscriptions = clients.map((client) => client.subscribe(query));
    await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 20, "all subscribers");
    assert.equal(await readMetric(router, "starling_hub_groups"), 2);
    let altitude = 0;
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", altitude += 1));
    const results = await repeatUntil(Promise.all(subscriptions.map((it) => it.next())), publish, "an event");
    results.forEach(({ data, errors }, at) => {
      if (at % 2) assert.equal(data.flightMoved.flightNumber, "ST 101");
      else assert.deepEqual([data.flightMoved, errors[0].path], [null, ["flightMoved", "flightNumber"]]);
    });
  });

  it("refuses a subscription whose root field is not allowed", async () => {
    const protectedRoot = graph().replace("flightMoved: Flight", "$& @authenticated");
    const router = await open({}, protectedRoot);
    const refused = keep(openSocket(router, {})).subscribe(MOVED);
    const { error } = await refused.ended();
    assert.match(JSON.stringify(error), /UNAUTHORIZED_FIELD_OR_TYPE/);
    const allowed = keep(openSocket(router, bearer({ sub: "ann" }))).subscribe(MOVED);
    await repeatUntil(allowed.next(), () => router.publish(PROVIDER, "flights.moved", event("1", 1)), "an event");
    assert.equal(await readMetric(router, "starling_hub_subscribers"), 1);
  });

  it("decides again when the token is renewed", async () => {
    const router = await open();
    const client = keep(openSocket(router, bearer({ sub: "ann" })));
    const subscription = client.subscribe(MOVED_NUMBER);
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    const before = await repeatUntil(subscription.next(), publish, "an event");
    assert.equal(before.data.flightMoved, null);
    client.ping(bearer({ sub: "ann", scope: "flights:read" }));
    const shown = subscription.find(({ data }) => data.flightMoved?.number === "ST 101", "the number");
    await repeatUntil(shown, publish, "an event with the number");
  });

  it("decides again at a reload, and ends what can no longer be decided", async () => {
    const router = await open();
    const reader = keep(openSocket(router, bearer({ sub: "ann", scope: "flights:read" })));
    const [plain, numbered] = [MOVED, MOVED_NUMBER].map((query) => reader.subscribe(query));
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    await repeatUntil(Promise.all([plain.next(), numbered.next()]), publish, "events before the reload");
    // Scopes that were not decided for the subscriptions: those of the present tokens are not kept.
    const file = path.join(router.folder, "supergraph.graphql");
    const changed = graph({ number: '@requiresScopes(scopes: [["flights:audit"]])' });
    await writeFile(`${file}.new`, changed);
    await rename(`${file}.new`, file);
    const { error } = await numbered.ended();
    assert.match(JSON.stringify(error), /GRAPH_RELOADED/);
    const count = plain.results.length;
    await repeatUntil(plain.find(() => plain.results.length > count, "an event"), publish, "an event after the reload");
    const again = reader.subscribe(MOVED_NUMBER);
    const { data } = await repeatUntil(again.next(), publish, "an event");
    assert.equal(data.flightMoved, null);
    assert.equal(reader.opened(), 1);
  });

  it("closes a connection that has not kept the claims which a new graph reads", async () => {
    const router = await open();
    const client = keep(openSocket(router, bearer({ sub: "ann", flights: ["1"] })));
    const live = client.subscribe(MOVED);
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    await repeatUntil(live.next(), publish, "an event before the reload");
    const topic = 'topics: ["flights.moved.{{ args.id }}"],';
    const restricted = graph().replace(topic, `$& authorize: {claim: "flights", CONTAINS: ["{{ args.id }}"]},`);
    assert.notEqual(restricted, graph());
    const file = path.join(router.folder, "supergraph.graphql");
    await writeFile(`${file}.new`, restricted);
    await rename(`${file}.new`, file);
    await eventually(async () => await readMetric(router, "starling_graph_generation") === 2, "the new graph");
    const count = live.results.length;
    await repeatUntil(live.find(() => live.results.length > count, "an event"), publish, "an event after the reload");
    const query = 'subscription { flightMovedById(id: "1") { altitude } }';
    const { error } = await client.subscribe(query).ended();
    assert.equal(error.code, 1012, JSON.stringify(error));
    const again = keep(openSocket(router, bearer({ sub: "ann", flights: ["1"] }))).subscribe(query);
    const moved = () => router.publish(PROVIDER, "flights.moved.1", event("1", 2));
    const { data } = await repeatUntil(again.next(), moved, "an event for the client with its token");
    assert.equal(data.flightMovedById.altitude, 2);
  });
});

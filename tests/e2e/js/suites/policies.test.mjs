// `@policy`: decided by expressions, by rules in Rego, by a real Open Policy Agent, and by decision points that hang,
// lie, flood and are down.
// Runs alone: it compares times.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { after, before, describe, it } from "node:test";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { closeAfterEach } from "../closing.mjs";
import { FAILURES, startDecisionPoint } from "../decision_point.mjs";
import { openSocket } from "../live_client.mjs";
import { startOpenPolicyAgent } from "../open_policy_agent.mjs";
import { openPolicyAgent, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { readMetric } from "../subgraphs/router.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const PROVIDER = "memory/default";
const DENIED = "UNAUTHORIZED_FIELD_OR_TYPE";

/** The graph of the suites with policies, as composition writes them. `city` are those of a second field. */
function graph({ city = '[["residents"]]', root = "" } = {}) {
  const replaced = (text, what, by) => {
    assert.ok(text.includes(what), what);
    return text.replace(what, by);
  };
  let sdl = memorySupergraph();
  sdl = replaced(sdl, "for: EXECUTION)\n", `for: EXECUTION)
  @link(url: "https://specs.apollo.dev/policy/v0.1", for: SECURITY)
`);
  if (root) sdl = replaced(sdl, "flightMoved: Flight", `$& ${root}`);
  sdl = replaced(sdl, "number: String! @join__field(graph: FLIGHTS)", '$& @policy(policies: [["crew", "duty"], ["staff"]])');
  return replaced(sdl, "city: String! @join__field(graph: AIRPORTS)", `$& @policy(policies: ${city})`);
}

const NUMBER = '{ flight(id: "1") { number } }';
const CITY = '{ flight(id: "1") { to { city } } }';
const BOTH = '{ flight(id: "1") { number to { city } } }';
const NAME = '{ flight(id: "1") { from { name } } }';
const MOVED = "subscription { flightMoved { id altitude number } }";

const SHOWN = { number: "ST 101", to: { city: "Lisbon" } };

/** Staff may everything, crew on duty sees numbers, residents see cities. */
const RULES = `package starling

allow contains policy if {
	some policy in input.policies
	input.claims.role == "staff"
}

allow contains "crew" if input.claims.role == "crew"

allow contains "duty" if input.request.headers["x-duty"] == "yes"

allow contains "residents" if data.countries[input.claims.country]
`;
const COUNTRIES = { countries: { PT: true } };

describe("policies", () => {
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

  async function open(policies, { supergraph = graph(), ...authorization } = {}) {
    const router = keep(await startServe({
      supergraph,
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { issuers: [issuer.configuration] } },
        authorization: { policies, ...authorization },
        websocket: { init_payload_headers: ["authorization", "x-duty"] },
      },
    }));
    subgraphs.takeQueries();
    return router;
  }
  const bearer = (claims) => (claims ? { authorization: `Bearer ${issuer.issue(claims)}` } : {});

  async function ask(router, query, claims, headers = {}) {
    const started = performance.now();
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: {
        "content-type": "application/json", accept: "application/graphql-response+json",
        ...bearer(claims), ...headers,
      },
      body: JSON.stringify({ query }),
    });
    const { data, errors } = await response.json();
    const places = errors?.map((error) => [error.extensions.code, error.path.join(".")]);
    const ms = performance.now() - started;
    return { status: response.status, flight: data?.flight, places, queries: subgraphs.takeQueries(), ms };
  }

  /** Checks the decisions that all of the three kinds make by the rules above. */
  async function checkRules(router) {
    const staff = await ask(router, BOTH, { role: "staff" });
    assert.deepEqual([staff.flight, staff.places], [SHOWN, undefined]);
    const onDuty = await ask(router, NUMBER, { role: "crew" }, { "x-duty": "yes" });
    assert.deepEqual([onDuty.flight, onDuty.places], [{ number: "ST 101" }, undefined]);
    const offDuty = await ask(router, NUMBER, { role: "crew" });
    assert.deepEqual([offDuty.flight, offDuty.places], [null, [[DENIED, "flight.number"]]]);
    assert.ok(offDuty.queries.every((query) => !query.includes("number")), offDuty.queries.join("\n"));
    const resident = await ask(router, CITY, { country: "PT" });
    assert.deepEqual([resident.flight, resident.places], [{ to: { city: "Lisbon" } }, undefined]);
    for (const claims of [undefined, {}, { country: "NO" }, { country: 7 }, { role: ["staff"] }]) {
      const { flight, places } = await ask(router, CITY, claims);
      assert.deepEqual([flight, places], [null, [[DENIED, "flight.to.city"]]], JSON.stringify(claims));
    }
  }

  it("are decided by expressions, and denied if there is none", async () => {
    const router = await open({
      expressions: {
        staff: "claims.?role.orValue('') == 'staff'",
        crew: "claims.role == 'crew'",
        duty: "request.headers[?'x-duty'].orValue('') == 'yes' && operation.kind == 'query'",
        residents: "claims.role == 'staff' || claims.country == 'PT'",
      },
    });
    await checkRules(router);
    assert.doesNotMatch(router.output(), /nothing decides/);
    assert.ok(await readMetric(router, "starling_policies_allowed_total") > 0);
    // A claim that is absent gives an expression no value.
    assert.ok(await readMetric(router, "starling_policies_undecided_total") > 0);
    await router.stop();

    const incomplete = await open({ expressions: { staff: "claims.role == 'staff'" } });
    const { flight, places } = await ask(incomplete, BOTH, { role: "staff" });
    assert.deepEqual([flight, places], [null, [[DENIED, "flight.to.city"]]]);
    assert.equal(incomplete.output().match(/nothing decides these policies/g).length, 1);
    assert.match(incomplete.output(), /crew, duty, residents/);
  });

  it("are all asked of Open Policy Agent in one request", { skip: skipWithout(openPolicyAgent, "opa") }, async () => {
    const rules = `${RULES}\nallow contains "always" if true\n`;
    const agent = keep(await startOpenPolicyAgent(rules.replace("data.countries[input.claims.country]", 'input.claims.country == "PT"')));
    const point = keep(await startDecisionPoint({ forward: agent.document("starling/allow") }));
    const router = await open({
      input: { claims: ["role", "country"], headers: ["x-duty"] },
      decision_point: {
        url: point.url, timeout: "10s",
        headers: [{ name: "authorization", value: "Bearer of the router" }],
      },
    });
    await checkRules(router);
    point.takeRequests();
    // All policies of the operation, once, and the facts that the configuration lists.
    await ask(router, BOTH, { role: "pilot", sub: "ann" }, { "x-duty": "no", "x-other": "1" });
    const requests = point.takeRequests();
    assert.deepEqual(requests.map(({ method, path: at, headers, input }) => [method, at, headers.authorization, input]), [[
      "POST", "/v1/data/starling/allow", "Bearer of the router", {
        policies: ["crew", "duty", "residents", "staff"],
        claims: { role: "pilot" },
        request: { method: "POST", path: "/graphql", headers: { "x-duty": "no" } },
        client: { name: "", version: "" },
      },
    ]]);
    // Equal facts of another client: the decision is known.
    await ask(router, BOTH, { role: "pilot", sub: "bob" }, { "x-duty": "no" });
    // No policy is needed.
    await ask(router, NAME, { role: "guest" });
    assert.deepEqual(point.takeRequests(), []);
    assert.equal(await readMetric(router, "starling_policy_decisions_cached_total"), 1);
    assert.doesNotMatch(router.output(), /of the router/);

    // Without it, everything is denied; with it, it is as before.
    await agent.stop();
    const away = await ask(router, CITY, { country: "PT", role: "new" });
    assert.deepEqual([away.flight, away.places], [null, [[DENIED, "flight.to.city"]]]);
    const again = keep(await startOpenPolicyAgent(rules, { port: agent.port }));
    assert.equal(again.port, agent.port);
    const asked = async () => (await ask(router, NUMBER, { role: "staff" }, { "x-duty": "later" })).flight?.number;
    await eventually(asked, "the number");
  });

  it("hold for the time of the cache, and not longer", async () => {
    let allowed = ["staff"];
    const point = keep(await startDecisionPoint({ decide: () => allowed }));
    const router = await open({ decision_point: { url: point.url, timeout: "10s", cache: { ttl: "300ms", entries: 16 } } });
    assert.equal((await ask(router, NUMBER)).flight.number, "ST 101");
    allowed = [];
    await eventually(async () => (await ask(router, NUMBER)).flight === null, "the right to be withdrawn");
    const anew = await open({ decision_point: { url: point.url, timeout: "10s", cache: { ttl: "0s" } } });
    point.takeRequests();
    for (let count = 1; count <= 3; count += 1) {
      assert.equal((await ask(anew, NUMBER)).flight, null);
      assert.equal(point.takeRequests().length, 1);
    }
  });

  it("are denied by a decision point that lies, floods or fails", async () => {
    const point = keep(await startDecisionPoint({ decide: ({ policies }) => policies }));
    for (const [name, respond] of Object.entries(FAILURES)) {
      const router = await open({ decision_point: { url: point.url, timeout: "5s", cache: { ttl: "0s" } } });
      point.setResponse(respond);
      const { flight, places, queries } = await ask(router, NUMBER);
      assert.deepEqual([flight, places], [null, [[DENIED, "flight.number"]]], name);
      assert.ok(queries.every((query) => !query.includes("number")), name);
      assert.equal(point.takeRequests().length, 1, name);
      assert.equal(await readMetric(router, "starling_policy_decision_requests_total", '"failed"'), 1, name);
      assert.match(router.output(), /policies could not be decided/, name);
      // It works again.
      point.setResponse();
      assert.equal((await ask(router, NUMBER)).flight.number, "ST 101", name);
      point.takeRequests();
      await router.stop();
    }
  });

  it("cost at most the timeout while a decision point hangs, and then nothing until it works", async () => {
    const point = keep(await startDecisionPoint({ decide: ({ policies }) => policies }));
    const router = await open({ decision_point: { url: point.url, timeout: "300ms", cache: { ttl: "0s" } } });
    await eventually(async () => (await ask(router, NUMBER)).flight?.number === "ST 101", "the first decision");
    point.takeRequests();
    point.setResponse(() => {});
    const times = [];
    for (let count = 0; count < 20; count += 1) {
      const { flight, places, ms } = await ask(router, NUMBER);
      assert.deepEqual([flight, places], [null, [[DENIED, "flight.number"]]]);
      times.push(ms);
      // Fields without a policy are not concerned.
      const other = await ask(router, NAME);
      assert.equal(other.flight.from.name, "Helmut Schmidt");
    }
    // A busy machine may add something. Without a limit each would take minutes.
    assert.ok(Math.max(...times) < 5_000, times.join());
    const asked = point.takeRequests().length;
    assert.ok(asked >= 3 && asked < 12, `${asked} requests for 20 operations`);
    assert.ok(await readMetric(router, "starling_policy_decision_requests_omitted_total", '"backoff"') > 5);
    point.setResponse();
    await eventually(async () => (await ask(router, NUMBER)).flight?.number === "ST 101", "the decision point to be used");
  });

  it("are denied while nothing listens at the decision point", async () => {
    const gone = await startDecisionPoint();
    await gone.stop();
    const router = await open({ decision_point: { url: gone.url } }, { mode: "reject" });
    const { status, flight, places, queries } = await ask(router, NUMBER, { role: "staff" });
    assert.deepEqual([status, flight, places, queries], [403, undefined, [[DENIED, "flight.number"]], []]);
  });

  it("are decided when a subscription starts and when its token is renewed, and kept at a reload", async () => {
    const point = keep(await startDecisionPoint({ decide: ({ claims }) => (claims?.role ? [claims.role] : []) }));
    const router = await open({ input: { claims: ["role"] }, decision_point: { url: point.url, timeout: "10s" } });
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    const shows = ({ data }) => data.flightMoved?.number === "ST 101";
    const users = ["staff", "staff", "guest", "guest"].map((role, at) =>
      keep(openSocket(router, bearer({ sub: `user-${at}`, role }))));
    const subscriptions = users.map((client) => client.subscribe(MOVED));
    await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 4, "all subscribers");
    assert.equal(await readMetric(router, "starling_hub_groups"), 2);
    const first = await repeatUntil(Promise.all(subscriptions.map((it) => it.next())), publish, "an event");
    assert.deepEqual(first.map(shows), [true, true, false, false]);
    assert.equal(point.takeRequests().length, 2);

    // Another role, and the same role again.
    users[2].ping(bearer({ sub: "user-2", role: "staff", renewed: 1 }));
    await repeatUntil(subscriptions[2].find(shows, "the number"), publish, "an event with the number");
    users[0].ping(bearer({ sub: "user-0", role: "guest", renewed: 1 }));
    await repeatUntil(
      subscriptions[0].find((it) => !shows(it), "no number"), publish, "an event without the number",
    );

    // A reload keeps the decisions: no member of the group has facts of its own.
    point.takeRequests();
    const file = path.join(router.folder, "supergraph.graphql");
    const replace = async (text) => {
      const generation = await readMetric(router, "starling_graph_generation");
      await writeFile(`${file}.new`, text);
      await rename(`${file}.new`, file);
      await eventually(async () => await readMetric(router, "starling_graph_generation") > generation, "the reload");
    };
    await replace(`${graph()}\n# changed\n`);
    const counts = subscriptions.map((it) => it.results.length);
    const later = subscriptions.map((it, at) => it.find(() => it.results.length > counts[at], "an event"));
    await repeatUntil(Promise.all(later), publish, "events after the reload");
    assert.deepEqual(subscriptions.map((it) => shows(it.results.at(-1))), [false, true, true, false]);
    assert.deepEqual(point.takeRequests(), []);

    // A policy that was not decided for the subscriptions ends them; a new one is decided.
    await replace(graph().replace('[["crew", "duty"], ["staff"]]', '[["guest"]]'));
    for (const subscription of subscriptions) {
      const { error } = await subscription.ended();
      assert.match(JSON.stringify(error), /GRAPH_RELOADED/);
    }
    const again = users[3].subscribe(MOVED);
    const { data } = await repeatUntil(again.next(), publish, "an event");
    assert.equal(data.flightMoved.number, "ST 101");
  });

  it("refuse a subscription whose root field is denied", async () => {
    const supergraph = graph({ root: '@policy(policies: [["staff"]])' });
    const router = await open({ expressions: { staff: "claims.role == 'staff'" } }, { supergraph });
    const { error } = await keep(openSocket(router, bearer({ role: "guest" }))).subscribe(MOVED).ended();
    assert.match(JSON.stringify(error), /UNAUTHORIZED_FIELD_OR_TYPE/);
    const allowed = keep(openSocket(router, bearer({ role: "staff" }))).subscribe(MOVED);
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    const { data } = await repeatUntil(allowed.next(), publish, "an event");
    assert.equal(data.flightMoved.number, "ST 101");
  });

  it("read headers of connection_init, and are only counted in a dry run", async () => {
    const router = await open({ expressions: { crew: "true", duty: "request.headers['x-duty'] == 'yes'" } });
    const publish = () => router.publish(PROVIDER, "flights.moved", event("1", 1));
    const [yes, no] = ["yes", "no"].map((duty) => keep(openSocket(router, { "x-duty": duty })).subscribe(MOVED));
    const [shown, hidden] = await repeatUntil(Promise.all([yes.next(), no.next()]), publish, "an event");
    assert.equal(shown.data.flightMoved.number, "ST 101");
    assert.equal(hidden.data.flightMoved, null);
    const trying = await open({ expressions: { crew: "false" } }, { dry_run: true });
    assert.equal((await ask(trying, NUMBER)).flight.number, "ST 101");
    assert.equal(await readMetric(trying, "starling_operations_denied_total", '"false"'), 1);
    assert.equal(await readMetric(trying, "starling_policies_denied_total"), 1);
  });

  describe("in Rego", () => {
    let folder;
    before(async () => {
      folder = await mkdtemp(path.join(tmpdir(), "starling-rego-"));
    });
    after(async () => {
      await rm(folder, { recursive: true, force: true });
    });
    async function rego(rules, more = {}) {
      const [file, data] = [path.join(folder, "starling.rego"), path.join(folder, "data.json")];
      await writeFile(file, rules);
      await writeFile(data, JSON.stringify(COUNTRIES));
      return {
        input: { claims: ["role", "country"], headers: ["x-duty"] },
        rego: { files: [file], data: [data], query: "data.starling.allow", ...more },
      };
    }

    it("are decided by the router itself", async () => {
      const router = await open(await rego(RULES, { timeout: "2s" }));
      await checkRules(router);
      assert.ok(await readMetric(router, "starling_policy_rego_evaluations_total", '"decided"') > 5);
      assert.equal(await readMetric(router, "starling_policy_rego_evaluations_total", '"failed"'), 0);
    });

    it("are denied when the evaluation takes too long or has no value", async () => {
      const endless = `package starling
numbers_ := numbers.range(1, 1000)
allow contains "staff" if {
	input.claims.role == "endless"
	some a in numbers_
	some b in numbers_
	some c in numbers_
	a + b + c < 0
}
allow contains "staff" if input.claims.role == "staff"
`;
      const router = await open(await rego(endless, { timeout: "50ms" }));
      const { flight, places, ms } = await ask(router, NUMBER, { role: "endless" });
      assert.deepEqual([flight, places], [null, [[DENIED, "flight.number"]]]);
      // The evaluation takes minutes without a limit.
      assert.ok(ms < 5_000, `${ms} ms`);
      assert.match(router.output(), /takes longer than 50ms/);
      assert.equal(await readMetric(router, "starling_policy_rego_evaluations_total", '"failed"'), 1);
      assert.equal((await ask(router, NUMBER, { role: "staff" })).flight.number, "ST 101");
    });

    it("are refused at the start with the place of a mistake", async () => {
      const policies = await rego(RULES.replace('"staff"\n}', '"staff"'));
      const file = path.join(folder, "starling.yaml");
      await writeFile(path.join(folder, "supergraph.graphql"), graph());
      await writeFile(file, JSON.stringify({ authorization: { policies } }));
      const checked = promisify(execFile)(process.env.STARLING_BIN, ["check", "--config", file]);
      const { stderr, stdout, code } = await checked.then(() => assert.fail("it was accepted"), (error) => error);
      assert.equal(code, 1);
      assert.match(stdout + stderr, /starling\.rego:\d+:\d+/);
    });
  });
});

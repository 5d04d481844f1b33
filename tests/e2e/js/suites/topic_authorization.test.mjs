// `authorize:` on topics: which claims allow which arguments, and which clients share events and cursors.
import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import { startServe } from "../router.mjs";
import { startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";
const ALLOWED = 'authorize: {claim: "flights", CONTAINS: ["{{ args.id }}"]}';

/** The graph of the suites, where a client must have the flight in its claim `flights`. */
const graph = (authorize = ALLOWED) =>
  memorySupergraph()
    .replace('topics: ["flights.moved.{{ args.id }}"],', `$& ${authorize},`)
    .replace('topic: "flights.delays.{{ args.id }}",', `$& ${authorize},`);

const BY_ID = "subscription($id: ID!) { flightMovedById(id: $id) { id altitude } }";
const ANNOUNCE = "mutation($id: ID!) { announceDelay(id: $id, minutes: 5) { success } }";

describe("topic authorization", () => {
  let subgraphs;
  let issuer;
  let router;
  const clients = [];
  before(async () => {
    assert.ok(graph().split("authorize:").length === 3, "both fields have the condition");
    subgraphs = await startSubgraphs();
    issuer = await startIssuer();
    router = await startServe({
      supergraph: graph(),
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { issuers: [issuer.configuration] } },
        cursor: { memory: true, bind_claims: ["sub"] },
      },
    });
  });
  after(async () => {
    await Promise.all(clients.map((client) => client.dispose()));
    await router?.stop();
    await subgraphs?.stop();
    await issuer?.stop();
  });

  function client(claims) {
    const made = createClient({
      url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0, lazy: false,
      connectionParams: claims ? { authorization: issuer.issue(claims) } : {},
      onNonLazyError: () => {},
    });
    clients.push(made);
    return made;
  }
  const subscribe = (made, id, extensions) =>
    made.iterate({ query: BY_ID, variables: { id }, extensions });

  /** The first result of a subscription, with events published until then. */
  const first = (subscription, id) =>
    repeatUntil(
      subscription.next(),
      (number) => router.publish(PROVIDER, `flights.moved.${id}`, event(id, number)),
      "the first event",
    );

  async function codes(subscription) {
    const refused = await within(subscription.next().then(
      () => assert.fail("it should be refused"),
      (errors) => errors,
    ), "the refusal");
    return refused.map(({ extensions }) => extensions.code);
  }

  async function groups(id) {
    const response = await fetch(`${router.admin}/admin/subscriptions?topic=flights.moved.${id}`);
    const text = await response.text();
    assert.ok(!text.includes("ann") && !text.includes("ben"), "no claim is shown");
    const { triggers } = JSON.parse(text);
    for (const { topics } of triggers) assert.match(topics.join(), /^flights\.moved\.\{\{args\.id\}\} #[0-9a-f]{8}$/);
    return (triggers[0]?.groups ?? []).map(({ subscribers }) => subscribers);
  }

  async function ask(claims, id) {
    const headers = { "content-type": "application/json" };
    if (claims) headers.authorization = `Bearer ${issuer.issue(claims)}`;
    const body = JSON.stringify({ query: ANNOUNCE, variables: { id } });
    const response = await fetch(router.graphql, { method: "POST", headers, body });
    return { status: response.status, body: await response.json() };
  }

  it("accepts subscriptions that the claims allow, and keeps the connections of refused clients open", async () => {
    const ann = client({ sub: "ann", flights: ["1", "2"] });
    const { value } = await first(subscribe(ann, "1"), "1");
    assert.equal(value.data.flightMovedById.id, "1");
    assert.deepEqual(await codes(subscribe(ann, "3")), ["FORBIDDEN"]);
    const again = await first(subscribe(ann, "2"), "2");
    assert.equal(again.value.data.flightMovedById.id, "2");
    assert.deepEqual(await codes(subscribe(client(null), "1")), ["FORBIDDEN"]);
    assert.deepEqual(await codes(subscribe(client({ sub: "no flights" }), "1")), ["FORBIDDEN"]);
    await ann.dispose();
  });

  it("responds with 403 to clients that may not publish, and publishes for clients that may", async () => {
    const allowed = await ask({ flights: "1 2" }, "1");
    assert.deepEqual(allowed, { status: 200, body: { data: { announceDelay: { success: true } } } });
    for (const claims of [{ flights: ["2"] }, {}, null]) {
      const { status, body } = await ask(claims, "1");
      assert.deepEqual([status, body.errors[0].extensions.code], [403, "FORBIDDEN"]);
      assert.equal(body.data, undefined);
    }
  });

  it("reports one forbidden field of several, beside the data of the others", async () => {
    const query = `mutation {
      yes: announceDelay(id: "1", minutes: 1) { success }
      no: announceDelay(id: "3", minutes: 1) { success }
    }`;
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${issuer.issue({ flights: ["1"] })}`,
      },
      body: JSON.stringify({ query }),
    });
    const { errors } = await response.json();
    assert.equal(response.status, 200);
    assert.deepEqual(errors.map(({ path: at, extensions }) => [at[0], extensions.code]), [["no", "FORBIDDEN"]]);
  });

  it("a cursor is valid only for the client that received it", async () => {
    const flights = ["1"];
    const ann = client({ sub: "ann", flights });
    const { value } = await first(subscribe(ann, "1"), "1");
    const { cursor } = value.extensions;
    const ben = client({ sub: "ben", flights });
    assert.deepEqual(await codes(subscribe(ben, "1", { cursor })), ["CURSOR_FOREIGN"]);
    // It does not circumvent the condition: a field that is no longer allowed is refused first.
    const late = client({ sub: "ann", flights: [] });
    assert.deepEqual(await codes(subscribe(late, "1", { cursor })), ["FORBIDDEN"]);
    const again = client({ sub: "ann", flights, iat: 1 });
    // Published before the client reconnects, so that only the cursor can lead to it.
    await router.publish(PROVIDER, "flights.moved.1", event("1", 100_777));
    const resumed = subscribe(again, "1", { cursor });
    await within((async () => {
      for await (const { data } of resumed) {
        if (data.flightMovedById.altitude === 100_777) return;
      }
      assert.fail("it should go on");
    })(), "what was missed");
  });

  it("clients share a group if the claims that are read are equal", async () => {
    const flights = ["2"];
    const all = [
      client({ sub: "ann", flights, jti: "1" }),
      client({ sub: "ann", flights, jti: "2" }),
      client({ sub: "ben", flights }),
      client({ sub: "ann", flights: ["2", "1"] }),
    ];
    const subscriptions = all.map((each) => subscribe(each, "2"));
    const received = subscriptions.map((each) => each.next());
    await eventually(async () => {
      const sizes = (await groups("2")).filter((size) => size > 0).sort();
      return sizes.join() === "1,1,2";
    }, "three groups, one of them with two members");
    await repeatUntil(
      Promise.all(received),
      (number) => router.publish(PROVIDER, "flights.moved.2", event("2", number)),
      "an event for each",
    );
  });

  it("decides again when a reload changes the condition", async () => {
    const ann = client({ sub: "ann", flights: ["1"] });
    const subscription = subscribe(ann, "1");
    await first(subscription, "1");
    const file = path.join(router.folder, "supergraph.graphql");
    const strict = graph('authorize: {NOT: {claim: "flights", CONTAINS: ["{{ args.id }}"]}}');
    await writeFile(`${file}.new`, strict);
    await rename(`${file}.new`, file);
    const ended = await within((async () => {
      try {
        for await (const _ of subscription);
        return [];
      } catch (errors) {
        return errors.map(({ extensions }) => extensions.code);
      }
    })(), "the end");
    assert.deepEqual(ended, ["FORBIDDEN"]);
    assert.deepEqual(await codes(subscribe(ann, "1")), ["FORBIDDEN"]);
  });
});

// The npm client graphql-sse, in "distinct connections mode".
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient } from "graphql-sse";
import {
  SUBSCRIPTION, SUBSCRIPTION_BY_ID, event, expectedFlight, memorySupergraph, startSubgraphs,
} from "../board.mjs";
import { startServe } from "../router.mjs";
import { repeatUntil, within } from "../waiting.mjs";

const PROVIDER = "memory/default";

describe("graphql-sse", () => {
  let subgraphs;
  let router;
  const clients = [];
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration },
    });
  });
  after(async () => {
    for (const client of clients) client.dispose();
    await router?.stop();
    await subgraphs?.stop();
  });

  function client() {
    const made = createClient({ url: router.graphql, retryAttempts: 0 });
    clients.push(made);
    return made;
  }

  it("streams events with fields joined from two subgraphs", async () => {
    const subscription = client().iterate({ query: SUBSCRIPTION });
    const { value } = await repeatUntil(
      subscription.next(),
      (number) => router.publish(PROVIDER, "flights.moved", event("1", number)),
      "the first event",
    );
    const { altitude } = value.data.flightMoved;
    assert.deepEqual(value, { data: { flightMoved: expectedFlight("1", altitude) } });
    await router.publish(PROVIDER, "flights.moved", event("2", 100_001));
    let last;
    do {
      ({ value: last } = await within(subscription.next(), "the last event"));
    } while (last.data.flightMoved.altitude !== 100_001);
    assert.deepEqual(last, { data: { flightMoved: expectedFlight("2", 100_001) } });
    await subscription.return();
  });

  it("streams to several subscribers on separate connections", async () => {
    const subscriptions = ["1", "2", "3"].map((id) =>
      client().iterate({ query: SUBSCRIPTION_BY_ID, variables: { id } }));
    const firsts = await repeatUntil(
      Promise.all(subscriptions.map((each) => each.next())),
      async (number) => {
        for (const id of ["1", "2", "3"]) {
          await router.publish(PROVIDER, `flights.moved.${id}`, event(id, number));
        }
      },
      "an event for each",
    );
    assert.deepEqual(firsts.map(({ value }) => value.data.flightMovedById.id), ["1", "2", "3"]);
    await Promise.all(subscriptions.map((each) => each.return()));
  });

  it("responds to a query with one event and completes", async () => {
    const results = [];
    for await (const result of client().iterate({ query: '{ flight(id: "1") { number } }' })) {
      results.push(result);
    }
    assert.deepEqual(results, [{ data: { flight: { number: "ST 101" } } }]);
  });

  it("reports the errors of an invalid operation", async () => {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ query: "subscription { flightMoved { nonsense } }" }),
      signal: AbortSignal.timeout(10_000),
    });
    // As an event that ends the stream, or as an ordinary response: a client can read both.
    const text = await response.text();
    assert.match(text, /nonsense/);
    assert.match(text, /"errors"/);
    if (response.ok) assert.match(text, /^event: ?complete$/m);
  });
});

// A router as the subgraph of another router, over every protocol that a router serves.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { openSocket } from "../live_client.mjs";
import { startRouter } from "../subgraphs/router.mjs";
import { VISITED, createVisits } from "../subgraphs/visits.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { eventually } from "../waiting.mjs";

describe("a router before a router", () => {
  const visits = createVisits();
  let server;
  let inner;
  before(async () => {
    server = await startGraphqlWs(visits);
    inner = await startRouter({ visits: { ...server, sdl: visits.sdl, subscription: { ...server.subscription, close_after: "0s" } } });
  });
  after(async () => {
    await inner?.stop();
    await server?.stop();
  });

  for (const protocol of ["auto", "graphql_transport_ws", "graphql_ws", "sse", "sse_get", "multipart"]) {
    it(`passes events, errors and the end on over ${protocol}`, async () => {
      const outer = await startRouter({ inner: { url: inner.graphql, sdl: visits.sdl, subscription: { protocol } } });
      const client = openSocket(outer);
      try {
        const subscriptions = [client, client].map((each) => each.subscribe(VISITED));
        await eventually(() => visits.operations() === 1, "the operation to begin");
        for (let number = 1; number <= 10; number++) {
          visits.publish(number);
          for (const subscription of subscriptions) {
            assert.deepEqual(await subscription.next(), { data: { visited: { number } } });
          }
        }
        // A value that is no integer fails in the subgraph.
        visits.publish("many");
        const { data, errors } = await subscriptions[0].next();
        assert.equal(data.visited, null);
        assert.equal(errors.length, 1);
        subscriptions[0].stop();
        visits.complete();
        const { error } = await subscriptions[1].ended();
        assert.equal(error, undefined);
        assert.equal(visits.operations(), 0);
      } finally {
        await client.dispose();
        await outer.stop();
      }
    });
  }
});

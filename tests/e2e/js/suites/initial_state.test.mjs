// Clients that receive the current state when they subscribe.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createClient as createSseClient } from "graphql-sse";
import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { event, followedSupergraph, startSubgraphs } from "../board.mjs";
import { startServe } from "../router.mjs";
import { within } from "../waiting.mjs";

const SELECTION = "{ id number to { code city } }";
const STATE = { id: "2", number: "ST 202", to: { code: "OSL", city: "Oslo" } };

describe("the current state", () => {
  let subgraphs;
  let router;
  before(async () => {
    subgraphs = await startSubgraphs();
    router = await startServe({
      supergraph: followedSupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        cursor: { memory: true, keys: ["a key of more than 16 bytes"] },
      },
    });
  });
  after(async () => {
    await router?.stop();
    await subgraphs?.stop();
  });

  const clients = {
    "graphql-ws": () =>
      createClient({ url: router.socket, webSocketImpl: WebSocket, retryAttempts: 0 }),
    "graphql-sse": () => createSseClient({ url: router.graphql, retryAttempts: 0 }),
  };
  for (const [name, connect] of Object.entries(clients)) {
    for (const field of ["flightFollowed0", "flightFollowed1"]) {
      it(`${name} receives that of ${field}, and then every event`, async () => {
        const client = connect();
        const query = `subscription { ${field}(id: "2") ${SELECTION} }`;
        const subscription = client.iterate({ query });
        const { value: state } = await within(subscription.next(), "the state");
        assert.deepEqual(state.data, { [field]: STATE });
        assert.ok(state.extensions.cursor);
        for (let number = 0; number < 20; number += 1) {
          await router.publish("memory/default", "flights.moved.2", event("2", number));
        }
        const again = client.iterate({ query, extensions: { cursor: state.extensions.cursor } });
        for (let number = 0; number < 20; number += 1) {
          const [live, resumed] = await within(
            Promise.all([subscription.next(), again.next()]), `event ${number}`,
          );
          assert.deepEqual(live.value, resumed.value, "who comes again gets no state");
          assert.deepEqual(live.value.data, { [field]: STATE });
        }
        await client.dispose();
      });
    }
  }
});

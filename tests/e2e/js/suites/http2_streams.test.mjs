// Limits per connection apply to all of its HTTP/2 streams together.
import assert from "node:assert/strict";
import http2 from "node:http2";
import { after, before, describe, it } from "node:test";
import { event } from "../board.mjs";
import { serveBoard } from "../board_router.mjs";
import { repeatUntil } from "../waiting.mjs";

const PROVIDER = "memory/default";
const GROUPS_MAX = 3;

describe("subscriptions on streams of HTTP/2", () => {
  let session;
  // Before the router ends, which would wait for its streams.
  after(() => session?.destroy());
  const board = serveBoard({ subscriptions: { max_groups_per_client: GROUPS_MAX } });
  before(() => {
    session = http2.connect(board.router.url);
  });

  /** Subscribes on a new stream; calls `onText` with all text received so far. */
  function subscribe(query, onText) {
    const stream = session.request({
      ":method": "POST", ":path": "/graphql", "content-type": "application/json", accept: "text/event-stream",
    });
    stream.on("error", () => {});
    stream.setEncoding("utf8");
    let text = "";
    stream.on("data", (piece) => onText((text += piece)));
    stream.end(JSON.stringify({ query }));
  }

  it("count as those of one client", async () => {
    const refused = new Set();
    const served = new Set();
    const all = new Promise((resolve) => {
      for (let index = 0; index <= GROUPS_MAX; index += 1) {
        subscribe(`subscription { a${index}: flightMoved { id } }`, (text) => {
          if (text.includes("subscriptions.max_groups_per_client")) refused.add(index);
          if (text.includes(`"a${index}":{"id":"1"}`)) served.add(index);
          if (refused.size + served.size > GROUPS_MAX) resolve();
        });
      }
    });
    const publish = (number) => board.router.publish(PROVIDER, "flights.moved", event("1", number));
    await repeatUntil(all, publish, "an event or a refusal on each stream");
    assert.deepEqual([refused.size, served.size], [1, GROUPS_MAX]);
  });
});

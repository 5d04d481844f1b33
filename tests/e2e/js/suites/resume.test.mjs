// The short form of the soak `resume`: clients that resume must receive every stored event, in order, while the
// subgraphs are paused and their router is killed.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { SOURCES } from "../resume/brokers.mjs";
import { Account } from "../resume/clients.mjs";
import { faultLines } from "../resume/figures.mjs";
import { KILL, PAUSE, runScenario } from "../resume/scenario.mjs";
import { skipWithout } from "../programs.mjs";

const EVENTS = 1_500;
const PER_SECOND = 500;
const CLIENTS = 8;

const jetStream = SOURCES.find(({ name }) => name === "jetstream");

describe("resume", { skip: skipWithout(jetStream.program, "nats-server") }, () => {
  let broker;
  before(async () => {
    broker = await jetStream.start();
  });
  after(() => broker?.stop());

  it("loses nothing when subgraphs are paused for two seconds and then the router is killed", async () => {
    const row = await runScenario({
      broker, topic: "moves.short", events: EVENTS, perSecond: PER_SECOND, clients: CLIENTS,
      disturbance: { name: "short", at: [[0.1, PAUSE], [0.9, KILL]] },
    });
    const none = { missing: 0, outOfOrder: 0, repeatedOnConnection: 0, lost: 0, gaps: 0, unrecognised: 0, refused: 0 };
    assert.deepEqual(row.faults, none, row.details.join("\n"));
    assert.ok(row.reconnections >= CLIENTS, `${row.reconnections} reconnections: no router was killed`);
  });
});

describe("the record of a client", () => {
  const accountOf = (...connections) => {
    const account = new Account(6);
    for (const numbers of connections) {
      account.onConnected();
      for (const altitude of numbers) account.onResult({ data: { flightMoved: { altitude } } });
    }
    const { missing, outOfOrder, repeated, repeatedOnConnection } = account;
    return { missing, outOfOrder, repeated, repeatedOnConnection };
  };

  it("has no faults if all events arrive in order, also if some are repeated after a reconnection", () => {
    const clean = { missing: 0, outOfOrder: 0, repeated: 0, repeatedOnConnection: 0 };
    assert.deepEqual(accountOf([-1, -2, 1, 2, 3, 4, 5, 6]), clean);
    assert.deepEqual(accountOf([1, 2, 3], [4, 5, 6]), clean);
    assert.deepEqual(accountOf([1, 2, 3], [2, 3, 4, 5, 6]), { ...clean, repeated: 2 });
  });

  it("lists missing, late and repeated events without a reconnection", () => {
    assert.deepEqual(
      accountOf([1, 4, 3, 3, 6]), { missing: 2, outOfOrder: 1, repeated: 1, repeatedOnConnection: 1 });
    const account = new Account(9);
    for (const altitude of [1, 4, 5, 9]) account.onResult({ data: { flightMoved: { altitude } } });
    assert.equal(account.missingRanges(), "2-3, 6-8");
    assert.equal(account.missingRanges(1), "2-3, … (2 ranges)");
  });

  it("is shown for some clients of each kind if they have faults, with the number of the others", () => {
    const client = (isSocket, numbers, extensions) => {
      const account = new Account(3);
      for (const altitude of numbers) account.onResult({ data: { flightMoved: { altitude } }, extensions });
      return { account, isSocket, isJoined: false, refused: null };
    };
    const clients = [
      ...Array.from({ length: 5 }, () => client(true, [1, 2])),
      client(true, [1, 2, 3]),
      { ...client(false, [1, 2, 3], { gap: true }), refused: "CURSOR_EXPIRED" },
    ];
    assert.deepEqual(faultLines(clients), [
      ...[0, 1, 2].map((index) => `client ${index} (WebSocket, plain): missing 1; missing are 3`),
      "client 6 (event stream, plain): gaps 3, refused 1; CURSOR_EXPIRED",
      "and 2 more (WebSocket, plain)",
    ]);
  });

  it("counts reported losses, gaps, errors, and results without an event", () => {
    const account = new Account(3);
    account.onResult({ data: { flightMoved: { altitude: 3 } }, extensions: { lost: 2, gap: true } });
    account.onResult({ data: { flightMoved: null }, errors: [{ extensions: { code: "INVALID_EVENT" } }] });
    const { lost, gaps, unrecognised, codes } = account;
    assert.deepEqual(
      { lost, gaps, unrecognised, codes: [...codes] },
      { lost: 2, gaps: 1, unrecognised: 1, codes: [["INVALID_EVENT", 1]] },
    );
  });
});

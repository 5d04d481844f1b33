// A client of graphql-transport-ws renews its token on its live connection: a ping with the token.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { connect } from "nats";
import { SUBSCRIPTION, event, jetStreamSupergraph, memorySupergraph, startSubgraphs } from "../board.mjs";
import { adopt } from "../children.mjs";
import { closeAfterEach } from "../closing.mjs";
import { blocksOf } from "../documentation/blocks.mjs";
import { readConsole } from "../console_api.mjs";
import { openSocket } from "../live_client.mjs";
import { startNats } from "../nats.mjs";
import { natsServer, skipWithout } from "../programs.mjs";
import { startServe } from "../router.mjs";
import { startProducts } from "../subgraphs/products.mjs";
import { createReviews, review } from "../subgraphs/reviews.mjs";
import { readMetric, startRouter } from "../subgraphs/router.mjs";
import { startGraphqlWs } from "../subgraphs/web_sockets.mjs";
import { inSeconds, startIssuer } from "../tokens.mjs";
import { eventually, repeatUntil } from "../waiting.mjs";

const PROVIDER = "memory/default";

/** Long enough for a busy machine to renew the token before it expires. */
const SHORT_SECONDS = 10;

const FORWARDING = {
  headers: { all: { request: [{ propagate: { named: "authorization" } }] } },
  websocket: { init_payload_headers: ["authorization"] },
};

const bearer = (token) => ({ authorization: `Bearer ${token}` });

describe("renewal of a token", () => {
  const keep = closeAfterEach();
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
  });
  after(() => subgraphs?.stop());

  async function open(config = {}, jwt = {}) {
    const issuer = keep(await startIssuer());
    const router = keep(await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration, ...config,
        authentication: { jwt: { required: true, issuers: [{ ...issuer.configuration, leeway: "0s" }], ...jwt } },
      },
    }));
    const client = (payload) => keep(openSocket(router, payload));
    /** Publishes until the subscription has a result that fulfils `condition`. */
    let altitude = 0;
    const find = (subscription, condition = () => true) =>
      repeatUntil(
        subscription.find(condition, "an event"),
        () => router.publish(PROVIDER, "flights.moved", event("1", altitude += 1)),
        "an event",
      );
    return { issuer, router, client, find };
  }

  it("keeps the connection and its subscription beyond the expiry of the first token", async () => {
    const { issuer, client, find } = await open();
    const short = () => bearer(issuer.issue({ sub: "ann", exp: inSeconds(SHORT_SECONDS) }));
    const [renewing, other] = [client(short()), client(short())];
    const subscriptions = [renewing, other].map((it) => it.subscribe(SUBSCRIPTION));
    for (const subscription of subscriptions) await find(subscription);
    renewing.ping(bearer(issuer.issue({ sub: "ann" })));
    await eventually(() => other.closed.length > 0, "the other connection to be closed");
    assert.deepEqual(other.closed, [{ code: 4403, reason: "token expired" }]);
    const before = subscriptions[0].results.length;
    await find(subscriptions[0], () => subscriptions[0].results.length > before);
    assert.ok(subscriptions[0].results.every(({ extensions }) => extensions === undefined), "it stayed in its group");
    assert.deepEqual([renewing.opened(), renewing.closed], [1, []]);
  });

  it("moves a subscription whose subgraphs get the token, and announces a gap", async () => {
    const { issuer, router, client, find } = await open(FORWARDING);
    const connection = client(bearer(issuer.issue({ sub: "ann" })));
    const subscription = connection.subscribe(SUBSCRIPTION);
    await find(subscription);
    const [{ groups: [{ id: group }] }] = (await readConsole(router, "live")).body.triggers;
    const [{ id }] = (await readConsole(router, "subscribers", { group })).body.subscribers;
    const history = () =>
      eventually(async () => (await readConsole(router, "watch", { id }, { method: "POST" })).body, "the history");
    await history();
    connection.ping(bearer(issuer.issue({ sub: "ann", jti: "2" })));
    const moved = await find(subscription, ({ extensions }) => extensions?.gap);
    assert.equal(moved.data.flightMoved.number, "ST 101");
    const later = await find(subscription);
    assert.equal(later.extensions, undefined);
    // The first group has ended.
    await eventually(async () => await readMetric(router, "starling_hub_groups") === 1, "one group");
    assert.equal(connection.opened(), 1);
    // For operators it goes on, too.
    const { entries, totals } = await history();
    assert.deepEqual([totals.gaps, entries.some(({ step }) => step === "ended")], [1, false]);
    subscription.stop();
    await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 0, "no subscriber");
    assert.equal((await history()).entries.at(-1).reason, "client_completed");
  });

  it("closes the connection for a token of another subject, or an invalid one", async () => {
    const { issuer, client, find } = await open();
    for (const [token, reason] of [
      [issuer.issue({ sub: "bob" }), /another subject/],
      [issuer.issue(), /another subject/],
      [issuer.issue({ sub: "ann", exp: inSeconds(-1) }), /expired/],
      [issuer.confused({ sub: "ann" }), /algorithm/],
      [7, /contains none/],
    ]) {
      const connection = client(bearer(issuer.issue({ sub: "ann" })));
      await find(connection.subscribe(SUBSCRIPTION));
      connection.ping(typeof token === "string" ? bearer(token) : { authorization: token });
      await eventually(() => connection.closed.length > 0, "the close");
      assert.equal(connection.closed[0].code, 4403);
      assert.match(connection.closed[0].reason, reason);
    }
  });

  it("closes an anonymous connection that sends a token later", async () => {
    const { issuer, client, find } = await open({}, { required: false });
    const connection = client({});
    await find(connection.subscribe(SUBSCRIPTION));
    connection.ping(bearer(issuer.issue({ sub: "ann" })));
    await eventually(() => connection.closed.length > 0, "the close");
    assert.equal(connection.closed[0].code, 4403);
  });

  it("ignores pings without a token, and tokens that cannot be verified at present", async () => {
    const { issuer, client, find, router } = await open();
    const connection = client(bearer(issuer.issue({ sub: "ann" })));
    const subscription = connection.subscribe(SUBSCRIPTION);
    await find(subscription);
    connection.ping({ at: 1 });
    issuer.setDown(true);
    const unknown = bearer(issuer.ofUnknownKey("new"));
    const ask = () => fetch(router.graphql, {
      method: "POST", headers: { "content-type": "application/json", ...unknown }, body: '{"query":"{ __typename }"}',
    });
    await eventually(async () => (await ask()).status === 503, "the router to notice that the issuer is down");
    const refused = () => readMetric(router, "starling_authentication_refused_total", '"no_keys"');
    const refusedBefore = await refused();
    connection.ping(unknown);
    await eventually(async () => await refused() > refusedBefore, "the refusal");
    const before = subscription.results.length;
    await find(subscription, () => subscription.results.length > before);
    assert.deepEqual([connection.opened(), connection.closed], [1, []]);
  });

  it("verifies the last of many tokens that come at once, one at a time", async () => {
    const { issuer, client, find } = await open(FORWARDING);
    const connection = client(bearer(issuer.issue({ sub: "ann" })));
    const subscription = connection.subscribe(SUBSCRIPTION);
    await find(subscription);
    for (let jti = 0; jti < 50; jti++) connection.ping(bearer(issuer.issue({ sub: "ann", jti: `${jti}` })));
    await find(subscription, ({ extensions }) => extensions?.gap);
    await find(subscription, ({ extensions }) => extensions === undefined);
    assert.deepEqual([connection.opened(), connection.closed], [1, []]);
  });

  /** A router with a subgraph that serves subscriptions, which gets the token of the client. */
  async function openReviews(subscription) {
    const issuer = keep(await startIssuer());
    const reviews = createReviews();
    const [server, products] = await Promise.all([startGraphqlWs(reviews), startProducts()]);
    keep(server);
    keep(products);
    const router = keep(await startRouter(
      { reviews: { ...server, sdl: reviews.sdl, subscription: { ...server.subscription, ...subscription } }, products },
      { ...FORWARDING, authentication: { jwt: { required: true, issuers: [issuer.configuration] } } },
    ));
    return { issuer, reviews, server, router, client: (payload) => keep(openSocket(router, payload)) };
  }
  const IDS = "subscription { reviewAdded { id } }";

  it("lets a subgraph's subscription begin again with the new token", async () => {
    const { issuer, reviews, client } = await openReviews({});
    const [first, second] = ["1", "2"].map((jti) => bearer(issuer.issue({ sub: "ann", jti })));
    const connection = client(first);
    const subscription = connection.subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    connection.ping(second);
    await eventually(() => reviews.started.length === 2 && reviews.operations() === 1, "the operation to move");
    assert.deepEqual(reviews.started.map(({ init }) => init.authorization), [first, second].map((it) => it.authorization));
    reviews.publish(review(1));
    assert.deepEqual(await subscription.next(), { data: { reviewAdded: { id: "1" } }, extensions: { gap: true } });
    assert.equal(connection.opened(), 1);
  });

  it("uses the new token for operations that start later", async () => {
    const { issuer, reviews, client } = await openReviews({});
    const [first, second] = ["1", "2"].map((jti) => bearer(issuer.issue({ sub: "ann", jti })));
    const connection = client(first);
    const ask = async () => {
      await connection.subscribe('{ review(id: "none") { id } }').next();
      return reviews.queried.at(-1).headers.authorization;
    };
    assert.equal(await ask(), first.authorization);
    connection.ping(second);
    await eventually(async () => await ask() === second.authorization, "the new token");
  });

  it("passes the new token on where `share_by` keeps the connection, for the next connection", async () => {
    const { issuer, reviews, server, client } = await openReviews({ share_by: { claims: ["sub"] } });
    const [first, second] = ["1", "2"].map((jti) => bearer(issuer.issue({ sub: "ann", jti })));
    const connection = client(first);
    const subscription = connection.subscribe(IDS);
    await eventually(() => reviews.operations() === 1, "the operation to begin");
    connection.ping(second);
    // An operation that starts now has the new token, and the check of the older one comes before it on the worker.
    const query = connection.subscribe('{ review(id: "none") { id } }');
    await query.next();
    assert.equal(server.accepted(), 1);
    await eventually(async () => {
      await server.kill();
      await eventually(() => reviews.operations() === 1, "the operation to begin again");
      return reviews.started.at(-1).init.authorization === second.authorization;
    }, "the new token");
    reviews.publish(review(1));
    const result = await subscription.next();
    assert.deepEqual(result.data, { reviewAdded: { id: "1" } });
    assert.equal(connection.opened(), 1);
  });
});

describe("the sample in docs/authentication.md", () => {
  const keep = closeAfterEach();

  /** Runs the sample with tokens of `SHORT_SECONDS`, which it renews every second. */
  async function runSample(router, secret) {
    const page = path.join(import.meta.dirname, "../../../../docs/authentication.md");
    const [block] = blocksOf(await readFile(page, "utf8"), page).filter(({ annotation }) => annotation.setup === "renewal");
    const folder = await mkdtemp(path.join(tmpdir(), "starling-renewal-"));
    await writeFile(path.join(folder, "package.json"), '{"type": "module"}');
    await symlink(path.join(import.meta.dirname, "../node_modules"), path.join(folder, "node_modules"));
    assert.ok(block.text.includes("240_000"));
    const text = block.text.replace("240_000", "1_000").replace("127.0.0.1:4000", `127.0.0.1:${router.ports.graphql}`);
    await writeFile(path.join(folder, "sample.js"), text);
    const preload = path.join(import.meta.dirname, "../documentation/preload.mjs");
    const child = spawn(process.execPath, ["--import", preload, "sample.js"], {
      cwd: folder, stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, JWT_SECRET: secret, TOKEN_SECONDS: `${SHORT_SECONDS}` },
    });
    adopt(child, folder);
    const sample = { output: "", stop: () => child.kill("SIGKILL") };
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        sample.output += text;
      });
    }
    return keep(sample);
  }

  it("outlives its tokens, and a router that is killed", async () => {
    const secret = "0123456789abcdef0123456789abcdef";
    const subgraphs = keep(await startSubgraphs());
    const start = async (ports) => keep(await startServe({
      supergraph: memorySupergraph(), ports,
      config: {
        subgraphs: subgraphs.configuration,
        authentication: { jwt: { required: true, issuers: [{ secret, leeway: "0s" }] } },
      },
    }));
    let router = await start();
    const sample = await runSample(router, secret);
    let altitude = 0;
    const received = () => Math.max(...[...sample.output.matchAll(/altitude: (\d+)/g)].map(([, it]) => Number(it)));
    async function receive() {
      const first = altitude + 1;
      await eventually(async () => {
        await router.publish(PROVIDER, "flights.moved", event("1", altitude += 1));
        return received() >= first;
      }, "an event").catch((error) => assert.fail(`${error.message}\n${sample.output}`));
    }
    await receive();
    const expiry = inSeconds(SHORT_SECONDS + 1);
    await eventually(() => inSeconds(0) > expiry, "the first token to expire");
    await receive();
    assert.equal(await readMetric(router, "starling_authentication_refused_total"), 0);
    const { ports } = router;
    await router.kill("SIGKILL");
    router = await start(ports);
    await receive();
  });
});

describe("renewal of a token with stored events", { skip: skipWithout(natsServer, "nats-server") }, () => {
  const keep = closeAfterEach();

  it("ends a subscription with a cursor that cannot stay, and nothing is lost", async () => {
    const [subgraphs, nats, issuer] = await Promise.all(
      [startSubgraphs(), startNats(-1, { stores: true }), startIssuer()]);
    [subgraphs, nats, issuer].forEach(keep);
    const publisher = await connect({ servers: nats.url });
    keep({ stop: () => publisher.close() });
    const manager = await publisher.jetstreamManager();
    await manager.streams.add({ name: "FLIGHTS", subjects: ["flights.>"] });
    const router = keep(await startServe({
      supergraph: jetStreamSupergraph(),
      config: {
        subgraphs: subgraphs.configuration, ...FORWARDING,
        cursor: { keys: ["a key of more than 16 bytes"] },
        events: { providers: { nats: [{ id: "default", url: nats.url }] } },
        authentication: { jwt: { required: true, issuers: [issuer.configuration] } },
      },
    }));
    const publish = (altitude) =>
      publisher.jetstream().publish("flights.moved", JSON.stringify(event("1", altitude)));
    const connection = keep(openSocket(router, bearer(issuer.issue({ sub: "ann" }))));
    const subscription = connection.subscribe(SUBSCRIPTION);
    await eventually(async () => await readMetric(router, "starling_hub_subscribers") === 1, "the subscriber");
    await publish(1);
    const { extensions: { cursor } } = await subscription.next();
    connection.ping(bearer(issuer.issue({ sub: "ann", jti: "2" })));
    const { error } = await subscription.ended();
    assert.equal(error[0].extensions.code, "TOKEN_RENEWED");
    await publish(2);
    const again = connection.subscribe({ query: SUBSCRIPTION, extensions: { cursor } });
    const result = await again.next();
    assert.equal(result.data.flightMoved.altitude, 2);
    assert.equal(result.extensions.gap, undefined);
    assert.equal(connection.opened(), 1);
  });
});

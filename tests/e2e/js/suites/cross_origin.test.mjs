// Pages of other origins in a real browser: an allowed page can use the endpoint, a foreign one cannot, in each of the
// ways that browsers have.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, it } from "node:test";
import { chromium } from "playwright-core";
import { event, memorySupergraph, startSubgraphs } from "../board.mjs";
import * as programs from "../programs.mjs";
import { startServe } from "../router.mjs";
import { WAIT_TIMEOUT_MS, eventually } from "../waiting.mjs";

const QUERY = "{ __typename }";
const SUBSCRIPTION = "subscription { flightMoved { id altitude } }";

// All hosts are this machine, so that pages have different origins without leaving it.
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
  "--host-resolver-rules=MAP *.test 127.0.0.1",
];

describe("pages of other origins", { skip: programs.skipWithout(programs.chromium, "chromium") }, () => {
  let pages;
  let subgraphs;
  let router;
  let strict;
  let browser;
  const origin = (host) => `http://${host}:${pages.address().port}`;
  before(async () => {
    pages = http.createServer((_request, response) => {
      response.setHeader("content-type", "text/html").end("<!doctype html><title>page</title>");
    }).listen(0, "127.0.0.1");
    await once(pages, "listening");
    subgraphs = await startSubgraphs();
    const start = (config) => startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration, ...config },
    });
    router = await start({
      cors: {
        origins: [origin("app.test")],
        policies: [
          { origins: [origin("*.wild.test")] },
          {
            match_origins: [`http://pr-[0-9]+\\.preview\\.test:${pages.address().port}`],
            credentials: false,
          },
        ],
      },
    });
    strict = await start({ cors: { origins: [origin("app.test")] }, csrf: { enabled: true } });
    browser = await chromium.launch({ executablePath: programs.chromium(), args: FLAGS });
  });
  after(async () => {
    await browser?.close();
    await router?.stop();
    await strict?.stop();
    await subgraphs?.stop();
    pages?.close();
  });

  /** Runs `use` on a page of this host, in a fresh profile. */
  async function onPage(host, use) {
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      page.setDefaultTimeout(WAIT_TIMEOUT_MS);
      await page.goto(origin(host));
      return await use(page);
    } finally {
      await context.close();
    }
  }

  /** What the page gets for a POST: the response, or the name of the error. */
  const post = (page, server, options = {}) =>
    page.evaluate(async ([url, query, options]) => {
      try {
        const response = await fetch(url, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ query }),
          ...options,
        });
        return await response.json();
      } catch (error) {
        return error.name;
      }
    }, [server.graphql, QUERY, options]);

  /** Whether the page can open a WebSocket. */
  const opensSocket = (page, server) =>
    page.evaluate((url) => new Promise((resolve) => {
      const socket = new WebSocket(url, "graphql-transport-ws");
      socket.onopen = () => resolve(true);
      socket.onerror = () => resolve(false);
    }), server.socket);

  /** Whether the page can open an event stream. */
  const opensStream = (page, server) =>
    page.evaluate(([url, query]) => new Promise((resolve) => {
      const source = new EventSource(`${url}?query=${encodeURIComponent(query)}`);
      source.addEventListener("open", () => resolve(true));
      source.addEventListener("error", () => resolve(false));
    }), [server.graphql, SUBSCRIPTION]);

  const answered = { data: { __typename: "Query" } };

  /** How many responses of this status the router has sent. */
  async function count(server, status) {
    const metrics = await (await fetch(`${server.admin}/metrics`)).text();
    const line = metrics.match(new RegExp(`^starling_http_answers_total\\{status="${status}"\\} (\\d+)`, "m"));
    return Number(line?.[1] ?? 0);
  }

  it("an allowed page queries, connects and listens", async () => {
    await onPage("app.test", async (page) => {
      assert.deepEqual(await post(page, router, { credentials: "include" }), answered);
      assert.equal(await opensSocket(page, router), true);
      assert.equal(await opensStream(page, router), true);
    });
  });

  it("a foreign page can do nothing of that", async () => {
    await onPage("evil.test", async (page) => {
      assert.equal(await post(page, router), "TypeError");
      assert.equal(await opensSocket(page, router), false);
      assert.equal(await opensStream(page, router), false);
    });
  });

  it("a foreign page can make the browser send forms and images, which the router refuses", async () => {
    await onPage("evil.test", async (page) => {
      const before = [await count(router, 403), await count(router, 415)];
      assert.equal(await post(page, router, { mode: "no-cors", headers: {} }), "SyntaxError");
      await page.evaluate(([url, query]) => new Promise((resolve) => {
        const image = new Image();
        image.onerror = resolve;
        image.src = `${url}?query=${encodeURIComponent(query)}`;
      }), [router.graphql, QUERY]);
      await eventually(async () => {
        const now = [await count(router, 403), await count(router, 415)];
        return now[0] > before[0] && now[1] > before[1];
      }, "both refusals to be counted");
    });
  });

  it("a wildcard allows subdomains and no other host with the same end", async () => {
    for (const [host, expected] of [
      ["a.wild.test", true], ["a.b.wild.test", true], ["wild.test", false], ["evil-wild.test", false],
    ]) {
      await onPage(host, async (page) => {
        assert.deepEqual(await post(page, router), expected ? answered : "TypeError", host);
        assert.equal(await opensSocket(page, router), expected, host);
      });
    }
  });

  it("a page without credentials uses the endpoint without them only", async () => {
    await onPage("pr-7.preview.test", async (page) => {
      assert.deepEqual(await post(page, router), answered);
      assert.equal(await post(page, router, { credentials: "include" }), "TypeError");
    });
    await onPage("pr-x.preview.test", async (page) => {
      assert.equal(await post(page, router), "TypeError");
    });
  });

  it("pages read the exposed headers of a response and no others", async () => {
    const response = await fetch(router.graphql, {
      method: "POST",
      headers: { "content-type": "application/json", origin: origin("app.test") },
      body: JSON.stringify({ query: QUERY }),
    });
    assert.equal(response.headers.get("access-control-expose-headers"), "retry-after, www-authenticate, ratelimit, ratelimit-policy");
    assert.match(response.headers.get("vary"), /origin/);
  });

  describe("where csrf.enabled is set", () => {
    const get = (headers) =>
      fetch(`${strict.graphql}?query=${encodeURIComponent(QUERY)}`, { headers });

    it("an allowed page still listens by EventSource, and a foreign one does not", async () => {
      await onPage("app.test", async (page) => assert.equal(await opensStream(page, strict), true));
      await onPage("evil.test", async (page) => assert.equal(await opensStream(page, strict), false));
    });

    it("the page of the router itself listens by EventSource and receives events", async () => {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(strict.url);
      await page.evaluate(([query]) => {
        globalThis.received = [];
        const source = new EventSource(`/graphql?query=${encodeURIComponent(query)}`);
        source.addEventListener("next", (it) => globalThis.received.push(it.data));
      }, [SUBSCRIPTION]);
      await eventually(async () => {
        await strict.publish("memory/default", "flights.moved", event("1", 7));
        return page.evaluate(() => globalThis.received.length > 0);
      }, "an event");
      await context.close();
    });

    it("a program needs one of the headers for a GET, and none for a POST", async () => {
      assert.equal((await get({})).status, 403);
      assert.equal((await get({ "apollo-require-preflight": "1" })).status, 200);
      assert.equal((await get({ "content-type": "application/json" })).status, 200);
      assert.deepEqual((await strict.query(QUERY)).body, answered);
    });

    it("a link of a foreign page is not followed", async () => {
      await onPage("evil.test", async (page) => {
        const target = `${strict.graphql}?query=${encodeURIComponent(QUERY)}`;
        const [response] = await Promise.all([
          page.waitForResponse(target),
          page.evaluate((url) => { location.href = url; }, target),
        ]);
        assert.equal(response.status(), 403);
      });
    });
  });

  it("a preflight about a private network is answered only by a policy that allows it", async () => {
    const allowing = await startServe({
      supergraph: memorySupergraph(),
      config: {
        subgraphs: subgraphs.configuration,
        cors: { policies: [{ origins: ["https://app.test"], private_network_access: true }] },
      },
    });
    const ask = async (server, page) => {
      const response = await fetch(server.graphql, {
        method: "OPTIONS",
        headers: {
          origin: page,
          "access-control-request-method": "POST",
          "access-control-request-private-network": "true",
        },
      });
      return response.headers.get("access-control-allow-private-network");
    };
    assert.equal(await ask(allowing, "https://app.test"), "true");
    assert.equal(await ask(allowing, "https://evil.test"), null);
    assert.equal(await ask(router, origin("app.test")), null);
    await allowing.stop();
  });
});

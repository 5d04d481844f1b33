// The admin listener with TLS and client certificates, with foreign clients: Node.js, a browser, and health checks.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import https from "node:https";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { memorySupergraph } from "../board.mjs";
import { launchBrowser, openPage, skipWithoutBrowser } from "../browser_page.mjs";
import { createCertificate } from "../certificates.mjs";
import { updated } from "../console_api.mjs";
import { startServe } from "../router.mjs";

describe("the admin listener with client certificates", () => {
  let server, operator, stranger, router, origin;

  before(async () => {
    [server, operator, stranger] = await Promise.all([createCertificate(), createCertificate(), createCertificate()]);
    router = await startServe({
      supergraph: memorySupergraph(),
      config: { admin: { tls: { cert: server.file, key: server.keyFile, client_ca: operator.file } } },
      isReady: async (admin) => (await get(`https://${new URL(admin).host}`, "/health/ready")).status === 200,
    });
    origin = `https://127.0.0.1:${router.ports.admin}`;
  });
  after(async () => {
    await router?.stop();
    await Promise.all([server, operator, stranger].map((it) => it?.remove()));
  });

  /** Sends a request with the certificate of a client, if there is one. */
  async function get(of, path, client = {}) {
    const { cert, key } = client;
    const request = https.get(of + path, { ca: server.cert, cert, key, agent: false });
    const [response] = await once(request, "response");
    let text = "";
    for await (const part of response.setEncoding("utf8")) text += part;
    return { status: response.statusCode, text };
  }

  it("serves operators, and only health checks to others", async () => {
    for (const path of ["/metrics", "/console/", "/console/api/overview", "/admin/subscriptions"]) {
      assert.equal((await get(origin, path, operator)).status, 200, path);
      const { status, text } = await get(origin, path);
      assert.deepEqual([status, text], [403, "this listener needs a client certificate (`admin.tls.client_ca`)\n"]);
    }
    for (const path of ["/health/live", "/health/ready"]) assert.equal((await get(origin, path)).status, 200, path);
  });

  it("refuses the handshake of a client with a certificate of another authority, and HTTP without TLS", async () => {
    await assert.rejects(get(origin, "/health/live", stranger));
    await assert.rejects(fetch(`http://127.0.0.1:${router.ports.admin}/health/live`));
    assert.equal((await get(origin, "/health/live")).status, 200);
  });

  it("is asked for its health with its authority", async () => {
    const check = (words) =>
      new Promise((resolve) => {
        execFile(process.env.STARLING_BIN, ["healthcheck", "--url", `${origin}/health/ready`, ...words], (error, out) =>
          resolve([error?.code ?? 0, out]));
      });
    assert.deepEqual(await check(["--ca", server.file]), [0, "ready\n"]);
    assert.equal((await check(["--ca", stranger.file]))[0], 1);
  });

  it("shows the console to a browser with the certificate", { skip: skipWithoutBrowser() }, async () => {
    const browser = await launchBrowser();
    try {
      const clientCertificates = [{ origin, certPath: operator.file, keyPath: operator.keyFile }];
      const { page, problems, close } = await openPage(browser, origin, "/console/", {
        ignoreHTTPSErrors: true, clientCertificates,
      });
      await updated(page);
      await page.getByText("No subgraph or broker is unhealthy.").waitFor();
      assert.deepEqual(problems, []);
      await close();
    } finally {
      await browser.close();
    }
  });
});

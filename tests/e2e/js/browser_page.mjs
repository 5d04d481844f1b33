// Pages of the router in a real browser, for suites that look at them as users do.
import { after, before } from "node:test";
import { chromium } from "playwright-core";
import { savePicture } from "./pictures.mjs";
import * as programs from "./programs.mjs";
import { WAIT_TIMEOUT_MS } from "./waiting.mjs";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

/** For the `skip` option of a test: false, or the reason. */
export const skipWithoutBrowser = () => programs.skipWithout(programs.chromium, "chromium");

export const launchBrowser = () => chromium.launch({ executablePath: programs.chromium(), args: FLAGS });

/**
 * Opens `address` of the server at `origin` in a fresh profile. `problems` collects the errors of the page and its
 * requests to other servers, which fail as in a browser without network access. `script` is a function that runs in the
 * page before its own scripts.
 */
export async function openPage(
  browser, origin, address, { width = 1280, height = 900, colorScheme = "light", script, ...options } = {},
) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, ...options });
  if (script) await context.addInitScript(script);
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_TIMEOUT_MS);
  const problems = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  await context.route("**/*", (route) => {
    const url = route.request().url();
    if (url.startsWith(`${origin}/`) || url.startsWith("data:")) return route.continue();
    problems.push(`asked for ${url}`);
    return route.abort();
  });
  await page.goto(origin + address);
  return { page, problems, close: () => context.close() };
}

/** Launches a browser before the tests of a `describe` and closes it afterwards. Returns its `openPage`. */
export function browserForTests() {
  let browser;
  before(async () => {
    browser = await launchBrowser();
  });
  after(() => browser?.close());
  return { openPage: (...page) => openPage(browser, ...page) };
}

/** Takes a picture of the whole page for a person to look at (`pictures.mjs`), and returns its size. */
export const takePicture = (page, name) => savePicture(page, name, { fullPage: true });

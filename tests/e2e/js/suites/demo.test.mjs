// The output of the demo contains the first commands that a new user tries.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, it } from "node:test";
import { startDemo } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** Address, headers and body of a printed `curl` line, whose arguments may be in single quotes. */
function parseCurl(line) {
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain);
  const request = { url: null, headers: {}, body: undefined };
  for (let index = 1; index < words.length; index += 1) {
    if (words[index] === "-H") {
      const [, name, value] = words[index += 1].match(/^([^:]+):\s*(.*)$/);
      request.headers[name] = value;
    } else if (words[index] === "-d") {
      request.body = words[index += 1];
    } else if (!words[index].startsWith("-")) {
      assert.equal(request.url, null, `two addresses in: ${line}`);
      request.url = words[index];
    }
  }
  return request;
}

/** The result of the request: the JSON of a response, or of the first two events of a stream. */
async function outcome({ url, headers, body }) {
  const leave = new AbortController();
  const sent = body === undefined || "content-type" in headers
    ? headers
    // As curl does it.
    : { ...headers, "content-type": "application/x-www-form-urlencoded" };
  const response = await fetch(url, {
    method: body === undefined ? "GET" : "POST", headers: sent, body, signal: leave.signal,
  });
  assert.ok(response.ok, `${response.status} of ${url}`);
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream")) {
    const text = await response.text();
    return { kind: "response", results: /json/.test(type) ? [JSON.parse(text)] : [] };
  }
  let text = "";
  const decoder = new TextDecoder();
  const read = (async () => {
    for await (const part of response.body) {
      text += decoder.decode(part, { stream: true });
      if (text.split("event: next").length > 2 && text.endsWith("\n\n")) return;
    }
    throw new Error("the stream ended");
  })();
  await within(read, "two events");
  // As Ctrl-C in curl.
  leave.abort();
  const data = [...text.matchAll(/^data: ?(.+)$/gm)].map(([, json]) => JSON.parse(json));
  return { kind: "stream", results: data };
}

function assertGood({ results }) {
  for (const result of results) {
    assert.equal(result.errors, undefined, JSON.stringify(result));
  }
}

describe("demo", () => {
  let router;
  before(async () => {
    router = await startDemo();
  });
  after(async () => {
    if (router) assert.equal(await router.stop(), 0, router.output());
  });

  it("prints an address to open and two curl commands, and both work", async () => {
    const output = await eventually(
      () => router.output().split("curl ").length > 2 && router.output(), "the curl lines");
    assert.ok(output.includes(`${router.url}/`), output);
    const lines = output.split("\n").map((line) => line.trim()).filter((line) => /^curl /.test(line));
    const outcomes = await Promise.all(lines.map((line) => outcome(parseCurl(line))));
    assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ["response", "stream"]);
    outcomes.forEach(assertGood);
  });

  it("matches the curl commands of the README", async () => {
    const readme = await readFile(path.join(import.meta.dirname, "../../../../README.md"), "utf8");
    const lines = readme.replace(/\\\n\s*/g, "").split("\n").map((line) => line.trim())
      .filter((line) => line.startsWith("curl "))
      .map((line) => line
        .replaceAll("http://127.0.0.1:4000", router.url)
        .replaceAll("http://127.0.0.1:8088", router.admin));
    assert.ok(lines.length >= 2, "the README shows curl lines");
    for (const line of lines) assertGood(await outcome(parseCurl(line)));
  });
});

// The `curl` commands that the demo and the README print, sent by Node.js.
import assert from "node:assert/strict";
import { eventually, within } from "./waiting.mjs";

/** Address, headers and body of a printed `curl` line, whose arguments may be in single quotes. */
export function parseCurl(line) {
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
export async function outcome({ url, headers, body }) {
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

/** Checks that no result has errors. */
export function assertGood({ results }) {
  for (const result of results) {
    assert.equal(result.errors, undefined, JSON.stringify(result));
  }
}

/** Sends the two commands that `starling demo` prints, and checks a response and two events. */
export async function sendPrintedCommands(router) {
  const output = await eventually(
    () => router.output().split("curl ").length > 2 && router.output(), "the curl lines");
  const lines = output.split("\n").map((line) => line.trim()).filter((line) => /^curl /.test(line));
  const outcomes = await Promise.all(lines.map((line) => outcome(parseCurl(line))));
  assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ["response", "stream"]);
  outcomes.forEach(assertGood);
}

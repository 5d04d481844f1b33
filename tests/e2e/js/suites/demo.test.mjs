// What the demo prints is what a newcomer tries first.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startDemo } from "../router.mjs";
import { eventually, within } from "../waiting.mjs";

/** Address, headers and body of a printed `curl` line, whose words may be in single quotes. */
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

describe("demo", () => {
  it("prints an address to click and two curl lines, and both work", async () => {
    const router = await startDemo();
    try {
      const said = await eventually(
        () => router.said().match(/curl [^\n]*\n[^]*curl [^\n]*\n/) && router.said(), "curl lines");
      assert.ok(said.includes(`${router.url}/`), said);
      const lines = said.split("\n").map((line) => line.trim()).filter((line) => /^curl /.test(line));
      assert.equal(lines.length, 2, said);
      const outcomes = await Promise.all(lines.map(parseCurl).map(async (request) => {
        const leave = new AbortController();
        const answer = await fetch(request.url, {
          method: request.body === undefined ? "GET" : "POST",
          headers: request.headers,
          body: request.body,
          signal: leave.signal,
        });
        assert.equal(answer.status, 200);
        if (answer.headers.get("content-type").startsWith("text/event-stream")) {
          // Two events, then we hang up as Ctrl-C in curl does.
          let text = "";
          const decoder = new TextDecoder();
          const read = (async () => {
            for await (const part of answer.body) {
              text += decoder.decode(part, { stream: true });
              if (text.split("event: next").length > 2 && text.endsWith("\n\n")) return;
            }
          })();
          await within(read, "two events");
          leave.abort();
          const data = [...text.matchAll(/^data: ?(.+)$/gm)].map(([, json]) => JSON.parse(json));
          return { kind: "stream", answers: data };
        }
        return { kind: "answer", answers: [await answer.json()] };
      }));
      assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ["answer", "stream"]);
      for (const { answers } of outcomes) {
        for (const answer of answers) {
          assert.equal(answer.errors, undefined, JSON.stringify(answer));
          assert.ok(answer.data);
        }
      }
    } finally {
      assert.equal(await router.stop(), 0, router.said());
    }
  });
});

// Checks that the files in `examples/` match their documentation. The pages of `docs/` that show them are run by
// documentation.test.mjs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { composeServices } from "@theguild/federation-composition";
import { parse, visit } from "graphql";
import { memorySupergraph } from "../board.mjs";
import { blocksOf } from "../documentation/blocks.mjs";
import { isEventSubgraph, isSupergraphExcerpt, providersOf } from "../documentation/event_subgraph.mjs";
import { scrape } from "../metrics.mjs";
import { parseExpression } from "../monitoring.mjs";
import { startServe } from "../router.mjs";
import { eventually } from "../waiting.mjs";

const ROOT = path.join(import.meta.dirname, "../../../..");
const EXAMPLES = path.join(ROOT, "examples");

const run = promisify(execFile);

describe("the quick start", () => {
  it("composes the supergraph of the repository", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "starling-quick-start-"));
    try {
      await cp(path.join(EXAMPLES, "quick-start"), folder, { recursive: true });
      await rm(path.join(folder, "supergraph.graphql"));
      const words = ["compose", "--config", "supergraph.yaml", "--output", "supergraph.graphql"];
      await run(process.env.STARLING_BIN, words, { cwd: folder });
      assert.equal(
        await readFile(path.join(folder, "supergraph.graphql"), "utf8"),
        await readFile(path.join(EXAMPLES, "quick-start/supergraph.graphql"), "utf8"),
      );
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("uses the package versions of the tests", async () => {
    const dependencies = async (file) => JSON.parse(await readFile(file, "utf8")).dependencies;
    const tested = await dependencies(path.join(import.meta.dirname, "../package.json"));
    const asked = await dependencies(path.join(EXAMPLES, "quick-start/package.json"));
    const same = Object.fromEntries(Object.keys(asked).map((name) => [name, tested[name]]));
    assert.deepEqual(asked, same);
  });
});

describe("event subgraphs that another tool composes, with the definitions of their directives", () => {
  const EVENTS = `
    type Query {
      productNow(id: ID!): Product @events__request(topic: "products.get.{{ args.id }}", timeout: "2s", key: "{{ args.id }}")
    }
    type Mutation {
      change(id: ID!): edfs__PublishResult!
        @events__publish(topic: "products", key: "{{ args.id }}", headers: [{name: "by", value: "test"}])
    }
    type Subscription {
      changed(ids: [ID!]): Product
        @events__subscribe(topics: ["products"], authorize: {NOT: {claim: "guest", EXISTS: true}})
        @openfed__subscriptionFilter(
          condition: {IN: {fieldPath: "id", values: ["{{ args.ids }}"], bypassIfValuesNull: true}}
        )
    }
    type edfs__PublishResult { success: Boolean! }
    type Product @key(fields: "id", resolvable: false) { id: ID! }`;

  /** The graphql blocks of a page: `{ordinary, events}`, where `ordinary` are subgraphs with a server. */
  async function subgraphsOf(page) {
    const blocks = blocksOf(await readFile(path.join(ROOT, page), "utf8"), page);
    const schemas = blocks.filter(({ language, text }) => language === "graphql" && !isSupergraphExcerpt(text));
    const ordinary = schemas.filter(({ annotation }) => annotation.subgraph).map(({ annotation, text }) => (
      { name: annotation.subgraph, url: "http://127.0.0.1:9/", typeDefs: parse(text) }));
    return { ordinary, events: schemas.filter(({ text }) => isEventSubgraph(text)) };
  }

  it("compose every event subgraph of docs/events.md and its pages", async () => {
    const directives = await readFile(path.join(EXAMPLES, "composition/event-directives.graphql"), "utf8");
    let count = 0;
    for (const page of ["docs/events.md", "docs/events/directives.md", "docs/events/initial-state.md"]) {
      const { ordinary, events } = await subgraphsOf(page);
      for (const { place, text } of events) {
        const result = composeServices([...ordinary, { name: "events", url: "", typeDefs: parse(directives + text) }]);
        assert.deepEqual(result.errors?.map(({ message }) => message) ?? [], [], place);
        count += 1;
      }
    }
    assert.ok(count >= 9, "the pages have samples");
  });

  it("compose and load the event subgraph of docs/migration-edfs.md", async () => {
    const { ordinary, events: [{ text }] } = await subgraphsOf("docs/migration-edfs.md");
    const directives = await readFile(path.join(EXAMPLES, "composition/edfs-directives.graphql"), "utf8");
    // As docs/composition.md says: without `@external`.
    const typeDefs = visit(parse(directives + text), {
      Directive: ({ name }) => (name.value === "external" ? null : undefined),
    });
    const { supergraphSdl, errors } = composeServices([...ordinary, { name: "events", url: "", typeDefs }]);
    assert.equal(errors, undefined);
    const router = await startServe({ supergraph: supergraphSdl, config: { events: { providers: providersOf(text) } } });
    assert.equal(await router.stop(), 0);
  });

  it("compose with a common tool, serve events, and are hidden from clients", async () => {
    const directives = await readFile(path.join(EXAMPLES, "composition/event-directives.graphql"), "utf8");
    const products = await readFile(path.join(EXAMPLES, "quick-start/products.graphql"), "utf8");
    const { supergraphSdl, errors } = composeServices([
      { name: "products", url: "http://127.0.0.1:9/", typeDefs: parse(products) },
      { name: "events", url: "", typeDefs: parse(directives + EVENTS) },
    ]);
    assert.equal(errors, undefined);
    const router = await startServe({ supergraph: supergraphSdl });
    try {
      const { body } = await router.query("{ __schema { types { name } } }");
      const names = body.data.__schema.types.map(({ name }) => name);
      assert.ok(names.includes("edfs__PublishResult"));
      assert.deepEqual(names.filter((name) => name.startsWith("events__")), []);

      // No protocol reports when a subscription has reached its topic, so events are published until one arrives.
      const event = { __typename: "Product", id: "7" };
      let arrived = false;
      const waiting = fetch(`${router.graphql}?once`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ query: 'subscription { changed(ids: ["7"]) { id } }' }),
      }).then(async (response) => {
        arrived = true;
        return response.json();
      });
      await eventually(async () => {
        await router.publish("memory/default", "products", event);
        return arrived;
      }, "the event");
      assert.deepEqual(await waiting, { data: { changed: { id: "7" } } });
    } finally {
      await router.stop();
    }
  });
});

describe("the examples of a deployment", () => {
  it("have a systemd unit that systemd accepts", async (test) => {
    try {
      await run("systemd-analyze", ["--version"]);
    } catch {
      test.skip("systemd-analyze is not installed");
      return;
    }
    const folder = await mkdtemp(path.join(tmpdir(), "starling-unit-"));
    try {
      const unit = await readFile(path.join(EXAMPLES, "deployment/starling.service"), "utf8");
      const program = path.join(folder, "starling");
      await writeFile(program, "#!/bin/sh\n");
      await chmod(program, 0o755);
      const file = path.join(folder, "starling.service");
      await writeFile(file, unit.replaceAll("/usr/local/bin/starling", program));
      // It prints only ignored and missing settings.
      const { stdout, stderr } = await run("systemd-analyze", ["verify", file]);
      assert.equal(`${stdout}${stderr}`.replaceAll(folder, ""), "");
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it("have an autoscaler whose metrics a router has", async () => {
    const read = (name) => readFile(path.join(EXAMPLES, "deployment", name), "utf8");
    const [adapter, autoscaler, deployment] =
      await Promise.all(["prometheus-adapter.yaml", "autoscaling.yaml", "kubernetes.yaml"].map(read));
    const made = [...adapter.matchAll(/name: \{as: (\w+)\}/g)].map((it) => it[1]);
    const wanted = [...autoscaler.matchAll(/metric: \{name: (\w+)\}/g)].map((it) => it[1]);
    assert.deepEqual(wanted, made);
    const [, target] = /scaleTargetRef: \{apiVersion: apps\/v1, kind: Deployment, name: (\w+)\}/.exec(autoscaler);
    assert.match(deployment, new RegExp(`kind: Deployment\\nmetadata:\\n  name: ${target}\\n`));

    const router = await startServe({ supergraph: memorySupergraph() });
    try {
      const metrics = await scrape(router);
      const queries = queriesOf(adapter);
      assert.equal(queries.length, made.length);
      for (const query of queries) {
        const { problem, selectors } = parseExpression(query.replaceAll("<<.GroupBy>>", "pod")
          .replaceAll("<<.LabelMatchers>>", 'pod="a"'));
        assert.equal(problem, undefined);
        for (const { metric } of selectors) assert.ok(metrics.all(metric).length > 0, `${metric} is no metric`);
      }
    } finally {
      await router.stop();
    }
  });
});

/** The queries of the adapter: on one line, or as a block with more indentation. */
function queriesOf(text) {
  const lines = text.split("\n");
  return lines.flatMap((line, at) => {
    const [, first] = /^ {6}metricsQuery: (.*)$/.exec(line) ?? [];
    if (first === undefined) return [];
    if (first !== "|") return [first];
    const end = lines.findIndex((it, index) => index > at && !/^ {8}/.test(it));
    return [lines.slice(at + 1, end).join("\n")];
  });
}

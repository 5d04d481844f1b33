// Event subgraphs of the documents: `starling compose` composes each with the ordinary subgraphs of its page, as a
// reader would, and a router serves the result. The text of a sample is not changed.
import assert from "node:assert/strict";
import { parse, visit } from "graphql";
import { composeFile, writeComposition } from "../composition.mjs";
import { startServe } from "../router.mjs";

const EVENT_DIRECTIVE = /^(events|edfs)__/;
const ROOTS = new Set(["Query", "Mutation", "Subscription"]);

/** The graph of a configuration that comes without one. */
const SMALL_EVENT_SUBGRAPH = `
  type Subscription { moved: Thing @events__subscribe(topics: ["moved"], providerId: "memory/default") }
  type Thing @key(fields: "id", resolvable: false) { id: ID! }`;

/** Whether the text is part of a supergraph rather than of a subgraph. */
export const isSupergraphExcerpt = (sdl) => /@join__|enum join__/.test(sdl);

/** Whether a field of the subgraph has an event directive. */
export function isEventSubgraph(sdl) {
  let isBound = false;
  visit(parse(sdl), {
    FieldDefinition({ directives }) {
      isBound ||= directives.some(({ name }) => EVENT_DIRECTIVE.test(name.value));
    },
  });
  return isBound;
}

/**
 * Composes the event subgraph `sdl` with `ordinary` (name → SDL) in `folder`, and returns the supergraph. The URLs of
 * the ordinary subgraphs lead nowhere.
 */
export async function composeEventSubgraph(folder, sdl, ordinary) {
  const subgraphs = { events: { sdl } };
  for (const [name, text] of ordinary) subgraphs[name] = { sdl: text, url: `http://127.0.0.1:9/${name}` };
  return composeFile(await writeComposition(folder, subgraphs));
}

/** The supergraph for a configuration that names these subgraphs. */
export function composeSmallGraph(folder, names) {
  const things = `
    extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@shareable"])
    type Query { thing(id: ID!): Thing @shareable }
    type Thing @key(fields: "id") { id: ID! }`;
  return composeEventSubgraph(folder, SMALL_EVENT_SUBGRAPH, new Map(names.map((name) => [name, things])));
}

/** Serves the supergraph, and checks that clients see every root field of the event subgraph `sdl`. */
export async function checkServed(supergraph, sdl) {
  const router = await startServe({ supergraph, config: { events: { providers: providersOf(sdl) } } });
  try {
    const { body } = await router.query("{ __schema { types { name fields { name } } } }");
    const served = body.data.__schema.types.flatMap((type) => (type.fields ?? []).map((field) => `${type.name}.${field.name}`));
    assert.deepEqual(rootFieldsOf(sdl).filter((field) => !served.includes(field)), [], "root fields that are not served");
  } finally {
    assert.equal(await router.stop(), 0, router.output());
  }
}

/** The root fields of a subgraph: `Subscription.orderPlaced`. */
function rootFieldsOf(sdl) {
  const roots = parse(sdl).definitions.filter((definition) => ROOTS.has(definition.name?.value));
  return roots.flatMap((root) => root.fields.map((field) => `${root.name.value}.${field.name.value}`));
}

/** The providers that the directives of a subgraph name, as the router's `events.providers`. */
export function providersOf(sdl) {
  const providers = {};
  visit(parse(sdl), {
    Directive(directive) {
      if (EVENT_DIRECTIVE.test(directive.name.value)) addProvider(providers, directive);
    },
  });
  return providers;
}

function addProvider(providers, { name, arguments: given }) {
  const value = given.find((argument) => argument.name.value === "providerId")?.value.value ?? "default";
  const [kind, id] = value.includes("/") ? value.split("/") : [/^edfs__(nats|kafka|redis)/.exec(name.value)?.[1] ?? "memory", value];
  const settings = {
    memory: { id },
    nats: { id, url: "nats://127.0.0.1:4222" },
    redis: { id, urls: ["redis://127.0.0.1:6379"] },
    kafka: { id, brokers: ["127.0.0.1:9092"] },
  }[kind];
  if (!settings) throw new Error(`no provider is of the kind \`${kind}\` (providerId \`${value}\`)`);
  const same = (providers[kind] ??= []);
  if (!same.some((provider) => provider.id === id)) same.push(settings);
}

// Converts an event subgraph from the documentation to a supergraph that the router can load. Composition is not part
// of the router, so this module writes the result of a composition tool for one event subgraph and one ordinary
// subgraph, which resolves every entity by its key.
import { Kind, parse, print, visit } from "graphql";
import { JOIN_DEFINITIONS } from "../join_definitions.mjs";

const ROOTS = new Set(["Query", "Mutation", "Subscription"]);
const PROVIDER_DIRECTIVE = /^(events__|edfs__)/;
const CARRIED_DIRECTIVE = /^(events__|edfs__|openfed__)/;
const BUILT_IN = new Set(["ID", "String", "Int", "Float", "Boolean"]);

const HEAD = `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION)
{
  query: Query
  ROOT_TYPES
}
${JOIN_DEFINITIONS}
enum join__Graph {
  EVENTS @join__graph(name: "events", url: "")
  ENTITIES @join__graph(name: "ENTITIES_NAME", url: "http://127.0.0.1:9/entities")
}
`;

/** Whether the text is part of a supergraph rather than of a subgraph. */
export const isSupergraphExcerpt = (sdl) => /@join__|enum join__/.test(sdl);

/**
 * The supergraph of an event subgraph's SDL, and the providers that its directives name as the router's
 * `events.providers`. Entities that the SDL refers to without defining them get `@key(fields: "id")`.
 */
export function composeEventSubgraph(sdl, { entitiesName = "entities" } = {}) {
  const document = parse(sdl);
  const providers = {};
  const roots = new Map();
  const types = new Map();
  for (const definition of document.definitions) {
    const name = definition.name?.value;
    if (ROOTS.has(name)) roots.set(name, [...(roots.get(name) ?? []), ...definition.fields]);
    else if (name) types.set(name, definition);
  }
  visit(document, {
    Directive(directive) {
      if (PROVIDER_DIRECTIVE.test(directive.name.value)) addProvider(providers, directive);
    },
    NamedType({ name: { value } }) {
      if (BUILT_IN.has(value) || ROOTS.has(value) || types.has(value)) return;
      const missing = value === "edfs__PublishResult"
        ? `type ${value} { success: Boolean! }`
        : `type ${value} @key(fields: "id") { id: ID! }`;
      types.set(value, parse(missing).definitions[0]);
    },
  });

  const entities = [...types.values()].filter((type) => keysOf(type).length > 0);
  const lines = [];
  const rootTypes = [];
  for (const name of ROOTS) {
    const fields = roots.get(name) ?? [];
    const own = name === "Query" ? entities.map((type) => {
      const field = lowerFirst(type.name.value);
      return fields.some((it) => it.name.value === field)
        ? "" : `${field}(id: ID!): ${type.name.value} @join__field(graph: ENTITIES)`;
    }) : [];
    if (name === "Query") own.push("entitiesVersion: String @join__field(graph: ENTITIES)");
    if (fields.length + own.length === 0) continue;
    if (name !== "Query") rootTypes.push(`${name.toLowerCase()}: ${name}`);
    const graphs = name === "Query" ? ["EVENTS", "ENTITIES"] : ["EVENTS"];
    lines.push(
      `type ${name} ${graphs.map((graph) => `@join__type(graph: ${graph})`).join(" ")} {`,
      ...fields.map((field) => `  ${signature(field)} ${carried(field)}${name === "Query" ? " @join__field(graph: EVENTS)" : ""}`),
      ...own.filter(Boolean).map((field) => `  ${field}`),
      "}",
    );
  }
  for (const type of types.values()) lines.push(typeInBoth(type));
  return {
    supergraph: HEAD.replace("ROOT_TYPES", rootTypes.join(" ")).replace("ENTITIES_NAME", entitiesName) + lines.join("\n") + "\n",
    providers,
  };
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

const keysOf = (type) => (type.directives ?? [])
  .filter((directive) => directive.name.value === "key")
  .map((directive) => directive.arguments.find((it) => it.name.value === "fields").value.value);

/** The field without directives. */
const signature = (field) => print({ ...field, description: undefined, directives: [] });

const carried = (field) => field.directives
  .filter((directive) => CARRIED_DIRECTIVE.test(directive.name.value))
  .map((directive) => {
    const fields = directive.arguments.map((it) => ({ kind: Kind.OBJECT_FIELD, name: it.name, value: it.value }));
    const args = print({ kind: Kind.OBJECT, fields });
    return `@join__directive(graphs: [EVENTS], name: "${directive.name.value}", args: ${args})`;
  }).join(" ");

function typeInBoth(type) {
  const name = type.name.value;
  if (type.kind === Kind.INPUT_OBJECT_TYPE_DEFINITION) {
    return `input ${name} @join__type(graph: EVENTS) {\n${type.fields.map((it) => `  ${signature(it)}`).join("\n")}\n}`;
  }
  if (type.kind !== Kind.OBJECT_TYPE_DEFINITION) throw new Error(`the sample has a ${type.kind}, which is not supported here`);
  const keys = keysOf(type);
  const graphs = keys.length === 0 ? ["@join__type(graph: EVENTS)", ...(name.startsWith("edfs__") ? [] : ["@join__type(graph: ENTITIES)"])]
    : keys.flatMap((key) => [
      `@join__type(graph: EVENTS, key: "${key}", resolvable: false)`, `@join__type(graph: ENTITIES, key: "${key}")`,
    ]);
  return `type ${name} ${graphs.join(" ")} {\n${type.fields.map((it) => `  ${signature(it)}`).join("\n")}\n}`;
}

const lowerFirst = (text) => text[0].toLowerCase() + text.slice(1);

// Adds the definitions of planned types to subgraphs. A type that a field refers to is defined in the same subgraph on
// demand (`useType`), so that every subgraph is complete.
import { outputLeaf, wrapped } from "./plan.mjs";
import { directive, field, findType, namedType, type } from "./schema.mjs";
import { FIELDS, lowerFirst } from "./words.mjs";

/** The fields of the keys of an entity, and the selections of its keys. */
const KEY_STYLES = {
  id: { fields: [["id", "ID!"]], keys: ["id"] },
  second: { fields: [["id", "ID!"], ["serial", "String!"]], keys: ["id", "serial"] },
  compound: { fields: [["id", "ID!"], ["region", "String!"]], keys: ["id region"] },
  nested: { fields: [["id", "ID!"], ["tenant", "Tenant!"]], keys: ["id tenant { id }"] },
};

/** Defines an entity in each subgraph that owns a part of it, with its keys. */
export function defineEntity(plan, entity) {
  const { random } = plan;
  entity.owners.forEach((subgraph, index) => {
    const keys = [...KEY_STYLES[entity.style].keys];
    // The first owner has all keys, so that subgraphs with different keys can be reached through it.
    if (index > 0 && keys.length > 1 && random.chance(0.5)) keys.splice(random.integer(0, 1), 1);
    entityType(subgraph, entity, keys, index > 0);
  });
}

/** Adds fields to an entity in each of its subgraphs that no other subgraph resolves. Entities are defined before. */
export function addOwnFields(plan, entity) {
  const { random } = plan;
  entity.owners.forEach((subgraph, index) => {
    const defined = findType(subgraph, entity.name);
    const count = random.integer(index === 0 ? 1 : 0, 3);
    for (let added = 0; added < count; added += 1) addOwnField(plan, subgraph, entity, defined);
  });
}

/** Adds an entity with these keys to a subgraph. In Federation 1 all but its first owner extend the type. */
function entityType(subgraph, entity, keys, isExtension) {
  const isFederation1 = subgraph.version === null;
  const defined = type("type", entity.name, { isExtension: isFederation1 && isExtension });
  subgraph.types.push(defined);
  for (const selection of keys) defined.directives.push(directive("key", { fields: selection }));
  for (const [name, text] of KEY_STYLES[entity.style].fields) {
    if (!keys.some((selection) => selection.split(" ").includes(name))) continue;
    if (text === "Tenant!") defineTenant(subgraph);
    const directives = defined.isExtension ? [directive("external")] : [];
    defined.fields.push(field(name, text, { directives }));
  }
  return defined;
}

/** The object of nested keys: a value type whose fields every subgraph has. */
function defineTenant(subgraph) {
  if (findType(subgraph, "Tenant")) return;
  const directives = subgraph.version === null ? [] : [directive("shareable")];
  subgraph.types.push(type("type", "Tenant", { directives, fields: [field("id", "ID!")] }));
}

/** Adds a field to an entity that only this subgraph resolves. */
function addOwnField(plan, subgraph, entity, defined) {
  const { random } = plan;
  const kind = random.integer(0, 9);
  if (kind <= 5) {
    const free = FIELDS.filter(([name]) => !entity.used.has(name));
    if (free.length === 0) return undefined;
    const [name, usual] = random.pick(free);
    const text = wrapped(random, random.chance(0.25) ? outputLeaf(plan) : usual);
    return pushField(plan, subgraph, entity, defined, field(name, text, { args: someArguments(plan, subgraph, 0.15) }));
  }
  const targets = kind <= 7 ? plan.valueTypes : plan.entities;
  if (targets.length === 0) return undefined;
  // In a large graph fields refer to neighbours, as in real graphs: not every subgraph knows every type.
  const from = Math.max(0, plan.entities.indexOf(entity) % targets.length - 4);
  const target = random.pick(targets.slice(from, from + 8));
  const name = kind === 9 ? `${lowerFirst(target.name)}s` : lowerFirst(target.name);
  const text = kind === 9 ? `[${target.name}!]` : target.name;
  return pushField(plan, subgraph, entity, defined, field(name, text));
}

function pushField(plan, subgraph, entity, defined, added) {
  if (entity.used.has(added.name)) return undefined;
  entity.used.add(added.name);
  useType(plan, subgraph, namedType(added.type));
  defined.fields.push(added);
  return added;
}

/** Returns arguments of scalar, enum and input types, with the given probability. */
export function someArguments(plan, subgraph, probability) {
  const { random } = plan;
  const args = [];
  if (random.chance(probability)) {
    args.push(field("first", "Int", { default: random.chance(0.4) ? "10" : undefined }));
  }
  if (plan.inputs.length > 0 && random.chance(probability)) {
    const input = random.pick(plan.inputs);
    args.push(field(lowerFirst(input.name), wrapMandatory(random, input.name)));
  }
  const enums = plan.enums.filter(({ usage }) => usage !== "output");
  if (enums.length > 0 && random.chance(probability)) {
    const used = random.pick(enums);
    args.push(field(lowerFirst(used.name), used.name));
  }
  const unique = args.filter((argument, index) => args.findIndex(({ name }) => name === argument.name) === index);
  for (const argument of unique) useType(plan, subgraph, namedType(argument.type));
  return unique;
}

function wrapMandatory(random, name) {
  return random.chance(0.3) ? `${name}!` : name;
}

/** Defines a type in a subgraph that refers to it, unless it is there. Built-in scalars need no definition. */
export function useType(plan, subgraph, name) {
  if (findType(subgraph, name)) return;
  if (plan.scalars.includes(name)) {
    subgraph.types.push(type("scalar", name));
    return;
  }
  const definition = plan.definitions.get(name);
  if (definition === undefined) return;
  const define = { enums: defineEnum, valueTypes: defineValueType, inputs: defineInput, entities: defineStub };
  define[definition.list](plan, subgraph, definition.planned);
}

/** Defines an enum. Its values may differ between subgraphs unless it is used for inputs and outputs. */
function defineEnum({ random }, subgraph, { name, values, usage }) {
  let present = values;
  if (usage === "output" && random.chance(0.3)) present = random.sample(values, random.integer(1, values.length));
  // The first value is in every subgraph: the intersection must not be empty.
  if (usage === "input" && random.chance(0.3)) present = values.slice(0, random.integer(1, values.length));
  const members = present.map((value) => ({ name: value, directives: [] }));
  subgraph.types.push(type("enum", name, { values: members }));
}

/** Defines a value type completely: a field that is missing somewhere could be unreachable. */
function defineValueType(plan, subgraph, { name, fields }) {
  const { random } = plan;
  const isFederation1 = subgraph.version === null;
  const isWhole = !isFederation1 && random.chance(0.6);
  const defined = type("type", name, { directives: isWhole ? [directive("shareable")] : [] });
  subgraph.types.push(defined);
  for (const planned of random.chance(0.3) ? random.shuffled(fields) : fields) {
    const directives = isFederation1 || isWhole ? [] : [directive("shareable")];
    defined.fields.push(field(planned.name, planned.type, { directives }));
    useType(plan, subgraph, namedType(planned.type));
  }
}

/** Defines an input type, sometimes without an optional field that other subgraphs have. */
function defineInput(plan, subgraph, { name, fields }) {
  const { random } = plan;
  const defined = type("input", name);
  subgraph.types.push(defined);
  fields.forEach((planned, index) => {
    if (index > 0 && !planned.type.endsWith("!") && random.chance(0.1)) return;
    defined.fields.push(field(planned.name, planned.type, { default: planned.default }));
    useType(plan, subgraph, namedType(planned.type));
  });
}

/** Defines an entity that a subgraph only refers to. */
function defineStub(plan, subgraph, entity) {
  const defined = entityType(subgraph, entity, KEY_STYLES[entity.style].keys.slice(0, 1), true);
  if (subgraph.version !== null && plan.random.chance(0.3)) defined.directives[0].args.resolvable = false;
}

/** The fields of a type that have no directives and are in no key. */
export function plainFields(defined) {
  const inKeys = new Set(["id", "serial", "region", "tenant"]);
  return (defined?.fields ?? []).filter(({ name, directives }) => directives.length === 0 && !inKeys.has(name));
}

// Adds the directives that join subgraphs beyond keys: requires, provides, override, interface objects, contexts, and
// fields that several subgraphs share. Each keeps a valid federation valid.
import { plainFields, useType } from "./definitions.mjs";
import { directive, field, findField, findType, namedType, type } from "./schema.mjs";
import { upperFirst } from "./words.mjs";

const BUILT_IN_LEAF = /^\W*(String|Int|Float|Boolean)\b/;

/** Adds features at random to a federation in which all fields and root fields are defined. */
export function addFeatures(plan) {
  const { random } = plan;
  for (const entity of plan.entities) {
    if (random.chance(0.3)) addRequires(plan, entity);
    if (random.chance(0.2)) addNestedRequires(plan, entity);
    if (random.chance(0.2)) addProvides(plan, entity);
    if (random.chance(0.2)) addOverride(plan, entity);
  }
  if (random.chance(0.2)) addInterfaceObject(plan);
  if (random.chance(0.15)) addValueInterface(plan);
  if (random.chance(0.15)) addSharedRootField(plan);
  if (random.chance(0.15)) addNamespace(plan);
  if (random.chance(0.15)) addSharedAbstractField(plan);
  if (random.chance(0.1)) addKeyByEntity(plan);
  if (random.chance(0.1)) addSubscription(plan);
  if (random.chance(0.08)) addContext(plan);
}

/** Lets one owner of an entity require a field of another owner. */
function addRequires(plan, entity) {
  const { random } = plan;
  if (entity.owners.length < 2) return;
  const [from, to] = random.shuffled(entity.owners);
  const target = findType(to, entity.name);
  const candidates = plainFields(findType(from, entity.name)).filter(({ name, args, type: text }) => (
    args.length === 0 && BUILT_IN_LEAF.test(text) && findField(target, name) === undefined
  ));
  if (candidates.length === 0) return;
  const required = random.pick(candidates);
  target.fields.push(field(required.name, required.type, { directives: [directive("external")] }));
  target.fields.push(field(`${required.name}Of${upperFirst(to.name)}`, random.pick(["String", "Int", "Float!"]), {
    directives: [directive("requires", { fields: required.name })],
  }));
  required.isRequired = true;
  if (random.chance(0.25)) addRequiresBack(findType(from, entity.name), target.fields.at(-1), from);
}

/** Lets the subgraph of a required field require the field that is made from it. */
function addRequiresBack(owner, made, subgraph) {
  if (findField(owner, made.name) !== undefined) return;
  owner.fields.push(field(made.name, made.type, { directives: [directive("external")] }));
  owner.fields.push(field(`${made.name}In${upperFirst(subgraph.name)}`, "Int", {
    directives: [directive("requires", { fields: made.name })],
  }));
}

/** Lets one owner of an entity require a field of a value type in a field of another owner. */
function addNestedRequires(plan, entity) {
  const { random } = plan;
  if (entity.owners.length < 2) return;
  const [from, to] = random.shuffled(entity.owners);
  const target = findType(to, entity.name);
  const valueTypes = new Map(plan.valueTypes.map((valueType) => [valueType.name, valueType]));
  const required = plainFields(findType(from, entity.name)).find(({ name, args, type: text }) => (
    args.length === 0 && valueTypes.has(namedType(text)) && findField(target, name) === undefined
  ));
  const valueType = valueTypes.get(namedType(required?.type ?? ""));
  const leaf = valueType?.fields.find(({ type: text }) => BUILT_IN_LEAF.test(text));
  if (required === undefined || leaf === undefined) return;
  useType(plan, to, namedType(required.type));
  target.fields.push(field(required.name, required.type, { directives: [directive("external")] }));
  target.fields.push(field(`${required.name}Of${upperFirst(to.name)}`, "String", {
    directives: [directive("requires", { fields: `${required.name} { ${leaf.name} }` })],
  }));
  required.isRequired = true;
}

/** Lets a field that returns an entity provide a field of another subgraph, which becomes shareable there. */
function addProvides(plan, entity) {
  const { random } = plan;
  const owner = entity.owners.find(({ version }) => version !== null);
  const subgraph = random.pick(plan.subgraphs);
  const target = findType(subgraph, entity.name);
  if (owner === undefined || owner === subgraph || target === undefined) return;
  const provided = plainFields(findType(owner, entity.name)).find(({ name, args, type: text, isRequired }) => (
    !isRequired && args.length === 0 && BUILT_IN_LEAF.test(text) && findField(target, name) === undefined
  ));
  const referring = subgraph.types.filter(({ kind }) => kind === "type").flatMap(({ fields }) => fields)
    .find((candidate) => namedType(candidate.type) === entity.name && candidate.directives.length === 0);
  if (provided === undefined || referring === undefined) return;
  provided.directives.push(directive("shareable"));
  target.fields.push(field(provided.name, provided.type, { directives: [directive("external")] }));
  referring.directives.push(directive("provides", { fields: provided.name }));
}

/** Moves a field of an entity to another subgraph, completely or for some requests. */
function addOverride(plan, entity) {
  const { random } = plan;
  const owners = entity.owners.filter(({ version }) => version !== null);
  if (owners.length < 2) return;
  const [from, to] = random.shuffled(owners);
  const target = findType(to, entity.name);
  const moved = plainFields(findType(from, entity.name)).find(({ name, args, type: text, isRequired }) => (
    !isRequired && args.length === 0 && BUILT_IN_LEAF.test(text) && findField(target, name) === undefined
  ));
  if (moved === undefined) return;
  const args = { from: from.name };
  if (random.chance(0.3)) args.label = random.pick(["percent(10)", "percent(0.5)", "migration"]);
  moved.isOverridden = true;
  target.fields.push(field(moved.name, moved.type, { directives: [directive("override", args)] }));
}

/** Adds an interface with a key, and a subgraph that adds a field to all its implementations. */
function addInterfaceObject(plan) {
  const { random } = plan;
  const owners = random.shuffled(plan.subgraphs.filter(({ version }) => version !== null));
  if (owners.length < 2) return;
  const [library, reviews] = owners;
  const key = () => [directive("key", { fields: "id" })];
  const fields = () => [field("id", "ID!"), field("headline", "String")];
  library.types.push(type("interface", "Publication", { directives: key(), fields: fields() }));
  for (const name of random.sample(["Book", "Newspaper", "Report"], random.integer(1, 3))) {
    library.types.push(type("type", name, { directives: key(), interfaces: ["Publication"], fields: fields() }));
  }
  findType(library, "Query").fields.push(field("publications", "[Publication!]!"));
  reviews.types.push(type("type", "Publication", {
    directives: [directive("interfaceObject"), ...key()],
    fields: [field("id", "ID!"), field("stars", "Float")],
  }));
  if (random.chance(0.6)) findType(reviews, "Query").fields.push(field("bestPublication", "Publication"));
}

/** Adds an argument that takes its value from an object further up. */
function addContext(plan) {
  const { random } = plan;
  const subgraph = random.pick(plan.subgraphs);
  if (subgraph.version === null) return;
  const key = () => directive("key", { fields: "id" });
  subgraph.types.push(type("type", "Tour", {
    directives: [key(), directive("context", { name: "tour" })],
    fields: [field("id", "ID!"), field("currencyCode", "String!"), field("leg", "Leg")],
  }));
  const argument = field("currency", "String", {
    directives: [directive("fromContext", { field: "$tour { currencyCode }" })],
  });
  subgraph.types.push(type("type", "Leg", {
    directives: [key()],
    fields: [field("id", "ID!"), field("fare", "Int", { args: [argument] })],
  }));
  findType(subgraph, "Query").fields.push(field("tour", "Tour"));
}

/** Adds an interface that a value type implements, with one of its fields. */
function addValueInterface(plan) {
  const { random } = plan;
  const subgraph = random.pick(plan.subgraphs);
  const planned = new Set(plan.valueTypes.map(({ name }) => name));
  const members = subgraph.types.filter(({ name }) => planned.has(name));
  if (members.length === 0) return;
  const member = random.pick(members);
  const { name, type: text } = random.pick(member.fields);
  const interfaceName = `Has${upperFirst(name)}`;
  subgraph.types.push(type("interface", interfaceName, { fields: [field(name, text)] }));
  member.interfaces.push(interfaceName);
  findType(subgraph, "Query").fields.push(field(`has${upperFirst(name)}`, `[${interfaceName}!]`));
}

/** Adds a root field that several subgraphs resolve. */
function addSharedRootField(plan) {
  const owners = plan.subgraphs.filter(({ version }) => version !== null);
  const value = plan.random.pick(["none", undefined, "10"]);
  for (const subgraph of owners.slice(0, 3)) {
    const args = value === "none" ? [] : [field("first", "Int", { default: value })];
    const text = plan.random.pick(["String", "String", "String!"]);
    const shared = field("edition", text, { args, directives: [directive("shareable")] });
    findType(subgraph, "Query").fields.push(shared);
  }
}

/** Adds a subscription to an entity. */
function addSubscription(plan) {
  const entity = plan.random.pick(plan.entities);
  const fields = [field(`${entity.name[0].toLowerCase()}${entity.name.slice(1)}Changed`, entity.name)];
  entity.owners[0].types.push(type("type", "Subscription", { fields }));
}

/**
 * Adds objects without keys that several subgraphs return from the same root field, each with fields of its own: all of
 * them are reached through the root, as in graphs that group their queries.
 */
function addNamespace(plan) {
  const { random } = plan;
  const candidates = plan.subgraphs.filter(({ version }) => version !== null);
  const owners = random.shuffled(candidates).slice(0, random.integer(2, 3));
  if (owners.length < 2) return;
  const isNested = random.chance(0.5);
  const shareable = () => ({ directives: [directive("shareable")] });
  for (const subgraph of owners) {
    findType(subgraph, "Query").fields.push(field("viewer", "Viewer", shareable()));
    const fields = [field("locale", "String", shareable()), field(`${subgraph.name}Count`, "Int")];
    if (isNested) {
      fields.push(field("settings", "Settings", shareable()));
      subgraph.types.push(type("type", "Settings", { fields: [field(`${subgraph.name}Theme`, "String")] }));
    }
    const entity = random.pick(plan.entities);
    if (findType(subgraph, entity.name)) fields.push(field(`${subgraph.name}Favourite`, entity.name));
    subgraph.types.push(type("type", "Viewer", { fields }));
  }
}

/** Adds a field with the same possible objects in two subgraphs, as an interface or a union. */
function addSharedAbstractField(plan) {
  const { random } = plan;
  const owners = plan.subgraphs.filter(({ version }) => version !== null).slice(0, 2);
  if (owners.length < 2) return;
  const isUnion = random.chance(0.5);
  for (const subgraph of owners) {
    const directives = () => [directive("shareable")];
    for (const name of ["Email", "Letter"]) {
      subgraph.types.push(type("type", name, {
        directives: directives(), interfaces: isUnion ? [] : ["Message"], fields: [field("subject", "String")],
      }));
    }
    subgraph.types.push(isUnion
      ? type("union", "Message", { members: ["Email", "Letter"] })
      : type("interface", "Message", { fields: [field("subject", "String")] }));
    findType(subgraph, "Query").fields.push(field("newestMessage", "Message", { directives: directives() }));
  }
}

/** Adds an entity whose key contains another entity. */
function addKeyByEntity(plan) {
  const owners = plan.random.shuffled(plan.subgraphs.filter(({ version }) => version !== null));
  if (owners.length < 2) return;
  const key = (fields) => ({ directives: [directive("key", { fields })] });
  owners.slice(0, 3).forEach((subgraph, index) => {
    subgraph.types.push(type("type", "Person", { ...key("id"), fields: [field("id", "ID!")] }));
    subgraph.types.push(type("type", "Badge", {
      ...key("person { id } kind"),
      fields: [field("person", "Person!"), field("kind", "String!"), field(`${subgraph.name}Level`, "Int")],
    }));
    if (index === 0) findType(subgraph, "Query").fields.push(field("badges", "[Badge!]!"));
  });
}

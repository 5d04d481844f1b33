// Adds the directives that join subgraphs beyond keys: requires, provides, override, interface objects and contexts, and
// the ones that describe elements (tags, costs, descriptions, …). Each keeps a valid federation valid.
import { plainFields } from "./definitions.mjs";
import { directive, field, findField, findType, hasDirective, namedType, type, usedDirectives } from "./schema.mjs";
import { upperFirst } from "./words.mjs";

const BUILT_IN_LEAF = /^\W*(String|Int|Float|Boolean)\b/;

/** Directives that only composition reads: the supergraph does not have them. */
const PRIVATE_DIRECTIVES = ["key", "external", "requires", "provides", "shareable", "override", "interfaceObject"];

/** Adds features at random to a federation in which all fields and root fields are defined. */
export function addFeatures(plan) {
  const { random } = plan;
  for (const entity of plan.entities) {
    if (random.chance(0.3)) addRequires(plan, entity);
    if (random.chance(0.2)) addProvides(plan, entity);
    if (random.chance(0.2)) addOverride(plan, entity);
  }
  if (random.chance(0.2)) addInterfaceObject(plan);
  if (random.chance(0.08)) addContext(plan);
  for (const subgraph of plan.subgraphs) describe(plan, subgraph);
  if (random.chance(0.02)) {
    const subgraph = random.pick(plan.subgraphs);
    // The directives that the supergraph keeps must have the same name in all subgraphs.
    const isPrivate = usedDirectives(subgraph).every((name) => PRIVATE_DIRECTIVES.includes(name));
    if (subgraph.version !== null && isPrivate) subgraph.alias = "fed";
  }
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

/** Adds directives and descriptions to elements of a subgraph that do not change how it composes. */
function describe(plan, subgraph) {
  const { random } = plan;
  for (const owner of subgraph.types) {
    // The reference cannot read its own supergraph back if a field of an interface object has a cost.
    if (owner.isExtension || hasDirective(owner, "interfaceObject")) continue;
    if (random.chance(0.15)) owner.description = random.pick(["A thing of the shop.", `Part of ${subgraph.name}.`]);
    if (subgraph.version === null) continue;
    for (const value of owner.values) {
      if (random.chance(0.05)) value.directives.push(directive("tag", { name: "public" }));
    }
    if (["type", "interface"].includes(owner.kind) && random.chance(0.1)) {
      owner.directives.push(directive("tag", { name: random.pick(["public", "internal"]) }));
    }
    if (owner.kind === "type") for (const member of owner.fields) describeField(random, owner, member);
  }
}

function describeField(random, owner, member) {
  if (hasDirective(member, "external")) return;
  if (random.chance(0.08)) member.description = random.pick(["The usual.", "Measured once a day."]);
  if (random.chance(0.06)) member.directives.push(directive("tag", { name: "public" }));
  if (random.chance(0.04)) member.directives.push(directive("deprecated", { reason: "Nobody uses it." }));
  if (random.chance(0.02)) member.directives.push(directive("cost", { weight: random.integer(1, 9) }));
  const isPlain = BUILT_IN_LEAF.test(member.type) && !member.isRequired && owner.name !== "Query";
  const keyNames = ["id", "serial", "region", "tenant", "headline", "currencyCode"];
  if (!isPlain || member.directives.length > 0 || keyNames.includes(member.name)) return;
  // Entities are accessible by their key at least; a value type with one field would lose all of them.
  if (random.chance(0.02) && hasDirective(owner, "key")) member.directives.push(directive("inaccessible"));
  else if (random.chance(0.02)) member.directives.push(directive("authenticated"));
  else if (random.chance(0.01)) member.directives.push(directive("requiresScopes", { scopes: [["read"]] }));
}

// Generates federations that compose: entities with keys in several subgraphs, value types, interfaces, unions, enums,
// inputs, and the directives that join them.
//
// First the whole graph is planned (`plan.mjs`), then each subgraph receives definitions (`definitions.mjs`), then
// rarer directives (`features.mjs`, `descriptions.mjs`, `links.mjs`). `mutations.mjs` breaks things afterwards.
import { addOwnFields, defineEntity, plainFields, someArguments, useType } from "./definitions.mjs";
import { describe } from "./descriptions.mjs";
import { addFeatures } from "./features.mjs";
import { varyLinks } from "./links.mjs";
import { planGraph, SMALL } from "./plan.mjs";
import { directive, field, findField, findType, minorVersionNeeded, namedType, type } from "./schema.mjs";
import { INTERFACES, lowerFirst, numbered, UNIONS, upperFirst } from "./words.mjs";

/** The newest minor version of Federation 2 that every compared package knows. */
const NEWEST_MINOR = 9;

/** Returns a federation of that name and size. All of `federation` depends only on the random choices. */
export function generateFederation(random, name, size = SMALL) {
  const plan = planGraph(random, size);
  const federation = { name, subgraphs: plan.subgraphs };
  for (const entity of plan.entities) defineEntity(plan, entity);
  for (const entity of plan.entities) addOwnFields(plan, entity);
  for (const valueType of plan.valueTypes) {
    // An unused value type is valid as well, but most should be reachable.
    if (random.chance(0.7)) useType(plan, random.pick(plan.subgraphs), valueType.name);
  }
  addSharedFields(plan);
  addInterfaces(plan, random.integer(...size.interfaces));
  addUnions(plan, random.integer(...size.unions));
  addQueries(plan);
  addFeatures(plan);
  for (const subgraph of federation.subgraphs) describe(random, subgraph);
  varyLinks(plan);
  for (const subgraph of federation.subgraphs) {
    if (subgraph.version === null) continue;
    const minor = random.integer(3, NEWEST_MINOR);
    subgraph.version = [2, Math.max(minor, minorVersionNeeded(subgraph))];
  }
  return federation;
}

/** Lets a second subgraph resolve fields of entities, marked as shareable on both sides. */
function addSharedFields(plan) {
  const { random } = plan;
  for (const entity of plan.entities) {
    const owners = entity.owners.filter(({ version }) => version !== null);
    if (owners.length < 2 || !random.chance(0.35)) continue;
    const [from, to] = owners;
    const isPlain = ({ type: text }) => /^\W*(String|Int|Float)/.test(text);
    const shared = plainFields(findType(from, entity.name)).find(isPlain);
    if (shared === undefined) continue;
    shared.directives.push(directive("shareable"));
    const copy = field(shared.name, shared.type, { directives: [directive("shareable")] });
    copy.args = shared.args.map((argument) => ({ ...argument, directives: [] }));
    for (const argument of copy.args) useType(plan, to, namedType(argument.type));
    if (random.chance(0.3)) copy.type = copy.type.endsWith("!") ? copy.type.slice(0, -1) : `${copy.type}!`;
    findType(to, entity.name).fields.push(copy);
  }
}

/** Adds interfaces whose implementations are entities of the same subgraph. */
function addInterfaces(plan, count) {
  const { random } = plan;
  for (let index = 0; index < count; index += 1) {
    const name = numbered(INTERFACES, index);
    for (const subgraph of random.sample(plan.subgraphs, random.integer(1, 2))) {
      const isEntity = (owner) => plan.entities.some((entity) => entity.name === owner.name);
      const entities = subgraph.types.filter(isEntity);
      const members = random.sample(entities.filter((owner) => findField(owner, "id")), random.integer(1, 3));
      if (members.length === 0) continue;
      const text = random.chance(0.8) ? "ID!" : "ID";
      subgraph.types.push(type("interface", name, { fields: [field("id", text)] }));
      for (const member of members) member.interfaces.push(name);
    }
  }
}

/** Adds unions of objects that the subgraph has. */
function addUnions(plan, count) {
  const { random } = plan;
  for (let index = 0; index < count; index += 1) {
    const name = numbered(UNIONS, index);
    for (const subgraph of random.sample(plan.subgraphs, random.integer(1, 2))) {
      const objects = subgraph.types.filter(({ kind }) => kind === "type").map((member) => member.name);
      if (objects.length === 0) continue;
      subgraph.types.push(type("union", name, { members: random.sample(objects, random.integer(1, 3)) }));
    }
  }
}

/** Adds root fields: every entity can be queried somewhere, and every subgraph has a query or a mutation. */
function addQueries(plan) {
  const { random } = plan;
  for (const subgraph of plan.subgraphs) {
    const query = type("type", "Query", { isExtension: subgraph.version === null && random.chance(0.5) });
    for (const entity of plan.entities.filter(({ owners }) => owners[0] === subgraph)) {
      const name = lowerFirst(entity.name);
      const isList = random.chance(0.5);
      query.fields.push(isList
        ? field(`${name}s`, `[${entity.name}!]!`, { args: someArguments(plan, subgraph, 0.3) })
        : field(name, entity.name, { args: [field("id", "ID!"), ...someArguments(plan, subgraph, 0.1)] }));
    }
    const others = subgraph.types.filter(({ kind }) => ["interface", "union", "type"].includes(kind));
    for (const target of random.sample(others, random.integer(query.fields.length > 0 ? 0 : 1, 2))) {
      // The name of the subgraph makes the field unique: root fields must not be shared by accident.
      query.fields.push(field(`${lowerFirst(target.name)}Of${upperFirst(subgraph.name)}`, target.name));
    }
    if (query.fields.length === 0) query.fields.push(field(`versionOf${upperFirst(subgraph.name)}`, "String"));
    subgraph.types.unshift(query);
    if (random.chance(0.2)) addMutation(plan, subgraph);
  }
}

function addMutation(plan, subgraph) {
  const { random } = plan;
  const args = [field("id", "ID!"), ...someArguments(plan, subgraph, 0.5)];
  const fields = [field(`update${upperFirst(subgraph.name)}`, random.pick(["Boolean", "Boolean!", "ID"]), { args })];
  subgraph.types.push(type("type", "Mutation", { fields }));
}

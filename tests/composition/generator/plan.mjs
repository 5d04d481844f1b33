// Plans a whole graph before its subgraphs have definitions: names, keys, owners, and the types that everything shares.
import { emptySubgraph, field } from "./schema.mjs";
import {
  ENTITIES, ENUM_VALUES, ENUMS, FIELDS, INPUTS, lowerFirst, numbered, SCALARS, SUBGRAPHS, VALUE_TYPES,
} from "./words.mjs";

/** The numbers of things in a federation: `[least, most]`. */
export const SMALL = {
  subgraphs: [2, 5], entities: [2, 6], valueTypes: [0, 3], enums: [0, 3], inputs: [0, 2], interfaces: [0, 2],
  unions: [0, 2],
};

/** A graph of 190 subgraphs with 2,300 types, to measure the speed of composition. */
export const LARGE = {
  subgraphs: [190, 190], entities: [1288, 1288], valueTypes: [420, 420], enums: [310, 310], inputs: [230, 230],
  interfaces: [40, 40], unions: [40, 40],
};

/** The share of subgraphs of Federation 1. Some federations have no others. */
const FEDERATION_1_SHARE = 0.12;

/** Plans the names of the graph. `plan` has everything that generation needs to know, and no cycles. */
export function planGraph(random, size) {
  const count = (range) => random.integer(...range);
  const names = (words, range) => {
    const total = count(range);
    const offset = total < words.length ? random.integer(0, words.length - 1) : 0;
    return Array.from({ length: total }, (_, index) => numbered(words, total < words.length
      ? (offset + index) % words.length
      : index));
  };
  const federation1Share = random.chance(0.05) ? 1 : FEDERATION_1_SHARE;
  const subgraphs = names(SUBGRAPHS, size.subgraphs).map((name) => (
    emptySubgraph(name, random.chance(federation1Share))
  ));
  const scalars = names(SCALARS, [0, 1]);
  const enums = names(ENUMS, size.enums).map((name) => ({
    name, values: random.sample(ENUM_VALUES, random.integer(2, 5)), usage: random.pick(["output", "input", "both"]),
  }));
  const plan = { random, subgraphs, scalars, enums, valueTypes: [], inputs: [], entities: [], definitions: new Map() };
  for (const name of names(VALUE_TYPES, size.valueTypes)) planValueType(plan, name);
  for (const name of names(INPUTS, size.inputs)) planInput(plan, name);
  for (const name of names(ENTITIES, size.entities)) planEntity(plan, name);
  for (const list of ["enums", "valueTypes", "inputs", "entities"]) {
    for (const planned of plan[list]) plan.definitions.set(planned.name, { list, planned });
  }
  return plan;
}

function planValueType(plan, name) {
  const { random } = plan;
  const fields = random.sample(FIELDS, random.integer(1, 4)).map(([fieldName, usual]) => (
    field(fieldName, wrapped(random, random.chance(0.2) ? outputLeaf(plan) : usual))
  ));
  if (plan.valueTypes.length > 0 && random.chance(0.3)) {
    const inner = random.pick(plan.valueTypes.slice(-3));
    fields.push(field(lowerFirst(inner.name), inner.name));
  }
  plan.valueTypes.push({ name, fields });
}

function planInput(plan, name) {
  const { random } = plan;
  const fields = random.sample(FIELDS, random.integer(2, 4)).map(([fieldName, usual], index) => {
    const isMandatory = index === 0 && random.chance(0.3);
    const hasDefault = !isMandatory && usual === "Int" && random.chance(0.4);
    return field(fieldName, isMandatory ? `${usual}!` : usual, { default: hasDefault ? "10" : undefined });
  });
  const enums = plan.enums.filter(({ usage }) => usage !== "output");
  if (enums.length > 0 && random.chance(0.5)) {
    const used = random.pick(enums);
    fields.push(field(lowerFirst(used.name), used.name));
  }
  plan.inputs.push({ name, fields });
}

function planEntity(plan, name) {
  const { random } = plan;
  const owners = random.sample(plan.subgraphs, random.integer(1, Math.min(3, plan.subgraphs.length)));
  const style = random.chance(0.7) ? "id" : random.pick(["second", "compound", "nested"]);
  plan.entities.push({ name, owners: random.shuffled(owners), style, used: new Set(["id"]) });
}

/** Returns a type for a leaf field of an output: a custom scalar, an enum or a built-in scalar. */
export function outputLeaf({ random, scalars, enums }) {
  const outputs = enums.filter(({ usage }) => usage !== "input").map(({ name }) => name);
  return random.pick([...scalars, ...outputs, "String", "Int"]);
}

/** Returns the type as it is, non-null or as a list. */
export function wrapped(random, name) {
  return random.chance(0.6) ? name : random.pick([`${name}!`, `[${name}!]`, `[${name}]`, `[${name}!]!`]);
}

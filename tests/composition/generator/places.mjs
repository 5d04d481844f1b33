// Finds the places of a federation that a mutation can change, and makes the changes that several mutations share.
import { directive, elements, FEDERATION_DIRECTIVES, hasDirective, namedType, withNamedType } from "./schema.mjs";

/** Returns the pairs of subgraph and type for which `isWanted` is true. */
export function typesIn(federation, isWanted = () => true) {
  return federation.subgraphs.flatMap((subgraph) => (
    subgraph.types.filter((owner) => isWanted(owner, subgraph)).map((owner) => ({ subgraph, owner }))
  ));
}

/** Returns the places of fields for which `isWanted` is true, without those of input types. */
export function fieldsIn(federation, isWanted = () => true, kinds = ["type", "interface"]) {
  return typesIn(federation, ({ kind }) => kinds.includes(kind)).flatMap(({ subgraph, owner }) => (
    owner.fields.filter((member) => isWanted(member, owner, subgraph)).map((member) => ({ subgraph, owner, member }))
  ));
}

export function argumentsIn(federation, isWanted = () => true) {
  return fieldsIn(federation).flatMap(({ subgraph, owner, member }) => (
    member.args.filter(isWanted).map((argument) => ({ subgraph, owner, member, argument }))
  ));
}

/** Returns the places whose field other subgraphs know as well, if there are any: there a change matters more often. */
export function preferShared(random, places) {
  const shared = places.filter(({ member }) => hasDirective(member, "shareable") || hasDirective(member, "external"));
  return shared.length > 0 && random.chance(0.7) ? shared : places;
}

/** Picks one of the places and changes it. Returns whether there was one. */
export function change(random, places, apply) {
  if (places.length === 0) return false;
  const result = apply(random.pick(places));
  return result !== false;
}

export function remove(list, element) {
  list.splice(list.indexOf(element), 1);
}

export function dropDirective(element, name) {
  element.directives.splice(element.directives.findIndex((applied) => applied.name === name), 1);
}

/** Removes one application of a directive from a type or field that has it. */
export function dropping(name) {
  return (random, federation) => {
    const places = federation.subgraphs.flatMap((subgraph) => (
      [...elements(subgraph)].filter((element) => hasDirective(element, name))
    ));
    return change(random, places, (element) => dropDirective(element, name));
  };
}

/** Changes the argument of one application of a directive. */
export function changing(name, argument, newValue) {
  return (random, federation) => {
    const places = federation.subgraphs.flatMap((subgraph) => [...elements(subgraph)].flatMap((element) => (
      element.directives.filter((applied) => applied.name === name).map((applied) => ({ subgraph, applied }))
    )));
    return change(random, places, ({ subgraph, applied }) => {
      applied.args = { ...applied.args, [argument]: newValue(applied.args[argument], random, subgraph, federation) };
    });
  };
}

/** Adds a directive to a field of an object in a subgraph of Federation 2. */
export function addingToField(name, args, isWanted = () => true) {
  return (random, federation) => {
    const places = fieldsIn(federation, (member, owner, { version }) => (
      version !== null && version[1] >= FEDERATION_DIRECTIVES[name] && !hasDirective(member, name)
        && isWanted(member, owner)
    ), ["type"]);
    return change(random, places, ({ member, subgraph }) => {
      member.directives.push(directive(name, args(random, subgraph, federation)));
    });
  };
}

/** Adds a directive to an interface or one of its fields. */
export function addingToInterface(name, args) {
  return (random, federation) => {
    const isNewEnough = (subgraph) => subgraph.version !== null && subgraph.version[1] >= FEDERATION_DIRECTIVES[name];
    const places = fieldsIn(federation, (member, owner, subgraph) => isNewEnough(subgraph), ["interface"]);
    return change(random, places, ({ member }) => void member.directives.push(directive(name, args)));
  };
}

export const isObject = ({ kind }) => kind === "type";
export const isRoot = ({ name }) => ["Query", "Mutation"].includes(name);
export const isEntity = (owner) => isObject(owner) && hasDirective(owner, "key");
export const isBuiltIn = (text) => /^\W*(ID|String|Int|Float|Boolean)\b/.test(text);
export const otherSubgraph = (random, subgraph, federation) => (
  random.pick(federation.subgraphs.filter((other) => other !== subgraph))?.name ?? "elsewhere"
);

/** Returns the type with another nullability or list depth, or with another scalar. */
export function otherShape(random, text) {
  return random.pick([
    text.endsWith("!") ? text.slice(0, -1) : `${text}!`,
    text.startsWith("[") ? namedType(text) : `[${text}]`,
    isBuiltIn(text) ? withNamedType(text, random.pick(["String", "Int", "Boolean"])) : text.replace("!", ""),
  ]);
}

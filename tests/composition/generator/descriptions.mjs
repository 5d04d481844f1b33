// Adds what describes elements without a change to how they compose: descriptions, tags, costs, deprecation, visibility
// and authorization.
import { directive, hasDirective } from "./schema.mjs";

const BUILT_IN_LEAF = /^\W*(String|Int|Float|Boolean)\b/;

/** Describes elements of a subgraph at random. */
export function describe(random, subgraph) {
  for (const owner of subgraph.types) {
    // The reference cannot read its own supergraph back if a field of an interface object has a cost.
    if (owner.isExtension || hasDirective(owner, "interfaceObject")) continue;
    if (random.chance(0.15)) owner.description = random.pick(["A thing of the shop.", `Part of ${subgraph.name}.`]);
    if (subgraph.version === null) continue;
    for (const value of owner.values) describeValue(random, value);
    if (owner.kind !== "scalar" && random.chance(0.1)) {
      owner.directives.push(directive("tag", { name: random.pick(["public", "internal"]) }));
    }
    if (owner.kind === "type") for (const member of owner.fields) describeField(random, owner, member);
    if (owner.kind === "input") {
      for (const member of owner.fields) {
        if (random.chance(0.05)) member.directives.push(directive("tag", { name: "public" }));
      }
    }
  }
}

function describeValue(random, value) {
  if (random.chance(0.05)) value.description = random.pick(["One of them.", "The first of all."]);
  if (random.chance(0.05)) value.directives.push(directive("tag", { name: "public" }));
  if (random.chance(0.03)) value.directives.push(directive("deprecated", { reason: "Use another value." }));
}

function describeField(random, owner, member) {
  if (hasDirective(member, "external")) return;
  if (random.chance(0.08)) member.description = random.pick(["The usual.", "Measured once a day."]);
  if (random.chance(0.06)) member.directives.push(directive("tag", { name: "public" }));
  if (random.chance(0.04)) member.directives.push(directive("deprecated", { reason: "Use another field." }));
  if (random.chance(0.02)) member.directives.push(directive("cost", { weight: random.integer(1, 9) }));
  if (member.type.startsWith("[") && random.chance(0.05)) {
    member.directives.push(directive("listSize", { assumedSize: random.integer(1, 100) }));
  }
  for (const argument of member.args) {
    if (random.chance(0.05)) argument.directives.push(directive("tag", { name: "public" }));
    if (random.chance(0.03) && !argument.type.endsWith("!")) argument.directives.push(directive("inaccessible"));
  }
  const isPlain = BUILT_IN_LEAF.test(member.type) && !member.isRequired && owner.name !== "Query";
  const keyNames = ["id", "serial", "region", "tenant", "headline", "currencyCode"];
  if (!isPlain || member.directives.length > 0 || keyNames.includes(member.name)) return;
  // Entities are accessible by their key at least; a value type with one field would lose all of them. Fields of value
  // types may be required through another field, which would need the same authorization.
  if (!hasDirective(owner, "key")) return;
  if (random.chance(0.02)) member.directives.push(directive("inaccessible"));
  else if (random.chance(0.02)) member.directives.push(directive("authenticated"));
  else if (random.chance(0.01)) member.directives.push(directive("requiresScopes", { scopes: [["read"]] }));
}

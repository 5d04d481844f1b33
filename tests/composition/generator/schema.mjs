// Plain data for a federation, and its text as SDL. Mutations change the data; nothing here is random.
//
// A federation is `{name, subgraphs}`; a subgraph `{name, version, alias, renamedImports, missingImport, queryType,
// links, definitions, types}`, where `version` is `null` for Federation 1 and `[2, minor]` otherwise, and `links` and
// `definitions` are text for directives of its own; a type `{kind, name, isExtension, description, interfaces,
// directives, fields, values, members}`; a field or argument `{name, description, type, args, default, directives}`
// with its type as text; a directive `{name, args}` with values of JavaScript.

/** The directives of federation, each with the first minor version of Federation 2 that has it. */
export const FEDERATION_DIRECTIVES = {
  key: 0, external: 0, requires: 0, provides: 0, shareable: 0, override: 0, tag: 0, inaccessible: 0, extends: 0,
  composeDirective: 1, interfaceObject: 3, authenticated: 5, requiresScopes: 5, policy: 6, context: 8, fromContext: 8,
  cost: 9, listSize: 9, cacheTag: 12,
};

/** The minor version from which `@override` takes a label. */
const OVERRIDE_LABEL_MINOR = 7;

/** The minor version from which interfaces may have keys. */
const INTERFACE_KEY_MINOR = 3;

/** Directives that Federation 1 has, which are used there without an import. */
export const FEDERATION_1_DIRECTIVES = ["key", "external", "requires", "provides", "extends", "tag"];

/** Returns a subgraph without types: Federation 1, or 2 in a version that is chosen once its directives are known. */
export function emptySubgraph(name, isFederation1) {
  return {
    name, version: isFederation1 ? null : [2, 0], alias: undefined, renamedImports: {}, missingImport: undefined,
    queryType: "Query", links: [], definitions: [], types: [],
  };
}

export function directive(name, args = {}) {
  return { name, args };
}

export function field(name, type, { args = [], directives = [], description, default: value } = {}) {
  return { name, type, args, directives, description, default: value };
}

export function type(kind, name, parts = {}) {
  return {
    kind, name, isExtension: false, description: undefined, interfaces: [], directives: [], fields: [], values: [],
    members: [], ...parts,
  };
}

export function hasDirective(element, name) {
  return element.directives.some((applied) => applied.name === name);
}

export function findType(subgraph, name) {
  return subgraph.types.find((candidate) => candidate.name === name);
}

export function findField(owner, name) {
  return owner?.fields.find((candidate) => candidate.name === name);
}

/** The name of the type in `[Product!]!`. */
export function namedType(text) {
  return text.replace(/[[\]!]/g, "");
}

/** Returns `text` with another named type, and the same lists and non-null marks. */
export function withNamedType(text, name) {
  return text.replace(/\w+/, name);
}

/** All elements of a subgraph that can have directives. */
export function* elements(subgraph) {
  for (const owner of subgraph.types) {
    yield owner;
    yield* owner.values;
    for (const member of owner.fields) {
      yield member;
      yield* member.args;
    }
  }
}

/** Returns the federation directives that a subgraph uses, sorted. */
export function usedDirectives(subgraph) {
  const used = new Set();
  for (const element of elements(subgraph)) {
    for (const { name } of element.directives) if (name in FEDERATION_DIRECTIVES) used.add(name);
  }
  return [...used].sort();
}

/** Returns the lowest minor version of Federation 2 that has everything the subgraph uses. */
export function minorVersionNeeded(subgraph) {
  const isComposing = subgraph.links.some((link) => link.includes("@composeDirective"));
  let minor = isComposing ? FEDERATION_DIRECTIVES.composeDirective : 0;
  for (const element of elements(subgraph)) {
    for (const { name, args } of element.directives) {
      minor = Math.max(minor, FEDERATION_DIRECTIVES[name] ?? 0);
      if (name === "override" && args.label !== undefined) minor = Math.max(minor, OVERRIDE_LABEL_MINOR);
      if (name === "key" && element.kind === "interface") minor = Math.max(minor, INTERFACE_KEY_MINOR);
    }
  }
  return minor;
}

/** Returns a federation as the rig reads it. */
export function toRigInput(federation) {
  const subgraphs = federation.subgraphs.map((subgraph) => ({
    name: subgraph.name, url: `http://${subgraph.name}.example/graphql`, sdl: printSubgraph(subgraph),
  }));
  return { name: federation.name, subgraphs };
}

export function printSubgraph(subgraph) {
  const parts = [printSchema(subgraph), ...subgraph.definitions];
  parts.push(...subgraph.types.map((printed) => printType(printed, subgraph)));
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

/** Prints the links and, if it is not the usual one, the query type. */
function printSchema(subgraph) {
  const links = subgraph.version === null ? subgraph.links : [printLink(subgraph), ...subgraph.links];
  if (subgraph.queryType !== "Query") {
    const others = ["Mutation", "Subscription"].filter((name) => findType(subgraph, name) !== undefined);
    const roots = [`query: ${subgraph.queryType}`, ...others.map((name) => `${name.toLowerCase()}: ${name}`)];
    return `${["schema", ...links].join(" ")} { ${roots.join(" ")} }`;
  }
  return links.length > 0 ? `extend schema ${links.join(" ")}` : "";
}

function printLink(subgraph) {
  const url = `https://specs.apollo.dev/federation/v${subgraph.version.join(".")}`;
  if (subgraph.alias !== undefined) return `@link(url: "${url}", as: "${subgraph.alias}")`;
  const names = usedDirectives(subgraph);
  // Links themselves use this directive, not an element of the schema.
  if (subgraph.links.some((link) => link.includes("@composeDirective"))) names.push("composeDirective");
  const imports = names.filter((name) => name !== subgraph.missingImport).map((name) => {
    const renamed = subgraph.renamedImports[name];
    return renamed === undefined ? `"@${name}"` : `{ name: "@${name}", as: "@${renamed}" }`;
  });
  return `@link(url: "${url}", import: [${imports.join(", ")}])`;
}

function printType(printed, subgraph) {
  const keyword = printed.isExtension ? `extend ${printed.kind}` : printed.kind;
  const interfaces = printed.interfaces.length > 0 ? ` implements ${printed.interfaces.join(" & ")}` : "";
  const name = printed.name === "Query" ? subgraph.queryType : printed.name;
  const head = `${printDescription(printed, "")}${keyword} ${name}${interfaces}${directives(printed, subgraph)}`;
  if (printed.kind === "scalar") return head;
  if (printed.kind === "union") {
    return printed.members.length > 0 ? `${head} = ${printed.members.join(" | ")}` : head;
  }
  const lines = printed.kind === "enum"
    ? printed.values.map((value) => `${printDescription(value, "  ")}  ${value.name}${directives(value, subgraph)}`)
    : printed.fields.map((member) => `${printDescription(member, "  ")}  ${printField(member, subgraph)}`);
  return lines.length > 0 ? `${head} {\n${lines.join("\n")}\n}` : head;
}

function printField(member, subgraph) {
  const args = member.args.length > 0
    ? `(${member.args.map((argument) => printField(argument, subgraph)).join(", ")})`
    : "";
  const value = member.default !== undefined ? ` = ${member.default}` : "";
  return `${member.name}${args}: ${member.type}${value}${directives(member, subgraph)}`;
}

function printDescription(element, indent) {
  return element.description !== undefined ? `${indent}"${element.description}"\n` : "";
}

function directives(element, subgraph) {
  return element.directives.map(({ name, args }) => {
    const values = Object.entries(args).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
    const list = values.length > 0 ? `(${values.join(", ")})` : "";
    return ` @${nameInSubgraph(name, subgraph)}${list}`;
  }).join("");
}

/** Returns the name by which the subgraph uses a directive. */
function nameInSubgraph(name, subgraph) {
  if (!(name in FEDERATION_DIRECTIVES) || subgraph.version === null) return name;
  return subgraph.alias !== undefined ? `${subgraph.alias}__${name}` : subgraph.renamedImports[name] ?? name;
}

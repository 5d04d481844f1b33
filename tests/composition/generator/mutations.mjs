// Changes that a person could make by mistake, or on purpose, to a federation that composes. About half of them break
// it. Each mutation takes the random choices and the federation, changes the data, and returns true if it found a
// place.
import {
  addingToField, addingToInterface, argumentsIn, change, changing, dropping, fieldsIn, isBuiltIn, isEntity, isObject,
  isRoot, otherShape, otherSubgraph, preferShared, remove, typesIn,
} from "./places.mjs";
import {
  directive, elements, FEDERATION_DIRECTIVES, field, findField, findType, hasDirective, namedType, type, usedDirectives,
  withNamedType,
} from "./schema.mjs";
import { SUBTLE_MUTATIONS } from "./subtle_mutations.mjs";
import { upperFirst } from "./words.mjs";

/** The probabilities of 0, 1, 2 and 3 mutations, summed up. */
const MUTATION_COUNTS = [0.12, 0.75, 0.93, 1];

/** Mutations that almost always fail the same way in every implementation, and are therefore chosen less often. */
const OBVIOUS = new Set([
  "useUnknownType", "dropType", "changeKind", "forgetImport", "useOldVersion", "dropQueries", "dropImplementingField",
  "renameKeyField", "renameType", "changeKeyFields", "provideOnScalar", "authenticateInterface", "sizeOfField",
  "overrideInterfaceField", "costOfInterfaceField", "shareInterfaceField", "hideAllFields",
]);

/** The share of drawn obvious mutations that are applied. */
const OBVIOUS_SHARE = 0.3;

/** Applies some mutations to the federation and returns their names. */
export function mutate(random, federation) {
  const draw = random.integer(0, 999) / 1000;
  const count = MUTATION_COUNTS.findIndex((limit) => draw < limit);
  const applied = [];
  const names = Object.keys(MUTATIONS);
  // A mutation that finds no place in this federation is drawn again, within a bound.
  for (let attempt = 0; attempt < 40 * count && applied.length < count; attempt += 1) {
    const name = random.pick(names);
    if (OBVIOUS.has(name) && !random.chance(OBVIOUS_SHARE)) continue;
    if (MUTATIONS[name](random, federation)) applied.push(name);
  }
  return applied;
}

/** All mutations by name. */
export const MUTATIONS = {
  ...SUBTLE_MUTATIONS,

  // Sharing
  dropShareable: dropping("shareable"),
  shareField(random, federation) {
    const places = typesIn(federation, isObject).filter(({ subgraph, owner }) => (
      federation.subgraphs.some((other) => other !== subgraph && findType(other, owner.name))
    ));
    return change(random, places, ({ subgraph, owner }) => {
      const others = federation.subgraphs.filter((other) => other !== subgraph && findType(other, owner.name));
      const source = findType(random.pick(others), owner.name);
      const copied = random.pick(source.fields.filter(({ name, type: text }) => (
        isBuiltIn(text) && findField(owner, name) === undefined
      )));
      if (copied === undefined) return false;
      const directives = random.chance(0.4) && subgraph.version !== null ? [directive("shareable")] : [];
      owner.fields.push(field(copied.name, copied.type, { directives }));
    });
  },
  markShareable: addingToField("shareable", () => ({})),
  shareInterfaceField: addingToInterface("shareable", {}),

  // Fields and their types
  dropField(random, federation) {
    const places = fieldsIn(federation, (member, owner) => owner.fields.length > 1);
    return change(random, places, ({ owner, member }) => remove(owner.fields, member));
  },
  renameField(random, federation) {
    return change(random, fieldsIn(federation), ({ member }) => void (member.name = `${member.name}Renamed`));
  },
  changeFieldType(random, federation) {
    return change(random, fieldsIn(federation), ({ member }) => void (member.type = otherShape(random, member.type)));
  },
  changeSharedFieldType(random, federation) {
    const places = fieldsIn(federation, (member, owner) => (
      hasDirective(member, "shareable") || hasDirective(member, "external") || hasDirective(owner, "shareable")
    ));
    return change(random, places, ({ member }) => void (member.type = otherShape(random, member.type)));
  },
  useUnknownType(random, federation) {
    return change(random, fieldsIn(federation), ({ member }) => {
      member.type = withNamedType(member.type, "Gizmo");
    });
  },

  // Arguments
  changeArgumentType(random, federation) {
    return change(random, preferShared(random, argumentsIn(federation)), ({ argument }) => {
      argument.type = otherShape(random, argument.type);
      argument.default = undefined;
    });
  },
  dropArgument(random, federation) {
    const places = preferShared(random, argumentsIn(federation));
    return change(random, places, ({ member, argument }) => remove(member.args, argument));
  },
  addArgument(random, federation) {
    return change(random, preferShared(random, fieldsIn(federation)), ({ member }) => {
      if (findField({ fields: member.args }, "extra")) return false;
      member.args.push(field("extra", random.pick(["Int", "Int!", "String"])));
    });
  },
  changeArgumentDefault(random, federation) {
    const places = preferShared(random, argumentsIn(federation, ({ type: text }) => text === "Int"));
    return change(random, places, ({ argument }) => void (argument.default = argument.default === "10" ? "20" : "10"));
  },

  // Keys
  dropKey: dropping("key"),
  makeKeyUnresolvable: changing("key", "resolvable", () => false),
  changeKeyFields: changing("key", "fields", (fields, random) => (
    random.pick([
      "uuid", `${fields} name`, "id {", "", `${fields}(first: 1)`, `${fields} @skip(if: false)`, "id { id }",
    ])
  )),
  renameKeyField(random, federation) {
    const places = fieldsIn(federation, (member, owner) => member.name === "id" && isEntity(owner), ["type"]);
    return change(random, places, ({ member }) => void (member.name = "identifier"));
  },
  renameKeyEverywhereInSubgraph(random, federation) {
    return change(random, typesIn(federation, isEntity), ({ owner }) => {
      const id = findField(owner, "id");
      const keys = owner.directives.filter(({ name, args }) => name === "key" && args.fields === "id");
      if (id === undefined || keys.length === 0) return false;
      id.name = "identifier";
      for (const key of keys) key.args = { ...key.args, fields: "identifier" };
    });
  },
  changeKeyFieldType(random, federation) {
    const places = fieldsIn(federation, (member, owner) => member.name === "id" && isEntity(owner), ["type"]);
    return change(random, places, ({ member }) => {
      member.type = random.pick(["ID", "String!", "[ID!]!", "Int!"]);
    });
  },

  /** Removes all keys of an entity from a subgraph, which then can neither be left nor entered there. */
  detachEntity(random, federation) {
    const places = typesIn(federation, (owner, { version }) => isEntity(owner) && version !== null);
    return change(random, places, ({ owner }) => {
      owner.directives = owner.directives.filter(({ name }) => name !== "key");
      for (const member of owner.fields) {
        if (member.directives.length === 0) member.directives.push(directive("shareable"));
      }
    });
  },
  makeAllKeysUnresolvable(random, federation) {
    return change(random, typesIn(federation, isEntity), ({ owner }) => {
      for (const subgraph of federation.subgraphs.filter(({ version }) => version !== null)) {
        for (const { name, args } of findType(subgraph, owner.name)?.directives ?? []) {
          if (name === "key") args.resolvable = false;
        }
      }
    });
  },
  /** Gives an entity a key of another name in all subgraphs but one. */
  divideKeys(random, federation) {
    const entities = typesIn(federation, isEntity).map(({ owner }) => owner.name);
    return change(random, entities, (name) => {
      const subgraphs = federation.subgraphs.filter((subgraph) => findType(subgraph, name)?.kind === "type");
      if (subgraphs.length < 2) return false;
      for (const subgraph of subgraphs.slice(1)) {
        const owner = findType(subgraph, name);
        const id = findField(owner, "id");
        if (id === undefined) continue;
        id.name = "number";
        for (const key of owner.directives.filter((applied) => applied.name === "key")) {
          key.args = { ...key.args, fields: String(key.args.fields).replace(/^id\b/, "number") };
        }
      }
    });
  },

  // External, requires, provides
  dropExternal: dropping("external"),
  addExternal: addingToField("external", () => ({})),
  dropRequires: dropping("requires"),
  changeRequires: changing("requires", "fields", (fields, random) => (
    random.pick(["unknownField", `${fields} id`, `${fields} {`, `${fields} { id }`, `${fields}(first: 1)`])
  )),
  addRequires: addingToField("requires", (random) => ({ fields: random.pick(["id", "name", "unknownField"]) }),
    (member, owner) => isEntity(owner)),
  dropProvides: dropping("provides"),
  changeProvides: changing("provides", "fields", (fields, random) => (
    random.pick(["unknownField", `${fields} id`, `${fields} {`, "id", `... { ${fields} }`])
  )),
  provideOnScalar: addingToField("provides", () => ({ fields: "id" }), (member) => isBuiltIn(member.type)),
  dropResolvedField(random, federation) {
    const places = fieldsIn(federation, (member, owner, subgraph) => (
      !hasDirective(member, "external") && federation.subgraphs.some((other) => {
        const same = other !== subgraph && findField(findType(other, owner.name), member.name);
        return same && hasDirective(same, "external");
      })
    ), ["type"]);
    return change(random, places, ({ owner, member }) => owner.fields.length > 1 && remove(owner.fields, member));
  },

  /** Adds a field to one copy of a value type: queries that enter elsewhere may not reach it. */
  addPartialField(random, federation) {
    const places = typesIn(federation, (owner, { version }) => (
      isObject(owner) && version !== null && !isRoot(owner) && !hasDirective(owner, "key")
    ));
    return change(random, places, ({ owner }) => {
      owner.fields.push(field("extraField", random.pick(["Int", "Int!"])));
    });
  },
  externalType(random, federation) {
    const places = typesIn(federation, (owner, { version }) => isObject(owner) && version !== null && !isRoot(owner));
    return change(random, places, ({ owner }) => void owner.directives.push(directive("external")));
  },
  requireExternalElsewhere(random, federation) {
    const places = fieldsIn(federation, (member, owner, { version }) => (
      version !== null && isEntity(owner) && member.directives.length === 0 && isBuiltIn(member.type)
        && member.name !== "id"
    ), ["type"]);
    return change(random, places, ({ subgraph, owner, member }) => {
      const other = federation.subgraphs.find((candidate) => (
        candidate !== subgraph && findType(candidate, owner.name)?.kind === "type"
      ));
      if (other === undefined || findField(findType(other, owner.name), member.name)) return false;
      findType(other, owner.name).fields.push(
        field(member.name, member.type, { directives: [directive("external")] }),
        field(`${member.name}Copy`, "Int", { directives: [directive("requires", { fields: member.name })] }),
      );
    });
  },

  // Override
  dropOverride: dropping("override"),
  overrideSelf: changing("override", "from", (from, random, subgraph) => subgraph.name),
  overrideUnknown: changing("override", "from", () => "elsewhere"),
  overrideOther: changing("override", "from", (from, random, subgraph, federation) => (
    otherSubgraph(random, subgraph, federation)
  )),
  changeOverrideLabel: changing("override", "label", (label, random) => (
    random.pick(["percent(200)", "1st", "percent(5)", ""])
  )),
  addOverride: addingToField("override", (random, subgraph, federation) => (
    { from: otherSubgraph(random, subgraph, federation) }
  ), (member, owner) => !isRoot(owner)),

  // Kinds, interfaces and unions
  changeKind(random, federation) {
    const places = typesIn(federation, (owner) => !isRoot(owner) && !owner.isExtension);
    return change(random, places, ({ subgraph, owner }) => {
      const replacement = random.pick([
        type("scalar", owner.name),
        type("enum", owner.name, { values: [{ name: "ONLY", directives: [] }] }),
        type("input", owner.name, { fields: [field("id", "ID")] }),
        type("type", owner.name, { fields: [field("id", "ID")] }),
      ].filter(({ kind }) => kind !== owner.kind));
      subgraph.types[subgraph.types.indexOf(owner)] = replacement;
    });
  },
  dropImplements(random, federation) {
    const places = typesIn(federation, ({ interfaces }) => interfaces.length > 0);
    return change(random, places, ({ owner }) => void owner.interfaces.pop());
  },
  dropImplementingField(random, federation) {
    const places = typesIn(federation, ({ interfaces, fields }) => interfaces.length > 0 && fields.length > 1);
    return change(random, places, ({ subgraph, owner }) => {
      const required = findType(subgraph, owner.interfaces[0])?.fields[0];
      const implementing = findField(owner, required?.name);
      if (implementing === undefined) return false;
      remove(owner.fields, implementing);
    });
  },
  addInterfaceField(random, federation) {
    return change(random, typesIn(federation, ({ kind }) => kind === "interface"), ({ subgraph, owner }) => {
      owner.fields.push(field("extraField", "String"));
      for (const member of subgraph.types.filter(({ interfaces }) => interfaces.includes(owner.name))) {
        member.fields.push(field("extraField", "String"));
      }
    });
  },
  implementElsewhere(random, federation) {
    const interfaces = typesIn(federation, ({ kind }) => kind === "interface");
    return change(random, interfaces, ({ subgraph, owner }) => {
      const other = random.pick(federation.subgraphs.filter((candidate) => (
        candidate !== subgraph && !findType(candidate, owner.name)
      )));
      const objects = other?.types.filter((candidate) => isObject(candidate) && !isRoot(candidate)) ?? [];
      if (objects.length === 0) return false;
      const members = owner.fields.map(({ name, type: text }) => field(name, text));
      other.types.push(type("interface", owner.name, { fields: members }));
      random.pick(objects).interfaces.push(owner.name);
    });
  },
  dropUnionMember(random, federation) {
    return change(random, typesIn(federation, ({ kind }) => kind === "union"), ({ owner }) => void owner.members.pop());
  },
  dropInterfaceObject: dropping("interfaceObject"),
  dropImplementation(random, federation) {
    const places = typesIn(federation, ({ interfaces }) => interfaces.length > 0);
    return change(random, places, ({ subgraph, owner }) => {
      for (const { members } of subgraph.types) if (members.includes(owner.name)) remove(members, owner.name);
      remove(subgraph.types, owner);
    });
  },
  shareAbstractField(random, federation) {
    const places = typesIn(federation, ({ kind }, { version }) => (
      ["interface", "union"].includes(kind) && version !== null
    ));
    return change(random, places, ({ owner }) => {
      const hasType = (subgraph) => subgraph.version !== null && findType(subgraph, owner.name);
      const both = federation.subgraphs.filter(hasType);
      if (both.length < 2) return false;
      for (const subgraph of both) {
        const shared = field(`any${upperFirst(owner.name)}`, owner.name, { directives: [directive("shareable")] });
        findType(subgraph, "Query")?.fields.push(shared);
      }
    });
  },

  // Enums and inputs
  dropEnumValue(random, federation) {
    return change(random, typesIn(federation, ({ kind }) => kind === "enum"), ({ owner }) => {
      remove(owner.values, random.pick(owner.values));
    });
  },
  addEnumValue(random, federation) {
    const places = typesIn(federation, ({ kind, values }) => (
      kind === "enum" && !values.some(({ name }) => name === "NEW")
    ));
    return change(random, places, ({ owner }) => void owner.values.push({ name: "NEW", directives: [] }));
  },
  returnInputEnum(random, federation) {
    return change(random, typesIn(federation, ({ kind }) => kind === "enum"), ({ subgraph, owner }) => {
      findType(subgraph, "Query")?.fields.push(field(`${owner.name}From${upperFirst(subgraph.name)}`, owner.name));
    });
  },
  changeInputField(random, federation) {
    return change(random, fieldsIn(federation, undefined, ["input"]), ({ member }) => {
      member.type = otherShape(random, member.type);
      member.default = undefined;
    });
  },
  changeInputDefault(random, federation) {
    const places = fieldsIn(federation, ({ type: text }) => text === "Int", ["input"]);
    return change(random, places, ({ member }) => void (member.default = "30"));
  },
  dropInputField(random, federation) {
    const places = fieldsIn(federation, (member, owner) => owner.fields.length > 1, ["input"]);
    return change(random, places, ({ owner, member }) => remove(owner.fields, member));
  },
  addInputField(random, federation) {
    return change(random, typesIn(federation, ({ kind }) => kind === "input"), ({ owner }) => {
      owner.fields.push(field("extra", random.pick(["Int", "Int!"])));
    });
  },

  // Visibility and authorization
  hideElement(random, federation) {
    const places = federation.subgraphs.filter(({ version }) => version !== null).flatMap((subgraph) => (
      [...elements(subgraph)].filter((element) => !hasDirective(element, "inaccessible"))
    ));
    return change(random, places, (element) => void element.directives.push(directive("inaccessible")));
  },
  hideAllFields(random, federation) {
    const places = typesIn(federation, (owner, { version }) => isObject(owner) && version !== null && !isRoot(owner));
    return change(random, places, ({ owner }) => {
      for (const member of owner.fields) {
        if (!hasDirective(member, "inaccessible")) member.directives.push(directive("inaccessible"));
      }
    });
  },
  authenticateRequired(random, federation) {
    const places = fieldsIn(federation, (member, owner, { version }) => (
      member.isRequired && version !== null && version[1] >= FEDERATION_DIRECTIVES.authenticated
    ), ["type"]);
    return change(random, places, ({ member }) => void member.directives.push(directive("authenticated")));
  },
  authenticateInterface: addingToInterface("authenticated", {}),
  costOfInterfaceField: addingToInterface("cost", { weight: 3 }),
  overrideInterfaceField: addingToInterface("override", { from: "elsewhere" }),
  sizeOfField: addingToField("listSize", (random) => random.pick([
    { assumedSize: 10 }, { assumedSize: -1 }, { slicingArguments: ["first"] }, { slicingArguments: ["limit"] },
    { assumedSize: 5, sizedFields: ["items"] },
  ])),
  tagExternal: addingToField("tag", () => ({ name: "late" }), (member) => hasDirective(member, "external")),

  // Subgraphs and links
  dropSubgraph(random, federation) {
    if (federation.subgraphs.length < 2) return false;
    remove(federation.subgraphs, random.pick(federation.subgraphs));
    return true;
  },
  dropType(random, federation) {
    return change(random, typesIn(federation), ({ subgraph, owner }) => remove(subgraph.types, owner));
  },
  renameType(random, federation) {
    const places = typesIn(federation, (owner) => !isRoot(owner));
    return change(random, places, ({ subgraph, owner }) => {
      const { name } = owner;
      const renamed = `${name}Renamed`;
      owner.name = renamed;
      for (const other of subgraph.types) {
        other.interfaces = other.interfaces.map((used) => (used === name ? renamed : used));
        other.members = other.members.map((used) => (used === name ? renamed : used));
        for (const member of other.fields.flatMap((parent) => [parent, ...parent.args])) {
          if (namedType(member.type) === name) member.type = withNamedType(member.type, renamed);
        }
      }
    });
  },
  forgetImport(random, federation) {
    const places = federation.subgraphs.filter((subgraph) => (
      subgraph.version !== null && subgraph.alias === undefined && usedDirectives(subgraph).length > 0
    ));
    return change(random, places, (subgraph) => void (subgraph.missingImport = random.pick(usedDirectives(subgraph))));
  },
  useOldVersion(random, federation) {
    const places = federation.subgraphs.filter(({ version }) => version !== null && version[1] > 0);
    return change(random, places, (subgraph) => {
      subgraph.version = [2, random.integer(0, subgraph.version[1] - 1)];
    });
  },
  useFederation1(random, federation) {
    const places = federation.subgraphs.filter(({ version, alias }) => version !== null && alias === undefined);
    return change(random, places, (subgraph) => void (subgraph.version = null));
  },
  useFederation2(random, federation) {
    const places = federation.subgraphs.filter(({ version }) => version === null);
    return change(random, places, (subgraph) => void (subgraph.version = [2, 9]));
  },
  composeUnknownDirective(random, federation) {
    const places = federation.subgraphs.filter(({ version, alias }) => version !== null && alias === undefined);
    return change(random, places, (subgraph) => {
      subgraph.version = [2, Math.max(1, subgraph.version[1])];
      subgraph.links.push(random.pick([
        '@composeDirective(name: "@unknown")', '@composeDirective(name: "owner")', '@composeDirective(name: "@tag")',
      ]));
    });
  },
  linkMore(random, federation) {
    const places = federation.subgraphs.filter(({ version }) => version !== null);
    return change(random, places, (subgraph) => void subgraph.links.push(random.pick([
      '@link(url: "https://shop.example/features/one/v1.0")', '@link(url: "https://shop.example/features/one")',
      '@link(url: "https://shop.example/features/one/v1.0", import: ["@missing"])',
      '@link(url: "https://specs.apollo.dev/federation/v2.3")',
      '@link(url: "https://shop.example/one/v1.0", as: "key")',
    ])));
  },
  changeExecutableDirective(random, federation) {
    for (const subgraph of federation.subgraphs) {
      const argument = random.pick(["label: String", "label: Int", "label: String!", "label: String = \"x\""]);
      subgraph.definitions = [`directive @traced(${argument}) on ${random.pick(["FIELD", "FIELD | QUERY", "QUERY"])}`];
    }
    return true;
  },
  nameQueryType(random, federation) {
    return change(random, federation.subgraphs, (subgraph) => {
      subgraph.queryType = "RootQuery";
      if (random.chance(0.3)) subgraph.types.push(type("type", "Querying", { fields: [field("id", "ID")] }));
    });
  },
  dropQueries(random, federation) {
    for (const subgraph of federation.subgraphs) subgraph.types = subgraph.types.filter(({ name }) => name !== "Query");
    return random.chance(1);
  },
};

// Mutations in the corners of composition, where implementations differ: interface objects, overrides of fields with
// other directives, contexts, Federation 1, and fields that several subgraphs share by accident.
import { change, fieldsIn, isBuiltIn, isEntity, isObject, isRoot, otherShape, remove, typesIn } from "./places.mjs";
import { directive, field, findField, findType, hasDirective, namedType, type } from "./schema.mjs";
import { upperFirst } from "./words.mjs";

/** The directives that Federation 1 and GraphQL itself have. */
const FEDERATION_1_AND_GRAPHQL = new Set(["key", "external", "requires", "provides", "extends", "tag", "deprecated"]);

/** Returns a copy of a field with other directives. */
function copyOf(member, directives) {
  const args = member.args.map((argument) => ({ ...argument, directives: [] }));
  return { ...member, args, directives, description: undefined };
}

/** Returns whether a subgraph defines everything that the field needs. */
function canResolve(subgraph, member) {
  return [member, ...member.args].every(({ type: text }) => isBuiltIn(text) || findType(subgraph, namedType(text)));
}

/** The interfaces that have an interface object in another subgraph, with both subgraphs. */
function interfaceObjectsIn(federation) {
  return typesIn(federation, (owner) => hasDirective(owner, "interfaceObject")).flatMap(({ subgraph, owner }) => {
    const library = federation.subgraphs.find(({ types }) => (
      types.some(({ kind, name }) => kind === "interface" && name === owner.name)
    ));
    return library === undefined ? [] : [{ library, subgraph, owner, shape: findType(library, owner.name) }];
  });
}

function implementationsOf(subgraph, name) {
  return subgraph.types.filter(({ interfaces }) => interfaces.includes(name));
}

/** The mutations by name. */
export const SUBTLE_MUTATIONS = {
  // Root fields
  shareRootField(random, federation) {
    const places = fieldsIn(federation, (member, owner) => owner.name === "Query", ["type"]);
    return change(random, places, ({ subgraph, member }) => {
      const other = random.pick(federation.subgraphs.filter((candidate) => (
        candidate !== subgraph && canResolve(candidate, member) && findType(candidate, "Query")
      )));
      if (other === undefined || findField(findType(other, "Query"), member.name)) return false;
      const isShareable = random.chance(0.7);
      const mark = ({ version }) => (isShareable && version !== null ? [directive("shareable")] : []);
      member.directives.push(...(hasDirective(member, "shareable") ? [] : mark(subgraph)));
      findType(other, "Query").fields.push(copyOf(member, mark(other)));
    });
  },
  dropQueryOfSubgraph(random, federation) {
    return change(random, typesIn(federation, ({ name }) => name === "Query"), ({ subgraph, owner }) => (
      remove(subgraph.types, owner)
    ));
  },

  // Interface objects
  implementBesideInterfaceObject(random, federation) {
    return change(random, interfaceObjectsIn(federation), ({ subgraph, library, owner }) => {
      const name = random.pick(implementationsOf(library, owner.name))?.name;
      if (name === undefined || findType(subgraph, name)) return false;
      const key = directive("key", { fields: "id" });
      const fields = [field("id", "ID!"), field("extra", "Int")];
      subgraph.types.push(type("type", name, { directives: [key], fields }));
    });
  },
  repeatFieldInInterfaceObject(random, federation) {
    return change(random, interfaceObjectsIn(federation), ({ owner, shape }) => {
      const repeated = random.pick(shape.fields.filter(({ name }) => name !== "id"));
      if (repeated === undefined) return false;
      owner.fields.push(copyOf(repeated, random.chance(0.5) ? [directive("shareable")] : []));
    });
  },
  implementInterfaceElsewhere(random, federation) {
    return change(random, interfaceObjectsIn(federation), ({ library, owner, shape }) => {
      const other = random.pick(federation.subgraphs.filter((candidate) => (
        candidate !== library && candidate.version !== null && !findType(candidate, owner.name)
      )));
      if (other === undefined) return false;
      const keys = random.chance(0.5) ? [directive("key", { fields: "id" })] : [];
      const fields = () => shape.fields.map((member) => copyOf(member, []));
      other.types.push(type("interface", owner.name, { directives: random.chance(0.5) ? keys : [], fields: fields() }));
      other.types.push(type("type", "Brochure", { interfaces: [owner.name], directives: keys, fields: fields() }));
    });
  },
  dropKeyOfImplementation(random, federation) {
    const places = interfaceObjectsIn(federation).flatMap(({ library, owner }) => (
      implementationsOf(library, owner.name)
    ));
    return change(random, places, (member) => {
      member.directives = member.directives.filter(({ name }) => name !== "key");
    });
  },
  dropKeyOfInterface(random, federation) {
    return change(random, interfaceObjectsIn(federation), ({ owner, shape }) => {
      const target = random.pick([owner, shape]);
      target.directives = target.directives.filter(({ name }) => name !== "key");
    });
  },

  // Overrides and shared fields
  overrideResolvedField(random, federation) {
    const places = fieldsIn(federation, (member, owner, { version }) => (
      version !== null && isObject(owner) && !isRoot(owner) && isBuiltIn(member.type)
    ), ["type"]);
    return change(random, places, ({ subgraph, owner, member }) => {
      const other = federation.subgraphs.find((candidate) => (
        candidate !== subgraph && findField(findType(candidate, owner.name), member.name)
      ));
      if (other === undefined || hasDirective(member, "override")) return false;
      const args = { from: other.name };
      if (random.chance(0.3)) args.label = "percent(50)";
      member.directives.push(directive("override", args));
    });
  },
  overrideAnotherCopy(random, federation) {
    const places = fieldsIn(federation, (member) => hasDirective(member, "override"), ["type"]);
    return change(random, places, ({ subgraph, owner, member }) => {
      const other = random.pick(federation.subgraphs.filter((candidate) => (
        candidate !== subgraph && candidate.version !== null && findType(candidate, owner.name)
      )));
      if (other === undefined || findField(findType(other, owner.name), member.name)) return false;
      const applied = member.directives.find(({ name }) => name === "override");
      const directives = random.pick([[], [directive("shareable")], [directive("override", { ...applied.args })]]);
      findType(other, owner.name).fields.push(copyOf(member, directives));
    });
  },
  takeArgumentsAway(random, federation) {
    const places = fieldsIn(federation, (member) => member.args.length > 0 && hasDirective(member, "shareable"));
    return change(random, places, ({ member }) => void (member.args = []));
  },
  giveArgumentToRequired(random, federation) {
    return change(random, fieldsIn(federation, (member) => member.isRequired), ({ member }) => {
      member.args.push(field("unit", random.pick(["String", "String!", "Int = 1"])));
    });
  },
  requireSharedField(random, federation) {
    const places = fieldsIn(federation, (member, owner) => (
      isEntity(owner) && hasDirective(member, "shareable")
    ), ["type"]);
    return change(random, places, ({ owner, member }) => {
      owner.fields.push(field(`${member.name}Made`, "Int", {
        directives: [directive("requires", { fields: member.name })],
      }));
      if (random.chance(0.5)) member.directives = [directive("external")];
    });
  },

  // Values in keys and abstract types
  keyByValue(random, federation) {
    const objects = typesIn(federation, (owner, { version }) => version !== null && isEntity(owner));
    return change(random, objects, ({ subgraph, owner }) => {
      const member = random.pick(owner.fields.filter(({ name, args }) => name !== "id" && args.length === 0));
      if (member === undefined) return false;
      const inner = findType(subgraph, namedType(member.type))?.fields[0];
      const nested = inner === undefined ? "" : ` { ${inner.name} }`;
      owner.directives.push(directive("key", { fields: `${member.name}${nested}` }));
    });
  },
  returnAbstractType(random, federation) {
    const places = fieldsIn(federation, (member, owner, subgraph) => (
      implementationsOf(subgraph, "Node").some(({ name }) => name === namedType(member.type))
    ), ["type"]);
    return change(random, places, ({ member }) => void (member.type = member.type.replace(/\w+/, "Node")));
  },
  narrowInterfaceField(random, federation) {
    const places = fieldsIn(federation, undefined, ["interface"]);
    return change(random, places, ({ member }) => void (member.type = otherShape(random, member.type)));
  },
  hideImplementation(random, federation) {
    const places = typesIn(federation, ({ interfaces }, { version }) => interfaces.length > 0 && version !== null);
    return change(random, places, ({ owner }) => void owner.directives.push(directive("inaccessible")));
  },
  hideInterface(random, federation) {
    const places = typesIn(federation, ({ kind }, { version }) => kind === "interface" && version !== null);
    return change(random, places, ({ owner }) => void owner.directives.push(directive("inaccessible")));
  },

  // Contexts
  changeContext(random, federation) {
    const places = fieldsIn(federation, ({ args }) => (
      args.some((argument) => hasDirective(argument, "fromContext"))
    ));
    return change(random, places, ({ subgraph, owner, member }) => {
      const argument = member.args.find((candidate) => hasDirective(candidate, "fromContext"));
      const apply = random.pick([
        () => void (argument.directives[0].args = { field: "$tour { id }" }),
        () => void (argument.directives[0].args = { field: "$tour { currencyCode id }" }),
        () => void (argument.directives[0].args = { field: "$tour ... on Tour { currencyCode }" }),
        () => void (argument.directives[0].args = { field: "$route { currencyCode }" }),
        () => void (argument.directives[0].args = { field: "{ currencyCode }" }),
        () => void (argument.type = "Int"),
        () => void (argument.default = '"EUR"'),
        () => void (owner.directives[0].args = { fields: "id", resolvable: false }),
        () => void findType(subgraph, "Query").fields.push(field("leg", "Leg")),
      ]);
      apply();
    });
  },

  // Federation 1
  extendEverywhere(random, federation) {
    const places = typesIn(federation, (owner, { version }) => isObject(owner) && version === null && !isRoot(owner));
    return change(random, places, ({ owner }) => {
      for (const { version, types } of federation.subgraphs.filter((subgraph) => subgraph.version === null)) {
        for (const same of types.filter(({ name }) => name === owner.name)) same.isExtension = version === null;
      }
    });
  },
  markKeyExternal(random, federation) {
    const places = fieldsIn(federation, (member, owner) => (
      ["id", "serial", "region"].includes(member.name) && isEntity(owner) && !hasDirective(member, "external")
    ), ["type"]);
    return change(random, places, ({ member }) => void member.directives.push(directive("external")));
  },
  useExtends(random, federation) {
    const places = typesIn(federation, (owner) => isEntity(owner) && !owner.isExtension);
    return change(random, places, ({ owner }) => void owner.directives.push(directive("extends")));
  },
  keepOldVersion(random, federation) {
    const places = federation.subgraphs.filter(({ version }) => version !== null);
    if (places.length < 2) return false;
    // All but one become Federation 1: value types and shared fields rely on the automatic upgrade then.
    for (const subgraph of places.slice(1)) {
      const isCompatible = subgraph.types.every((owner) => !hasDirective(owner, "interfaceObject"));
      if (!isCompatible || subgraph.links.length > 0) continue;
      subgraph.version = null;
      for (const owner of subgraph.types) for (const element of [owner, ...owner.fields, ...owner.values]) {
        element.directives = element.directives.filter(({ name }) => FEDERATION_1_AND_GRAPHQL.has(name));
      }
    }
    return true;
  },

  // Links
  renameTag(random, federation) {
    const places = federation.subgraphs.filter(({ version, alias, types }) => (
      version !== null && alias === undefined
        && types.some((owner) => owner.fields.some((member) => hasDirective(member, "tag")))
    ));
    return change(random, places, (subgraph) => void (subgraph.renamedImports = { tag: "label" }));
  },
  addTypeOfSameName(random, federation) {
    return change(random, typesIn(federation, (owner) => isObject(owner) && !isRoot(owner)), ({ owner }) => {
      const other = random.pick(federation.subgraphs.filter((subgraph) => !findType(subgraph, owner.name)));
      if (other === undefined) return false;
      const fields = [field(random.pick(["id", "name", "other"]), random.pick(["ID", "String"]))];
      const isShareable = random.chance(0.5) && other.version !== null;
      other.types.push(type("type", owner.name, { fields, directives: isShareable ? [directive("shareable")] : [] }));
      if (random.chance(0.6)) findType(other, "Query")?.fields.push(field(`new${upperFirst(owner.name)}`, owner.name));
    });
  },
};

// The normal form of a supergraph, in which two supergraphs with the same meaning are the same text: definitions,
// fields, values and directives are sorted. Definitions that only describe specifications are left out (those of `join`
// and `link`, and directives for schemas that no element has), as is the version of the join specification.
import { Kind, parse, print, visit } from "graphql";

/** Definitions that a supergraph has because of its specifications, not because of its subgraphs. */
const SPECIFICATION_NAME = /^(join__(?!Graph$)|link__|link$|(context|cost|policy|requiresScopes|federation)__)/;

/** The locations of directives for operations, which are part of the API. */
const EXECUTABLE_LOCATIONS = new Set([
  "QUERY", "MUTATION", "SUBSCRIPTION", "FIELD", "FRAGMENT_DEFINITION", "FRAGMENT_SPREAD", "INLINE_FRAGMENT",
  "VARIABLE_DEFINITION",
]);

/** A link to the join specification, in any version. */
const JOIN_LINK = /\/join\/v/;

/** Returns a supergraph in normal form. */
export function normalForm(sdl) {
  const document = parse(sdl, { noLocation: true });
  const applied = new Set();
  visit(document, { Directive: ({ name }) => void applied.add(name.value) });
  const definitions = document.definitions.filter(({ kind, name, locations }) => {
    if (SPECIFICATION_NAME.test(name?.value ?? "")) return false;
    if (kind !== Kind.DIRECTIVE_DEFINITION || applied.has(name.value)) return true;
    return locations.some(({ value }) => EXECUTABLE_LOCATIONS.has(value));
  });
  const isJoinLink = ({ name, arguments: args }) => (
    name.value === "link" && args.some(({ value }) => value.kind === Kind.STRING && JOIN_LINK.test(value.value))
  );
  const sorted = visit({ ...document, definitions }, {
    leave(node) {
      const changed = { ...node };
      // White space has no meaning in field sets, and hardly any in the other texts of a supergraph.
      if (node.kind === Kind.STRING) changed.value = node.value.replace(/\s+/g, " ").trim();
      for (const list of ["fields", "values", "types", "interfaces", "arguments", "locations", "operationTypes"]) {
        if (Array.isArray(node[list])) changed[list] = sortedByText(node[list]);
      }
      if (Array.isArray(node.directives)) {
        changed.directives = sortedByText(node.directives.filter((directive) => !isJoinLink(directive)));
      }
      return changed;
    },
  });
  return `${sortedByText(sorted.definitions).map(print).join("\n\n")}\n`;
}

/** Sorts nodes by their name, and nodes of the same name by their text. */
function sortedByText(nodes) {
  const keyed = nodes.map((node) => ({ node, key: `${node.name?.value ?? ""} ${print(node)}` }));
  return keyed.sort((left, right) => (left.key < right.key ? -1 : 1)).map(({ node }) => node);
}

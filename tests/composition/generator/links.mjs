// Varies how subgraphs link federation and name things: aliases, imports under other names, directives of their own,
// and the name of the query type.
import { directive, findType, usedDirectives } from "./schema.mjs";
import { upperFirst } from "./words.mjs";

/** Directives that only composition reads: they may have another name in each subgraph. */
const PRIVATE_DIRECTIVES = ["key", "external", "requires", "provides", "shareable", "override", "interfaceObject"];

/** Varies links and definitions at random, once all directives are applied. */
export function varyLinks({ random, subgraphs }) {
  for (const subgraph of subgraphs.filter(({ version }) => version !== null)) {
    if (random.chance(0.05)) renameImport(random, subgraph);
    // The second package crashes on query types of another name, and does not know aliases of federation.
    else if (random.chance(0.005)) renameFederation(subgraph);
    if (random.chance(0.005)) subgraph.queryType = `${upperFirst(subgraph.name)}Query`;
  }
  if (random.chance(0.06)) composeDirective(random, subgraphs);
  if (random.chance(0.08)) addExecutableDirective(random, subgraphs);
}

function renameImport(random, subgraph) {
  const candidates = usedDirectives(subgraph).filter((name) => PRIVATE_DIRECTIVES.includes(name));
  if (candidates.length === 0) return;
  const name = random.pick(candidates);
  subgraph.renamedImports = { [name]: `our${upperFirst(name)}` };
}

function renameFederation(subgraph) {
  const isPrivate = usedDirectives(subgraph).every((name) => PRIVATE_DIRECTIVES.includes(name));
  if (isPrivate) subgraph.alias = "fed";
}

/** Keeps a directive of some subgraphs in the supergraph. */
function composeDirective(random, subgraphs) {
  const candidates = subgraphs.filter(({ version, alias }) => version !== null && alias === undefined);
  for (const subgraph of candidates.slice(0, 2)) {
    const minor = random.integer(0, 2);
    subgraph.links.push(
      `@link(url: "https://shop.example/features/owner/v1.${minor}", import: ["@owner"])`,
      '@composeDirective(name: "@owner")',
    );
    subgraph.definitions.push("directive @owner(team: String!) on FIELD_DEFINITION | OBJECT");
    const [first] = findType(subgraph, "Query").fields;
    first.directives.push(directive("owner", { team: subgraph.name }));
  }
}

/** Adds a directive for operations to all or some subgraphs. */
function addExecutableDirective(random, subgraphs) {
  const isEverywhere = random.chance(0.5);
  for (const subgraph of subgraphs) {
    if (!isEverywhere && random.chance(0.5)) continue;
    const locations = random.pick(["FIELD", "FIELD | QUERY", "FIELD | FRAGMENT_SPREAD"]);
    subgraph.definitions.push(`directive @traced(label: String) on ${locations}`);
  }
}

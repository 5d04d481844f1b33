// The packages that compose for comparison, behind one function each: subgraphs `{name, url, sdl}` give a result
// `{success, codes, hints, messages, supergraph}`. This module only runs the packages. It does not judge their results.
import { createRequire } from "node:module";

import { parse } from "graphql";

// The packages are CommonJS or have a CommonJS build. With `require`, all of them share one copy of `graphql`.
const require = createRequire(import.meta.url);
const reference = require("@apollo/composition");
const guild = require("@theguild/federation-composition");

/** The code that is reported for SDL that does not parse. The packages receive documents, not text. */
const SYNTAX_ERROR_CODE = "INVALID_GRAPHQL";

/** Packages by the name that npm knows them by. The first one is the reference. */
export const PACKAGES = {
  "@apollo/composition": composeWithReference,
  "@theguild/federation-composition": composeWithGuild,
};

/** The name of the package that decides where packages disagree. */
export const REFERENCE = "@apollo/composition";

/** The name of the second package. */
export const SECOND = "@theguild/federation-composition";

/**
 * Composes with one package. An exception counts as a failure without codes and is reported as `crash`: a package that
 * throws has no opinion about the federation.
 */
export function compose(packageName, subgraphs) {
  let services;
  try {
    services = subgraphs.map(({ name, url, sdl }) => ({ name, url, typeDefs: parse(sdl) }));
  } catch (error) {
    return failure([SYNTAX_ERROR_CODE], [error.message]);
  }
  try {
    return PACKAGES[packageName](services);
  } catch (error) {
    return { ...failure([], [error.message]), crash: String(error.message) };
  }
}

function composeWithReference(services) {
  const { errors, hints, supergraphSdl } = reference.composeServices(services);
  if (errors?.length > 0) return failure(errors.map(codeOf), errors.map((error) => error.message));
  return { success: true, codes: [], hints: sortedSet(hints.map((hint) => hint.definition.code)),
    messages: hints.map((hint) => hint.message), supergraph: supergraphSdl };
}

function composeWithGuild(services) {
  const { errors, supergraphSdl } = guild.composeServices(services);
  if (errors?.length > 0) return failure(errors.map(codeOf), errors.map((error) => error.message));
  return { success: true, codes: [], hints: [], messages: [], supergraph: supergraphSdl };
}

function failure(codes, messages) {
  return { success: false, codes: sortedSet(codes), hints: [], messages };
}

/** The code of an error. Errors of GraphQL itself have none. */
function codeOf(error) {
  return error.extensions?.code ?? "UNKNOWN";
}

function sortedSet(values) {
  return [...new Set(values)].sort();
}

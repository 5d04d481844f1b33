// The board's supergraph with `flightMoved` read from a topic of any provider that stores its events.
import assert from "node:assert/strict";
import { jetStreamSupergraph } from "../board.mjs";

/** The arguments of `flightMoved` in the board's supergraph, which are replaced. */
const ARGUMENTS = '{topics: ["flights.moved"], providerId: "nats/default", stream: {name: "FLIGHTS"}}';

/**
 * `stream` is the argument of the directive. Joined fields are nullable, so that the event can be recognised even if a
 * subgraph fails.
 */
export function storedSupergraph({ providerId, topic, stream }) {
  const supergraph = jetStreamSupergraph();
  assert.ok(supergraph.includes(ARGUMENTS), "the board's supergraph has changed");
  const replaced = `{topics: ["${topic}"], providerId: "${providerId}"${stream ? `, stream: ${stream}` : ""}}`;
  return supergraph
    .replace(ARGUMENTS, replaced)
    // The other fields of the board are bound to the same provider, which may be of another kind.
    .replaceAll('providerId: "nats/default", stream: {name: "FLIGHTS"}', `providerId: "${providerId}"${stream ? `, stream: ${stream}` : ""}`)
    .replaceAll('providerId: "nats/default"', `providerId: "${providerId}"`)
    .replace("number: String!", "number: String")
    .replace("to: Airport!", "to: Airport");
}

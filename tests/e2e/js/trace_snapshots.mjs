// Traces as files in `snapshots`: all that two runs have in common, with placeholders for what varies. A trace is
// compared with the same file whatever exporter, collector or suite it comes from. `UPDATE_EXPECT=1` writes the files.
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("snapshots", import.meta.url));

/** The attributes with values that vary: the part that does, and its placeholder. */
const VARYING = {
  "server.port": [/^\d+$/, "<port>"],
  "service.instance.id": [/^.+$/, "<id>"],
  "service.version": [/^\d+\.\d+\.\d+\S*$/, "<version>"],
  "starling.operation.id": [/^[0-9a-f]{32}$/, "<id>"],
  "url.full": [/(?<=^http:\/\/127\.0\.0\.1:)\d+/, "<port>"],
};

/** The files that this process has written. Further traces are compared with them. */
const written = new Set();

/**
 * Compares the spans of a trace with the file of that name. `known` are the ids of traces and spans that the test has
 * chosen, which are kept.
 */
export async function checkTrace(spans, name, known = []) {
  const file = path.join(FOLDER, `${name}.json`);
  const trace = snapshotOf(spans, known);
  if (process.env.UPDATE_EXPECT === "1" && !written.has(file)) {
    await mkdir(FOLDER, { recursive: true });
    await writeFile(file, `${JSON.stringify(trace, null, 2)}\n`);
    written.add(file);
  }
  try {
    assert.deepEqual(trace, JSON.parse(await readFile(file, "utf8")));
  } catch (error) {
    throw new Error(`the trace is not that of snapshots/${name}.json; UPDATE_EXPECT=1 writes it`, { cause: error });
  }
}

/**
 * The spans of one trace as a tree. Siblings are sorted by name and content, because requests of one wave begin in any
 * order; attributes are sorted by name. Members without content are left out.
 */
export function snapshotOf(spans, known = []) {
  assert.ok(spans.length > 0, "there are no spans");
  const [{ trace, resource, resourceSchema, scope }] = spans;
  const origin = (span) => [span.trace, span.resource, span.resourceSchema, span.scope];
  for (const span of spans) assert.deepEqual(origin(span), [trace, resource, resourceSchema, scope], span.name);
  const ids = new Set(spans.map(({ id }) => id));
  assert.equal(ids.size, spans.length, "each span has an id of its own");
  const identity = (id, placeholder) => (known.includes(id) ? id : placeholder);
  const linkOf = (link) => ({
    trace: link.trace === trace ? "<this trace>" : identity(link.trace, "<trace>"),
    span: identity(link.span, "<span>"),
  });
  const eventOf = ({ name, attributes }) => ({ name, attributes: stable(attributes) });
  const shown = (span) => {
    const { name, kind, parent, state, status, error, attributes, events, links } = span;
    const children = spans.filter((it) => it.parent === span.id).map(shown);
    return {
      name,
      kind,
      // The place in the tree shows any other parent.
      ...(parent !== "" && !ids.has(parent) && { parent: identity(parent, "<span>") }),
      ...(state && { state }),
      ...(status !== "unset" && { status, message: error ?? "" }),
      attributes: stable(attributes),
      ...(events.length > 0 && { events: events.map(eventOf) }),
      ...(links.length > 0 && { links: links.map(linkOf) }),
      ...(children.length > 0 && { children: sorted(children) }),
    };
  };
  const roots = spans.filter(({ parent }) => !ids.has(parent)).map(shown);
  return {
    resource: { schema: resourceSchema, attributes: stable(resource) },
    scope: { ...scope, version: placed("service.version", scope.version) },
    spans: sorted(roots),
  };
}

/** Attributes with placeholders, sorted by name. */
const stable = (attributes) => Object.fromEntries(
  Object.keys(attributes).sort().map((name) => [name, placed(name, attributes[name])]),
);

/** The value of an attribute, with a placeholder for what varies. A value of another form is kept. */
function placed(name, value) {
  const [part, placeholder] = VARYING[name] ?? [];
  return part?.test(value) ? String(value).replace(part, placeholder) : value;
}

function sorted(spans) {
  const keyOf = (span) => `${span.name} ${JSON.stringify(span)}`;
  return spans.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

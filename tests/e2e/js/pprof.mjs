// Reads profiles in pprof's format, `profile.proto`, without compression. Field numbers are those of
// https://github.com/google/pprof/blob/main/proto/profile.proto.
import assert from "node:assert/strict";

/** The wire types of numbers and of bytes, the only ones that profiles have. */
const VARINT = 0;
const BYTES = 2;

/**
 * Returns `{types, samples, seconds}` of a profile: `types` as "NAME UNIT", `samples` as `{values, stack, thread}`,
 * where `stack` are the names of functions, the innermost first. Fails if the bytes are no profile, or if an index in
 * it has no target.
 */
export function readProfile(bytes) {
  const profile = fieldsOf(bytes);
  const strings = all(profile, 6).map((it) => it.toString("utf8"));
  assert.equal(strings[0], "", "the first string is empty");
  const text = (index) => {
    assert.ok(index < strings.length, `string ${index} of ${strings.length}`);
    return strings[index];
  };
  const byId = (number, read) => new Map(all(profile, number).map((it) => {
    const fields = fieldsOf(it);
    return [first(fields, 1), read(fields)];
  }));
  const target = (map, id, what) => {
    assert.ok(map.has(id), `there is no ${what} ${id}`);
    return map.get(id);
  };
  const functions = byId(5, (fields) => text(first(fields, 2)));
  const locations = byId(4, (fields) =>
    all(fields, 4).map((line) => target(functions, first(fieldsOf(line), 1), "function")));
  const label = (fields) => [text(first(fields, 1)), text(first(fields, 2))];
  const types = all(profile, 1).map((it) => label(fieldsOf(it)).join(" "));
  const samples = all(profile, 2).map((it) => {
    const sample = fieldsOf(it);
    const values = packed(first(sample, 2));
    assert.equal(values.length, types.length, "a sample has a value of each type");
    const stack = packed(first(sample, 1)).flatMap((id) => target(locations, id, "location"));
    const labels = Object.fromEntries(all(sample, 3).map((it) => label(fieldsOf(it))));
    return { values, stack, thread: labels.thread };
  });
  return { types, samples, seconds: first(profile, 10) / 1e9 };
}

/** The fields of a message, as pairs of a number and a value: a number, or bytes. */
function fieldsOf(message) {
  const reader = { message, at: 0 };
  const fields = [];
  while (reader.at < message.length) {
    const key = varint(reader);
    const value = varint(reader);
    const wireType = key % 8;
    assert.ok(wireType === VARINT || wireType === BYTES, `wire type ${wireType}`);
    if (wireType === VARINT) {
      fields.push([Math.floor(key / 8), value]);
    } else {
      const end = reader.at + value;
      assert.ok(end <= message.length, "a field is cut off");
      fields.push([Math.floor(key / 8), message.subarray(reader.at, end)]);
      reader.at = end;
    }
  }
  return fields;
}

/** The numbers of a repeated field. */
function packed(message) {
  const reader = { message, at: 0 };
  const numbers = [];
  while (reader.at < message.length) numbers.push(varint(reader));
  return numbers;
}

/** Reads a number. Those above 2^53 lose their last digits. */
function varint(reader) {
  for (let value = 0, factor = 1; ; factor *= 128) {
    assert.ok(reader.at < reader.message.length, "a number is cut off");
    const byte = reader.message[reader.at];
    reader.at += 1;
    value += (byte % 128) * factor;
    if (byte < 128) return value;
  }
}

const all = (fields, number) => fields.filter(([it]) => it === number).map(([, value]) => value);

function first(fields, number) {
  const [value] = all(fields, number);
  assert.ok(value !== undefined, `there is no field ${number}`);
  return value;
}

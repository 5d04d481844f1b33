//! Encodes profiles in the subset of pprof's `profile.proto` that they need: a profile has samples, a sample has a
//! stack of locations, a location has the functions that were inlined there.
//!
//! Field numbers are those of <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A profile under construction.
pub(crate) struct ProfileEncoder {
    /// The encoded messages so far, in any order, which protobuf allows.
    out: Vec<u8>,
    strings: HashMap<Box<str>, u64>,
    string_table: Vec<Box<str>>,
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<Vec<(u64, u64)>, u64>,
}

/// The meaning of a number: its name and unit.
pub(crate) struct ValueType<'a>(pub(crate) &'a str, pub(crate) &'a str);

/// One function of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

impl ProfileEncoder {
    /// Creates a profile with one number per sample for each of these types.
    pub(crate) fn new(sample_types: &[ValueType<'_>]) -> Self {
        let mut encoder = Self {
            out: Vec::new(),
            strings: HashMap::new(),
            string_table: Vec::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        };
        // The format requires that the first string is empty.
        encoder.string("");
        for sample_type in sample_types {
            let message = encoder.value_type(sample_type);
            put_bytes(&mut encoder.out, 1, &message);
        }
        encoder
    }

    /// Adds when and for how long the profile was taken, and the meaning of one sample.
    pub(crate) fn set_period(
        &mut self,
        at: SystemTime,
        duration: Duration,
        period_type: &ValueType<'_>,
        period: u64,
    ) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        put_number(&mut self.out, 9, nanos(at));
        put_number(&mut self.out, 10, nanos(duration));
        let message = self.value_type(period_type);
        put_bytes(&mut self.out, 11, &message);
        put_number(&mut self.out, 12, period);
    }

    /// Adds a stack, innermost location first, with a number for each type. A location consists of the functions
    /// inlined there, innermost first.
    pub(crate) fn add_sample<'a>(
        &mut self,
        stack: impl IntoIterator<Item = &'a [Function]>,
        values: &[u64],
        label: Option<(&str, &str)>,
    ) {
        let mut message = Vec::new();
        let mut ids = Vec::new();
        for location in stack {
            let id = self.location(location);
            put_varint(&mut ids, id);
        }
        put_bytes(&mut message, 1, &ids);
        let mut packed = Vec::new();
        values.iter().for_each(|value| put_varint(&mut packed, *value));
        put_bytes(&mut message, 2, &packed);
        if let Some((key, value)) = label {
            let mut label = Vec::new();
            put_number(&mut label, 1, self.string(key));
            put_number(&mut label, 2, self.string(value));
            put_bytes(&mut message, 3, &label);
        }
        put_bytes(&mut self.out, 2, &message);
    }

    /// Returns the encoded profile.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for text in &self.string_table {
            put_bytes(&mut self.out, 6, text.as_bytes());
        }
        self.out
    }

    fn value_type(&mut self, ValueType(name, unit): &ValueType<'_>) -> Vec<u8> {
        let mut message = Vec::new();
        put_number(&mut message, 1, self.string(name));
        put_number(&mut message, 2, self.string(unit));
        message
    }

    fn location(&mut self, functions: &[Function]) -> u64 {
        let lines: Vec<(u64, u64)> = functions
            .iter()
            .map(|function| (self.function(function), u64::from(function.line)))
            .collect();
        if let Some(id) = self.locations.get(&lines) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        let mut message = Vec::new();
        put_number(&mut message, 1, id);
        for (function, line) in &lines {
            let mut nested = Vec::new();
            put_number(&mut nested, 1, *function);
            put_number(&mut nested, 2, *line);
            put_bytes(&mut message, 4, &nested);
        }
        put_bytes(&mut self.out, 4, &message);
        self.locations.insert(lines, id);
        id
    }

    fn function(&mut self, function: &Function) -> u64 {
        let key = (self.string(&function.name), self.string(&function.file));
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        let mut message = Vec::new();
        put_number(&mut message, 1, id);
        put_number(&mut message, 2, key.0);
        put_number(&mut message, 3, key.0);
        put_number(&mut message, 4, key.1);
        put_bytes(&mut self.out, 5, &message);
        self.functions.insert(key, id);
        id
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.string_table.len() as u64;
        self.string_table.push(text.into());
        self.strings.insert(text.into(), index);
        index
    }
}

/// Appends a field of wire type 0 (varint).
fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Appends a field of wire type 2 (length-delimited).
fn put_bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the fields of a message: number, and either the value or the bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn take(message: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = message[0];
                *message = &message[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !message.is_empty() {
            let key = take(&mut message);
            let value = take(&mut message);
            let mut nested = Vec::new();
            if key & 7 == 2 {
                nested = message[..value as usize].to_vec();
                message = &message[value as usize..];
            }
            found.push((key >> 3, value, nested));
        }
        found
    }

    fn function(name: &str, line: u32) -> Function {
        Function { name: name.to_owned(), file: "a.rs".to_owned(), line }
    }

    #[test]
    fn an_encoded_stack_can_be_decoded() {
        let mut encoder = ProfileEncoder::new(&[ValueType("cpu", "nanoseconds")]);
        let (inner, outer) =
            ([function("inlined", 7), function("inner", 300)], [function("outer", 1)]);
        encoder.add_sample([&inner[..], &outer[..]], &[1_000_000], Some(("thread", "core")));
        encoder.add_sample([&outer[..]], &[5], None);
        let profile = fields(&encoder.finish());
        let of = |number: u64| profile.iter().filter(move |field| field.0 == number);
        let strings: Vec<String> =
            of(6).map(|field| String::from_utf8(field.2.clone()).unwrap()).collect();
        assert_eq!(strings[0], "");
        assert_eq!((of(2).count(), of(4).count(), of(5).count()), (2, 2, 3));

        let first = fields(&of(2).next().unwrap().2);
        assert_eq!(first[0].2, [1, 2], "the innermost location first");
        assert_eq!(first[1].2, [0xc0, 0x84, 0x3d], "one million");
        let names: Vec<&str> = of(4)
            .map(|location| fields(&location.2))
            .flat_map(|location| location.into_iter().filter(|field| field.0 == 4))
            .map(|line| fields(&line.2)[0].1)
            .map(|id| {
                let found = of(5).map(|function| fields(&function.2));
                let name = found.into_iter().find(|function| function[0].1 == id).unwrap()[1].1;
                strings[name as usize].as_str()
            })
            .collect();
        assert_eq!(names, ["inlined", "inner", "outer"]);
    }
}

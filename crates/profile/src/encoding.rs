//! The part of pprof's `profile.proto` that our profiles need, written by hand: a profile has samples, a sample a stack
//! of locations, a location the functions that were inlined there.
//!
//! Field numbers are those of <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A profile that is being written.
pub(crate) struct Encoding {
    /// The messages so far, in no order; protobuf does not ask for one.
    out: Vec<u8>,
    strings: HashMap<Box<str>, u64>,
    string_table: Vec<Box<str>>,
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<Vec<(u64, u64)>, u64>,
}

/// What a number means: its name and unit.
pub(crate) struct ValueType<'a>(pub(crate) &'a str, pub(crate) &'a str);

/// One function of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

impl Encoding {
    /// A profile whose samples have a number for each of these types.
    pub(crate) fn new(sample_types: &[ValueType<'_>]) -> Self {
        let mut encoding = Self {
            out: Vec::new(),
            strings: HashMap::new(),
            string_table: Vec::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        };
        // The first string is the empty one.
        encoding.string("");
        for sample_type in sample_types {
            let message = encoding.value_type(sample_type);
            bytes(&mut encoding.out, 1, &message);
        }
        encoding
    }

    /// When and for how long it was taken, and what one sample stands for.
    pub(crate) fn taken(
        &mut self,
        at: SystemTime,
        duration: Duration,
        period_type: &ValueType<'_>,
        period: u64,
    ) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        number(&mut self.out, 9, nanos(at));
        number(&mut self.out, 10, nanos(duration));
        let message = self.value_type(period_type);
        bytes(&mut self.out, 11, &message);
        number(&mut self.out, 12, period);
    }

    /// Adds a stack, innermost location first, with a number for each type. A location is the functions inlined there,
    /// innermost first.
    pub(crate) fn sample<'a>(
        &mut self,
        stack: impl IntoIterator<Item = &'a [Function]>,
        values: &[u64],
        label: Option<(&str, &str)>,
    ) {
        let mut message = Vec::new();
        let mut ids = Vec::new();
        for location in stack {
            let id = self.location(location);
            varint(&mut ids, id);
        }
        bytes(&mut message, 1, &ids);
        let mut packed = Vec::new();
        values.iter().for_each(|value| varint(&mut packed, *value));
        bytes(&mut message, 2, &packed);
        if let Some((key, value)) = label {
            let mut label = Vec::new();
            number(&mut label, 1, self.string(key));
            number(&mut label, 2, self.string(value));
            bytes(&mut message, 3, &label);
        }
        bytes(&mut self.out, 2, &message);
    }

    /// The finished profile.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for text in &self.string_table {
            bytes(&mut self.out, 6, text.as_bytes());
        }
        self.out
    }

    fn value_type(&mut self, ValueType(name, unit): &ValueType<'_>) -> Vec<u8> {
        let mut message = Vec::new();
        number(&mut message, 1, self.string(name));
        number(&mut message, 2, self.string(unit));
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
        number(&mut message, 1, id);
        for (function, line) in &lines {
            let mut nested = Vec::new();
            number(&mut nested, 1, *function);
            number(&mut nested, 2, *line);
            bytes(&mut message, 4, &nested);
        }
        bytes(&mut self.out, 4, &message);
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
        number(&mut message, 1, id);
        number(&mut message, 2, key.0);
        number(&mut message, 3, key.0);
        number(&mut message, 4, key.1);
        bytes(&mut self.out, 5, &message);
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

/// A field of wire type 0.
fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

/// A field of wire type 2.
fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a message: number, and either its value or its bytes.
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
    fn a_stack_can_be_read_back_by_its_numbers() {
        let mut encoding = Encoding::new(&[ValueType("cpu", "nanoseconds")]);
        let (inner, outer) =
            ([function("inlined", 7), function("inner", 300)], [function("outer", 1)]);
        encoding.sample([&inner[..], &outer[..]], &[1_000_000], Some(("thread", "core")));
        encoding.sample([&outer[..]], &[5], None);
        let profile = fields(&encoding.finish());
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

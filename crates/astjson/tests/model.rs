//! Property tests against a naive model on serde_json's tree.

#![allow(clippy::unwrap_used)]

use astjson::{Document, NodeId};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Arbitrary JSON with few distinct keys, so that merges and lookups meet the same keys.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Eighths are exact; serde_json rounds other fractions its own way.
        (-8_000_000i32..8_000_000).prop_map(|n| Value::from(f64::from(n) / 8.0)),
        "[a-c\"\\\\\n\u{1}üß€😀]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-e]", "[a-b\"\\\\é]{0,3}", "averylongkey[a-d]{1,30}"]
}

/// Short texts, many of them nearly JSON.
fn short_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "{}",
        "\"a\":",
        "\"a\"",
        "\"bcdef\":",
        "\"\"",
        ":",
        ",",
        ",\"b\":",
        "1",
        "20",
        "0",
        "-",
        ".5",
        "true",
        "null",
        "false",
        "[",
        "]",
        "\\n",
        "é",
        "\u{1}",
        " ",
    ]);
    let pieces = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let members =
        prop::collection::vec(("[a-c]{0,6}", "[1-9]{1,3}|true|null|\"[a-z]{0,5}\"|\\{\\}"), 0..6);
    let object = members.prop_map(|members| {
        let members = members.iter().map(|(key, value)| format!("\"{key}\":{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    });
    prop_oneof![pieces, object.clone(), object.prop_map(|text| format!("{{\"a\":{text}}}"))]
}

/// Walks both trees through the public API and compares all values.
fn assert_same(doc: &Document, n: NodeId, value: &Value) {
    match value {
        Value::Null => assert!(doc.is_null(n)),
        Value::Bool(b) => assert_eq!(doc.as_bool(n), Some(*b)),
        Value::Number(number) => assert_eq!(doc.raw(n), number.to_string()),
        Value::String(s) => {
            assert_eq!(doc.as_str(n).as_deref(), Some(s.as_str()));
            assert!(doc.str_eq(n, s));
        }
        Value::Array(array) => {
            assert_eq!(doc.len(n), array.len());
            assert_eq!(doc.elements(n).count(), array.len());
            for (i, element) in array.iter().enumerate() {
                assert_same(doc, doc.at(n, i).unwrap(), element);
            }
        }
        Value::Object(object) => {
            assert_eq!(doc.len(n), object.len());
            for (key, member) in object {
                assert_same(doc, doc.get(n, key).unwrap(), member);
            }
            for (key, member) in doc.members(n) {
                assert_same(doc, member, &object[key.as_ref()]);
            }
        }
    }
}

fn reparsed(doc: &Document, n: NodeId) -> Value {
    let mut out = Vec::new();
    doc.print(n, &mut out);
    serde_json::from_slice(&out).unwrap()
}

/// The model of a merge. `None` if two arrays have different lengths.
fn merged(target: Value, source: Value) -> Option<Value> {
    Some(match (target, source) {
        (Value::Object(mut target), Value::Object(source)) => {
            for (key, new) in source {
                let value = match target.remove(&key) {
                    Some(old) => merged(old, new)?,
                    None => new,
                };
                target.insert(key, value);
            }
            Value::Object(target)
        }
        (Value::Array(target), Value::Array(source)) => {
            if target.len() != source.len() {
                return None;
            }
            let pairs = target.into_iter().zip(source);
            Value::Array(pairs.map(|(old, new)| merged(old, new)).collect::<Option<_>>()?)
        }
        (_, source) => source,
    })
}

/// JSON that has the outline of `value`, so that deep merges are frequent.
fn variation(value: Value) -> impl Strategy<Value = (Value, Value)> {
    fn varied(value: &Value, bits: &mut impl FnMut() -> u32) -> Value {
        match value {
            Value::Array(array) => array.iter().map(|element| varied(element, bits)).collect(),
            Value::Object(object) => {
                let mut members = Map::new();
                for (key, member) in object {
                    match bits() % 4 {
                        0 => {}
                        1 => {
                            members.insert(format!("{key}{}", bits() % 3), member.clone());
                        }
                        _ => {
                            members.insert(key.clone(), varied(member, bits));
                        }
                    }
                }
                members.into()
            }
            _ if bits().is_multiple_of(3) => serde_json::json!({"a": [bits() % 7]}),
            scalar => scalar.clone(),
        }
    }
    any::<u32>().prop_map(move |seed| {
        let mut state = seed | 1;
        let mut bits = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        (value.clone(), varied(&value, &mut bits))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; `editing` and `runs` go the same ways")]
    fn parsing_then_printing_keeps_the_structure(value in json(), pretty: bool, far: bool) {
        let mut text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            serde_json::to_string(&value).unwrap()
        };
        // Text far from the end is read by other loops than text near it.
        text.push_str(&" ".repeat(if far { 200 } else { 0 }));
        let mut doc = Document::new();
        doc.parse("[0]").unwrap();
        let root = doc.parse(text).unwrap();
        assert_same(&doc, root, &value);
        prop_assert_eq!(doc.to_string(root), serde_json::to_string(&value).unwrap());
        let mut printed = Vec::new();
        doc.print_pretty(root, &mut printed);
        prop_assert_eq!(printed, serde_json::to_vec_pretty(&value).unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; `small` has a table of texts")]
    fn short_texts_are_read_the_same_with_a_space_in_front(text in short_text()) {
        // A small text that begins with a space is read like a large one.
        let mut doc = Document::new();
        let spaced = doc.parse(format!(" {text}")).map(|root| doc.to_string(root));
        let plain = doc.parse(text).map(|root| doc.to_string(root));
        let shifted = plain.map_err(|mut error| {
            error.offset += 1;
            error
        });
        prop_assert_eq!(shifted, spaced);
    }

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; `editing` and `runs` go the same ways")]
    fn merging_equals_the_model(
        (left, right) in json().prop_flat_map(variation),
        third in json(),
    ) {
        let mut doc = Document::new();
        let target = doc.parse(left.to_string()).unwrap();
        let mut model = left;
        for source in [right, third] {
            let n = doc.parse(source.to_string()).unwrap();
            match (doc.merge(target, n), merged(model, source.clone())) {
                (Ok(()), Some(expected)) => {
                    assert_same(&doc, target, &expected);
                    assert_eq!(reparsed(&doc, target), expected);
                    model = expected;
                }
                (Err(_), None) => return Ok(()),
                (result, expected) => panic!("{result:?} but {expected:?}"),
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; `editing` and `runs` go the same ways")]
    fn edits_equal_the_model(
        value in json().prop_filter("an object", Value::is_object),
        edits in prop::collection::vec((key(), prop::option::of(json())), 0..12),
    ) {
        let mut doc = Document::new();
        let root = doc.parse(value.to_string()).unwrap();
        let mut model = value;
        for (key, edit) in edits {
            let members = model.as_object_mut().unwrap();
            match edit {
                Some(new) => {
                    let n = doc.parse(new.to_string()).unwrap();
                    doc.set(root, &key, n);
                    members.insert(key, new);
                }
                None => prop_assert_eq!(doc.remove(root, &key), members.remove(&key).is_some()),
            }
        }
        assert_same(&doc, root, &model);
        assert_eq!(reparsed(&doc, root), model);
    }
}

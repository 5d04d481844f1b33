//! Parsing by a shape, by example and against a naive model: generic parsing, then selecting.

#![allow(clippy::unwrap_used)]

use astjson::{Document, LinkedObject, NodeId, ObjectSpec, Others, Shape, ShapeSpec};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn user() -> ShapeSpec {
    ShapeSpec::object([
        ("__typename", ShapeSpec::Any),
        ("id", ShapeSpec::Any),
        ("name", ShapeSpec::Any),
        ("friends", ShapeSpec::object([("id", ShapeSpec::Any)])),
    ])
}

fn parsed(text: &'static str, spec: &ShapeSpec) -> (Document, NodeId) {
    let mut doc = Document::new();
    let root = doc.parse_shaped(text, &Shape::new(spec)).unwrap();
    (doc, root)
}

#[test]
fn members_land_in_slots_whatever_their_order() {
    let (doc, root) = parsed(
        r#"{"name":"Ada","extra":[{"deep":[1,2,{"x":"}]"}]}],"id":7,"friends":[{"id":8,"no":1},null,[{"id":9}]]}"#,
        &user(),
    );
    assert_eq!(doc.slot(root, 0), None);
    assert_eq!(doc.raw(doc.slot(root, 1).unwrap()), "7");
    assert_eq!(doc.raw(doc.slot(root, 2).unwrap()), "\"Ada\"");
    let friends = doc.get(root, "friends").unwrap();
    assert_eq!(Some(friends), doc.slot(root, 3));
    assert_eq!(doc.slot(root, 4), None);
    assert_eq!((doc.len(root), doc.len(friends)), (3, 3));
    assert_eq!(
        doc.to_string(root),
        r#"{"id":7,"name":"Ada","friends":[{"id":8},null,[{"id":9}]]}"#
    );
}

#[test]
fn unexpected_values_are_parsed_as_they_are() {
    let (doc, root) = parsed(r#"{"friends":"none","name":{"first":"A"},"id":[1,[2]]}"#, &user());
    assert_eq!(doc.to_string(root), r#"{"id":[1,[2]],"name":{"first":"A"},"friends":"none"}"#);
    for text in ["3", "null", "\"x\"", "[1,{\"id\":2}]", " [ [ { } ] ] "] {
        let (doc, root) = parsed(text, &user());
        assert_eq!(doc.to_string(root), text.replace(' ', ""));
    }
}

#[test]
fn a_catch_all_keeps_other_members() {
    let ShapeSpec::Object(mut object) = user() else { unreachable!() };
    object.others = Others::Keep;
    let spec = ShapeSpec::Object(object);
    let (mut doc, root) = parsed(r#"{"x":1,"id":2,"y":{"z":[3]},"x":4}"#, &spec);
    assert_eq!(doc.raw(doc.get(root, "x").unwrap()), "4");
    assert_eq!(doc.to_string(doc.get(root, "y").unwrap()), r#"{"z":[3]}"#);
    let keys: Vec<_> = doc.members(root).map(|(key, _)| key.into_owned()).collect();
    assert_eq!(keys, ["id", "x", "y", "x"]);
    let five = doc.new_raw("5").unwrap();
    doc.set(root, "x", five);
    doc.set(root, "w", five);
    assert!(doc.remove(root, "y") && doc.remove(root, "id") && !doc.remove(root, "id"));
    assert_eq!(doc.to_string(root), r#"{"x":5,"w":5}"#);
    assert_eq!(doc.len(root), 2);
}

#[test]
fn the_type_name_selects_wherever_it_is() {
    let node = |fields: &[&str]| ObjectSpec {
        fields: fields.iter().map(|key| ((*key).into(), ShapeSpec::Any)).collect(),
        ..ObjectSpec::default()
    };
    let spec = ShapeSpec::Object(ObjectSpec {
        alternatives: vec![
            ("Book".into(), node(&["__typename", "pages"])),
            ("Film".into(), node(&["__typename", "length"])),
        ],
        ..node(&["__typename"])
    });
    let long = "x".repeat(5000);
    for (text, expected) in [
        (
            r#"{"__typename":"Book","pages":1,"length":2}"#.to_owned(),
            r#"{"__typename":"Book","pages":1}"#,
        ),
        (
            r#"{"pages":1,"length":{"a":["\n"]} , "__typename" : "Film"}"#.to_owned(),
            r#"{"length":{"a":["\n"]},"__typename":"Film"}"#,
        ),
        (
            r#"{"pages":1,"__typename":"\u0042ook"}"#.to_owned(),
            r#"{"__typename":"\u0042ook","pages":1}"#,
        ),
        (r#"{"pages":1,"__typename":"Song"}"#.to_owned(), r#"{"__typename":"Song"}"#),
        (r#"{"pages":1,"__typename":5}"#.to_owned(), r#"{"__typename":5}"#),
        (r#"{"pages":1}"#.to_owned(), "{}"),
        // The lookahead leaves the scanned text to the parser.
        (
            format!(r#"{{"pages":1,"x":"{long}\n","y":"\n","__typename":"Book"}}"#),
            r#"{"__typename":"Book","pages":1}"#,
        ),
    ] {
        let mut doc = Document::new();
        let root = doc.parse_shaped(text.clone(), &Shape::new(&spec)).unwrap();
        let value: Value = serde_json::from_str(&doc.to_string(root)).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(expected).unwrap(), "{text}");
    }
}

#[test]
fn shaped_and_general_values_merge_either_way() {
    let shape = Shape::new(&user());
    let texts = [
        r#"{"id":1,"friends":[{"id":2},{"id":3}]}"#,
        r#"{"name":"A","friends":[{"id":4},{"id":5}],"more":true}"#,
    ];
    for (left, right, expected) in [
        (true, true, r#"{"friends":[{"id":4},{"id":5}],"id":1,"name":"A"}"#),
        (true, false, r#"{"friends":[{"id":4},{"id":5}],"id":1,"more":true,"name":"A"}"#),
        (false, true, r#"{"friends":[{"id":4},{"id":5}],"id":1,"name":"A"}"#),
    ] {
        let mut doc = Document::new();
        let mut parse = |text: &'static str, shaped: bool| {
            if shaped { doc.parse_shaped(text, &shape) } else { doc.parse(text) }.unwrap()
        };
        let (target, source) = (parse(texts[0], left), parse(texts[1], right));
        doc.merge(target, source).unwrap();
        let value: Value = serde_json::from_str(&doc.to_string(target)).unwrap();
        // The order of members depends on the side that was there first, and does not matter here.
        assert_eq!(value, serde_json::from_str::<Value>(expected).unwrap());
    }
}

#[test]
fn a_text_is_refused_exactly_when_general_parsing_refuses_it() {
    let shape = Shape::new(&user());
    let whole = r#"{"id":1,"x":[{"y":"\n"},tru],"friends":[{"id":2,"z":-1.5e3}],"name":"A"}"#;
    let mut doc = Document::with_depth_limit(3);
    for text in [whole, &whole.replace("tru", "true")] {
        for end in 0..=text.len() {
            for insert in ["", "}", "]", ",", "\"", "0", "[[", "\\"] {
                let text = format!("{}{insert}{}", &text[..end], &text[end..]);
                for text in [text.clone(), text[..end].to_owned()] {
                    let general = doc.parse(text.clone()).map(|_| ());
                    let shaped = doc.parse_shaped(text.clone(), &shape).map(|_| ());
                    assert_eq!(general, shaped, "{text}");
                    doc.reset();
                }
            }
        }
    }
}

/// Arbitrary JSON over few keys.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c\"\\\\\n€]{0,10}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            (prop::sample::select(vec!["A", "B", "C"]), any::<i8>(), any::<bool>()).prop_map(
                |(name, id, flat)| if flat {
                    serde_json::json!({"__typename": name, "a": id, "b": [id]})
                } else {
                    serde_json::json!({"__typename": name, "a": {"a": {"__typename": name, "a": id}}, "longer_key": [{"b": 1}]})
                }
            ),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d]",
        "[a-b\"é]{0,3}",
        Just("longer_key".to_owned()),
        Just("longer_kex".to_owned())
    ]
}

fn spec() -> impl Strategy<Value = ShapeSpec> {
    let object = |fields: Vec<(String, ShapeSpec)>, keep: bool| ObjectSpec {
        fields: fields.into_iter().map(|(key, spec)| (key.into(), spec)).collect(),
        others: if keep { Others::Keep } else { Others::Skip },
        alternatives: Vec::new(),
    };
    Just(ShapeSpec::Any).prop_recursive(4, 40, 5, move |inner| {
        let fields = move || prop::collection::vec((key(), inner.clone()), 0..5);
        (fields(), any::<bool>(), prop::collection::vec((fields(), any::<bool>()), 0..3)).prop_map(
            move |(fields, keep, others)| {
                let mut spec = object(fields, keep);
                spec.alternatives = others
                    .into_iter()
                    .zip(["A", "B"])
                    .map(|((fields, keep), name)| (name.into(), object(fields, keep)))
                    .collect();
                ShapeSpec::Object(spec)
            },
        )
    })
}

/// The model: the part of a value that a spec selects.
fn selected(value: &Value, spec: &ShapeSpec) -> Value {
    let ShapeSpec::Object(mut object) = spec.clone() else { return value.clone() };
    match value {
        Value::Array(array) => array.iter().map(|element| selected(element, spec)).collect(),
        Value::Object(members) => {
            if let Some(Value::String(name)) = members.get("__typename")
                && let Some((_, chosen)) =
                    object.alternatives.iter().find(|(own, _)| **own == **name)
            {
                object = chosen.clone();
            }
            let mut left = Map::new();
            for (key, member) in members {
                match object.fields.iter().find(|(own, _)| **own == **key) {
                    Some((_, nested)) => _ = left.insert(key.clone(), selected(member, nested)),
                    None if object.others == Others::Keep => {
                        left.insert(key.clone(), member.clone());
                    }
                    None => {}
                }
            }
            left.into()
        }
        scalar => scalar.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; `runs` goes the same ways")]
    fn shaped_equals_general_then_selected(
        value in json(), spec in spec(), source in json(), level in 0usize..4, pretty: bool, far: bool,
    ) {
        let mut text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        // Text far from the end is read by other loops than text near it.
        text.push_str(&" ".repeat(if far { 200 } else { 0 }));
        let mut doc = Document::new();
        doc.scan_with_level(level);
        let shape = Shape::new(&spec);
        let root = doc.parse_shaped(text, &shape).unwrap();
        let expected = selected(&value, &spec);
        let printed: Value = serde_json::from_str(&doc.to_string(root)).unwrap();
        prop_assert_eq!(&printed, &expected);
        let general = doc.parse(expected.to_string()).unwrap();
        prop_assert_eq!(doc.len(root), doc.len(general));

        // Shaped values merge like generic ones.
        for shaped in [false, true] {
            let text = source.to_string();
            let more = if shaped { doc.parse_shaped(text, &shape) } else { doc.parse(text) }.unwrap();
            let plain = doc.parse(doc.to_string(more)).unwrap();
            let (left, right) = (doc.merge(root, more), doc.merge(general, plain));
            prop_assert_eq!(left.is_ok(), right.is_ok());
            if left.is_err() {
                return Ok(());
            }
            let left: Value = serde_json::from_str(&doc.to_string(root)).unwrap();
            let right: Value = serde_json::from_str(&doc.to_string(general)).unwrap();
            prop_assert_eq!(left, right);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes")]
    fn a_text_that_is_taken_over_equals_one_that_is_parsed(
        value in json(), spec in spec(), before in json(), other in spec(), more in json(),
    ) {
        let (shape, other) = (Shape::new(&spec), Shape::new(&other));
        let mut first = Document::new();
        first.parse_shaped(before.to_string(), &other).unwrap();
        let (root, shared) = first.parse_shaped_to_share(value.to_string(), &shape).unwrap();
        let Some(shared) = shared else { return Ok(()) };
        prop_assert!(shared.bytes() >= value.to_string().len());

        let [mut parsing, mut taking] = [Document::new(), Document::new()];
        for doc in [&mut parsing, &mut taking] {
            doc.parse(more.to_string()).unwrap();
            doc.parse_shaped(before.to_string(), &other).unwrap();
        }
        let parsed = parsing.parse_shaped(value.to_string(), &shape).unwrap();
        let taken = taking.append(&shared, &shape).unwrap().unwrap();
        prop_assert_eq!(taken, parsed);
        prop_assert_eq!(taking.to_string(taken), first.to_string(root));

        // It is changed like a parsed one, and the shared text stays as it is.
        let merged = [(&mut parsing, parsed), (&mut taking, taken)].map(|(doc, root)| {
            let more = doc.parse_shaped(more.to_string(), &shape).unwrap();
            let merged = doc.merge(root, more).is_ok();
            (merged, doc.to_string(root))
        });
        prop_assert_eq!(&merged[0], &merged[1]);
        let again = taking.append(&shared, &shape).unwrap().unwrap();
        prop_assert_eq!(taking.to_string(again), first.to_string(root));
    }
}

#[test]
fn only_texts_that_the_shape_knows_are_shared() {
    let shape = Shape::new(&user());
    for (text, is_shared) in [
        (r#"{"id":1,"name":"A","no":{"b":2},"friends":[{"id":2},null,[{"id":[3,[4]]}]]}"#, true),
        (r#"{"friends":[{"id":2},{}],"id":null}"#, true),
        ("[1]", true),
        (r#"{"id":{"x":1}}"#, false),
        (r#"{"id":[{}]}"#, false),
    ] {
        let mut doc = Document::new();
        let (root, shared) = doc.parse_shaped_to_share(text, &shape).unwrap();
        assert_eq!(shared.is_some(), is_shared, "{text}");
        if let Some(shared) = shared {
            let mut other = Document::new();
            other.parse("[[1,2],{\"a\":[[3]]}]").unwrap();
            other.parse_shaped("{\"id\":[1,[2]]}", &Shape::new(&user())).unwrap();
            let taken = other.append(&shared, &shape).unwrap().unwrap();
            assert_eq!(other.to_string(taken), doc.to_string(root));
            assert_eq!(other.slot(taken, 1).is_some(), doc.slot(root, 1).is_some());
            // An equal shape is another one.
            assert_eq!(other.append(&shared, &Shape::new(&user())), Ok(None));
        }
    }
}

/// A person with friends, who are persons; and the response that holds one.
fn people() -> Shape {
    let object = |fields: &[(&str, Option<usize>)]| LinkedObject {
        fields: fields.iter().map(|&(key, object)| (key.into(), object)).collect(),
    };
    Shape::linked(&[
        object(&[("id", None), ("friends", Some(0)), ("name", None), ("raw", Some(9))]),
        object(&[("data", Some(0))]),
    ])
}

#[test]
fn linked_objects_may_stand_inside_themselves() {
    let text = r#"{"data":{"name":"A","no":1,"friends":[{"id":2,"friends":[{"id":3,"no":2}]}]}}"#;
    let mut doc = Document::new();
    let shape = people();
    let root = doc.parse_shaped(text, &shape.at(1)).unwrap();
    let person = doc.slots(root, &shape, 1).unwrap().get(0).unwrap();
    let slots = doc.slots(person, &shape, 0).unwrap();
    assert_eq!((slots.get(0), slots.get(4)), (None, None));
    assert_eq!(doc.raw(slots.get(2).unwrap()), "\"A\"");
    assert!(doc.slots(person, &shape, 1).is_none());
    assert!(doc.slots(person, &people(), 0).is_none(), "the same, but not that shape");
    assert_eq!(
        doc.to_string(root),
        r#"{"data":{"friends":[{"id":2,"friends":[{"id":3}]}],"name":"A"}}"#
    );
    assert_eq!(doc.get_near(person, "name", 2), doc.get(person, "name"));
    assert_eq!(doc.get_near(person, "name", 0), doc.get(person, "name"));
    assert_eq!(doc.get_near(person, "no", 7), None);
    let general = doc.parse(r#"{"name":"G"}"#).unwrap();
    assert_eq!(doc.get_near(general, "name", 2), doc.get(general, "name"));
    assert!(doc.slots(general, &shape, 0).is_none());
    let anything = doc.parse_shaped(r#"{"x":[]}"#, &shape.at(2)).unwrap();
    assert_eq!(doc.to_string(anything), r#"{"x":[]}"#);
}

#[test]
fn slots_take_no_more_room_than_the_text_allows() {
    let many = LinkedObject { fields: (0..1000).map(|i| (format!("k{i}").into(), None)).collect() };
    let list = LinkedObject { fields: vec![("list".into(), Some(0))] };
    let shape = Shape::linked(&[many, list]);
    let text = format!("{{\"list\":[{}{{\"k999\":1}}]}}", "{},".repeat(20_000));
    let mut doc = Document::new();
    let root = doc.parse_shaped(text.clone(), &shape.at(1)).unwrap();
    let list = doc.get(root, "list").unwrap();
    assert!(doc.has_slots(doc.at(list, 0).unwrap()));
    assert!(!doc.has_slots(doc.at(list, 20_000).unwrap()));
    assert_eq!(doc.to_string(root), text);
    // Generic and shaped objects are merged and read alike.
    let more = doc.parse_shaped(r#"{"k999":2,"k1":3}"#, &shape).unwrap();
    doc.merge(doc.at(list, 20_000).unwrap(), more).unwrap();
    assert_eq!(doc.to_string(doc.at(list, 20_000).unwrap()), r#"{"k999":2,"k1":3}"#);
}

#[test]
fn filling_keeps_values_where_null_would_take_their_place() {
    let shape = people();
    let left = r#"{"id":1,"friends":[{"id":2},null],"name":null}"#;
    let right = r#"{"id":null,"friends":[null,{"id":3}],"name":"A","raw":null}"#;
    let expected = r#"{"id":1,"friends":[{"id":2},{"id":3}],"name":"A","raw":null}"#;
    for (shaped_left, shaped_right) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let mut doc = Document::new();
        let mut parse = |text: &'static str, shaped| match shaped {
            true => doc.parse_shaped(text, &shape).unwrap(),
            false => doc.parse(text).unwrap(),
        };
        let (target, source) = (parse(left, shaped_left), parse(right, shaped_right));
        doc.merge_filling(target, source).unwrap();
        assert_eq!(doc.to_string(target), expected, "{shaped_left} {shaped_right}");
    }
}

//! Reading, editing, linking and merging, by example.

#![allow(clippy::unwrap_used)]

use astjson::{Document, Kind, MergeError, NodeId, ParseErrorKind, PathSegment};

fn parsed(text: &str) -> (Document, NodeId) {
    let mut doc = Document::new();
    let root = doc.parse(text.to_owned()).unwrap();
    (doc, root)
}

#[test]
fn values_are_read_by_key_index_and_path() {
    let (doc, root) =
        parsed(r#" {"a": [1, {"b": "x\u0041"}, [], null], "c\n": true, "n": -12.50e3, "i": 42} "#);
    assert_eq!(doc.kind(root), Kind::Object);
    assert_eq!(doc.len(root), 4);
    let a = doc.get(root, "a").unwrap();
    assert_eq!(doc.len(a), 4);
    let b = doc.get(doc.at(a, 1).unwrap(), "b").unwrap();
    assert_eq!(doc.as_str(b).unwrap(), "xA");
    assert!(doc.str_eq(b, "xA") && !doc.str_eq(b, "x\\u0041"));
    assert_eq!(doc.raw(b), r#""x\u0041""#);
    assert!(doc.is_null(doc.at(a, 3).unwrap()));
    assert_eq!(doc.at(a, 4), None);
    assert_eq!(doc.as_bool(doc.get(root, "c\n").unwrap()), Some(true));
    assert_eq!(doc.raw(doc.get(root, "n").unwrap()), "-12.50e3");
    assert_eq!(doc.as_f64(doc.get(root, "n").unwrap()), Some(-12500.0));
    assert_eq!(doc.as_i64(doc.get(root, "i").unwrap()), Some(42));
    assert_eq!(doc.get(root, "missing"), None);
    let path: [PathSegment<'_>; 3] = ["a".into(), 1.into(), "b".into()];
    assert_eq!(doc.get_path(root, &path), Some(b));
    let keys: Vec<_> = doc.members(root).map(|(key, _)| key.into_owned()).collect();
    assert_eq!(keys, ["a", "c\n", "n", "i"]);
}

#[test]
fn the_last_of_duplicate_keys_counts() {
    let (mut doc, root) = parsed(r#"{"a":1,"\u0061":2,"b":3,"a":{"c":4}}"#);
    assert_eq!(doc.to_string(doc.get(root, "a").unwrap()), r#"{"c":4}"#);
    let other = doc.parse(r#"{"a":1,"a":{"d":5},"a":{"e":6}}"#).unwrap();
    doc.merge(root, other).unwrap();
    assert_eq!(doc.to_string(doc.get(root, "a").unwrap()), r#"{"c":4,"e":6}"#);
    let six = doc.new_raw("6").unwrap();
    doc.set(root, "b", six);
    assert_eq!(doc.to_string(root), r#"{"a":{"c":4,"e":6},"b":6}"#);
}

#[test]
fn members_are_set_replaced_and_removed_in_order() {
    let (mut doc, root) = parsed(r#"{"a":1,"b":[2],"c":{"d":3}}"#);
    let text = doc.new_string("say \"hi\"\n");
    doc.set(root, "b", text);
    let b = doc.get(root, "b").unwrap();
    assert_eq!(doc.as_str(b).unwrap(), "say \"hi\"\n");
    doc.set(root, "new \"key\"", b);
    assert!(doc.get(root, "new \"key\"").is_some());
    assert!(doc.remove(root, "a"));
    assert!(!doc.remove(root, "a"));
    assert_eq!(
        doc.to_string(root),
        r#"{"b":"say \"hi\"\n","c":{"d":3},"new \"key\"":"say \"hi\"\n"}"#
    );
}

#[test]
fn arrays_grow_from_any_state() {
    for start in ["[]", "[1,2]", "[[1],{\"a\":2}]"] {
        let mut doc = Document::new();
        let root = doc.parse(start).unwrap();
        let before = doc.len(root);
        for i in 0..20 {
            let n = doc.new_raw(&i.to_string()).unwrap();
            doc.push(root, n);
        }
        assert_eq!(doc.len(root), before + 20);
        assert_eq!(doc.elements(root).len(), before + 20);
        let last: Vec<_> =
            doc.elements(root).skip(before).map(|n| doc.as_i64(n).unwrap()).collect();
        assert_eq!(last, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_linked_value_changes_at_all_its_places_but_replacing_a_member_does_not_touch_it() {
    let mut doc = Document::new();
    let list = doc.new_array();
    let entity = doc.parse(r#"{"id":1}"#).unwrap();
    for _ in 0..3 {
        let place = doc.new_object();
        doc.set(place, "entity", entity);
        doc.push(list, place);
    }
    let more = doc.parse(r#"{"name":"x"}"#).unwrap();
    doc.merge(entity, more).unwrap();
    let second = doc.at(list, 1).unwrap();
    let five = doc.new_raw("5").unwrap();
    doc.set(second, "entity", five);
    assert_eq!(
        doc.to_string(list),
        r#"[{"entity":{"id":1,"name":"x"}},{"entity":5},{"entity":{"id":1,"name":"x"}}]"#
    );
    doc.replace_with_null(entity);
    assert_eq!(doc.to_string(list), r#"[{"entity":null},{"entity":5},{"entity":null}]"#);
}

#[test]
fn merging_over_a_scalar_replaces_it_in_place() {
    let (mut doc, root) = parsed(r#"{"a":null,"b":[1,2]}"#);
    let source = doc.parse(r#"{"a":{"x":[{}]},"b":[{"y":1},3]}"#).unwrap();
    doc.merge(root, source).unwrap();
    assert_eq!(doc.to_string(root), r#"{"a":{"x":[{}]},"b":[{"y":1},3]}"#);

    let (mut doc, root) = parsed(r#"[null,1]"#);
    let first = doc.at(root, 0).unwrap();
    let source = doc.parse(r#"{"x":{"y":1}}"#).unwrap();
    doc.merge(first, source).unwrap();
    assert_eq!(doc.to_string(root), r#"[{"x":{"y":1}},1]"#);
    assert_eq!(doc.len(first), 1);
    let more = doc.parse(r#"{"x":{"z":2}}"#).unwrap();
    doc.merge(first, more).unwrap();
    assert_eq!(doc.to_string(source), r#"{"x":{"y":1,"z":2}}"#);
}

#[test]
fn arrays_of_different_length_do_not_merge() {
    let (mut doc, root) = parsed(r#"{"a":[1,2]}"#);
    let source = doc.parse(r#"{"a":[1]}"#).unwrap();
    assert_eq!(doc.merge(root, source), Err(MergeError::ArrayLength { target: 2, source: 1 }));
}

#[test]
fn merge_at_a_path_makes_missing_objects() {
    let (mut doc, root) = parsed(r#"{"a":[{"b":null}]}"#);
    let source = doc.parse(r#"{"x":1}"#).unwrap();
    doc.merge_at(root, &["a".into(), 0.into(), "b".into(), "c".into()], source).unwrap();
    assert_eq!(doc.to_string(root), r#"{"a":[{"b":{"c":{"x":1}}}]}"#);
    assert_eq!(
        doc.merge_at(root, &["a".into(), 1.into()], source),
        Err(MergeError::NoSuchPath { segment: 1 })
    );
}

#[test]
fn select_flattens_lists_and_skips_nulls() {
    let (doc, root) = parsed(
        r#"{"p":[{"r":[{"a":{"id":1}},{"a":null}]},null,{"r":[]},{},{"r":[[{"a":{"id":2}}]]}]}"#,
    );
    let mut found = Vec::new();
    doc.select_into(root, &["p", "r", "a"], &mut found);
    let found: Vec<_> = found.iter().map(|n| doc.to_string(*n)).collect();
    assert_eq!(found, [r#"{"id":1}"#, r#"{"id":2}"#]);
}

#[test]
fn values_that_contain_themselves_neither_hang_nor_overflow() {
    let mut doc = Document::new();
    let (left, right) = (doc.new_object(), doc.new_object());
    for object in [left, right] {
        let array = doc.new_array();
        doc.push(array, object);
        doc.set(object, "self", array);
    }
    assert_eq!(doc.to_string(left), r#"{"self":[null]}"#);
    assert_eq!(doc.merge(left, right), Err(MergeError::TooDeep));
}

#[test]
fn deep_texts_are_refused_or_handled_without_recursion() {
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let mut doc = Document::new();
    assert!(doc.parse(deep(512)).is_ok());
    let error = doc.parse(deep(513)).unwrap_err();
    assert_eq!((error.kind, error.offset), (ParseErrorKind::TooDeep, 512));
    let levels = if cfg!(miri) { 600 } else { 1_000_000 };
    let mut doc = Document::with_depth_limit(levels as u32);
    let root = doc.parse(deep(levels)).unwrap();
    assert!(doc.to_string(root).len() >= levels.min(4096));
}

#[test]
fn foreign_and_stale_ids_read_as_some_value_and_do_not_panic() {
    let mut doc = Document::new();
    let array = doc.parse("[1,[2],{\"a\":3}]").unwrap();
    let last = doc.at(array, 2).unwrap();
    doc.reset();
    assert!(doc.is_null(last));
    doc.set(last, "a", array);
    doc.push(last, array);
    doc.replace_with_null(last);
    assert_eq!(doc.to_string(last), "null");
}

#[test]
fn printing_works_into_any_buffer_and_indented() {
    let (doc, root) = parsed(r#"{"a":[1,{},[]],"b":{"c":"d"}}"#);
    let mut bytes = bytes::BytesMut::new();
    doc.print(root, &mut bytes);
    assert_eq!(bytes, r#"{"a":[1,{},[]],"b":{"c":"d"}}"#);
    let mut pretty = Vec::new();
    doc.print_pretty(root, &mut pretty);
    assert_eq!(
        String::from_utf8(pretty).unwrap(),
        "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}"
    );
}

#[test]
fn new_raw_takes_scalars_only() {
    let mut doc = Document::new();
    for text in ["null", "true", "false", "1e3", "-0", "\"a\\u0062\"", "\"\""] {
        let n = doc.new_raw(&format!(" {text}\n")).unwrap();
        assert_eq!(doc.raw(n), text);
    }
    for text in ["", " ", "{}", "[1]", "1 2", "\"a", "nul", "01"] {
        assert!(doc.new_raw(text).is_err(), "{text}");
    }
}

#[test]
fn keys_are_distinguished_by_every_byte() {
    // Miri is slow and tests samples only.
    for length in (0..=9).step_by(if cfg!(miri) { 4 } else { 1 }) {
        let key = "k".repeat(length);
        let mut others: Vec<String> =
            (0..length).map(|place| format!("{}x{}", &key[..place], &key[place + 1..])).collect();
        others.extend([format!("{key}k"), format!("{key}\\u006b")]);
        if length > 0 {
            others.push(key[1..].to_owned());
        }
        for other in others {
            // In one text and in two, alone and among other members, so that each way of merging is
            // covered.
            for beside in ["", r#","beside":1"#, r#","b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7"#] {
                let (mut doc, root) = parsed(&format!(r#"{{"{key}":1{beside}}}"#));
                let more = doc.parse(format!(r#"{{"{other}":{{}}}}"#)).unwrap();
                doc.merge(root, more).unwrap();
                let expected = format!(r#"{{"{key}":1{beside},"{other}":{{}}}}"#);
                assert_eq!(doc.to_string(root), expected);
                let again = doc.parse(format!(r#"{{"{key}":2}}"#)).unwrap();
                doc.merge(root, again).unwrap();
                assert_eq!(doc.to_string(root), expected.replacen("1", "2", 1));
                assert_eq!(doc.as_i64(doc.get(root, &key).unwrap()), Some(2));
            }
        }
    }
}

#[test]
fn objects_of_one_member_merge_as_all_do() {
    for (left, right, expected) in [
        // The same key, however it is written; the spelling of the left side stays.
        (r#"{"a":{"b":1}}"#, r#"{"\u0061":{"c":2}}"#, r#"{"a":{"b":1,"c":2}}"#),
        (r#"{"\u0061":{"b":1}}"#, r#"{"a":{"\u0062":2}}"#, r#"{"\u0061":{"b":2}}"#),
        (r#"{"a\n":1}"#, r#"{"an":2}"#, r#"{"a\n":1,"an":2}"#),
        // The last of duplicate keys counts, on either side.
        (r#"{"a":1,"a":{}}"#, r#"{"a":{"b":2}}"#, r#"{"a":{"b":2}}"#),
        (r#"{"a":{}}"#, r#"{"a":1,"a":{"b":2}}"#, r#"{"a":{"b":2}}"#),
        (r#"{"a":{"x":{},"x":{"y":1}}}"#, r#"{"a":{"x":{"z":2}}}"#, r#"{"a":{"x":{"y":1,"z":2}}}"#),
        // Arrays are merged element by element, and must have the same length.
        (r#"{"a":[{"b":1},2]}"#, r#"{"a":[{"c":3},{}]}"#, r#"{"a":[{"b":1,"c":3},{}]}"#),
        (r#"{"a":[]}"#, r#"{"a":[]}"#, r#"{"a":[]}"#),
        // Values of different kinds are replaced.
        (r#"{"a":{"b":1}}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"a":[1]}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":null}"#, r#"{"a":null}"#),
        ("{}", r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
        (r#"{"a":{"b":1}}"#, "{}", r#"{"a":{"b":1}}"#),
    ] {
        let (mut doc, target) = parsed(left);
        let source = doc.parse(right).unwrap();
        doc.merge(target, source).unwrap();
        assert_eq!(doc.to_string(target), expected, "{left} {right}");
        // Merging the same again changes nothing.
        let again = doc.parse(right).unwrap();
        doc.merge(target, again).unwrap();
        assert_eq!(doc.to_string(target), expected, "{left} {right}");
    }
    let (mut doc, target) = parsed(r#"{"a":[1]}"#);
    let source = doc.parse(r#"{"a":[1,2]}"#).unwrap();
    let error = doc.merge(target, source).unwrap_err();
    assert_eq!(error, MergeError::ArrayLength { target: 1, source: 2 });
}

#[test]
fn merging_objects_of_one_member_that_contain_themselves_ends() {
    // A value merged into itself does not change.
    let (mut doc, root) = parsed(r#"{"a":{"b":{}}}"#);
    doc.merge(root, root).unwrap();
    assert_eq!(doc.to_string(root), r#"{"a":{"b":{}}}"#);
    // The merge of two cycles of different length would never end.
    let (mut doc, left) = parsed(r#"{"a":{}}"#);
    let right = doc.parse(r#"{"a":{"a":{}}}"#).unwrap();
    let (inner, innermost) = (doc.get(left, "a").unwrap(), {
        let inner = doc.get(right, "a").unwrap();
        doc.get(inner, "a").unwrap()
    });
    doc.set(inner, "a", left);
    doc.set(innermost, "a", right);
    assert_eq!(doc.merge(left, right), Err(MergeError::TooDeep));
    // A cycle on the left side only is followed as far as the right side reaches.
    let plain = doc.parse(r#"{"a":{"a":{"a":{"b":1}}}}"#).unwrap();
    doc.merge(left, plain).unwrap();
    assert_eq!(doc.to_string(doc.get(inner, "b").unwrap()), "1");
}

//! Most of a text is read many bytes at a time, its end byte by byte. Both must give the same
//! result: these tests read texts as they are, and with so much space after them that their end is
//! far.

#![allow(clippy::unwrap_used)]

use astjson::{Document, Others, Shape, ShapeSpec};

/// More bytes than are scanned together.
const FAR: usize = 300;

/// Texts that cover each way in which members, objects and lists begin, follow each other and end.
fn texts() -> Vec<String> {
    let values = [
        "1",
        "-1",
        "1.5",
        "12345678901234567890",
        "true",
        "null",
        r#""""#,
        r#""text""#,
        r#""a\"b""#,
        "{}",
        "[]",
        "[1,2]",
        r#"{"b":1}"#,
        r#"{"b":{"c":1}}"#,
        r#"{"b":{"c":{}},"d":2}"#,
        r#"[{"b":1}]"#,
        r#"[{"b":1},{"b":2,"c":3},{}]"#,
        r#"[{"b":1},2]"#,
        r#"[2,{"b":1}]"#,
        r#"[[{"b":1}],[{"b":2},{"b":3}]]"#,
        r#"[{"b":[{"c":1},{"c":[]}],"d":{}}]"#,
        r#"[{"b":{"c":[{"d":[{"e":1}]}]}}]"#,
        r#"[{"b":{"c":[{"d":[{"e":1}]}]}},{"c":0}]"#,
    ];
    let mut texts = Vec::new();
    for value in values {
        texts.push(value.to_owned());
        for other in [values[0], values[7], values[12], values[16]] {
            texts.push(format!(r#"{{"a":{value},"b":{other}}}"#));
            texts.push(format!(r#"{{"b":{other},"a":{value}}}"#));
            texts.push(format!(r#"{{"a":{{"b":{other},"a":{value}}}}}"#));
            texts.push(format!(r#"[{{"a":{value}}},{{"b":{other}}}]"#));
        }
    }
    texts.push(format!(r#"{{"a":"{}","{}":1}}"#, "x".repeat(500), "k".repeat(200)));
    texts
}

/// The same text with space wherever it is allowed.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        let punctuation = !in_string && "{}[]:,".contains(c);
        spaced.push_str(if punctuation { " " } else { "" });
        spaced.push(c);
        spaced.push_str(if punctuation { "\n" } else { "" });
        in_string ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    spaced
}

fn shape() -> Shape {
    let inner = |fields: [(&str, ShapeSpec); 2]| ShapeSpec::object(fields);
    let leaf = inner([("b", ShapeSpec::Any), ("c", ShapeSpec::Any)]);
    let below = inner([("b", leaf.clone()), ("c", leaf)]);
    let ShapeSpec::Object(mut object) = inner([("b", below.clone()), ("a", below)]) else {
        unreachable!()
    };
    object.others = Others::Keep;
    Shape::new(&ShapeSpec::Object(object))
}

fn levels() -> usize {
    let mut document = Document::new();
    (0..).take_while(|&level| document.scan_with_level(level)).count()
}

#[test]
fn texts_are_read_the_same_near_their_end_and_far_from_it() {
    let (shape, space) = (shape(), " ".repeat(FAR));
    for level in 0..levels() {
        let mut document = Document::new();
        document.scan_with_level(level);
        for text in texts().into_iter().step_by(if cfg!(miri) { 7 } else { 1 }) {
            document.reset();
            let shaped = document.parse_shaped(text.clone(), &shape).unwrap();
            let shaped = document.to_string(shaped);
            for variant in [text.clone(), format!("{text}{space}"), spaced(&text)] {
                let root = document.parse(variant.clone()).unwrap();
                assert_eq!(document.to_string(root), text);
                let root = document.parse_shaped(variant, &shape).unwrap();
                assert_eq!(document.to_string(root), shaped, "{text}");
                assert_eq!(
                    document.len(root),
                    document.members(root).count().max(document.elements(root).count())
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of texts take Miri a quarter of an hour")]
fn a_text_with_one_byte_changed_is_refused_near_its_end_exactly_when_it_is_far_from_it() {
    let (shape, space) = (shape(), " ".repeat(FAR));
    let mut document = Document::new();
    for text in texts().into_iter().step_by(5) {
        for place in 0..text.len().min(100) {
            for byte in *b"\"{}[],: 0.x\\" {
                let mut changed = text.clone().into_bytes();
                changed[place] = byte;
                let far = [&changed[..], space.as_bytes()].concat();
                document.reset();
                let near = document.parse(changed.clone()).is_ok();
                let accepted = serde_json::from_slice::<serde_json::Value>(&changed).is_ok();
                assert_eq!(near, accepted, "{}", String::from_utf8_lossy(&changed));
                let same = [
                    document.parse(far.clone()).is_ok(),
                    document.parse_shaped(changed.clone(), &shape).is_ok(),
                    document.parse_shaped(far, &shape).is_ok(),
                ];
                assert_eq!(same, [near; 3], "{}", String::from_utf8_lossy(&changed));
            }
        }
    }
}

#[test]
fn the_depth_limit_is_the_same_near_the_end_and_far_from_it() {
    let (shape, space) = (shape(), " ".repeat(FAR));
    for (text, depth) in [
        (r#"{"a":{"b":{"c":1}}}"#, 3),
        (r#"{"a":[{"b":1}]}"#, 3),
        (r#"[{"a":1},{"a":{"b":[{}]}},{"b":1}]"#, 5),
        (r#"{"a":{"b":{}},"b":{"b":[]},"c":{"d":1}}"#, 3),
    ] {
        for limit in 0..7 {
            let mut document = Document::with_depth_limit(limit);
            let far = format!("{text}{space}");
            let parsed = [
                document.parse(text).is_ok(),
                document.parse(far.clone()).is_ok(),
                document.parse_shaped(text, &shape).is_ok(),
                document.parse_shaped(far, &shape).is_ok(),
            ];
            assert_eq!(parsed, [limit >= depth; 4], "{text} {limit}");
        }
    }
}

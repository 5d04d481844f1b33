//! Parsing by a shape equals parsing and then selecting. The shape is before byte 0xff, as JSON:
//! `true` is any value, an object lists fields; its member `"*"` (any value) keeps other members,
//! its member `"?"` holds an object of alternatives.
#![no_main]

use astjson::{Document, ObjectSpec, Others, Shape, ShapeSpec};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fn spec(value: &Value) -> ShapeSpec {
    match value {
        Value::Object(members) => ShapeSpec::Object(object(members)),
        _ => ShapeSpec::Any,
    }
}

fn object(members: &Map<String, Value>) -> ObjectSpec {
    let fields = members.iter().filter(|(key, _)| !["*", "?"].contains(&key.as_str()));
    let alternatives = members.get("?").and_then(Value::as_object).into_iter().flatten();
    ObjectSpec {
        fields: fields.map(|(key, value)| (key.as_str().into(), spec(value))).collect(),
        others: if members.contains_key("*") { Others::Keep } else { Others::Skip },
        alternatives: alternatives
            .filter_map(|(name, value)| Some((name.as_str().into(), object(value.as_object()?))))
            .collect(),
    }
}

fn selected(value: &Value, spec: &ShapeSpec) -> Value {
    let ShapeSpec::Object(object) = spec else { return value.clone() };
    match value {
        Value::Array(array) => array.iter().map(|element| selected(element, spec)).collect(),
        Value::Object(members) => {
            let mut object = object;
            if let Some(Value::String(name)) = members.get("__typename")
                && let Some((_, chosen)) =
                    object.alternatives.iter().find(|(own, _)| **own == **name)
            {
                object = chosen;
            }
            let mut left = Map::new();
            for (key, member) in members {
                match object.fields.iter().find(|(own, _)| **own == **key && **own != *"\0") {
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

fuzz_target!(|data: &[u8]| {
    let Some(split) = data.iter().position(|&byte| byte == 0xff) else { return };
    let Ok(shape) = serde_json::from_slice::<Value>(&data[..split]) else { return };
    let spec = spec(&shape);
    let text = &data[split + 1..];
    let mut doc = Document::new();
    let shape = Shape::new(&spec);
    let shaped = doc.parse_shaped(text.to_vec(), &shape);
    let general = doc.parse(text.to_vec());
    assert_eq!(shaped.map(|_| ()), general.map(|_| ()));
    // Text far from the end is read by other loops than text near it.
    let far = doc.parse_shaped([text, &[b' '; 200]].concat(), &shape);
    assert_eq!(shaped.ok().map(|n| doc.to_string(n)), far.ok().map(|n| doc.to_string(n)));
    let (Ok(root), Ok(value)) = (shaped, serde_json::from_slice::<Value>(text)) else { return };
    // The first type name selects; the model sees the last of several.
    let typenames = text.windows(10).filter(|window| window == b"__typename").count();
    if typenames > 1 || text.contains(&b'\\') {
        return;
    }
    let printed: Value = serde_json::from_str(&doc.to_string(root)).expect("printed");
    assert_eq!(printed, selected(&value, &spec));
});

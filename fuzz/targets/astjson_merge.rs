//! Merging the texts between bytes 0xff one after the other into the first equals the naive model.
#![no_main]

use astjson::Document;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

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
        (Value::Array(target), Value::Array(source)) if target.len() == source.len() => {
            let pairs = target.into_iter().zip(source);
            Value::Array(pairs.map(|(old, new)| merged(old, new)).collect::<Option<_>>()?)
        }
        (Value::Array(_), Value::Array(_)) => return None,
        (_, source) => source,
    })
}

fuzz_target!(|data: &[u8]| {
    let mut doc = Document::new();
    let mut result: Option<(astjson::NodeId, Value)> = None;
    for text in data.split(|&byte| byte == 0xff).take(8) {
        let (Ok(n), Ok(value)) = (doc.parse(text.to_vec()), serde_json::from_slice::<Value>(text))
        else {
            continue;
        };
        let Some((root, model)) = result.take() else {
            result = Some((n, value));
            continue;
        };
        match (doc.merge(root, n), merged(model, value)) {
            (Ok(()), Some(expected)) => {
                let printed: Value = serde_json::from_str(&doc.to_string(root)).expect("printed");
                assert_eq!(printed, expected);
                result = Some((root, expected));
            }
            (Err(_), None) => return,
            (ours, model) => panic!("{ours:?} but {model:?}"),
        }
    }
});

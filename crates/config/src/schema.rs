//! The JSON Schema of the configuration, generated from the types.

use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Config;

/// Returns the JSON Schema (draft 2020-12) of a configuration file, for editors and other tools.
///
/// Every scalar may also be a text with `${…}`, which is replaced by an environment variable.
pub fn config_schema() -> Value {
    let mut schema = plain_schema().clone();
    allow_references(&mut schema);
    schema
}

/// Returns the schema with the types that values have after variables are expanded. It contains no references, so that
/// it can be walked together with a tree.
pub(super) fn plain_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
        });
        settings.into_generator().into_root_schema_for::<Config>().to_value()
    })
}

/// Allows a reference to a variable in place of a number, a boolean or one of a few words.
fn allow_references(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (name, inner) in object.iter_mut() {
                // These contain values, not schemas.
                if !matches!(name.as_str(), "default" | "examples" | "const" | "enum") {
                    allow_references(inner);
                }
            }
            let needs_no_text = object.contains_key("const")
                || match object.get("type") {
                    Some(Value::String(one)) => !matches!(one.as_str(), "integer" | "boolean"),
                    Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
                    _ => true,
                };
            let is_choice = object.contains_key("oneOf") || object.contains_key("enum");
            if is_choice {
                let mut choice = serde_json::Map::new();
                for name in ["oneOf", "enum", "type"] {
                    if let Some(value) = object.remove(name) {
                        choice.insert(name.to_owned(), value);
                    }
                }
                object.insert("anyOf".into(), json!([choice, reference()]));
            } else if !needs_no_text {
                let kind = object.remove("type");
                let bounds: Vec<_> = ["minimum", "maximum", "format"]
                    .into_iter()
                    .filter_map(|name| object.remove(name).map(|value| (name, value)))
                    .collect();
                let mut typed = serde_json::Map::new();
                typed.extend(kind.map(|kind| ("type".to_owned(), kind)));
                typed.extend(bounds.into_iter().map(|(name, value)| (name.to_owned(), value)));
                object.insert("anyOf".into(), json!([typed, reference()]));
            } else if let Some(pattern) = object.get_mut("pattern") {
                // For a text with a pattern, the reference becomes one more alternative.
                *pattern = json!(format!("{}|\\$\\{{", pattern.as_str().unwrap_or_default()));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(allow_references),
        _ => {}
    }
}

fn reference() -> Value {
    json!({"type": "string", "pattern": "\\$\\{"})
}

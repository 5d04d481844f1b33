//! Facts about one part of the JSON Schema of the configuration: the type, the forms and the words that it allows.

use serde_json::Value;

use super::format::Format;

/// The YAML type that a schema requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Object,
    List,
    Scalar,
}

impl ValueKind {
    /// Returns the name of the type in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "a mapping of keys to values",
            Self::List => "a list",
            Self::Scalar => "a single value",
        }
    }
}

/// Returns the YAML type that a schema requires.
pub(super) fn value_kind(schema: &Value) -> ValueKind {
    match type_name(schema) {
        Some("object") => ValueKind::Object,
        Some("array") => ValueKind::List,
        _ => ValueKind::Scalar,
    }
}

/// Returns the type of a schema. `null` in a list of types only means that the value is optional, and is skipped.
pub(super) fn type_name(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::Array(several) => {
            several.iter().filter_map(Value::as_str).find(|one| *one != "null")
        }
        one => one.as_str(),
    }
}

/// Returns the format of a text, if the schema names one.
pub(super) fn text_format(schema: &Value) -> Option<Format> {
    schema.get("format").and_then(Value::as_str).and_then(Format::from_name)
}

/// True if a mapping must have exactly one of its keys.
pub(super) fn is_one_of(schema: &Value) -> bool {
    schema["minProperties"] == 1 && schema["maxProperties"] == 1
}

/// Returns the allowed words of a value, if it is an enumeration.
pub(super) fn allowed_words(schema: &Value) -> Option<Vec<&str>> {
    let words = match (schema.get("oneOf"), schema.get("enum")) {
        (Some(Value::Array(branches)), _) => {
            branches.iter().filter_map(|branch| branch["const"].as_str()).collect()
        }
        (_, Some(Value::Array(words))) => words.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    Some(words)
}

/// True if the schema or a part of it is a secret.
pub(super) fn contains_secret(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("writeOnly") == Some(&Value::Bool(true))
                || object.values().any(contains_secret)
        }
        Value::Array(items) => items.iter().any(contains_secret),
        _ => false,
    }
}

/// Returns the possible forms of a value, except for `null`.
pub(super) fn forms(schema: &Value) -> Vec<&Value> {
    let branches = schema.get("anyOf").and_then(Value::as_array);
    branches.into_iter().flatten().filter(|branch| branch["type"] != "null").collect()
}

//! The wording of messages: suggestions, lists of names, and values as messages repeat them.

use serde_json::Value;

use super::schema_facts::{
    ValueKind, allowed_words, forms, is_one_of, text_format, type_name, value_kind,
};
use super::secrecy;
use super::source_tree::Scalar;
use crate::diagnostic::shown_text;

/// The number of characters of a value that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// The similarity below which a name is not suggested (Jaro–Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.8;

/// Returns the name among `known` that is most similar to `name`, if one is similar enough.
pub fn find_similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Describes the sections of these paths, as the words that follow "belongs".
pub(super) fn describe_sections(paths: &[String]) -> String {
    let section = |path: &String| match path.rsplit_once('.') {
        Some((section, _)) => format!("in `{section}`"),
        None => "at the top level".to_owned(),
    };
    paths.iter().map(section).collect::<Vec<_>>().join(" or ")
}

/// Returns one sentence that explains how to write a value of this schema.
pub(super) fn how_to_write(schema: &Value) -> String {
    let schema = forms(schema).first().copied().unwrap_or(schema);
    if let Some(format) = text_format(schema) {
        return format.how().to_owned();
    }
    if let Some(words) = allowed_words(schema) {
        return format!("write {}", quote_names(words, "or"));
    }
    match value_kind(schema) {
        ValueKind::Object => match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => {
                let keys = quote_names(properties.keys().map(String::as_str), "and");
                match is_one_of(schema) {
                    true => format!("put one of these keys below it, indented: {keys}"),
                    false => format!("put its keys below it, indented; known here: {keys}"),
                }
            }
            None => "put names below it, indented, and below each its settings".to_owned(),
        },
        ValueKind::List => "put its elements below it, one a line, each after `- `".to_owned(),
        ValueKind::Scalar => match type_name(schema) {
            Some("boolean") => "write `true` or `false`".to_owned(),
            Some("integer") => {
                format!("write a number from {} to {}", schema["minimum"], schema["maximum"])
            }
            _ => "write a text".to_owned(),
        },
    }
}

/// Returns a label that says that a value does not fit. It omits the text if that came from the environment.
pub(super) fn misfit(scalar: &Scalar) -> String {
    if scalar.has_variable {
        "the value of the variable does not fit".to_owned()
    } else {
        format!("{} does not fit", shown_value(scalar))
    }
}

/// Returns a value as a message repeats it. It omits the text if that came from the environment.
pub(super) fn shown_value(scalar: &Scalar) -> String {
    if scalar.has_variable {
        "the value of the variable".to_owned()
    } else if scalar.text.is_empty() {
        "an empty text".to_owned()
    } else {
        format!("`{}`", printable(&shown_text(&secrecy::mask(&scalar.text, &[])).text))
    }
}

/// Returns a text as one line, shortened.
pub(super) fn printable(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// Joins names as in "`a`, `b` and `c`".
pub(super) fn quote_names<'a>(names: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., final_one] => format!("{} {last} {final_one}", first.join(", ")),
    }
}

//! The parts of operations that several commands of `bench` take: variables and headers.

use std::path::Path;

use http::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::commands::read_file;

/// Reads variables from a file (JSON): an object, or a list of objects.
pub(super) fn read_variables(path: &Path) -> Result<Vec<Map<String, Value>>, String> {
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let value: Value =
        serde_json::from_str(&read_file(path)?).map_err(|error| wrong(&error.to_string()))?;
    let sets = match value {
        Value::Array(sets) => sets,
        one => vec![one],
    };
    sets.into_iter()
        .map(|set| match set {
            Value::Object(set) => Ok(set),
            _ => Err(wrong("variables are an object, or a list of objects")),
        })
        .collect()
}

/// Parses a header as it is given on the command line.
pub(super) fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}` is not a header: write name: value"))?;
    header(name.trim(), value.trim())
}

/// Checks the name and the value of a header.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = header_name(name)?;
    // The value is not shown: it may be a secret.
    let value = HeaderValue::from_str(value).map_err(|_| {
        format!("the value of the header `{name}` has characters that are not allowed in headers")
    })?;
    Ok((name, value))
}

/// Checks the name of a header that the load generator does not write itself.
pub(super) fn header_name(name: &str) -> Result<HeaderName, String> {
    match name.parse::<HeaderName>() {
        Ok(name)
            if ["content-length", "transfer-encoding", "host", "connection"]
                .contains(&name.as_str()) =>
        {
            Err(format!("the header `{name}` is written by the load generator"))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(format!("`{name}` is not the name of a header")),
    }
}

//! Members of the `extensions` of a request. Members that the router does not know are skipped and never become a tree.

use std::borrow::Cow;

use astjson::Document;
use bytes::Bytes;

/// The error for a member that is not a string, or for extensions that are not JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAString;

/// Returns the string member `name` of `extensions`, the text of an object; `None` if it is absent or null. Of several
/// members with that name, the last one counts.
///
/// # Errors
/// [`NotAString`].
pub fn string_member(extensions: &Bytes, name: &str) -> Result<Option<String>, NotAString> {
    if extensions.is_empty() {
        return Ok(None);
    }
    let mut found = None;
    let read = astjson::outline_members(extensions, |key, value| {
        if key == name {
            found = Some(value);
        }
    });
    read.map_err(|_| NotAString)?;
    let Some(value) = found.filter(|value| **value != *b"null") else { return Ok(None) };
    if value.first() != Some(&b'"') {
        return Err(NotAString);
    }
    let mut document = Document::new();
    let string = document.parse(value).map_err(|_| NotAString)?;
    document.as_str(string).map(|it| Some(Cow::into_owned(it))).ok_or(NotAString)
}

/// The message to a client that sends the hash of an operation instead of its text. Clients look for these words, and
/// then send the text.
pub const PERSISTED_QUERY_NOT_SUPPORTED: &str = "PersistedQueryNotSupported";

/// True if a request has the hash of an operation, as clients with automatic persisted queries send it.
pub fn has_persisted_query(extensions: &Bytes) -> bool {
    let mut found = false;
    let read = astjson::outline_members(extensions, |key, value| {
        found |= key == "persistedQuery" && value.first() == Some(&b'{');
    });
    read.is_ok() && found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_beside_others_and_must_be_a_string() {
        for (extensions, expected) in [
            ("", Ok(None)),
            ("{}", Ok(None)),
            (r#"{"a":null}"#, Ok(None)),
            (r#"{"b":[1,{"a":"x"}],"a":"\u0041\n"}"#, Ok(Some("A\n"))),
            (r#"{"a":"first","a":"second"}"#, Ok(Some("second"))),
            (r#"{"a":1}"#, Err(NotAString)),
            (r#"{"a":["x"]}"#, Err(NotAString)),
            (r#"{"a":"x""#, Err(NotAString)),
        ] {
            let read = string_member(&Bytes::from(extensions), "a");
            assert_eq!(
                read.as_ref().map(|it| it.as_deref()).map_err(|it| *it),
                expected,
                "{extensions}"
            );
        }
    }
}

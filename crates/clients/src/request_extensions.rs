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
    string_of(value).map(Some)
}

/// Returns the string of which `value` is the text.
pub(crate) fn string_of(value: Bytes) -> Result<String, NotAString> {
    if value.first() != Some(&b'"') {
        return Err(NotAString);
    }
    let mut document = Document::new();
    let string = document.parse(value).map_err(|_| NotAString)?;
    document.as_str(string).map(Cow::into_owned).ok_or(NotAString)
}

/// The message to a client that sends the hash of an operation instead of its text. Clients look for these words, and
/// then send the text.
pub const PERSISTED_QUERY_NOT_SUPPORTED: &str = "PersistedQueryNotSupported";

/// The message to a client that sends the hash of an operation that the router does not have. Clients look for these
/// words, and then send the text with the hash.
pub const PERSISTED_QUERY_NOT_FOUND: &str = "PersistedQueryNotFound";

/// A malformed `extensions.persistedQuery`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PersistedQueryError {
    /// The member is not an object.
    #[error("`extensions.persistedQuery` must be an object with `version` and `sha256Hash`")]
    NotAnObject,
    /// Another version of the protocol.
    #[error("`extensions.persistedQuery.version` must be 1")]
    Version,
    /// The hash is missing, or not a string.
    #[error("`extensions.persistedQuery.sha256Hash` must be a string")]
    Hash,
}

/// Returns the hash in `extensions.persistedQuery`; `None` if that is absent or null.
///
/// # Errors
/// The member is malformed.
pub fn persisted_query_hash(extensions: &Bytes) -> Result<Option<String>, PersistedQueryError> {
    if extensions.is_empty() {
        return Ok(None);
    }
    let mut found = None;
    let read = astjson::outline_members(extensions, |key, value| {
        if key == "persistedQuery" {
            found = Some(value);
        }
    });
    read.map_err(|_| PersistedQueryError::NotAnObject)?;
    let Some(member) = found.filter(|value| **value != *b"null") else { return Ok(None) };
    if member.first() != Some(&b'{') {
        return Err(PersistedQueryError::NotAnObject);
    }
    let mut is_version_1 = false;
    let read = astjson::outline_members(&member, |key, value| {
        if key == "version" {
            is_version_1 = *value == *b"1";
        }
    });
    read.map_err(|_| PersistedQueryError::NotAnObject)?;
    if !is_version_1 {
        return Err(PersistedQueryError::Version);
    }
    match string_member(&member, "sha256Hash") {
        Ok(Some(hash)) => Ok(Some(hash)),
        Ok(None) | Err(NotAString) => Err(PersistedQueryError::Hash),
    }
}

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
    fn a_persisted_query_has_version_1_and_a_hash() {
        use PersistedQueryError::{Hash, NotAnObject, Version};
        for (extensions, expected) in [
            ("", Ok(None)),
            ("{}", Ok(None)),
            (r#"{"persistedQuery":null}"#, Ok(None)),
            (r#"{"persistedQuery":{"version":1,"sha256Hash":"ab"},"a":[]}"#, Ok(Some("ab"))),
            (r#"{"persistedQuery":{"sha256Hash":"ab" , "version": 1 }}"#, Ok(Some("ab"))),
            (r#"{"persistedQuery":"ab"}"#, Err(NotAnObject)),
            (r#"{"persistedQuery":[1]}"#, Err(NotAnObject)),
            (r#"{"persistedQuery":{"version":1"#, Err(NotAnObject)),
            (r#"{"persistedQuery":{}}"#, Err(Version)),
            (r#"{"persistedQuery":{"version":"1","sha256Hash":"ab"}}"#, Err(Version)),
            (r#"{"persistedQuery":{"version":2,"sha256Hash":"ab"}}"#, Err(Version)),
            (r#"{"persistedQuery":{"version":1}}"#, Err(Hash)),
            (r#"{"persistedQuery":{"version":1,"sha256Hash":7}}"#, Err(Hash)),
        ] {
            let read = persisted_query_hash(&Bytes::from(extensions));
            assert_eq!(
                read.as_ref().map(|it| it.as_deref()).map_err(|it| *it),
                expected,
                "{extensions}"
            );
        }
    }

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

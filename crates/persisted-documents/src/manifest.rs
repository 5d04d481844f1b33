//! Reading manifests of persisted documents, as the tools of clients write them. Each mistake is reported with its line
//! and column.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::document_set::{ID_BYTES_MAX, PersistedDocument};

/// The word in the member `format` of Apollo's manifests.
const APOLLO_FORMAT: &str = "apollo-persisted-query-manifest";

/// The version of Apollo's manifests.
const APOLLO_VERSION: u64 = 1;

/// A format of manifests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ManifestFormat {
    /// Recognises the format by the members.
    #[default]
    Auto,
    /// `{"format": "apollo-persisted-query-manifest", "version": 1, "operations": […]}`.
    Apollo,
    /// `{"ID": "TEXT", …}`.
    Relay,
}

/// A mistake in a manifest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ManifestError {
    /// The mistake in words.
    pub message: String,
    /// The line, from 1; 0 if the mistake concerns the whole manifest.
    pub line: usize,
    /// The column in bytes, from 1; 0 if the mistake concerns the whole manifest.
    pub column: usize,
}

impl ManifestError {
    fn whole(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: 0, column: 0 }
    }
}

impl From<serde_json::Error> for ManifestError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let mut message = error.to_string();
        // The place has fields of its own.
        let place = format!(" at line {line} column {column}");
        if let Some(length) = message.strip_suffix(&place).map(str::len) {
            message.truncate(length);
        }
        Self { message, line, column }
    }
}

/// Reads a manifest with at most `documents_max` documents.
///
/// # Errors
/// The first mistake with its place: JSON that is broken, a member that is missing or has the wrong type, an id twice,
/// a text that is empty, too many documents.
pub fn parse_manifest(
    text: &[u8],
    format: ManifestFormat,
    documents_max: usize,
) -> Result<Vec<PersistedDocument>, ManifestError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let members = reader.deserialize_map(ManifestVisitor { format, documents_max })?;
    reader.end()?;
    match (format, members.operations) {
        (ManifestFormat::Auto | ManifestFormat::Apollo, Some(operations)) => {
            check_apollo(members.format.as_deref(), members.version)?;
            Ok(operations)
        }
        (ManifestFormat::Apollo, None) => {
            Err(ManifestError::whole("the manifest has no member `operations`"))
        }
        (ManifestFormat::Auto | ManifestFormat::Relay, _) => Ok(members.texts),
    }
}

fn check_apollo(format: Option<&str>, version: Option<u64>) -> Result<(), ManifestError> {
    match format {
        Some(APOLLO_FORMAT) => {}
        Some(_) => {
            let message = format!("the member `format` must be \"{APOLLO_FORMAT}\"");
            return Err(ManifestError::whole(message));
        }
        None => {
            let message = format!("the manifest has no member `format`: \"{APOLLO_FORMAT}\"");
            return Err(ManifestError::whole(message));
        }
    }
    if version != Some(APOLLO_VERSION) {
        let message = format!("the member `version` must be {APOLLO_VERSION}");
        return Err(ManifestError::whole(message));
    }
    Ok(())
}

/// The members of a manifest of either format.
#[derive(Default)]
struct ManifestMembers {
    format: Option<String>,
    version: Option<u64>,
    operations: Option<Vec<PersistedDocument>>,
    /// The members with a text, as documents of Relay's map.
    texts: Vec<PersistedDocument>,
}

struct ManifestVisitor {
    format: ManifestFormat,
    documents_max: usize,
}

impl<'de> Visitor<'de> for ManifestVisitor {
    type Value = ManifestMembers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object: a manifest of persisted documents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self { format, documents_max } = self;
        let mut members = ManifestMembers::default();
        // A manifest may have its members in any order, so it is Apollo's only once `operations` has been read.
        let mut first_other: Option<String> = None;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(de::Error::custom(format_args!(
                    "the member `{}` is there twice",
                    shown(&key)
                )));
            }
            if format == ManifestFormat::Relay {
                members.texts.push(relay_document(key, map.next_value()?)?);
            } else {
                match map.next_value_seed(MemberSeed { documents_max })? {
                    Member::Text(text) if key == "format" => {
                        members.texts.push(relay_document(key, text.clone())?);
                        members.format = Some(text);
                    }
                    Member::Text(text) if format == ManifestFormat::Auto => {
                        members.texts.push(relay_document(key, text)?);
                    }
                    Member::Number(number) if key == "version" => members.version = Some(number),
                    Member::Operations(operations) if key == "operations" => {
                        members.operations = Some(operations);
                    }
                    _ => first_other = first_other.or(Some(key)),
                }
            }
            if members.texts.len() > documents_max {
                return Err(too_many(documents_max));
            }
        }
        if format == ManifestFormat::Auto && members.operations.is_none() {
            let other = first_other.or(members.version.map(|_| "version".to_owned()));
            if let Some(key) = other {
                return Err(de::Error::custom(format_args!(
                    "this is neither Apollo's manifest, which has a list `operations`, nor Relay's map of ids to texts: \
                     the member `{}` is not a text",
                    shown(&key)
                )));
            }
        }
        Ok(members)
    }
}

/// A member of a manifest of a format that is not known yet.
enum Member {
    Text(String),
    Number(u64),
    Operations(Vec<PersistedDocument>),
    Other,
}

struct MemberSeed {
    documents_max: usize,
}

impl<'de> de::DeserializeSeed<'de> for MemberSeed {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Member, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MemberSeed {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member of a manifest")
    }

    fn visit_str<E>(self, text: &str) -> Result<Member, E> {
        Ok(Member::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Member, E> {
        Ok(Member::Text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Member, E> {
        Ok(Member::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_unit<E>(self) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Member, A::Error> {
        let mut documents: Vec<PersistedDocument> = Vec::new();
        let mut seen = HashSet::new();
        while let Some(operation) = list.next_element::<ApolloOperation>()? {
            if documents.len() == self.documents_max {
                return Err(too_many(self.documents_max));
            }
            let document = operation.into_document()?;
            if !seen.insert((document.id.clone(), document.client.clone())) {
                let id = shown(&document.id);
                return Err(match &document.client {
                    None => de::Error::custom(format_args!("the id `{id}` is there twice")),
                    Some(client) => de::Error::custom(format_args!(
                        "the id `{id}` is there twice for the client `{}`",
                        shown(client)
                    )),
                });
            }
            documents.push(document);
        }
        Ok(Member::Operations(documents))
    }
}

fn too_many<E: de::Error>(documents_max: usize) -> E {
    E::custom(format_args!(
        "the manifest has more than {documents_max} documents (`persisted_documents.max_documents`)"
    ))
}

/// An element of `operations` in Apollo's manifest. Other members, such as `type`, have no effect.
#[derive(Deserialize)]
#[serde(expecting = "an operation with `id` and `body`")]
struct ApolloOperation {
    id: String,
    #[serde(default)]
    name: Option<String>,
    body: String,
    #[serde(default, rename = "clientName")]
    client_name: Option<String>,
}

impl ApolloOperation {
    fn into_document<E: de::Error>(self) -> Result<PersistedDocument, E> {
        let Self { id, name, body, client_name } = self;
        check(&id, &body)?;
        Ok(PersistedDocument {
            id: id.into(),
            name: name.filter(|it| !it.is_empty()).map(Into::into),
            client: client_name.map(Into::into),
            text: Bytes::from(body),
        })
    }
}

fn relay_document<E: de::Error>(id: String, text: String) -> Result<PersistedDocument, E> {
    check(&id, &text)?;
    Ok(PersistedDocument { id: id.into(), name: None, client: None, text: Bytes::from(text) })
}

fn check<E: de::Error>(id: &str, text: &str) -> Result<(), E> {
    if id.is_empty() {
        return Err(E::custom("an id is empty"));
    }
    if id.len() > ID_BYTES_MAX {
        let id = shown(id);
        return Err(E::custom(format_args!("the id `{id}` is longer than {ID_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(E::custom(format_args!("the text of the document `{}` is empty", shown(id))));
    }
    Ok(())
}

/// Returns the beginning of a name for a message.
fn shown(name: &str) -> &str {
    /// The maximum number of bytes of a name in a message.
    const SHOWN_MAX: usize = 80;
    &name[..name.floor_char_boundary(SHOWN_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        read_as(text, ManifestFormat::Auto)
    }

    fn read_as(text: &str, format: ManifestFormat) -> Result<Vec<String>, String> {
        let print = |it: PersistedDocument| {
            let text = String::from_utf8_lossy(&it.text).into_owned();
            format!("{} {:?} {:?} {text}", it.id, it.name, it.client)
        };
        match parse_manifest(text.as_bytes(), format, 3) {
            Ok(documents) => Ok(documents.into_iter().map(print).collect()),
            Err(ManifestError { message, line, column }) => {
                Err(format!("{line}:{column}: {message}"))
            }
        }
    }

    const APOLLO: &str = r#"{
  "format": "apollo-persisted-query-manifest",
  "version": 1,
  "operations": [
    {"id": "1f", "name": "A", "type": "query", "body": "query A { a }"},
    {"id": "1f", "name": "A", "type": "query", "body": "query A { b }", "clientName": "web"}
  ]
}"#;

    #[test]
    fn apollos_manifest_has_names_and_clients() {
        let expected =
            [r#"1f Some("A") None query A { a }"#, r#"1f Some("A") Some("web") query A { b }"#];
        let expected = Ok(expected.map(str::to_owned).to_vec());
        assert_eq!(read(APOLLO), expected);
        assert_eq!(read_as(APOLLO, ManifestFormat::Apollo), expected);
    }

    #[test]
    fn relays_map_has_ids_and_texts() {
        let map = r#"{"2e": "{ a }", "format": "query { \"\u00e4\" }"}"#;
        let expected = [r#"2e None None { a }"#, "format None None query { \"ä\" }"];
        let expected = Ok(expected.map(str::to_owned).to_vec());
        assert_eq!(read(map), expected);
        assert_eq!(read_as(map, ManifestFormat::Relay), expected);
        assert_eq!(read("{}"), Ok(Vec::new()));
    }

    #[test]
    fn each_mistake_is_reported_with_its_place() {
        let twice = APOLLO.replace(r#", "clientName": "web""#, "");
        let long = format!("{{\"{}\": \"{{ a }}\"}}", "x".repeat(ID_BYTES_MAX + 1));
        let cases = [
            ("", "1:0: EOF while parsing a value"),
            ("[]", "1:0: invalid type: sequence, expected a JSON object"),
            ("{\n  \"a\": \"{ a }\",\n  \"b\" 7\n}", "3:7: expected `:`"),
            ("{\"a\": \"{ a }\"} x", "1:16: trailing characters"),
            ("{\"a\": \"{ a }", "1:12: EOF while parsing a string"),
            (r#"{"a": "{ a }", "a": "{ b }"}"#, "1:18: the member `a` is there twice"),
            (r#"{"a": " "}"#, "1:10: the text of the document `a` is empty"),
            (r#"{"": "{ a }"}"#, "an id is empty"),
            (r#"{"a": {"b": 1}, "c": "{ a }"}"#, "neither Apollo's manifest"),
            (r#"{"name": "package", "version": 7}"#, "the member `version` is not a text"),
            (r#"{"operations": []}"#, "0:0: the manifest has no member `format`"),
            (r#"{"format": "x", "operations": []}"#, "0:0: the member `format` must be"),
            (&APOLLO.replace("1,", "2,"), "0:0: the member `version` must be 1"),
            (&APOLLO.replace(r#""id": "1f", "#, ""), "5:59: missing field `id`"),
            (&APOLLO.replace(r#""query A { a }""#, "7"), "5:56: invalid type: integer `7`"),
            (&twice, "7:3: the id `1f` is there twice"),
            (&long, "is longer than 256 bytes"),
            (r#"{"a":"1","b":"2","c":"3","d":"4"}"#, "more than 3 documents"),
        ];
        let wrong = cases.iter().filter_map(|(text, expected)| {
            let error = read(text).expect_err(text);
            (!error.contains(expected)).then(|| format!("{text}\n{error}\n{expected}"))
        });
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        let map = r#"{"a": "{ a }"}"#;
        let error = read_as(map, ManifestFormat::Apollo).expect_err("a map");
        assert_eq!(error, "0:0: the manifest has no member `operations`");
        let error = read_as(APOLLO, ManifestFormat::Relay).expect_err("Apollo's manifest");
        assert!(error.contains("invalid type: integer `1`, expected a string"), "{error}");
    }

    #[test]
    fn a_manifest_of_ten_megabytes_is_read() {
        let body = "x".repeat(1_000);
        let members: Vec<_> = (0..10_000).map(|id| format!("\"{id}\": \"{{ {body} }}\"")).collect();
        let text = format!("{{{}}}", members.join(",\n"));
        assert!(text.len() > 10_000_000);
        let documents = parse_manifest(text.as_bytes(), ManifestFormat::Auto, 20_000);
        assert_eq!(documents.map(|it| it.len()), Ok(10_000));
    }
}

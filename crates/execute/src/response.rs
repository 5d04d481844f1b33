//! Reads the response of a subgraph: checks its form, and extracts data and errors.

use std::borrow::Cow;

use astjson::{Document, Kind, NodeId, Shape};
use bytes::Bytes;
use http::StatusCode;

use crate::bounds::ERROR_EXTENSIONS_BYTES_MAX;
use crate::document_pool::PooledDocument;
use crate::{ErrorCode, GraphqlError};

/// The maximum length of a name in the path of an error that the log shows, and of its segments.
const PATH_NAME_BYTES_MAX: usize = 64;
const PATH_SEGMENTS_MAX: usize = 16;

/// A well-formed response.
#[derive(Debug)]
pub(crate) struct ParsedResponse {
    /// `data`, an object, if it is there and not null.
    pub(crate) data: Option<NodeId>,
    /// The elements of `errors`.
    pub(crate) errors: Vec<NodeId>,
}

/// Reads a body with the layout `shape`. `Err` describes the problem, to continue the sentence
/// "subgraph "x" …".
pub(crate) fn read_response(
    document: &mut PooledDocument,
    status: StatusCode,
    body: Bytes,
    shape: &Shape,
) -> Result<ParsedResponse, Cow<'static, str>> {
    let is_empty = body.is_empty();
    let root = document.parse_shaped(body, shape).map_err(|error| -> Cow<'static, str> {
        if is_empty {
            format!("sent an empty response (HTTP status {status})").into()
        } else {
            format!("sent a response that is not valid JSON: {error}").into()
        }
    })?;
    read_root(document, root, status)
}

/// Reads a parsed response. `Err` is as for [`read_response`].
pub(crate) fn read_root(
    document: &PooledDocument,
    root: NodeId,
    status: StatusCode,
) -> Result<ParsedResponse, Cow<'static, str>> {
    if document.kind(root) != Kind::Object {
        return Err("sent a response that is not a JSON object".into());
    }
    let errors: Vec<NodeId> = match document.get(root, "errors") {
        None => Vec::new(),
        Some(errors) => match document.kind(errors) {
            Kind::Null => Vec::new(),
            Kind::Array => document.elements(errors).collect(),
            _ => return Err("sent a response whose \"errors\" is not a list".into()),
        },
    };
    let data = match document.get(root, "data") {
        None if errors.is_empty() => {
            return Err(format!(
                "sent a response with neither data nor errors (HTTP status {status})"
            )
            .into());
        }
        None => None,
        Some(data) => match document.kind(data) {
            Kind::Null if errors.is_empty() => {
                return Err("sent null as data and no error that explains it".into());
            }
            Kind::Null => None,
            Kind::Object => Some(data),
            _ => return Err("sent a response whose \"data\" is not an object".into()),
        },
    };
    Ok(ParsedResponse { data, errors })
}

/// Returns the elements of `errors` in the body of a response with a status of failure; empty
/// unless the body is a well-formed GraphQL response with errors. `application/json` may come from
/// anything between the router and the subgraph, so each element must have the one member that the
/// specification requires, a message.
pub(crate) fn failure_errors(document: &mut PooledDocument, body: Bytes) -> Vec<NodeId> {
    let Ok(root) = document.parse(body) else { return Vec::new() };
    if document.kind(root) != Kind::Object {
        return Vec::new();
    }
    let errors = document.get(root, "errors").filter(|&it| document.kind(it) == Kind::Array);
    let errors: Vec<NodeId> = errors.map(|it| document.elements(it).collect()).unwrap_or_default();
    let has_message = |&error: &NodeId| {
        document.kind(error) == Kind::Object
            && document.get(error, "message").is_some_and(|it| document.kind(it) == Kind::String)
    };
    if errors.iter().all(has_message) { errors } else { Vec::new() }
}

/// Converts one element of `errors`, without its path. Of its `extensions` only `code` and the
/// members named in `allowed` are taken: others may hold stack traces and queries.
pub(crate) fn error_of(
    document: &Document,
    node: NodeId,
    subgraph: &str,
    allowed: &[Box<str>],
) -> GraphqlError {
    let mut error =
        GraphqlError::new(ErrorCode::DownstreamServiceError, message_of(document, node));
    error.subgraph = Some(subgraph.into());
    let extensions = object_member(document, node, "extensions");
    error.extensions = extensions.and_then(|it| allowed_extensions(document, it, allowed));
    error
}

/// The `message` of one element of `errors`.
pub(crate) fn message_of(document: &Document, node: NodeId) -> Cow<'static, str> {
    let message = match document.kind(node) {
        Kind::Object => document.get(node, "message"),
        _ => None,
    };
    message
        .and_then(|message| document.as_str(message))
        .map_or(Cow::Borrowed("the subgraph reported an error without a message"), |message| {
            Cow::Owned(message.into_owned())
        })
}

/// `extensions.code` of one element of `errors`, if it is a string.
pub(crate) fn code_of(document: &Document, node: NodeId) -> Option<String> {
    let extensions = object_member(document, node, "extensions")?;
    Some(document.as_str(document.get(extensions, "code")?)?.into_owned())
}

/// The text of all `extensions` of one element of `errors`, for the log; cut to a bound.
pub(crate) fn extensions_text(document: &Document, node: NodeId) -> Option<String> {
    let extensions = object_member(document, node, "extensions")?;
    let mut text = document.to_string(extensions);
    text.truncate(text.floor_char_boundary(ERROR_EXTENSIONS_BYTES_MAX));
    Some(text)
}

fn object_member(document: &Document, node: NodeId, key: &str) -> Option<NodeId> {
    let member = match document.kind(node) {
        Kind::Object => document.get(node, key)?,
        _ => return None,
    };
    (document.kind(member) == Kind::Object).then_some(member)
}

/// Returns the members that are passed on, as a JSON object's text; `None` if there are none. Over
/// the bound only the code is left.
fn allowed_extensions(
    document: &Document,
    extensions: NodeId,
    allowed: &[Box<str>],
) -> Option<Box<str>> {
    let is_allowed = |key: &str| key == "code" || allowed.iter().any(|it| **it == *key);
    let print = |passes: &dyn Fn(&str) -> bool| {
        let mut out = Vec::new();
        // A code is a word; any other value under that name may be as long and revealing as the
        // rest.
        let is_code = |value| matches!(document.kind(value), Kind::String | Kind::Number);
        let members = document.members(extensions);
        for (key, value) in
            members.filter(|(key, value)| passes(key) && (key != "code" || is_code(*value)))
        {
            out.push(if out.is_empty() { b'{' } else { b',' });
            astjson::print_string(&key, &mut out);
            out.push(b':');
            document.print(value, &mut out);
        }
        if !out.is_empty() {
            out.push(b'}');
        }
        out
    };
    let mut text = print(&is_allowed);
    if text.len() > ERROR_EXTENSIONS_BYTES_MAX {
        text = print(&|key| key == "code");
    }
    if text.is_empty() || text.len() > ERROR_EXTENSIONS_BYTES_MAX {
        return None;
    }
    String::from_utf8(text).ok().map(Into::into)
}

/// The `path` of one element of `errors`; empty if there is none.
pub(crate) fn error_path(document: &Document, node: NodeId) -> Vec<NodeId> {
    match document.get(node, "path") {
        Some(path) if document.kind(path) == Kind::Array => document.elements(path).collect(),
        _ => Vec::new(),
    }
}

/// The `path` of one element of `errors` as text, such as `_entities.0.price`; `None` if there is none. A segment that
/// is neither a name nor an index is left out: the text is for the log, which gets no values.
pub(crate) fn path_text(document: &Document, node: NodeId) -> Option<String> {
    if document.kind(node) != Kind::Object {
        return None;
    }
    let is_name = |bytes: &[u8]| {
        let is_of_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
        bytes.len() <= PATH_NAME_BYTES_MAX && bytes.iter().all(is_of_name)
    };
    let segment = |node: NodeId| match document.kind(node) {
        Kind::String => {
            document.as_str(node).filter(|it| is_name(it.as_bytes())).map(Cow::into_owned)
        }
        Kind::Number => document.as_i64(node).map(|it| it.to_string()),
        _ => None,
    };
    let path = error_path(document, node);
    let shown: Vec<String> = path
        .iter()
        .take(PATH_SEGMENTS_MAX)
        .map(|&it| segment(it).unwrap_or_else(|| "…".to_owned()))
        .collect();
    (!shown.is_empty()).then(|| shown.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extensions(error: &str, allowed: &[&str]) -> Option<String> {
        let mut document = Document::new();
        let node = document.parse(Bytes::copy_from_slice(error.as_bytes())).expect("JSON");
        let allowed: Vec<Box<str>> = allowed.iter().map(|&it| it.into()).collect();
        error_of(&document, node, "stock", &allowed).extensions.map(Into::into)
    }

    #[test]
    fn of_extensions_only_the_code_and_allowed_members_pass() {
        let error = r#"{"message":"a","extensions":{"code":"B","exception":{"stacktrace":["c"]},"retryAfter":3}}"#;
        assert_eq!(extensions(error, &[]).as_deref(), Some(r#"{"code":"B"}"#));
        let more = extensions(error, &["retryAfter"]);
        assert_eq!(more.as_deref(), Some(r#"{"code":"B","retryAfter":3}"#));
        assert_eq!(extensions(r#"{"message":"a","extensions":{"sql":"b"}}"#, &[]), None);
        assert_eq!(extensions(r#"{"message":"a","extensions":["code"]}"#, &[]), None);
        assert_eq!(extensions(r#"{"message":"a","extensions":{"code":{"sql":"b"}}}"#, &[]), None);
        assert_eq!(extensions(r#""a""#, &[]), None);
    }

    #[test]
    fn the_path_for_the_log_has_names_and_indices_only() {
        let path = |error: &'static str| {
            let mut document = Document::new();
            let node = document.parse(Bytes::from_static(error.as_bytes())).expect("JSON");
            path_text(&document, node)
        };
        let shown = path(r#"{"message":"a","path":["_entities",0,"price"]}"#);
        assert_eq!(shown.as_deref(), Some("_entities.0.price"));
        let shown = path(r#"{"message":"a","path":["user","ann@example.com",null]}"#);
        assert_eq!(shown.as_deref(), Some("user.….…"));
        for error in [r#"{"message":"a"}"#, r#"{"path":[]}"#, r#"{"path":"a"}"#, r#""a""#] {
            assert_eq!(path(error), None, "{error}");
        }
    }

    #[test]
    fn allowed_extensions_that_are_too_long_leave_the_code_alone() {
        let long = "x".repeat(ERROR_EXTENSIONS_BYTES_MAX);
        let error = format!(r#"{{"message":"a","extensions":{{"code":"B","note":"{long}"}}}}"#);
        assert_eq!(extensions(&error, &["note"]).as_deref(), Some(r#"{"code":"B"}"#));
        let error = format!(r#"{{"message":"a","extensions":{{"code":"{long}"}}}}"#);
        assert_eq!(extensions(&error, &[]), None);
    }

    #[test]
    fn a_failed_response_has_errors_only_if_it_is_a_graphql_response() {
        for (body, count) in [
            (r#"{"errors":[{"message":"a"},{"message":"b"}]}"#, 2),
            (r#"{"data":null,"errors":[{"message":"a"}]}"#, 1),
            (r#"{"errors":[]}"#, 0),
            (r#"{"errors":["a"]}"#, 0),
            (r#"{"errors":[{"message":"a"},{"reason":"b"}]}"#, 0),
            (r#"{"errors":{"message":"a"}}"#, 0),
            (r#"{"message":"Unauthorized"}"#, 0),
            ("[]", 0),
            ("", 0),
            ("<html>", 0),
        ] {
            let errors = failure_errors(&mut PooledDocument::take(), Bytes::from(body));
            assert_eq!(errors.len(), count, "{body}");
        }
    }
}

//! A subgraph's answer: is it one, and what does it say.

use std::borrow::Cow;

use astjson::{Document, Kind, NodeId, Shape};
use bytes::Bytes;
use http::StatusCode;

use crate::bounds::ERROR_EXTENSIONS_BYTES_MAX;
use crate::document_pool::PooledDocument;
use crate::{ErrorCode, GraphqlError};

/// A well-formed answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `data`, an object, if it is there and not null.
    pub(crate) data: Option<NodeId>,
    /// The elements of `errors`.
    pub(crate) errors: Vec<NodeId>,
}

/// Reads a body that should look like `shape`. `Err` says what is wrong with it, to go after "subgraph "x" …".
pub(crate) fn read(
    document: &mut PooledDocument,
    status: StatusCode,
    body: Bytes,
    shape: &Shape,
) -> Result<Answer, Cow<'static, str>> {
    let is_empty = body.is_empty();
    let root = document.parse_shaped(body, shape).map_err(|error| -> Cow<'static, str> {
        if is_empty {
            format!("sent an empty answer (HTTP status {status})").into()
        } else {
            format!("sent an answer that is not valid JSON: {error}").into()
        }
    })?;
    if document.kind(root) != Kind::Object {
        return Err("sent an answer that is not a JSON object".into());
    }
    let errors: Vec<NodeId> = match document.get(root, "errors") {
        None => Vec::new(),
        Some(errors) => match document.kind(errors) {
            Kind::Null => Vec::new(),
            Kind::Array => document.elements(errors).collect(),
            _ => return Err("sent an answer whose \"errors\" is not a list".into()),
        },
    };
    let data = match document.get(root, "data") {
        None if errors.is_empty() => {
            return Err(format!(
                "sent an answer with neither data nor errors (HTTP status {status})"
            )
            .into());
        }
        None => None,
        Some(data) => match document.kind(data) {
            Kind::Null if errors.is_empty() => {
                return Err("sent null as data and no error that says why".into());
            }
            Kind::Null => None,
            Kind::Object => Some(data),
            _ => return Err("sent an answer whose \"data\" is not an object".into()),
        },
    };
    Ok(Answer { data, errors })
}

/// One element of `errors`, still without a place.
pub(crate) fn error_of(document: &Document, node: NodeId, subgraph: &str) -> GraphqlError {
    let message = document
        .get(node, "message")
        .and_then(|message| document.as_str(message))
        .map_or(Cow::Borrowed("the subgraph reported an error without a message"), |message| {
            Cow::Owned(message.into_owned())
        });
    let mut error = GraphqlError::new(ErrorCode::DownstreamServiceError, message);
    error.subgraph = Some(subgraph.into());
    if let Some(extensions) = document.get(node, "extensions")
        && document.kind(extensions) == Kind::Object
        && !document.is_empty(extensions)
    {
        let text = document.to_string(extensions);
        if text.len() <= ERROR_EXTENSIONS_BYTES_MAX {
            error.extensions = Some(text.into());
        } else if let Some(code) = document.get(extensions, "code")
            && document.kind(code) == Kind::String
            && document.raw(code).len() <= ERROR_EXTENSIONS_BYTES_MAX
        {
            error.extensions = Some(format!("{{\"code\":{}}}", document.raw(code)).into());
        }
    }
    error
}

/// The `path` of one element of `errors`; empty if there is none.
pub(crate) fn error_path(document: &Document, node: NodeId) -> Vec<NodeId> {
    match document.get(node, "path") {
        Some(path) if document.kind(path) == Kind::Array => document.elements(path).collect(),
        _ => Vec::new(),
    }
}

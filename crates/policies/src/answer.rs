//! The decisions of an engine: an object with a truth value for each policy, or a list of the allowed ones.

use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

/// The maximum nesting of a response, of which two levels are read.
const DEPTH_MAX: u32 = 32;

/// The decisions about several policies, in their order; `None` if the engine does not work.
pub(crate) type Decisions = Option<Arc<[bool]>>;

/// The reason why a response decides nothing. It never contains parts of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerDefect {
    /// The response is not a JSON object.
    #[error("the response is not a JSON object")]
    NotAnObject,
    /// The response has no `result`: Open Policy Agent knows no document of that path.
    #[error("the response has no `result`; the path of the URL may name no policy document")]
    NoResult,
    /// `result` is something else.
    #[error("`result` in the response is neither an object of truth values nor a list of names")]
    Result,
}

/// Reads the decisions for `policies`. A policy that the response does not name is denied.
///
/// # Errors
/// The response decides nothing.
pub fn read_answer(response: &Bytes, policies: &[&str]) -> Result<Box<[bool]>, AnswerDefect> {
    let mut document = Document::with_depth_limit(DEPTH_MAX);
    let root = document.parse(response.clone()).map_err(|_| AnswerDefect::NotAnObject)?;
    if document.kind(root) != Kind::Object {
        return Err(AnswerDefect::NotAnObject);
    }
    let result = document.get(root, "result").ok_or(AnswerDefect::NoResult)?;
    match document.kind(result) {
        Kind::Object => read_object(&document, result, policies),
        Kind::Array => read_list(&document, result, policies),
        _ => Err(AnswerDefect::Result),
    }
}

fn read_object(
    document: &Document,
    result: NodeId,
    policies: &[&str],
) -> Result<Box<[bool]>, AnswerDefect> {
    let mut allowed = vec![false; policies.len()];
    for (name, value) in document.members(result) {
        let value = document.as_bool(value).ok_or(AnswerDefect::Result)?;
        for (policy, is_allowed) in policies.iter().zip(&mut allowed) {
            if **policy == *name {
                *is_allowed = value;
            }
        }
    }
    Ok(allowed.into())
}

fn read_list(
    document: &Document,
    result: NodeId,
    policies: &[&str],
) -> Result<Box<[bool]>, AnswerDefect> {
    let mut allowed = vec![false; policies.len()];
    for element in document.elements(result) {
        let name = document.as_str(element).ok_or(AnswerDefect::Result)?;
        for (policy, is_allowed) in policies.iter().zip(&mut allowed) {
            *is_allowed |= **policy == *name;
        }
    }
    Ok(allowed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &'static str) -> Result<Vec<bool>, AnswerDefect> {
        read_answer(&Bytes::from_static(response.as_bytes()), &["a", "b"]).map(Vec::from)
    }

    #[test]
    fn an_object_or_a_list_decides_and_what_it_does_not_name_is_denied() {
        for (response, expected) in [
            (r#"{"result":{"a":true,"b":false}}"#, [true, false]),
            (r#"{"result":{"b":true,"other":true}}"#, [false, true]),
            (r#"{"result":{}}"#, [false, false]),
            (r#"{"result":["a"]}"#, [true, false]),
            (r#"{"result":["b","a","b","other"]}"#, [true, true]),
            (r#"{"result":["A"," b"]}"#, [false, false]),
            (r#"{"result":[]}"#, [false, false]),
            (r#"{"decision_id":"1","result":["a"]}"#, [true, false]),
        ] {
            assert_eq!(read(response), Ok(expected.to_vec()), "{response}");
        }
    }

    #[test]
    fn anything_else_decides_nothing() {
        for (response, expected) in [
            ("", AnswerDefect::NotAnObject),
            ("<html>", AnswerDefect::NotAnObject),
            ("[]", AnswerDefect::NotAnObject),
            (r#"{"result":["a"]"#, AnswerDefect::NotAnObject),
            ("{}", AnswerDefect::NoResult),
            (r#"{"result":null}"#, AnswerDefect::Result),
            (r#"{"result":true}"#, AnswerDefect::Result),
            (r#"{"result":"a"}"#, AnswerDefect::Result),
            (r#"{"result":{"a":"true"}}"#, AnswerDefect::Result),
            (r#"{"result":{"a":true,"b":1}}"#, AnswerDefect::Result),
            (r#"{"result":["a",true]}"#, AnswerDefect::Result),
        ] {
            assert_eq!(read(response), Err(expected), "{response}");
        }
    }
}

//! Prints errors, and responses that consist of errors only (GraphQL specification, sections 7.1.2
//! and 7.2).

use bytes::Bytes;

use crate::document_pool::PooledDocument;
use crate::{ErrorCode, GraphqlError, PathSegment, Payload};

/// The response to a request that was not executed: errors and no `data` entry. A valid operation
/// that cannot be planned has null `data`: the cause is the graph, not the request.
pub fn request_error(errors: &[GraphqlError]) -> Payload {
    let mut out = Vec::with_capacity(64 + 160 * errors.len());
    let is_valid =
        !errors.is_empty() && errors.iter().all(|it| it.code == ErrorCode::PlanningFailed);
    if is_valid {
        out.extend_from_slice(b"{\"data\":null,\"errors\":");
    } else {
        out.extend_from_slice(b"{\"errors\":");
    }
    print_errors(errors, &mut out);
    let splice = out.len();
    out.push(b'}');
    Payload {
        bytes: Bytes::from(out),
        splice,
        has_data: is_valid,
        errors: u32::try_from(errors.len()).unwrap_or(u32::MAX),
        first_error: errors.first().map(|error| error.code),
        subgraph_requests: 0,
        headers: None,
        cost: None,
        caching: None,
        revision: None,
    }
}

/// Prints the errors as a JSON array.
pub fn print_errors(errors: &[GraphqlError], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, error) in errors.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        print_error(error, out);
    }
    out.push(b']');
}

/// Prints one error as a JSON object.
pub fn print_error(error: &GraphqlError, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"message\":");
    astjson::print_string(&error.message, out);
    if !error.locations.is_empty() {
        out.extend_from_slice(b",\"locations\":[");
        for (index, location) in error.locations.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let text = format!("{{\"line\":{},\"column\":{}}}", location.line, location.column);
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b']');
    }
    if !error.path.is_empty() {
        out.extend_from_slice(b",\"path\":[");
        for (index, segment) in error.path.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match segment {
                PathSegment::Key(key) => astjson::print_string(key, out),
                PathSegment::Index(index) => out.extend_from_slice(index.to_string().as_bytes()),
            }
        }
        out.push(b']');
    }
    out.extend_from_slice(b",\"extensions\":{");
    print_extensions(error, out);
    out.extend_from_slice(b"}}");
}

fn print_extensions(error: &GraphqlError, out: &mut Vec<u8>) {
    let mut document = PooledDocument::take();
    let theirs = error.extensions.as_deref().and_then(|text| {
        let text = Bytes::copy_from_slice(text.as_bytes());
        document.parse(text).ok()
    });
    let has_code = theirs.is_some_and(|object| document.get(object, "code").is_some());
    let mut separator: &[u8] = b"";
    if !has_code {
        out.extend_from_slice(b"\"code\":");
        astjson::print_string(error.code.as_str(), out);
        separator = b",";
    }
    if let Some(subgraph) = &error.subgraph {
        out.extend_from_slice(separator);
        out.extend_from_slice(b"\"serviceName\":");
        astjson::print_string(subgraph, out);
        separator = b",";
    }
    if let Some(object) = theirs {
        for (key, value) in document.members(object) {
            if key == "serviceName" && error.subgraph.is_some() {
                continue;
            }
            out.extend_from_slice(separator);
            astjson::print_string(&key, out);
            out.push(b':');
            document.print(value, out);
            separator = b",";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operation_that_cannot_be_planned_has_null_data() {
        let start = |code| {
            let payload = request_error(&[GraphqlError::new(code, "why")]);
            let text = String::from_utf8_lossy(&payload.bytes).into_owned();
            (payload.has_data, text.split(':').next().map(str::to_owned))
        };
        assert_eq!(start(ErrorCode::PlanningFailed), (true, Some("{\"data\"".into())));
        assert_eq!(start(ErrorCode::NotSupported), (false, Some("{\"errors\"".into())));
    }
}

//! The most used operations of this router as a manifest, from which other routers warm their caches.

use std::collections::HashSet;

use frontend::response::{self, Response};
use http::StatusCode;
use persisted_documents::TextHash;
use plan::OperationKind;
use prepare::{Preparer, UsedOperation};

/// The number of operations that are listed by default.
const COUNT_DEFAULT: usize = 500;

/// The maximum number of operations that are listed.
const COUNT_MAX: usize = 10_000;

/// The maximum size of the list: less than what other routers read.
const BYTES_MAX: usize = 8_000_000;

/// Handles `GET /admin/operations?limit=N`: lists the operations that were used most.
pub(crate) fn respond(preparer: &Preparer, limit: Option<String>) -> Response {
    let count = match limit.as_deref().map(str::parse) {
        None => COUNT_DEFAULT,
        Some(Ok(count @ 1..=COUNT_MAX)) => count,
        Some(_) => {
            let text = format!("`limit` must be a number from 1 to {COUNT_MAX}\n");
            return response::text(StatusCode::BAD_REQUEST, text);
        }
    };
    let text = manifest(&preparer.most_used(count), BYTES_MAX);
    response::with_type(StatusCode::OK, "application/json", text.into())
}

/// Writes a manifest in Apollo's format with a further member `uses` of each operation. Operations that make the text
/// longer than `bytes_max` are left out, and `leftOut` has their number.
fn manifest(used: &[UsedOperation], bytes_max: usize) -> String {
    let mut text = String::from(
        "{\"format\":\"apollo-persisted-query-manifest\",\"version\":1,\"operations\":[",
    );
    let (mut ids, mut written) = (HashSet::new(), 0);
    for it in used {
        // Texts were parsed, so they are UTF-8.
        let Ok(body) = std::str::from_utf8(&it.request.query) else { continue };
        let mut id = TextHash::of(body.as_bytes()).to_string();
        let mut number = 1;
        // A text with several operations is listed once for each of them.
        while !ids.insert(id.clone()) {
            number += 1;
            id = format!("{}#{number}", TextHash::of(body.as_bytes()));
        }
        let mut operation = serde_json::json!({
            "id": id,
            "type": kind_name(it.kind),
            "uses": it.uses,
            "body": body,
        });
        if let Some(name) = &it.request.operation_name {
            operation["name"] = (&**name).into();
        }
        let operation = operation.to_string();
        if text.len() + operation.len() > bytes_max {
            continue;
        }
        if written > 0 {
            text.push(',');
        }
        text.push_str(&operation);
        written += 1;
    }
    text.push_str(&format!("],\"leftOut\":{}}}\n", used.len() - written));
    text
}

fn kind_name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Query => "query",
        OperationKind::Mutation => "mutation",
        OperationKind::Subscription => "subscription",
    }
}

#[cfg(test)]
mod tests {
    use persisted_documents::{ManifestFormat, parse_manifest};
    use prepare::OperationRequest;

    use super::*;

    fn used(query: &'static str, name: Option<&str>, uses: u64) -> UsedOperation {
        let request = OperationRequest {
            query: query.into(),
            operation_name: name.map(Into::into),
            ..OperationRequest::default()
        };
        UsedOperation { request, kind: OperationKind::Query, uses }
    }

    /// Reads a manifest as another router does.
    fn read(text: &str) -> Vec<(String, Option<String>)> {
        let documents = parse_manifest(text.as_bytes(), ManifestFormat::Auto, usize::MAX);
        let documents = documents.unwrap_or_else(|error| panic!("{error}: {text}"));
        let document = |it: persisted_documents::PersistedDocument| {
            (String::from_utf8_lossy(&it.text).into_owned(), it.name.map(Into::into))
        };
        documents.into_iter().map(document).collect()
    }

    #[test]
    fn another_router_reads_the_same_operations_in_the_same_order() {
        let two = "query A { a } query B { b(text: \"\\n\u{e4}\") }";
        let text = manifest(
            &[used(two, Some("B"), 9), used(two, Some("A"), 2), used("{ a }", None, 1)],
            9_999,
        );
        let named = |text: &str, name: &str| (text.to_owned(), Some(name.to_owned()));
        assert_eq!(read(&text), [named(two, "B"), named(two, "A"), ("{ a }".to_owned(), None)]);
        assert!(text.contains("\"uses\":9,") && text.ends_with("],\"leftOut\":0}\n"), "{text}");
        assert_eq!(read(&manifest(&[], 9_999)), []);
    }

    #[test]
    fn operations_without_room_are_left_out() {
        let long =
            "{ a_field_with_a_name_that_is_too_long_for_the_rest_of_the_list_of_operations }";
        let (first, last) = (used("{ a }", None, 3), used("{ b }", None, 1));
        let room = manifest(&[first.clone(), last.clone()], usize::MAX).len();
        let text = manifest(&[first, used(long, None, 2), last], room);
        assert_eq!(read(&text), [("{ a }".to_owned(), None), ("{ b }".to_owned(), None)]);
        assert!(text.ends_with("],\"leftOut\":1}\n"), "{text}");
    }
}

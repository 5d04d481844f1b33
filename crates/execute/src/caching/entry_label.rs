//! The descriptions of entries for operators. They are made of the request, for few entries only: see
//! [`cache::EntryLabel`].

use bytes::Bytes;
use cache::EntryLabel;
use plan::EntityBatch;

use super::entry_address::key_fields;
use crate::document_pool::PooledDocument;

/// Describes an entity by its type and the fields of its key.
pub(crate) fn entity_label(
    subgraph: &str,
    batch: &EntityBatch,
    representation: Bytes,
    is_private: bool,
) -> EntryLabel {
    let mut document = PooledDocument::take();
    let (mut name, mut key) = (String::new(), String::new());
    // Representations that the router has written can be read.
    if let Ok(node) = document.parse(representation)
        && let Some(of_type) = document.get(node, "__typename").and_then(|it| document.as_str(it))
    {
        for (path, value) in key_fields(&document, node, &of_type, batch) {
            let separator = if key.is_empty() { "" } else { ", " };
            key.extend([separator, &path, ": ", &value]);
        }
        name = of_type.into_owned();
    }
    EntryLabel::new(Some(subgraph), &name, &key, is_private)
}

/// Describes the root fields of a request by its selection and its variables. `body` is the body of the request.
pub(crate) fn root_label(subgraph: &str, body: Bytes, is_private: bool) -> EntryLabel {
    let mut document = PooledDocument::take();
    let (mut selection, mut variables) = (String::new(), Vec::new());
    // Requests that the router has written can be read.
    if let Ok(root) = document.parse(body) {
        let text = document.get(root, "query").and_then(|it| document.as_str(it));
        let text = text.unwrap_or_default();
        // The names of variables come first, and have no default values.
        selection = text[text.find('{').unwrap_or_default()..].to_owned();
        if let Some(values) = document.get(root, "variables").filter(|it| !document.is_empty(*it)) {
            document.print(values, &mut variables);
        }
    }
    let variables = String::from_utf8_lossy(&variables);
    EntryLabel::new(Some(subgraph), &selection, &variables, is_private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_fields_are_described_by_selection_and_variables() {
        let body = r#"{"query":"query($a:Int){products(first:$a){id}}","variables":{"a":3}}"#;
        let label = root_label("catalogue", body.into(), false);
        assert_eq!(&*label.name, "{products(first:$a){id}}");
        assert_eq!(label.key.as_deref(), Some(r#"{"a":3}"#));
        assert_eq!(root_label("catalogue", body.into(), true).key, None);
        let body = r#"{"query":"{products{id}}","variables":{}}"#;
        let label = root_label("catalogue", body.into(), false);
        assert_eq!((&*label.name, label.key.as_deref()), ("{products{id}}", Some("")));
    }
}

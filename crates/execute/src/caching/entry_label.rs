//! The descriptions of entries for operators. They are made of the request, for few entries only: see
//! [`cache::EntryLabel`].

use bytes::Bytes;
use cache::EntryLabel;
use plan::EntityBatch;

use super::KeyedSelection;
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
            key.extend([separator, &*path, ": ", &*value]);
        }
        name = of_type.into_owned();
    }
    EntryLabel::new(Some(subgraph), &name, &key, is_private)
}

/// Describes a root field by its selection and the variables of its request. `body` is the body of the request.
pub(crate) fn root_label(
    subgraph: &str,
    selection: &KeyedSelection,
    body: Bytes,
    is_private: bool,
) -> EntryLabel {
    let mut document = PooledDocument::take();
    let mut variables = Vec::new();
    // Requests that the router has written can be read.
    if let Ok(root) = document.parse(body)
        && let Some(values) = document.get(root, "variables").filter(|it| !document.is_empty(*it))
    {
        document.print(values, &mut variables);
    }
    let variables = String::from_utf8_lossy(&variables);
    EntryLabel::new(Some(subgraph), &selection.text, &variables, is_private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_field_is_described_by_selection_and_variables() {
        let selection = KeyedSelection { text: "products{id}".into(), ..KeyedSelection::default() };
        let body = r#"{"query":"query($a:Int){products(first:$a){id}}","variables":{"a":3}}"#;
        let label = root_label("catalogue", &selection, body.into(), false);
        assert_eq!(&*label.name, "products{id}");
        assert_eq!(label.key.as_deref(), Some(r#"{"a":3}"#));
        assert_eq!(root_label("catalogue", &selection, body.into(), true).key, None);
        let body = r#"{"query":"{products{id}}","variables":{}}"#;
        let label = root_label("catalogue", &selection, body.into(), false);
        assert_eq!(label.key.as_deref(), Some(""));
    }
}

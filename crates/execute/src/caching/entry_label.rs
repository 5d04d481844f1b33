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
    // Representations that the router has written can be read.
    if let Ok(node) = document.parse(representation)
        && let Some(name) = document.get(node, "__typename").and_then(|it| document.as_str(it))
    {
        let fields = key_fields(&document, node, &name, batch);
        let fields: Vec<_> = fields.iter().map(|(path, value)| (&**path, &**value)).collect();
        return EntryLabel::new(Some(subgraph), &name, &fields, is_private);
    }
    EntryLabel::new(Some(subgraph), "", &[], is_private)
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
    // The names of these variables are the router's own, so that they say nothing to an operator.
    let all = [("", &*variables)];
    let values: &[_] = if variables.is_empty() { &[] } else { &all };
    EntryLabel::new(Some(subgraph), &selection.text, values, is_private)
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
        let key = label.key.expect("it is public");
        assert_eq!(&*key.values, r#"{"a":3}"#);
        assert_eq!(key.masked.len(), "#3fa9c1d2".len(), "{}", key.masked);
        assert_eq!(root_label("catalogue", &selection, body.into(), true).key, None);
        let body = r#"{"query":"{products{id}}","variables":{}}"#;
        let label = root_label("catalogue", &selection, body.into(), false);
        let key = label.key.expect("it is public");
        assert_eq!((&*key.values, &*key.masked), ("", ""));
    }
}

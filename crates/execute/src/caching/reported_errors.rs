//! The parts of a response that its errors are about. Only they are not stored.

use astjson::{Kind, NodeId};
use foldhash::HashSet;

use crate::document_pool::PooledDocument;
use crate::response;

/// The parts of a response with errors: the number of the batch or of the root field, and the index of the entity (0
/// for a root field).
#[derive(Debug, Default)]
pub(super) struct FaultyParts(HashSet<(usize, usize)>);

impl FaultyParts {
    /// Reads the errors of a response. `part_of` returns the part that the first key of a path names, and the number of
    /// its entities, if it has entities.
    ///
    /// `None` if an error does not say which part it is about: any part may be wrong then.
    pub(super) fn read(
        document: &PooledDocument,
        root: NodeId,
        part_of: impl Fn(&str) -> Option<(usize, Option<usize>)>,
    ) -> Option<Self> {
        let mut parts = Self::default();
        let Some(errors) = document.get(root, "errors") else { return Some(parts) };
        if document.kind(errors) != Kind::Array {
            return document.is_null(errors).then_some(parts);
        }
        for error in document.elements(errors) {
            if document.kind(error) != Kind::Object {
                return None;
            }
            let path = response::error_path(document, error);
            let (part, entities) = part_of(&document.as_str(*path.first()?)?)?;
            let item = match entities {
                None => 0,
                Some(count) => {
                    let item = *path.get(1)?;
                    let is_number = document.kind(item) == Kind::Number;
                    let index = if is_number { document.raw(item).parse().ok() } else { None };
                    index.filter(|index| *index < count)?
                }
            };
            parts.0.insert((part, item));
        }
        Some(parts)
    }

    /// True if no part has errors.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if an error is about this part.
    pub(super) fn contains(&self, part: usize, item: usize) -> bool {
        self.0.contains(&(part, item))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// The parts with errors of a response to one root field, part 0, and two entities, part 1.
    fn read(errors: &str) -> Option<Vec<(usize, usize)>> {
        let mut document = PooledDocument::take();
        let root = document.parse(Bytes::from(format!(r#"{{"errors":{errors}}}"#))).expect("JSON");
        let part_of = |key: &str| match key {
            "field" => Some((0, None)),
            "_entities" => Some((1, Some(2))),
            _ => None,
        };
        let parts = FaultyParts::read(&document, root, part_of)?;
        let mut parts: Vec<_> = parts.0.into_iter().collect();
        parts.sort_unstable();
        Some(parts)
    }

    #[test]
    fn an_error_is_about_the_part_at_the_start_of_its_path() {
        for (errors, parts) in [
            ("[]", Some(vec![])),
            ("null", Some(vec![])),
            (r#"[{"path":["field","a",3]}]"#, Some(vec![(0, 0)])),
            (r#"[{"path":["_entities",1,"a"]},{"path":["field"]}]"#, Some(vec![(0, 0), (1, 1)])),
            // Errors that may be about anything.
            (r#"[{"path":["field"]},{"message":"no path"}]"#, None),
            (r#"[{"path":[]}]"#, None),
            (r#"[{"path":["other"]}]"#, None),
            (r#"[{"path":[0]}]"#, None),
            (r#"[{"path":["_entities"]}]"#, None),
            (r#"[{"path":["_entities",2]}]"#, None),
            (r#"[{"path":["_entities","1"]}]"#, None),
            (r#"[{"path":["_entities",-1]}]"#, None),
            (r#"[{"path":"field"}]"#, None),
            (r#"["field"]"#, None),
            ("{}", None),
        ] {
            assert_eq!(read(errors), parts, "{errors}");
        }
    }
}

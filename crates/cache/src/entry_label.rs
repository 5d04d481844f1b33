//! The descriptions of entries for operators.

/// The maximum size of each text of a label.
pub const LABEL_BYTES_MAX: usize = 160;

/// The description of an entry. Labels are made for few entries: those that are often found, and the largest ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryLabel {
    /// The subgraph; `None` for a whole response.
    pub subgraph: Option<Box<str>>,
    /// The type of an entity, the selection of root fields, or the name of an operation.
    pub name: Box<str>,
    /// The key of an entity, the arguments of root fields, or the variables of an operation. `None` for private
    /// entries: their keys may identify a person.
    pub key: Option<Box<str>>,
}

impl EntryLabel {
    /// Creates a label with texts of at most [`LABEL_BYTES_MAX`] bytes. The key of a private entry is left out.
    pub fn new(subgraph: Option<&str>, name: &str, key: &str, is_private: bool) -> Self {
        Self {
            subgraph: subgraph.map(shorten),
            name: shorten(name),
            key: (!is_private).then(|| shorten(key)),
        }
    }
}

fn shorten(text: &str) -> Box<str> {
    const MARK: &str = "…";
    if text.len() <= LABEL_BYTES_MAX {
        return text.into();
    }
    format!("{}{MARK}", &text[..text.floor_char_boundary(LABEL_BYTES_MAX - MARK.len())]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_has_no_key_of_a_private_entry() {
        let public = EntryLabel::new(Some("users"), "User", "id=1", false);
        assert_eq!(public.key.as_deref(), Some("id=1"));
        assert_eq!(EntryLabel::new(Some("users"), "User", "id=1", true).key, None);
        for length in 150..180 {
            let long = EntryLabel::new(None, &"é".repeat(length), &"x".repeat(length), false);
            assert!(long.name.len() <= LABEL_BYTES_MAX, "{}", long.name.len());
            assert_eq!(long.key.unwrap().len(), length.min(LABEL_BYTES_MAX));
        }
    }
}

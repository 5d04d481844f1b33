//! The descriptions of entries for operators.

use telemetry::ValueFingerprint;

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
    pub key: Option<LabelKey>,
}

/// The values that distinguish an entry from others of its name, in two forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelKey {
    /// The values, with the names of those that have one: `id: 7, region: "eu"`.
    pub values: Box<str>,
    /// The same with fingerprints in place of the values: `id: #3fa9c1d2, region: #91b0a47e`.
    pub masked: Box<str>,
}

impl EntryLabel {
    /// Creates a label with texts of at most [`LABEL_BYTES_MAX`] bytes. `values` have a name each, which is empty for
    /// values without one. They are left out of the label of a private entry.
    pub fn new(
        subgraph: Option<&str>,
        name: &str,
        values: &[(&str, &str)],
        is_private: bool,
    ) -> Self {
        Self {
            subgraph: subgraph.map(shorten),
            name: shorten(name),
            key: (!is_private).then(|| LabelKey::new(values)),
        }
    }
}

impl LabelKey {
    fn new(values: &[(&str, &str)]) -> Self {
        let (mut shown, mut masked) = (String::new(), String::new());
        for (number, &(name, value)) in values.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            let colon = if name.is_empty() { "" } else { ": " };
            shown.extend([separator, name, colon, value]);
            // Of the whole value: others may begin with the same text.
            let fingerprint = ValueFingerprint::of(value).to_string();
            masked.extend([separator, name, colon, fingerprint.as_str()]);
        }
        Self { values: shorten(&shown), masked: shorten(&masked) }
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

    fn key(values: &[(&str, &str)]) -> LabelKey {
        EntryLabel::new(Some("users"), "User", values, false).key.expect("it is public")
    }

    #[test]
    fn a_label_is_short_and_has_no_key_of_a_private_entry() {
        assert_eq!(EntryLabel::new(Some("users"), "User", &[("id", "1")], true).key, None);
        for length in 150..180 {
            let value = "x".repeat(length);
            let long = EntryLabel::new(None, &"é".repeat(length), &[("", &*value)], false);
            assert!(long.name.len() <= LABEL_BYTES_MAX, "{}", long.name.len());
            let key = long.key.expect("it is public");
            assert_eq!(key.values.len(), length.min(LABEL_BYTES_MAX));
            assert_eq!(*key.masked, *ValueFingerprint::of(&value).to_string());
        }
        let many = ["0"; 40].map(|value| ("id", value));
        assert!(key(&many).masked.len() <= LABEL_BYTES_MAX);
    }

    #[test]
    fn a_masked_key_has_the_names_of_its_values_and_their_fingerprints() {
        let [seven, eu] = ["7", "\"eu\""].map(ValueFingerprint::of);
        for (values, shown, masked) in [
            (&[("", ""); 0][..], "", String::new()),
            (&[("id", "7")], "id: 7", format!("id: {seven}")),
            (
                &[("id", "7"), ("region", "\"eu\"")],
                "id: 7, region: \"eu\"",
                format!("id: {seven}, region: {eu}"),
            ),
            (&[("", "7"), ("", "\"eu\"")], "7, \"eu\"", format!("{seven}, {eu}")),
        ] {
            let LabelKey { values, masked: of_values } = key(values);
            assert_eq!((&*values, &*of_values), (shown, &*masked));
        }
    }
}

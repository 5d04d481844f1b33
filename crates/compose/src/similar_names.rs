//! The name that an author probably meant.

/// The share of a name's characters that a misspelling may change, as a divisor: one of three.
const CHANGED_SHARE: usize = 3;

/// The maximum length of a name that is compared: the work grows with its square, and no author mistypes such a name.
const NAME_BYTES_MAX: usize = 128;

/// The maximum number of known names that are compared, which bounds the work for each error of a huge schema.
const KNOWN_MAX: usize = 2_000;

/// Returns the known name that is most similar to `name`, if one is similar enough. Names beyond the limits are not
/// compared.
pub(crate) fn find_similar<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let changes_max = (name.chars().count() / CHANGED_SHARE).max(1);
    let known = known.into_iter().take(KNOWN_MAX).filter(|it| it.len() <= NAME_BYTES_MAX);
    let with_distance = known.map(|it| (strsim::damerau_levenshtein(name, it), it));
    let (changes, similar) = with_distance.min()?;
    (changes <= changes_max).then_some(similar)
}

#[cfg(test)]
mod tests {
    use super::find_similar;

    #[test]
    fn a_misspelled_name_is_recognised_and_another_name_is_not() {
        let known = ["Product", "Review", "@shareable"];
        assert_eq!(find_similar("Produkt", known), Some("Product"));
        assert_eq!(find_similar("@sharable", known), Some("@shareable"));
        assert_eq!(find_similar("Warehouse", known), None);
    }

    #[test]
    fn names_without_bound_are_not_compared() {
        let long = "a".repeat(1 << 20);
        assert_eq!(find_similar(&long, [&*long]), None);
        assert_eq!(find_similar("Product", [&*long, "Produkt"]), Some("Produkt"));
    }
}

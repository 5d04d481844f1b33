//! The name that an author probably meant.

/// The share of a name's characters that a misspelling may change, as a divisor: one of three.
const CHANGED_SHARE: usize = 3;

/// The number of known names that are compared: more than a usual schema has. Hundreds of errors may ask for a similar
/// name each, so it bounds the time for schemas with very many names.
const COMPARED_MAX: usize = 2_000;

/// Returns the known name that is most similar to `name`, if one is similar enough. Of very many names the first ones
/// are considered.
pub(crate) fn find_similar<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let changes_max = (name.chars().count() / CHANGED_SHARE).max(1);
    let known = known.into_iter().take(COMPARED_MAX);
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
}

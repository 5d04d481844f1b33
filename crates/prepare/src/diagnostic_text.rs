//! Rewrites messages of the GraphQL library for writers of queries: the library names tokens after
//! its syntax tree, and leaves out the field.

use std::borrow::Cow;

/// The library's message about an object without selections.
const MISSING_SELECTION: &str = "interface, union and object types must have a subselection set";

/// The library's message about a leaf with selections, around the kind of its type: "scalar type
/// `ID`".
const LEAF_START: &str = "field selection of ";
const LEAF_END: &str = " must not have subselections";

/// Its message about a document without any definition.
const EMPTY_DOCUMENT: &str = "syntax error: Unexpected <EOF>.";

/// Returns the message of a diagnostic; `source` is the text of the document from the position of
/// the diagnostic on.
pub(crate) fn rewrite_message(message: String, source: Option<&str>) -> String {
    if message == MISSING_SELECTION {
        return match source.and_then(field_name) {
            Some(name) => {
                format!("field `{name}` needs a selection of its fields: `{name} {{ … }}`")
            }
            None => message,
        };
    }
    let of_leaf = message.strip_prefix(LEAF_START).and_then(|it| it.strip_suffix(LEAF_END));
    if let (Some(kind), Some(name)) = (of_leaf, source.and_then(field_name)) {
        return format!("field `{name}` is of the {kind} and has no fields to select: `{name}`");
    }
    if message == EMPTY_DOCUMENT {
        return "syntax error: the document is empty".to_owned();
    }
    let expected = message.strip_prefix("syntax error: expected ");
    let parts = expected.and_then(|it| it.split_once(", got "));
    match parts.and_then(|(kind, found)| Some((token_text(kind)?, found))) {
        Some((token, "EOF")) => {
            format!("syntax error: expected `{token}`, but the document ends here")
        }
        Some((token, found)) => format!("syntax error: expected `{token}`, found `{found}`"),
        None => message,
    }
}

/// The text of a token of this kind, by the name that the library uses.
fn token_text(kind: &str) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(match kind {
        "BANG" => "!",
        "L_PAREN" => "(",
        "R_PAREN" => ")",
        "L_CURLY" => "{",
        "R_CURLY" => "}",
        "L_BRACK" => "[",
        "R_BRACK" => "]",
        "COMMA" => ",",
        "AT" => "@",
        "DOLLAR" => "$",
        "AMP" => "&",
        "PIPE" => "|",
        "SPREAD" => "...",
        "EQ" => "=",
        "COLON" => ":",
        _ => return kind.strip_suffix("_KW").map(|word| Cow::Owned(word.to_owned())),
    }))
}

/// The name of the field at the start of `text`, without its alias.
fn field_name(text: &str) -> Option<&str> {
    let (first, rest) = split_name(text)?;
    match rest.trim_start_matches(is_ignored).strip_prefix(':') {
        Some(rest) => split_name(rest.trim_start_matches(is_ignored)).map(|(name, _)| name),
        None => Some(first),
    }
}

fn split_name(text: &str) -> Option<(&str, &str)> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let end = text.find(|char| !is_part(char)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_ignored(char: char) -> bool {
    char.is_whitespace() || char == ',' || char == '\u{feff}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_named_as_they_are_written() {
        for (message, expected) in [
            (
                "syntax error: expected R_CURLY, got EOF",
                "syntax error: expected `}`, but the document ends here",
            ),
            ("syntax error: expected R_PAREN, got {", "syntax error: expected `)`, found `{`"),
            ("syntax error: expected on_KW, got x", "syntax error: expected `on`, found `x`"),
            (
                "syntax error: expected COLON, got , got",
                "syntax error: expected `:`, found `, got`",
            ),
            ("syntax error: Unexpected <EOF>.", "syntax error: the document is empty"),
            ("syntax error: expected an Argument", "syntax error: expected an Argument"),
        ] {
            assert_eq!(rewrite_message(message.to_owned(), None), expected);
        }
    }

    #[test]
    fn a_field_without_a_selection_is_named_without_its_alias() {
        for (source, name) in [
            ("team }", "team"),
            ("a: team(id: 1) }", "team"),
            ("a , :\n team", "team"),
            ("team", "team"),
        ] {
            let message = rewrite_message(MISSING_SELECTION.to_owned(), Some(source));
            assert_eq!(
                message,
                format!("field `{name}` needs a selection of its fields: `{name} {{ … }}`")
            );
        }
        assert_eq!(rewrite_message(MISSING_SELECTION.to_owned(), Some("é")), MISSING_SELECTION);
    }

    #[test]
    fn a_leaf_with_a_selection_is_named() {
        let message = "field selection of scalar type `ID` must not have subselections";
        let expected = "field `id` is of the scalar type `ID` and has no fields to select: `id`";
        assert_eq!(rewrite_message(message.to_owned(), Some("a: id { b }")), expected);
        assert_eq!(rewrite_message(message.to_owned(), None), message);
    }
}

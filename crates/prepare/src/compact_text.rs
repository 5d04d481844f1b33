//! Removes ignored tokens from the text of an operation: white space, commas and comments (GraphQL
//! specification, section 2.1.7). Live subscriptions keep their text, to be prepared again for the
//! next graph, and a client may pad its text with any number of them.

use bytes::Bytes;

/// Returns `text` with each run of ignored tokens as one space. Text that is not GraphQL remains
/// about the same.
pub(crate) fn compact_text(text: &[u8]) -> Bytes {
    let mut compact = Vec::with_capacity(text.len().min(FIRST_BYTES));
    let mut rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut was_ignored = true;
    while let Some(&byte) = rest.first() {
        let length = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => 1,
            b'#' => rest.iter().position(|it| matches!(it, b'\n' | b'\r')).unwrap_or(rest.len()),
            _ => 0,
        };
        if length > 0 {
            if !was_ignored {
                compact.push(b' ');
            }
            was_ignored = true;
            rest = &rest[length..];
            continue;
        }
        was_ignored = false;
        let (token, behind) = rest.split_at(if byte == b'"' { string_length(rest) } else { 1 });
        compact.extend_from_slice(token);
        rest = behind;
    }
    compact.shrink_to_fit();
    compact.into()
}

/// Initial capacity, which is enough for a text of usual length.
const FIRST_BYTES: usize = 4 << 10;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The length of the string or block string that `text` begins with; all of `text` if the string
/// has no end.
fn string_length(text: &[u8]) -> usize {
    let quotes: &[u8] = if text.starts_with(b"\"\"\"") { b"\"\"\"" } else { b"\"" };
    let mut at = quotes.len();
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(quotes) {
            return at + quotes.len();
        }
        // Block strings have one escape, other strings several; none of them ends the string.
        at += match rest {
            [b'\\', b'"', b'"', b'"', ..] if quotes.len() == 3 => 4,
            [b'\\', _, ..] if quotes.len() == 1 => 2,
            _ => 1,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tokens_become_one_space_and_strings_stay() {
        for (text, expected) in [
            (
                "\u{feff}  subscription {\n  a,,, b # and \"c\"\r\n  d }\n\n",
                "subscription { a b d } ",
            ),
            ("{a(x:\"b  #,c\\\"  d\",)}", "{a(x:\"b  #,c\\\"  d\" )}"),
            (
                "{a(x:\"\"\"b  # \\\"\"\"  \"\" c\"\"\" ,  y:\"\")   }",
                "{a(x:\"\"\"b  # \\\"\"\"  \"\" c\"\"\" y:\"\") }",
            ),
            ("{a(x:\"no  end", "{a(x:\"no  end"),
            ("# only a comment", ""),
            ("{ ä  ö }", "{ ä ö }"),
            ("", ""),
        ] {
            assert_eq!(compact_text(text.as_bytes()), expected, "{text}");
        }
    }
}

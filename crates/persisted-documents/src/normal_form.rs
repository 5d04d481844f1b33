//! The normal form of an operation's text: its tokens with one space between them. Texts with one normal form differ in
//! white space, commas and comments only (GraphQL specification, section 2.1.7).
//!
//! A text that is not GraphQL has a normal form, too, and an attacker may look for one that equals that of a known
//! document. That gains nothing, because the text of the known document is executed.

/// The mark at the beginning of a text that Unicode allows.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the normal form of a text.
pub(crate) fn normal_form(text: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(text.len());
    let mut rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    while let Some(&first) = rest.first() {
        let ignored = match first {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => 1,
            b'#' => rest.iter().position(|it| matches!(it, b'\n' | b'\r')).unwrap_or(rest.len()),
            _ => 0,
        };
        if ignored > 0 {
            rest = &rest[ignored..];
            continue;
        }
        let (token, behind) = rest.split_at(token_length(rest));
        if !normal.is_empty() {
            normal.push(b' ');
        }
        normal.extend_from_slice(token);
        rest = behind;
    }
    normal
}

/// Returns the length of the token that `text`, which is not empty, begins with.
fn token_length(text: &[u8]) -> usize {
    let end = |is_inside: fn(&u8) -> bool| {
        text.iter().position(|byte| !is_inside(byte)).unwrap_or(text.len())
    };
    match text[0] {
        b'"' => string_length(text),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => end(|it| it.is_ascii_alphanumeric() || *it == b'_'),
        b'0'..=b'9' | b'-' => {
            end(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'.' | b'+' | b'-'))
        }
        b'.' if text.starts_with(b"...") => 3,
        _ => 1,
    }
}

/// Returns the length of the string or block string that `text` begins with; all of `text` if it has no end.
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

    fn normal(text: &str) -> String {
        String::from_utf8(normal_form(text.as_bytes())).expect("tokens of UTF-8 are UTF-8")
    }

    #[test]
    fn texts_that_differ_in_ignored_tokens_have_one_normal_form() {
        let expected = "query Q ( $ a : Int = - 1 ) { b ( x : 1.5e-3 y : $ a ) { ... C } }";
        for text in [
            "query Q($a:Int=- 1){b(x:1.5e-3,y:$a){...C}}",
            "\u{feff}# first\nquery Q(\n  $a: Int = -\t1,\n) {\r\n  b(x: 1.5e-3, y: $a) { ...C # last\n }\n}\n",
        ] {
            assert_eq!(normal(text), expected);
        }
    }

    #[test]
    fn texts_that_differ_in_tokens_or_strings_have_different_forms() {
        for (one, other) in [
            ("{ab}", "{a b}"),
            ("{a(x:\"1 2\")}", "{a(x:\"1  2\")}"),
            ("{a(x:\"1,2\")}", "{a(x:\"1 2\")}"),
            ("{a(x:\"#\")}", "{a(x:\"\")}"),
            ("{a(x:\"\"\"1 \\\"\"\" 2\"\"\")}", "{a(x:\"\"\"1 \\\"\"\"  2\"\"\")}"),
            ("{a(x:[1 2])}", "{a(x:[12])}"),
            ("{a(x:-1)}", "{a(x:1)}"),
            ("{a(x:\"\\\"  \")}", "{a(x:\"\\\" \")}"),
        ] {
            assert_ne!(normal(one), normal(other), "{one}");
        }
    }

    #[test]
    fn any_bytes_have_a_normal_form() {
        for (text, expected) in [
            ("", ""),
            ("\"", "\""),
            ("\"\"\"", "\"\"\""),
            ("\"\\", "\"\\"),
            ("..", ". ."),
            ("#", ""),
            ("\u{feff}", ""),
        ] {
            assert_eq!(normal(text), expected, "{text}");
        }
        assert_eq!(normal_form(&[0xff, 0x00]), [0xff, b' ', 0x00]);
    }
}

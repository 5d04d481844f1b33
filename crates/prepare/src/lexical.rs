//! Counts lexical tokens (GraphQL specification, section 2.1.6) before the document is parsed.
//! White space, commas and comments are no tokens: the layout of a document must not decide whether
//! it is served.

/// Returns the number of lexical tokens in `text`, or more than `stop_after` as soon as there are
/// more. Texts that are not GraphQL get some count; the parser reports their errors.
pub(crate) fn count_tokens(text: &str, stop_after: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut count = 0;
    while let Some(&byte) = bytes.get(at) {
        let end = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = skip_while(bytes, at, |it| it != b'\n' && it != b'\r');
                continue;
            }
            // A byte order mark.
            0xEF if bytes[at..].starts_with(b"\xEF\xBB\xBF") => {
                at += 3;
                continue;
            }
            b'"' => string_end(bytes, at),
            b'.' if bytes[at..].starts_with(b"...") => at + 3,
            b'-' | b'0'..=b'9' => skip_while(bytes, at + 1, |it| {
                it.is_ascii_alphanumeric() || matches!(it, b'.' | b'+' | b'-' | b'_')
            }),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                skip_while(bytes, at, |it| it == b'_' || it.is_ascii_alphanumeric())
            }
            _ => at + 1,
        };
        at = end;
        count += 1;
        if count > stop_after {
            break;
        }
    }
    count
}

fn skip_while(bytes: &[u8], from: usize, wanted: impl Fn(u8) -> bool) -> usize {
    bytes[from..].iter().position(|&it| !wanted(it)).map_or(bytes.len(), |length| from + length)
}

/// Position after the string that begins at `from`.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let is_block = bytes[from..].starts_with(b"\"\"\"");
    let mut at = from + if is_block { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if is_block && bytes[at..].starts_with(b"\\\"\"\"") => at += 4,
            b'\\' if !is_block => at += 2,
            b'"' if !is_block => return at + 1,
            b'"' if bytes[at..].starts_with(b"\"\"\"") => return at + 3,
            b'\n' | b'\r' if !is_block => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::count_tokens;

    #[test]
    fn layout_does_not_count() {
        for (text, tokens) in [
            ("", 0),
            (" \t\r\n,,, # nothing { here }", 0),
            ("\u{FEFF}{a}", 3),
            ("query Q($a:[Int!]=[1,-2.5e+3]){f(x:$a)...F}", 27),
            ("query Q ( $a : [ Int ! ] = [ 1 , -2.5e+3 ] ) { f ( x : $a ) ... F }", 27),
            (r#"{ f(x: "a \" { b", y: """ " \""" } """) }"#, 11),
            ("{ f(x: \"not closed\n) }", 8),
            ("\"\\", 1),
            ("\"\"\"\\\"\"\"", 1),
        ] {
            assert_eq!(count_tokens(text, usize::MAX), tokens, "{text}");
        }
    }

    #[test]
    fn counting_stops_one_after_the_limit() {
        assert_eq!(count_tokens(&"a ".repeat(1000), 10), 11);
    }
}

//! Texts of operations without the values that clients wrote into them.

/// Returns the text of a GraphQL document with its strings and numbers replaced: strings by `"…"`, numbers by `0`.
/// Comments are left out. Names, and so the values of enums, stay.
pub fn redact_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_in_name = false;
    while let Some(char) = rest.chars().next() {
        if rest.starts_with("\"\"\"") {
            rest = after_block_string(&rest[3..]);
            out.push_str("\"…\"");
        } else if char == '"' {
            rest = after_string(&rest[1..]);
            out.push_str("\"…\"");
        } else if char == '#' {
            rest = &rest[rest.find(['\n', '\r']).unwrap_or(rest.len())..];
        } else if !is_in_name && (char.is_ascii_digit() || char == '-') {
            let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '+' | '.');
            rest = &rest[rest.find(|it| !is_part(it)).unwrap_or(rest.len())..];
            out.push('0');
        } else {
            // Numbered variables of the router, such as `$12`, have no value of a client.
            is_in_name = char.is_ascii_alphanumeric() || matches!(char, '_' | '$');
            out.push(char);
            rest = &rest[char.len_utf8()..];
            continue;
        }
        is_in_name = false;
    }
    out
}

/// Returns the text behind a string; empty if the string does not end.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, char) in text.char_indices() {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Returns the text behind a block string; empty if it does not end.
fn after_block_string(text: &str) -> &str {
    let mut rest = text;
    while let Some(at) = rest.find("\"\"\"") {
        let is_escaped = rest[..at].ends_with('\\');
        rest = &rest[at + 3..];
        if !is_escaped {
            return rest;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_are_replaced_and_names_stay() {
        for (text, expected) in [
            ("{ user(id: 42, v2: \"hunter2\") { name } }", "{ user(id: 0, v2: \"…\") { name } }"),
            ("{ a(x: -1.5e+7, y: [1,2], z: RED_1) }", "{ a(x: 0, y: [0,0], z: RED_1) }"),
            (r#"{ a(x: "q\"}" y: """b "" \""" c""" z: 1) }"#, "{ a(x: \"…\" y: \"…\" z: 0) }"),
            ("{ a # hunter2 \"\n b }", "{ a \n b }"),
            ("query Q($n: Int = 5) { a1: b2(n: $n) }", "query Q($n: Int = 0) { a1: b2(n: $n) }"),
            ("{ a(x: \"hunter2", "{ a(x: \"…\""),
            ("{ a(x: \"\"\"hunter2", "{ a(x: \"…\""),
            ("{ a(x: $12, y: 12) }", "{ a(x: $12, y: 0) }"),
            ("{ ä(x: \"ü\") }", "{ ä(x: \"…\") }"),
        ] {
            assert_eq!(redact_literals(text), expected, "{text}");
        }
    }
}

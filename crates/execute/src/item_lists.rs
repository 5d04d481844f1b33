//! The lists of representations in request bodies, as text.

use std::ops::Range;

/// Returns the elements of the JSON list at `list`, which the router has written itself.
pub(crate) fn list_items(body: &[u8], list: Range<usize>) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let (mut depth, mut in_string, mut is_escaped) = (0_u32, false, false);
    let mut start = list.start + 1;
    for at in list {
        let byte = body[at];
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 && at > start {
                    items.push(start..at);
                }
            }
            b',' if depth == 1 => {
                items.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_its_own_commas_only() {
        let body = br#"x[{"a":"],[","b":[1,2]},{"a":"\"},"},3]y"#;
        let list = 1..body.len() - 1;
        let items: Vec<&str> = list_items(body, list)
            .into_iter()
            .map(|item| std::str::from_utf8(&body[item]).unwrap_or_default())
            .collect();
        assert_eq!(items, [r#"{"a":"],[","b":[1,2]}"#, r#"{"a":"\"},"}"#, "3"]);
        assert!(list_items(b"[]", 0..2).is_empty());
    }
}

//! Splits an object into its members, or an array into its elements, as slices of the text. The
//! whole text is read strictly, but no nodes are made of it, so a large value that is not needed
//! costs little more than its length.

use std::borrow::Cow;

use bytes::Bytes;

use crate::error::{ParseError, ParseErrorKind};
use crate::limits::DEPTH_LIMIT_DEFAULT;
use crate::node::Kind;
use crate::parse::TEXT_BYTES_MAX;
use crate::scan::{Level, Refused};
use crate::skip::Skip;
use crate::string::decode;
use crate::text::Utf8;
use crate::token::{byte, skip_colon, skip_space};
use crate::validating_parser;

/// Calls `member` with the key and the text of the value of each member of the object `text`, in
/// their order. A key that occurs several times is reported several times; if only one can count,
/// it is the last. Returns the kind of `text`; it has no members if it is not an object.
///
/// ```
/// let mut found = None;
/// let text = bytes::Bytes::from_static(br#"{"wanted": [1, 2], "other": {"x": [3]}}"#);
/// astjson::outline_members(&text, |key, value| {
///     if key == "wanted" {
///         found = Some(value);
///     }
/// })?;
/// assert_eq!(found.as_deref(), Some(&b"[1, 2]"[..]));
/// # Ok::<(), astjson::ParseError>(())
/// ```
///
/// # Errors
///
/// As [`Document::parse`](crate::Document::parse) with the default depth limit. Members before the
/// error have been reported.
pub fn outline_members(
    text: &Bytes,
    mut member: impl FnMut(Cow<'_, str>, Bytes),
) -> Result<Kind, ParseError> {
    outline(text, |key, value| {
        if let Some(key) = key {
            member(key, value);
        }
    })
}

/// Calls `element` with the text of each element of the array `text`, in their order. Returns the
/// kind of `text`; it has no elements if it is not an array.
///
/// # Errors
///
/// Returns the errors of [`outline_members`].
pub fn outline_elements(text: &Bytes, mut element: impl FnMut(Bytes)) -> Result<Kind, ParseError> {
    outline(text, |key, value| {
        if key.is_none() {
            element(value);
        }
    })
}

fn outline(
    text: &Bytes,
    each: impl FnMut(Option<Cow<'_, str>>, Bytes),
) -> Result<Kind, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError { kind: ParseErrorKind::TooLarge, offset: 0 });
    }
    let checked = Utf8::new(text.clone())
        .map_err(|offset| ParseError { kind: ParseErrorKind::InvalidUtf8, offset })?;
    read(text, checked.as_str(), each).map_err(|Refused| {
        validating_parser::validate(checked.as_str(), DEPTH_LIMIT_DEFAULT)
            .err()
            .unwrap_or(ParseError { kind: ParseErrorKind::ExpectedValue, offset: 0 })
    })
}

fn read(
    shared: &Bytes,
    whole: &str,
    mut each: impl FnMut(Option<Cow<'_, str>>, Bytes),
) -> Result<Kind, Refused> {
    let (level, text) = (Level::detect(), whole.as_bytes());
    let skip = |at, depth_left| level.run(Skip { text, at, depth_left });
    let mut at = skip_space(text, 0);
    let first = byte(text, at);
    let kind = match first {
        b'{' => Kind::Object,
        b'[' => Kind::Array,
        b'"' => Kind::String,
        b't' | b'f' => Kind::Bool,
        b'n' => Kind::Null,
        _ => Kind::Number,
    };
    if !matches!(kind, Kind::Object | Kind::Array) {
        at = skip(at, DEPTH_LIMIT_DEFAULT)?;
    } else {
        // In ASCII, `]` and `}` are two above `[` and `{`.
        let closer = first + 2;
        at = skip_space(text, at + 1);
        if byte(text, at) == closer {
            at += 1;
        } else {
            loop {
                let mut key = None;
                if kind == Kind::Object {
                    at = skip_space(text, at);
                    if byte(text, at) != b'"' {
                        return Err(Refused);
                    }
                    let end = skip(at, 0)?;
                    let between = whole.get(at as usize + 1..end as usize - 1).ok_or(Refused)?;
                    key = Some(decode(between));
                    at = skip_colon(text, end)?;
                }
                let start = skip_space(text, at);
                let end = skip(start, DEPTH_LIMIT_DEFAULT - 1)?;
                each(key, shared.slice(start as usize..end as usize));
                at = skip_space(text, end);
                let after = byte(text, at);
                at += 1;
                if after == closer {
                    break;
                }
                if after != b',' {
                    return Err(Refused);
                }
            }
        }
    }
    match skip_space(text, at) as usize == text.len() {
        true => Ok(kind),
        false => Err(Refused),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot look must fail")]
mod tests {
    use super::*;
    use crate::Document;

    fn members(text: &str) -> Result<(Kind, Vec<(String, String)>), ParseError> {
        let mut found = Vec::new();
        let kind = outline_members(&Bytes::copy_from_slice(text.as_bytes()), |key, value| {
            found.push((key.into_owned(), String::from_utf8(value.to_vec()).unwrap()));
        })?;
        Ok((kind, found))
    }

    #[test]
    fn members_are_reported_as_they_are_written() {
        let text = r#" { "a" : [1, {"b":"]}"}] ,"\u0061":null, "":"x\"" } "#;
        let expected = [("a", r#"[1, {"b":"]}"}]"#), ("a", "null"), ("", r#""x\"""#)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(members(text), Ok((Kind::Object, expected.to_vec())));
        let mut elements = Vec::new();
        let kind =
            outline_elements(&Bytes::from_static(b"[1,\"a\" , [] ]"), |it| elements.push(it));
        assert_eq!(
            (kind, elements),
            (Ok(Kind::Array), vec!["1".into(), "\"a\"".into(), "[]".into()])
        );
    }

    #[test]
    fn a_text_is_refused_exactly_when_the_parser_refuses_it() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let texts = [
            "",
            " ",
            "{",
            "}",
            "{}",
            "[]",
            "[",
            "[,]",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1}",
            "{\"a\":1}}",
            "{\"a\":1} 2",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":[1,2}",
            "{\"a\":[1,]}",
            "{\"a\":01}",
            "{\"a\":\"\\x\"}",
            "{\"a\u{1}\":1}",
            "7",
            "07",
            "-",
            "tru",
            "true",
            "null",
            "\"a\"",
            "\"a",
            "[1 2]",
            "[{\"a\":{\"b\":[]}}]",
            "{\"a\":1]",
            "[1}",
        ];
        let nested = [deep(511), deep(512), deep(513)];
        for text in texts.into_iter().chain(nested.iter().map(String::as_str)) {
            let parsed = Document::new().parse(text.to_owned()).map(drop);
            assert_eq!(members(text).map(drop), parsed, "{text}");
        }
    }
}

//! Validators of responses: `ETag`, `If-None-Match`, and the decision for 304 (RFC 9110, sections 8.8.3 and 13.1.2).

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// The value of an `ETag`: a hash of the bytes of a response.
///
/// Equal bytes have equal validators at every router and after a restart. The hash (XXH3, 128 bits) has no secret and
/// is no protection against a server that makes two of its own responses collide on purpose: it would only keep its
/// own change from clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Validator {
    hash: u128,
    is_weak: bool,
}

impl Validator {
    /// Returns the strong validator of a response's bytes as they are sent.
    pub fn of(bytes: &[u8]) -> Self {
        Self { hash: xxh3_128(bytes), is_weak: false }
    }

    /// Restores a strong validator from [`Validator::hash`].
    pub fn from_hash(hash: u128) -> Self {
        Self { hash, is_weak: false }
    }

    /// Returns the hash, which is stored beside a response so that it is computed once.
    pub fn hash(self) -> u128 {
        self.hash
    }

    /// Returns the weak validator, for a response that is sent in a content coding: the bytes differ, and the meaning
    /// is the same.
    #[must_use]
    pub fn weak(self) -> Self {
        Self { is_weak: true, ..self }
    }

    /// True if a value of `If-None-Match` names this validator, by weak comparison: with or without `W/`. Parts of the
    /// value that cannot be read match nothing.
    pub fn matches(self, if_none_match: &[u8]) -> bool {
        if if_none_match.trim_ascii() == b"*" {
            return true;
        }
        let own = format!("{:032x}", self.hash);
        let mut rest = if_none_match;
        while let Some((opaque, after)) = next_entity_tag(rest) {
            if opaque == own.as_bytes() {
                return true;
            }
            rest = after;
        }
        false
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_weak { "W/" } else { "" };
        write!(out, "{prefix}\"{:032x}\"", self.hash)
    }
}

/// Splits off the next entity tag: the text between its quotes, and the rest. `None` at the end.
fn next_entity_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = text;
    loop {
        let start = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        rest = &rest[start..];
        let quoted = rest.strip_prefix(b"W/").unwrap_or(rest).strip_prefix(b"\"");
        // An entity tag has no escapes, so the next quote ends it.
        let end = quoted.and_then(|quoted| quoted.iter().position(|byte| *byte == b'"'));
        match (quoted, end) {
            (Some(quoted), Some(end)) => return Some((&quoted[..end], &quoted[end + 1..])),
            _ => {
                let comma = rest.iter().position(|byte| *byte == b',')?;
                rest = &rest[comma..];
            }
        }
    }
}

/// The decision about a conditional request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionalResponse {
    /// The response is sent with its body.
    Full,
    /// 304 is sent, with the headers named by [`NOT_MODIFIED_HEADERS`] and without a body.
    NotModified,
}

/// The headers that a 304 repeats if the full response has them (RFC 9110, section 15.4.5).
pub const NOT_MODIFIED_HEADERS: [&str; 6] =
    ["cache-control", "content-location", "date", "etag", "expires", "vary"];

/// Decides whether a response with status 200 needs its body. `is_read` is true for GET and HEAD; other methods have
/// no 304. `if_none_match` are the values of all such fields of the request.
pub fn decide_conditional<'a>(
    is_read: bool,
    if_none_match: impl IntoIterator<Item = &'a [u8]>,
    validator: Validator,
) -> ConditionalResponse {
    match is_read && if_none_match.into_iter().any(|value| validator.matches(value)) {
        true => ConditionalResponse::NotModified,
        false => ConditionalResponse::Full,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_bytes_have_equal_validators() {
        // The value must not change between versions: clients keep it.
        let validator = Validator::of(b"{\"data\":1}");
        assert_eq!(validator.to_string(), Validator::of(b"{\"data\":1}").to_string());
        assert_eq!(Validator::of(b"").to_string(), "\"99aa06d3014798d86001c324468d497f\"");
        assert_eq!(validator.weak().to_string(), format!("W/{validator}"));
        assert_eq!(Validator::from_hash(validator.hash()), validator);
        assert_ne!(validator, Validator::of(b"{\"data\":2}"));
    }

    #[test]
    fn if_none_match_compares_weakly_and_reads_lists() {
        let validator = Validator::of(b"a");
        let (own, other) = (validator.to_string(), Validator::of(b"b").to_string());
        for (value, expected) in [
            (own.clone(), true),
            (format!("W/{own}"), true),
            (format!("{other}, {own}"), true),
            (format!(",, W/{other} ,{own},"), true),
            (format!("\"a,b\",{own}"), true),
            (format!("broken, {own}"), true),
            (" * ".to_owned(), true),
            (other.clone(), false),
            (own.trim_matches('"').to_owned(), false),
            (format!("w/{own}"), false),
            (own[..own.len() - 1].to_owned(), false),
            (format!("*, {other}"), false),
            (String::new(), false),
        ] {
            assert_eq!(validator.matches(value.as_bytes()), expected, "{value}");
            assert_eq!(validator.weak().matches(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn only_reads_are_answered_with_304() {
        let validator = Validator::of(b"a");
        let own = validator.to_string();
        let decide = |is_read| decide_conditional(is_read, [own.as_bytes()], validator);
        assert_eq!(decide(true), ConditionalResponse::NotModified);
        assert_eq!(decide(false), ConditionalResponse::Full);
        assert_eq!(decide_conditional(true, [], validator), ConditionalResponse::Full);
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_ends(value: Vec<u8>) {
            let _ = Validator::of(b"a").matches(&value);
        }

        #[test]
        fn a_validator_is_found_behind_any_list(before in "(W/)?\"[a-z,]{0,5}\"( ,|,)") {
            let validator = Validator::of(b"a");
            let list = format!("{before}{validator}");
            prop_assert!(validator.matches(list.as_bytes()));
        }
    }
}

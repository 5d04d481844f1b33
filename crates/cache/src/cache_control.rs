//! Reads `Cache-Control` and `Age` of subgraphs' responses, and the operator's header with a time to live (RFC 9111,
//! RFC 5861).
//!
//! Reading never fails. A value that cannot be read never becomes a permission: the time is
//! then zero.

use std::time::Duration;

use http::HeaderMap;
use http::header::{AGE, CACHE_CONTROL, HeaderName};

/// The longest time that is read: a year. Longer times are cut (RFC 9111, section 1.2.2, permits any cut above 68
/// years; nothing here lives as long as a year).
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The directives of a response that matter to a shared cache. Directives that do not are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResponseDirectives {
    /// `max-age`. Zero if its value is not a number of seconds. If there are several, the smallest counts.
    pub max_age: Option<Duration>,
    /// `s-maxage`, which shared caches use in place of `max-age`.
    pub s_maxage: Option<Duration>,
    /// `stale-while-revalidate`.
    pub stale_while_revalidate: Option<Duration>,
    /// `stale-if-error`.
    pub stale_if_error: Option<Duration>,
    /// `public`.
    pub is_public: bool,
    /// `private`, with or without a list of fields.
    pub is_private: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`, with or without a list of fields.
    pub no_cache: bool,
    /// `must-revalidate` or `proxy-revalidate`: never served stale.
    pub must_revalidate: bool,
}

impl ResponseDirectives {
    /// Reads all `Cache-Control` fields of a response. `None` if it has none.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CACHE_CONTROL).iter().peekable();
        values.peek()?;
        let mut directives = Self::default();
        values.for_each(|value| directives.read_field(value.as_bytes()));
        Some(directives)
    }

    /// Adds the directives of one field.
    pub fn read_field(&mut self, field: &[u8]) {
        let mut rest = field;
        while let Some((name, value, after)) = next_directive(rest) {
            rest = after;
            self.apply(name, value);
        }
    }

    fn apply(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        let seconds = || value.and_then(read_seconds).unwrap_or_default();
        if is("max-age") {
            keep_smaller(&mut self.max_age, seconds());
        } else if is("s-maxage") {
            keep_smaller(&mut self.s_maxage, seconds());
        } else if is("stale-while-revalidate") {
            keep_smaller(&mut self.stale_while_revalidate, seconds());
        } else if is("stale-if-error") {
            keep_smaller(&mut self.stale_if_error, seconds());
        } else if is("public") {
            self.is_public = true;
        } else if is("private") {
            self.is_private = true;
        } else if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("must-revalidate") || is("proxy-revalidate") {
            self.must_revalidate = true;
        }
    }

    /// The time for which a shared cache may use the response, if the response says one.
    pub fn lifetime(&self) -> Option<Duration> {
        match self.is_private {
            // `s-maxage` is for shared caches, and a private response is not for them.
            true => self.max_age.or(self.s_maxage),
            false => self.s_maxage.or(self.max_age),
        }
    }
}

fn keep_smaller(known: &mut Option<Duration>, value: Duration) {
    *known = Some(known.map_or(value, |known| known.min(value)));
}

/// The name of a directive, its value without quotes, and the rest of the field.
type SplitDirective<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// Splits off the next directive. `None` at the end.
fn next_directive(text: &[u8]) -> Option<SplitDirective<'_>> {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
    let text = &text[start..];
    let end = text.iter().position(|byte| matches!(byte, b',' | b'=')).unwrap_or(text.len());
    let name = text[..end].trim_ascii();
    if text.get(end) != Some(&b'=') {
        return Some((name, None, &text[end..]));
    }
    let value = text[end + 1..].trim_ascii_start();
    if value.first() == Some(&b'"')
        && let Some(length) = quoted_length(value)
    {
        let (quoted, rest) = value.split_at(length);
        // Anything between the closing quote and the comma makes the value unreadable.
        let comma = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
        let is_clean = rest[..comma].trim_ascii().is_empty();
        let inner = if is_clean { &quoted[1..length - 1] } else { &b""[..] };
        return Some((name, Some(inner), &rest[comma..]));
    }
    // Without a closing quote the comma ends the directive: a `no-store` behind it must be seen.
    let comma = value.iter().position(|byte| *byte == b',').unwrap_or(value.len());
    Some((name, Some(value[..comma].trim_ascii()), &value[comma..]))
}

/// Returns the length of the quoted string at the start of `text`, with its quotes. `None` if it does not end.
fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut index = 1;
    while let Some(byte) = text.get(index) {
        match byte {
            b'"' => return Some(index + 1),
            b'\\' => index += 2,
            _ => index += 1,
        }
    }
    None
}

/// Reads a number of seconds: digits only. Numbers that are too large are cut to [`TIME_MAX`].
fn read_seconds(text: &[u8]) -> Option<Duration> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = text.iter().fold(0u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(Duration::from_secs(seconds).min(TIME_MAX))
}

/// Reads `Age`: the time that the response was in caches before it arrived. The largest of several values counts;
/// values that are not a number are ignored. Zero if there is none.
pub fn read_age(headers: &HeaderMap) -> Duration {
    let values =
        headers.get_all(AGE).iter().flat_map(|value| value.as_bytes().split(|it| *it == b','));
    values.filter_map(|value| read_seconds(value.trim_ascii())).max().unwrap_or_default()
}

/// The reason why the operator's header with a time to live was ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the value is not a number of seconds, such as 60 or 0.5")]
pub struct BadTtlHeader;

/// Reads the operator's header that contains seconds, also with a fraction. `None` if the response does not have it.
/// The smallest of several values counts.
///
/// # Errors
/// A value is not a number of seconds.
pub fn read_ttl_header(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<Duration>, BadTtlHeader> {
    let mut time = None;
    for value in headers.get_all(name) {
        keep_smaller(&mut time, read_decimal(value.as_bytes().trim_ascii()).ok_or(BadTtlHeader)?);
    }
    Ok(time)
}

fn read_decimal(text: &[u8]) -> Option<Duration> {
    let dot = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let whole = read_seconds(&text[..dot])?;
    let Some(fraction) = text.get(dot + 1..) else { return Some(whole) };
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(3);
    let millis = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some((whole + Duration::from_millis(millis)).min(TIME_MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn directives(field: &str) -> ResponseDirectives {
        let mut directives = ResponseDirectives::default();
        directives.read_field(field.as_bytes());
        directives
    }

    fn seconds(count: u64) -> Option<Duration> {
        Some(Duration::from_secs(count))
    }

    #[test]
    fn the_directives_of_a_response_are_read() {
        let read = directives(
            "Public, MAX-AGE=60,s-maxage = 30 ,, stale-while-revalidate=5, stale-if-error=86400, immutable, x=\"a, b\"",
        );
        let expected = ResponseDirectives {
            max_age: seconds(60),
            s_maxage: seconds(30),
            stale_while_revalidate: seconds(5),
            stale_if_error: seconds(86_400),
            is_public: true,
            ..ResponseDirectives::default()
        };
        assert_eq!(read, expected);
        assert_eq!(read.lifetime(), seconds(30));
        assert_eq!(directives("private, max-age=60, s-maxage=30").lifetime(), seconds(60));
    }

    #[test]
    fn values_that_cannot_be_read_permit_nothing() {
        for field in [
            "max-age",
            "max-age=",
            "max-age=x",
            "max-age=-1",
            "max-age=1.5",
            "max-age=1 2",
            "max-age=\"60\"x",
            "max-age='60'",
            "max-age=60, max-age=0",
        ] {
            assert_eq!(directives(field).max_age, seconds(0), "{field}");
        }
        assert_eq!(directives("max-age=\"60\"").max_age, seconds(60));
        assert_eq!(directives("max-age=99999999999999999999999").max_age, Some(TIME_MAX));
        assert_eq!(directives("xmax-age=5, max-agex=5").max_age, None);
    }

    #[test]
    fn a_restriction_is_found_wherever_it_is() {
        assert!(directives("a=\"x, no-store").no_store, "a quote that does not end hides nothing");
        assert!(!directives("a=\"x, no-store\"").no_store);
        assert!(directives("private=\"set-cookie\"").is_private);
        assert!(directives("no-cache=\"a\\\"b\", no-store").no_store);
        assert!(directives("\u{e4}, no-store").no_store);
        assert!(directives("proxy-revalidate").must_revalidate);
    }

    #[test]
    fn several_fields_are_read_as_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(ResponseDirectives::from_headers(&headers), None);
        for value in ["max-age=60", "no-cache", "max-age=30"] {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(value));
        }
        let read = ResponseDirectives::from_headers(&headers).expect("fields");
        assert_eq!((read.max_age, read.no_cache), (seconds(30), true));
    }

    #[test]
    fn the_largest_age_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(read_age(&headers), Duration::ZERO);
        for value in ["7, 12", "x", "-3", "9"] {
            headers.append(AGE, HeaderValue::from_static(value));
        }
        assert_eq!(read_age(&headers), Duration::from_secs(12));
    }

    #[test]
    fn the_ttl_header_has_seconds_with_or_without_a_fraction() {
        let name = HeaderName::from_static("x-ttl");
        let read = |value: &'static str| {
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(value))]);
            read_ttl_header(&headers, &name)
        };
        assert_eq!(read_ttl_header(&HeaderMap::new(), &name), Ok(None));
        assert_eq!(read("60"), Ok(seconds(60)));
        assert_eq!(read(" 0.25 "), Ok(Some(Duration::from_millis(250))));
        assert_eq!(read("1.0009"), Ok(seconds(1)));
        for value in ["", "60s", "-1", ".5", "1.", "1,5", "1e3"] {
            assert_eq!(read(value), Err(BadTtlHeader), "{value}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(field: Vec<u8>) {
            let mut directives = ResponseDirectives::default();
            directives.read_field(&field);
            let lifetime = directives.lifetime().unwrap_or_default();
            prop_assert!(lifetime <= TIME_MAX);
        }

        /// Directives keep their meaning in any order and among unknown ones.
        #[test]
        fn unknown_directives_and_order_make_no_difference(
            age in 0u64..1_000,
            before in "[a-z]{1,3}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,5}\")?",
            after in "[a-z]{1,3}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,5}\")?",
        ) {
            let read = directives(&format!("{before}, max-age={age} ,no-store,{after}"));
            prop_assert_eq!((read.max_age, read.no_store), (seconds(age), true));
            let read = directives(&format!("no-store,{after},{before},max-age={age}"));
            prop_assert_eq!((read.max_age, read.no_store), (seconds(age), true));
        }
    }
}

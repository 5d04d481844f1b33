//! Headers that contain the time for which a sender waits for the response: those that clients send to the router, and
//! those that the router sends to subgraphs.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// The maximum number of digits in a value. Durations that need more are longer than any request takes.
const DIGITS_MAX: usize = 15;

/// The maximum number of digits in `grpc-timeout`.
const GRPC_DIGITS_MAX: usize = 8;

/// A header with the time for which its sender waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutHeader {
    /// The name of the header.
    pub name: HeaderName,
    /// The form of its value.
    pub format: TimeoutFormat,
}

/// The form of a duration in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeoutFormat {
    /// A whole number of milliseconds: `1500`.
    #[default]
    Milliseconds,
    /// A number of seconds, which may have decimals: `1.5`.
    Seconds,
    /// The value of `grpc-timeout`, at most eight digits and a unit: `1500m`.
    Grpc,
}

impl TimeoutFormat {
    /// Parses a value; `None` if it has another form.
    pub fn parse(self, value: &[u8]) -> Option<Duration> {
        let text = std::str::from_utf8(value).ok()?.trim_ascii();
        match self {
            Self::Milliseconds => parse_digits(text, DIGITS_MAX).map(Duration::from_millis),
            Self::Seconds => parse_seconds(text),
            Self::Grpc => parse_grpc(text),
        }
    }

    /// Returns the value for a duration, in milliseconds, rounded down. A value of zero would mean to some servers that
    /// there is no limit, so the shortest is a millisecond.
    pub fn value(self, duration: Duration) -> HeaderValue {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1);
        let text = match self {
            Self::Milliseconds => return HeaderValue::from(millis),
            Self::Seconds => format!("{}.{:03}", millis / 1000, millis % 1000),
            Self::Grpc if millis < 10_u64.pow(GRPC_DIGITS_MAX as u32) => format!("{millis}m"),
            Self::Grpc => {
                let seconds_max = 10_u64.pow(GRPC_DIGITS_MAX as u32) - 1;
                format!("{}S", (millis / 1000).min(seconds_max))
            }
        };
        // Digits, points and letters are the value of a header.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("1"))
    }
}

/// Parses up to `digits_max` digits.
fn parse_digits(text: &str, digits_max: usize) -> Option<u64> {
    let is_number =
        (1..=digits_max).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let whole = parse_digits(whole, DIGITS_MAX)?;
    // Nanoseconds: the digits behind the ninth do not count.
    parse_digits(decimals, DIGITS_MAX)?;
    let nanos = decimals.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(Duration::new(whole, nanos))
}

/// Parses the value of `grpc-timeout`: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
fn parse_grpc(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = parse_digits(number, GRPC_DIGITS_MAX)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_formats_are_parsed() {
        use TimeoutFormat::{Grpc, Milliseconds, Seconds};
        let millis = |it| Some(Duration::from_millis(it));
        for (format, text, expected) in [
            (Milliseconds, "1500", millis(1500)),
            (Milliseconds, " 0 ", millis(0)),
            (Milliseconds, "1.5", None),
            (Milliseconds, "-1", None),
            (Milliseconds, "+1", None),
            (Milliseconds, "", None),
            (Milliseconds, "999999999999999", millis(999_999_999_999_999)),
            (Milliseconds, "1000000000000000", None),
            (Seconds, "2", millis(2000)),
            (Seconds, "1.5", millis(1500)),
            (Seconds, "0.0015", Some(Duration::from_micros(1500))),
            (Seconds, "0.123456789999", Some(Duration::from_nanos(123_456_789))),
            (Seconds, "1.", None),
            (Seconds, ".5", None),
            (Seconds, "1.5.1", None),
            (Seconds, "1e3", None),
            (Grpc, "1H", millis(3_600_000)),
            (Grpc, "2M", millis(120_000)),
            (Grpc, "3S", millis(3000)),
            (Grpc, "250m", millis(250)),
            (Grpc, "1000u", millis(1)),
            (Grpc, "1000000n", millis(1)),
            (Grpc, "99999999H", millis(99_999_999 * 3_600_000)),
            (Grpc, "100000000S", None),
            (Grpc, "250", None),
            (Grpc, "m", None),
            (Grpc, "1ü", None),
            (Grpc, "", None),
        ] {
            assert_eq!(format.parse(text.as_bytes()), expected, "{format:?} {text}");
        }
        assert_eq!(Milliseconds.parse(b"\xff1"), None);
    }

    #[test]
    fn values_are_written_in_whole_milliseconds_and_are_never_zero() {
        use TimeoutFormat::{Grpc, Milliseconds, Seconds};
        let micros = Duration::from_micros;
        for (format, duration, expected) in [
            (Milliseconds, micros(1_500_900), "1500"),
            (Milliseconds, Duration::ZERO, "1"),
            (Seconds, micros(12_045_900), "12.045"),
            (Seconds, micros(10), "0.001"),
            (Grpc, micros(1_500_900), "1500m"),
            (Grpc, Duration::from_millis(99_999_999), "99999999m"),
            (Grpc, Duration::from_millis(100_000_000), "100000S"),
            (Grpc, Duration::MAX, "99999999S"),
        ] {
            assert_eq!(format.value(duration), expected, "{format:?} {duration:?}");
            let parsed = format.parse(format.value(duration).as_bytes());
            assert!(parsed.is_some(), "{format:?} {duration:?}");
        }
    }
}

//! Times in the format of RFC 3339: `2026-01-31T08:00:00.5+01:00`.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time. `None` if it is invalid, or before 1970.
pub(crate) fn parse_instant(text: &str) -> Option<SystemTime> {
    // The crate accepts any separator between date and time.
    let has_separator = text.get(10..11).is_some_and(|it| matches!(it, "T" | "t" | " "));
    let time: SystemTime =
        OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| has_separator)?.into();
    (time >= SystemTime::UNIX_EPOCH).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(u64, u32)> {
        let since = parse_instant(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some((since.as_secs(), since.subsec_nanos()))
    }

    #[test]
    fn times_of_any_zone_are_read() {
        for (text, seconds, nanoseconds) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2000-02-29T12:00:00z", 951_825_600, 0),
            ("2026-01-31T08:00:00.25Z", 1_769_846_400, 250_000_000),
            ("2026-01-31T09:30:00+01:30", 1_769_846_400, 0),
            ("2026-01-30 23:00:00.1234567891-09:00", 1_769_846_400, 123_456_789),
            // A leap second is the end of the second before.
            ("2016-12-31T23:59:60Z", 1_483_228_799, 999_999_999),
        ] {
            assert_eq!(parsed(text), Some((seconds, nanoseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "yesterday",
            "2026-01-31",
            "2026-01-31T08:00:00",
            "2026-02-29T08:00:00Z",
            "2026-13-01T08:00:00Z",
            "2026-00-01T08:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T08:00Z",
            "2026-01-31T08:00:00.Z",
            "2026-01-31T08:00:00ZZ",
            "2026-01-31T08:00:00+1:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "+026-01-31T08:00:00Z",
            "2026-01-31_08:00:00Z",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}

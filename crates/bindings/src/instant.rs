//! Times in the format of RFC 3339: `2026-01-31T08:00:00.5+01:00`.

use std::time::{Duration, SystemTime};

const DAY_SECONDS: u64 = 24 * 3600;

/// Parses a time. `None` if it is invalid, or before 1970.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone_at);
    let (time, fraction) = time.split_once('.').map_or((time, None), |(it, rest)| (it, Some(rest)));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    // A leap second is the first second of the next minute.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds =
        days_since_1970(year, month, day)? * DAY_SECONDS + hour * 3600 + minute * 60 + second;
    let seconds = match zone.strip_prefix(['+', '-']) {
        None => Some(seconds).filter(|_| zone.eq_ignore_ascii_case("z"))?,
        Some(offset) => {
            let [hours, minutes] = numbers(offset, ':', [2, 2])?;
            let offset = (hours <= 23 && minutes <= 59).then_some(hours * 3600 + minutes * 60)?;
            // A zone with a positive offset shows a later time than UTC.
            if zone.starts_with('+') { seconds.checked_sub(offset)? } else { seconds + offset }
        }
    };
    let nanoseconds = fraction.map_or(Some(0), nanoseconds)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

/// Parses groups of digits with these lengths and `separator` between them.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut groups = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let group = groups.next()?;
        if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = group.parse().ok()?;
    }
    groups.next().is_none().then_some(numbers)
}

/// Parses the fraction of a second. Digits beyond a nanosecond are ignored.
fn nanoseconds(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padded: String = digits.chars().chain("000000000".chars()).take(9).collect();
    padded.parse().ok()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let years = 1970..year;
    (year >= 1970).then(|| {
        years.map(|year| 365 + u64::from(is_leap(year))).sum::<u64>()
            + (1..month).map(|month| days_of(year, month)).sum::<u64>()
            + (day - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(u64, u32)> {
        let since = parse(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
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
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
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
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}

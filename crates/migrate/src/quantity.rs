//! Durations, sizes and shares in the forms of other routers. The printers of `config` write durations and sizes in the
//! form of Starling.

use std::time::Duration;

/// The units of durations: names, and nanoseconds.
const DURATION_UNITS: [(&[&str], f64); 8] = [
    (&["ns", "nsec"], 1.0),
    (&["us", "µs", "μs", "usec"], 1e3),
    (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1e6),
    (&["s", "sec", "secs", "second", "seconds"], 1e9),
    (&["m", "min", "mins", "minute", "minutes"], 60e9),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600e9),
    (&["d", "day", "days"], 86_400e9),
    (&["w", "week", "weeks"], 604_800e9),
];

/// The units of sizes in lower case, and bytes.
const SIZE_UNITS: [(&[&str], f64); 7] = [
    (&["", "b", "byte", "bytes"], 1.0),
    (&["k", "kb"], 1e3),
    (&["m", "mb"], 1e6),
    (&["g", "gb"], 1e9),
    (&["ki", "kib"], 1_024.0),
    (&["mi", "mib"], 1_048_576.0),
    (&["gi", "gib"], 1_073_741_824.0),
];

/// Parses a duration such as `1m30s`, `1.5 s` or `2 minutes`.
///
/// # Errors
/// The reason, for a sentence after "the value".
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("is empty".into());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let (number, tail) = split_number(rest).ok_or("is not a duration")?;
        let length = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(length);
        let unit = unit.trim();
        let known = DURATION_UNITS.iter().find(|(names, _)| names.contains(&unit));
        // The unit is not repeated: it may be a secret in the wrong place.
        let (_, factor) = known.ok_or(match unit {
            "" => "has no unit",
            _ => "has an unknown unit",
        })?;
        nanoseconds += number * factor;
        rest = tail.trim_start();
    }
    let milliseconds = nanoseconds / 1e6;
    if milliseconds.fract() != 0.0 || milliseconds > 1e15 {
        return Err("is not a whole number of milliseconds".into());
    }
    // Below 2^53, as checked above: the conversion is exact.
    Ok(Duration::from_millis(milliseconds as u64))
}

/// Parses a size such as `5MB`, `1.5 mib` or `1024`, and returns its bytes.
///
/// # Errors
/// The reason, for a sentence after "the value".
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text.trim()).ok_or("is not a size")?;
    let unit = unit.trim().to_ascii_lowercase();
    let known = SIZE_UNITS.iter().find(|(names, _)| names.contains(&&*unit));
    let (_, factor) = known.ok_or("has an unknown unit")?;
    let bytes = number * factor;
    if bytes.fract() != 0.0 || bytes > 1e15 {
        return Err("is not a whole number of bytes".into());
    }
    // Below 2^53, as checked above: the conversion is exact.
    Ok(bytes as u64)
}

/// Prints a share of 0 to 1 as a percentage.
pub(crate) fn print_ratio(share: f64) -> String {
    let percent = format!("{:.4}", share * 100.0);
    format!("{}%", percent.trim_end_matches('0').trim_end_matches('.'))
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, rest) = text.split_at(length.unwrap_or(text.len()));
    Some((number.replace('_', "").parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use config::{print_bytes, print_duration};

    use super::*;

    #[test]
    fn durations_of_other_routers_are_printed_in_one_exact_unit() {
        let cases = [
            ("30s", "30s"),
            ("1m30s", "90s"),
            ("1.5s", "1500ms"),
            ("2 minutes", "2m"),
            ("1h 30min", "90m"),
            ("24h", "24h"),
            ("2d", "48h"),
            ("0s", "0s"),
            ("1000us", "1ms"),
        ];
        for (text, printed) in cases {
            assert_eq!(parse_duration(text).map(print_duration), Ok(printed.to_owned()), "{text}");
        }
        for text in ["", "s", "30", "30 parsecs", "10us", "-1s", "1e3s", "99999999999w"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_of_other_routers_are_printed_in_one_exact_unit() {
        let cases = [
            ("5MB", "5MB"),
            ("1mib", "1MiB"),
            ("1.5 KiB", "1536B"),
            ("2000000", "2MB"),
            ("4 gb", "4GB"),
            ("0MiB", "0B"),
            ("10_000", "10KB"),
        ];
        for (text, printed) in cases {
            assert_eq!(parse_size(text).map(print_bytes), Ok(printed.to_owned()), "{text}");
        }
        for text in ["", "MB", "5 parsecs", "0.5B", "-1"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_printed_as_percentages() {
        let cases = [(1.0, "100%"), (0.5, "50%"), (0.001, "0.1%"), (0.0, "0%"), (0.333, "33.3%")];
        for (share, printed) in cases {
            assert_eq!(print_ratio(share), printed);
        }
    }
}

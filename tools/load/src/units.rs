//! Times, shares and rates in their written form: `200ms`, `1%`, `1000..2000/120s`.

use std::time::Duration;

/// The longest accepted time.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// Parses a time: a number with `us`, `ms`, `s`, `m` or `h`, or several of them (`1m30s`).
///
/// # Errors
/// A message about the expected format.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a time: write a number with a unit, as in 10s or 200ms");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let after = &rest[digits..];
        let unit_length =
            after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let factor = match &after[..unit_length] {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        seconds += number * factor;
        rest = &after[unit_length..];
    }
    if seconds > SECONDS_MAX {
        return Err(format!("`{text}` is more than a week"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a share: `1%`, or a number from 0 to 1.
///
/// # Errors
/// A message about the expected format.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let number = match trimmed.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => trimmed.parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is not a share: write 1% or 0.01")),
    }
}

/// Formats a time with three or four significant digits: `812 µs`, `4.31 ms`, `12.0 s`.
pub(crate) fn format_duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", format_number(value))
}

/// Formats a count with separators between thousands.
pub(crate) fn format_count(count: u64) -> String {
    group_digits(&count.to_string())
}

/// Formats a number with separators between thousands, and with only the significant decimals.
pub(crate) fn format_number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole.to_owned(), format!(".{fraction}")),
        None => (text, String::new()),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole.as_str()),
    };
    format!("{sign}{}{fraction}", group_digits(digits))
}

fn group_digits(digits: &str) -> String {
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, expected) in [
            ("10s", Some(10_000_000)),
            ("200ms", Some(200_000)),
            ("1m30s", Some(90_000_000)),
            ("2.5ms", Some(2_500)),
            ("40us", Some(40)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("ms", None),
            ("10 s", None),
            ("-1s", None),
            ("1..2s", None),
            ("9999h", None),
        ] {
            let read = parse_duration(text).ok().map(|duration| duration.as_micros());
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn shares_are_read_as_percent_or_fraction() {
        for (text, expected) in
            [("1%", Some(0.01)), ("0.5", Some(0.5)), ("0", Some(0.0)), ("101%", None), ("x", None)]
        {
            assert_eq!(parse_share(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        for (value, expected) in [
            (1_234_567.8, "1,234,568"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.0, "0"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(format_number(value), expected);
        }
        assert_eq!(
            (format_count(7), format_count(1_234_567)),
            ("7".to_owned(), "1,234,567".to_owned())
        );
        assert_eq!(format_duration(0.000_812), "812 µs");
        assert_eq!(format_duration(0.004_31), "4.31 ms");
        assert_eq!(format_duration(12.0), "12.0 s");
    }
}

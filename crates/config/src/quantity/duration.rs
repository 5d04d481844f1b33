//! Durations in a configuration: `500ms`, `30s`, `1m30s`, `24h`.

use std::time::Duration;

use super::Quantity;

/// The longest duration: one week. A longer timeout is a typing mistake.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Quantity for Duration {
    /// Parses a duration: one or more pairs of a whole number and a unit, without signs or fractions.
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty".into());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("the unit is missing".into());
        }
        let mut milliseconds: u64 = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return Err("it does not begin with a whole number".into());
            }
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let unit = unit.trim();
            if unit.starts_with('.') {
                return Err("fractions are written in the next smaller unit: `1500ms`".into());
            }
            let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(format!("the unit `{unit}` is not one of `ms`, `s`, `m`, `h`"));
            };
            milliseconds = number
                .parse::<u64>()
                .ok()
                .and_then(|number| number.checked_mul(*factor))
                .and_then(|part| milliseconds.checked_add(part))
                .ok_or("it is too long")?;
            rest = tail;
        }
        let duration = Self::from_millis(milliseconds);
        if duration > DURATION_MAX {
            return Err("it is longer than a week".into());
        }
        Ok(duration)
    }

    fn print(&self) -> String {
        print_duration(*self)
    }
}

/// Prints a duration in the largest unit that is exact. Parts of a millisecond are left out.
pub fn print_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    if milliseconds == 0 {
        return "0s".into();
    }
    for (unit, factor) in UNITS {
        if milliseconds.is_multiple_of(u128::from(factor)) {
            return format!("{}{unit}", milliseconds / u128::from(factor));
        }
    }
    format!("{milliseconds}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_in_the_largest_exact_unit() {
        for (text, milliseconds, printed) in [
            ("0s", 0, "0s"),
            ("500ms", 500, "500ms"),
            ("1500ms", 1_500, "1500ms"),
            ("30s", 30_000, "30s"),
            ("30 s", 30_000, "30s"),
            ("1m30s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("24h", 86_400_000, "24h"),
        ] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(duration.print(), printed, "{text}");
        }
    }

    #[test]
    fn an_error_names_what_is_wrong_with_a_duration() {
        for (text, reason) in [
            ("", "it is empty"),
            ("30", "the unit is missing"),
            ("-5s", "it does not begin with a whole number"),
            ("soon", "it does not begin with a whole number"),
            ("1.5s", "fractions are written in the next smaller unit: `1500ms`"),
            ("30sec", "the unit `sec` is not one of `ms`, `s`, `m`, `h`"),
            ("10d", "the unit `d` is not one of `ms`, `s`, `m`, `h`"),
            ("200h", "it is longer than a week"),
            ("99999999999999999999s", "it is too long"),
            ("9999999999999999999h", "it is too long"),
        ] {
            assert_eq!(Duration::parse(text), Err(reason.into()), "{text}");
        }
    }
}

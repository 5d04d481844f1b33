//! Durations in a configuration: `500ms`, `30s`, `1m30s`, `24h`.

use std::time::Duration;

/// The longest duration: one week. A longer timeout is a typing mistake.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration: one or more pairs of a whole number and a unit, without signs or fractions.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
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
    let duration = Duration::from_millis(milliseconds);
    if duration > DURATION_MAX {
        return Err("it is longer than a week".into());
    }
    Ok(duration)
}

/// Prints a duration in the largest unit that is exact.
pub(super) fn print(duration: Duration) -> String {
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

/// Serialization for `#[serde(with = …)]`.
pub(super) mod text {
    use super::{Duration, parse, print};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::config) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&print(*duration))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Serialization for `#[serde(with = …)]` on `Option<Duration>`.
pub(super) mod optional_text {
    use super::{Duration, parse, print};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(in crate::config) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(print).serialize(serializer)
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse(&text).map_err(D::Error::custom)).transpose()
    }
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
            let duration = parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(print(duration), printed, "{text}");
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
            assert_eq!(parse(text), Err(reason.into()), "{text}");
        }
    }
}

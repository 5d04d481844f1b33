//! Writes the values of leaves, whose kinds `guess` selects.

use super::identity::Identity;
use super::words::{
    ADJECTIVES, CITIES, COLOURS, COMPANIES, COUNTRIES, CURRENCIES, FAMILY, GIVEN, LOCALES,
    STATUSES, STREETS, THINGS, WORDS,
};
use crate::random::{mix, unit};

/// 2020-01-01T00:00:00Z in seconds since 1970; times are within five years from then.
const TIME_BASE: u64 = 1_577_836_800;
const TIME_SPAN: u64 = 5 * 365 * 86_400;

/// The rule to make up one leaf.
pub(in crate::subgraph) enum Leaf {
    /// The entity's number, as a member of its key.
    Key(KeyStyle),
    /// An integer within these bounds, both included.
    Int(i64, i64),
    /// A number with two decimals within these bounds.
    Decimal(f64, f64),
    /// A number with two decimals, as a string.
    DecimalText(f64, f64),
    Boolean,
    /// One of these values.
    Enum(Box<[Box<str>]>),
    /// Any number as a string, for an `ID` that is not a key.
    Id,
    Text(Text),
    /// An object, for a scalar that accepts any JSON.
    Json,
}

/// The format of a key's member that contains its entity's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::subgraph) enum KeyStyle {
    Number,
    NumberText,
    /// The number after a prefix with the field's name.
    Prefixed(&'static str),
    Uuid,
    Email,
    Url,
}

/// The kinds of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::subgraph) enum Text {
    PersonName,
    GivenName,
    FamilyName,
    UserName,
    ThingName,
    Company,
    Email,
    Url,
    Phone,
    City,
    Country,
    Street,
    Postcode,
    Colour,
    Currency,
    Locale,
    Status,
    Code,
    Uuid,
    DateTime,
    Date,
    Time,
    Duration,
    Paragraph,
    Words,
}

impl Leaf {
    /// Writes the value as JSON.
    // hot path: about ten ns; a mock must not be slower than the subgraph that it replaces.
    pub(in crate::subgraph) fn write(&self, identity: Identity, seed: u64, into: &mut Vec<u8>) {
        match self {
            Self::Key(style) => style.write(identity.number, into),
            Self::Int(low, high) => {
                let span = high.abs_diff(*low) + 1;
                print(into, low.saturating_add_unsigned(seed % span));
            }
            Self::Decimal(low, high) => decimal(*low, *high, seed, into),
            Self::DecimalText(low, high) => {
                into.push(b'"');
                decimal(*low, *high, seed, into);
                into.push(b'"');
            }
            Self::Boolean => {
                into.extend_from_slice(if seed.is_multiple_of(2) { b"true" } else { b"false" });
            }
            Self::Enum(values) => {
                let value = values.get(seed as usize % values.len().max(1));
                quoted(value.map_or("", |value| value), into);
            }
            Self::Id => KeyStyle::NumberText.write(1 + seed % 100_000, into),
            Self::Text(text) => {
                into.push(b'"');
                text.write(identity, seed, into);
                into.push(b'"');
            }
            Self::Json => {
                into.extend_from_slice(b"{\"value\":");
                print(into, seed % 1000);
                into.push(b'}');
            }
        }
    }
}

impl KeyStyle {
    fn write(self, number: u64, into: &mut Vec<u8>) {
        if self == Self::Number {
            return print(into, number);
        }
        into.push(b'"');
        match self {
            Self::Number | Self::NumberText => print(into, number),
            Self::Prefixed(prefix) => {
                into.extend_from_slice(prefix.as_bytes());
                into.push(b'-');
                print(into, number);
            }
            Self::Uuid => {
                into.extend_from_slice(b"00000000-0000-4000-8000-");
                padded(into, number, 12);
            }
            Self::Email => {
                into.extend_from_slice(b"user");
                print(into, number);
                into.extend_from_slice(b"@example.com");
            }
            Self::Url => {
                into.extend_from_slice(b"https://example.com/");
                print(into, number);
            }
        }
        into.push(b'"');
    }
}

impl Text {
    /// Writes the text, which needs no escapes.
    fn write(self, identity: Identity, seed: u64, into: &mut Vec<u8>) {
        // The names of one person match each other: they depend on the object and not on the field.
        let (given, family) = (mix(identity.seed, 11), mix(identity.seed, 12));
        let mut put = |parts: &[&str]| {
            for part in parts {
                into.extend_from_slice(part.as_bytes());
            }
        };
        match self {
            Self::PersonName => put(&[pick(GIVEN, given), " ", pick(FAMILY, family)]),
            Self::GivenName => put(&[pick(GIVEN, given)]),
            Self::FamilyName => put(&[pick(FAMILY, family)]),
            Self::ThingName => put(&[pick(ADJECTIVES, given), " ", pick(THINGS, family)]),
            Self::Company => put(&[pick(COMPANIES, seed)]),
            Self::City => put(&[pick(CITIES, seed)]),
            Self::Country => put(&[pick(COUNTRIES, seed)]),
            Self::Colour => put(&[pick(COLOURS, seed)]),
            Self::Currency => put(&[pick(CURRENCIES, seed)]),
            Self::Locale => put(&[pick(LOCALES, seed)]),
            Self::Status => put(&[pick(STATUSES, seed)]),
            Self::UserName => {
                into.push(b'@');
                into.extend(pick(GIVEN, given).bytes().map(|byte| byte.to_ascii_lowercase()));
                print(into, identity.number);
            }
            Self::Email => {
                into.extend(pick(GIVEN, given).bytes().map(|byte| byte.to_ascii_lowercase()));
                into.push(b'.');
                into.extend(pick(FAMILY, family).bytes().map(|byte| byte.to_ascii_lowercase()));
                put_text(into, "@example.com");
            }
            Self::Url => {
                put_text(into, "https://example.com/");
                hex(into, seed, 12);
            }
            Self::Phone => {
                put_text(into, "+1 555 01");
                padded(into, seed % 100, 2);
            }
            Self::Street => {
                print(into, 1 + seed % 200);
                into.push(b' ');
                put_text(into, pick(STREETS, seed >> 16));
            }
            Self::Postcode => padded(into, seed % 100_000, 5),
            Self::Code => {
                hex(into, seed, 4);
                into.push(b'-');
                padded(into, (seed >> 20) % 10_000, 4);
            }
            Self::Uuid => {
                hex(into, seed, 8);
                into.push(b'-');
                hex(into, seed >> 32, 4);
                put_text(into, "-4");
                hex(into, seed >> 48, 3);
                put_text(into, "-8");
                hex(into, mix(seed, 3), 3);
                into.push(b'-');
                hex(into, mix(seed, 4), 12);
            }
            Self::DateTime => {
                let time = TIME_BASE + seed % TIME_SPAN;
                date(time, into);
                into.push(b'T');
                time_of_day(time, into);
                into.push(b'Z');
            }
            Self::Date => date(TIME_BASE + seed % TIME_SPAN, into),
            Self::Time => time_of_day(seed % 86_400, into),
            Self::Duration => {
                put_text(into, "PT");
                print(into, 1 + seed % 180);
                into.push(b'M');
            }
            Self::Paragraph => sentence(8 + seed % 12, seed, into),
            Self::Words => {
                put_text(into, pick(WORDS, seed));
                into.push(b' ');
                put_text(into, pick(WORDS, seed >> 20));
            }
        }
    }
}

fn pick<'a>(of: &[&'a str], seed: u64) -> &'a str {
    of[(seed % of.len() as u64) as usize]
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(text.as_bytes());
}

fn quoted(text: &str, into: &mut Vec<u8>) {
    into.push(b'"');
    put_text(into, text);
    into.push(b'"');
}

fn print(into: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write as _;
    // Writing to a vector cannot fail.
    let _ = write!(into, "{value}");
}

fn padded(into: &mut Vec<u8>, value: u64, digits: usize) {
    use std::io::Write as _;
    let _ = write!(into, "{value:0digits$}");
}

fn hex(into: &mut Vec<u8>, value: u64, digits: u32) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for place in (0..digits).rev() {
        into.push(DIGITS[(value >> (4 * place) & 15) as usize]);
    }
}

fn decimal(low: f64, high: f64, seed: u64, into: &mut Vec<u8>) {
    let cents = ((low + (high - low) * unit(seed)) * 100.0).round() as i64;
    if cents < 0 {
        into.push(b'-');
    }
    print(into, cents.unsigned_abs() / 100);
    into.push(b'.');
    padded(into, cents.unsigned_abs() % 100, 2);
}

fn sentence(length: u64, seed: u64, into: &mut Vec<u8>) {
    let mut bits = seed;
    for place in 0..length {
        bits = mix(bits, place);
        let word = pick(WORDS, bits);
        if place == 0 {
            into.extend(word.bytes().take(1).map(|byte| byte.to_ascii_uppercase()));
            put_text(into, &word[1..]);
        } else {
            into.push(b' ');
            put_text(into, word);
        }
    }
    into.push(b'.');
}

/// Writes the day of a time since 1970 (Hinnant, `civil_from_days`).
fn date(seconds: u64, into: &mut Vec<u8>) {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    padded(into, year, 4);
    into.push(b'-');
    padded(into, month, 2);
    into.push(b'-');
    padded(into, day, 2);
}

fn time_of_day(seconds: u64, into: &mut Vec<u8>) {
    let seconds = seconds % 86_400;
    padded(into, seconds / 3600, 2);
    into.push(b':');
    padded(into, seconds / 60 % 60, 2);
    into.push(b':');
    padded(into, seconds % 60, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (TIME_BASE, "2020-01-01"),
            (1_735_603_200, "2024-12-31"),
        ] {
            assert_eq!(written(|out| date(seconds, out)), expected);
        }
        assert_eq!(written(|out| time_of_day(86_399, out)), "23:59:59");
    }

    #[test]
    fn every_leaf_is_json_within_its_bounds() {
        let texts = [
            Text::PersonName,
            Text::GivenName,
            Text::FamilyName,
            Text::UserName,
            Text::ThingName,
            Text::Company,
            Text::Email,
            Text::Url,
            Text::Phone,
            Text::City,
            Text::Country,
            Text::Street,
            Text::Postcode,
            Text::Colour,
            Text::Currency,
            Text::Locale,
            Text::Status,
            Text::Code,
            Text::Uuid,
            Text::DateTime,
            Text::Date,
            Text::Time,
            Text::Duration,
            Text::Paragraph,
            Text::Words,
        ];
        let mut leaves: Vec<Leaf> = texts.into_iter().map(Leaf::Text).collect();
        leaves.extend([
            Leaf::Boolean,
            Leaf::Id,
            Leaf::Json,
            Leaf::Enum(["A".into(), "B".into()].into()),
        ]);
        leaves.extend([Leaf::Int(-3, 3), Leaf::Decimal(-1.5, 1.5), Leaf::DecimalText(5.0, 6.0)]);
        for style in [
            KeyStyle::Number,
            KeyStyle::NumberText,
            KeyStyle::Prefixed("upc"),
            KeyStyle::Uuid,
            KeyStyle::Email,
        ] {
            leaves.push(Leaf::Key(style));
        }
        for number in 0..200 {
            let seed = mix(number, 9);
            let identity = Identity { seed, number };
            for leaf in &leaves {
                let text = written(|out| leaf.write(identity, mix(seed, 1), out));
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                match leaf {
                    Leaf::Int(low, high) => {
                        assert!((*low..=*high).contains(&value.as_i64().unwrap()));
                    }
                    Leaf::Decimal(low, high) => {
                        assert!((*low..=*high).contains(&value.as_f64().unwrap()));
                    }
                    _ => {}
                }
            }
        }
    }
}

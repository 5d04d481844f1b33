//! Sizes in a configuration: `64KiB`, `2MiB`, `1MB`, or a plain number of bytes.

use super::Quantity;

/// The largest size, 4 GiB: a larger one would not be a bound any more. It also fits a `usize` of 32 bits.
pub(crate) const SIZE_MAX: u64 = (4 << 30) - 1;

/// From the largest to the smallest, as they are tried for printing.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses a number of bytes. Units are case-insensitive; bits are not supported. `None`: the number is too large.
pub(crate) fn parse_bytes(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err("it does not begin with a whole number".into());
    }
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    if unit.starts_with('.') {
        return Err("fractions are written in the next smaller unit: `1536KiB`".into());
    }
    let factor = if unit.is_empty() {
        1
    } else {
        let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        known
            .ok_or_else(|| {
                format!(
                    "the unit `{unit}` is not one of `B`, `KB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`"
                )
            })?
            .1
    };
    Ok(number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)))
}

/// Prints a number of bytes in the largest unit that is exact.
pub fn print_bytes(bytes: u64) -> String {
    for (unit, factor) in UNITS {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

impl Quantity for usize {
    fn parse(text: &str) -> Result<Self, String> {
        match parse_bytes(text)? {
            Some(bytes) if bytes <= SIZE_MAX => {
                Self::try_from(bytes).map_err(|_| "it is too large for this machine".into())
            }
            _ => Err("it is 4 GiB or more".into()),
        }
    }

    fn print(&self) -> String {
        print_bytes(*self as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_in_the_largest_exact_unit() {
        for (text, bytes, printed) in [
            ("0", 0, "0B"),
            ("1", 1, "1B"),
            ("512", 512, "512B"),
            ("1000", 1_000, "1KB"),
            ("1024", 1_024, "1KiB"),
            ("64KiB", 65_536, "64KiB"),
            ("64 kib", 65_536, "64KiB"),
            ("2MiB", 2_097_152, "2MiB"),
            ("1MB", 1_000_000, "1MB"),
            // Also a multiple of 1 KiB.
            ("4000000KB", 4_000_000_000, "4GB"),
        ] {
            assert_eq!(usize::parse(text), Ok(bytes), "{text}");
            assert_eq!(bytes.print(), printed, "{text}");
        }
    }

    #[test]
    fn an_error_names_what_is_wrong_with_a_size() {
        for (text, reason) in [
            ("", "it is empty"),
            ("-1", "it does not begin with a whole number"),
            ("MiB", "it does not begin with a whole number"),
            ("1.5MiB", "fractions are written in the next smaller unit: `1536KiB`"),
            ("2M", "the unit `M` is not one of `B`, `KB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`"),
            ("4GiB", "it is 4 GiB or more"),
            ("99999999999999999999", "it is 4 GiB or more"),
            ("18446744073709551615GiB", "it is 4 GiB or more"),
        ] {
            assert_eq!(usize::parse(text), Err(reason.into()), "{text}");
        }
    }
}

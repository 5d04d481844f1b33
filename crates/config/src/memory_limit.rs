//! The memory budget of the process: `limits.memory`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::quantity::{parse_bytes, print_bytes};

/// The smallest budget: a router without traffic needs about as much.
const BUDGET_MIN: u64 = 32 << 20;

/// The largest budget, 64 TiB. A larger one is a typing mistake.
const BUDGET_MAX: u64 = 64 << 40;

/// The memory budget of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Nine tenths of the memory that the system gives the process.
    Auto,
    /// There is no budget.
    Off,
    /// This number of bytes.
    Bytes(u64),
}

impl Serialize for MemoryLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Off => serializer.serialize_str("off"),
            Self::Bytes(bytes) => serializer.serialize_str(&print_bytes(*bytes)),
        }
    }
}

impl<'de> Deserialize<'de> for MemoryLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl MemoryLimit {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return Err("it is neither `auto`, `off` nor a size".into());
        }
        match parse_bytes(text)? {
            Some(bytes) if bytes < BUDGET_MIN => {
                Err("it is less than 32 MiB, which the router needs without any traffic".into())
            }
            Some(bytes) if bytes <= BUDGET_MAX => Ok(Self::Bytes(bytes)),
            _ => Err("it is more than 64 TiB".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_word_or_a_size_that_is_large_enough() {
        for (text, expected) in [
            ("auto", Ok(MemoryLimit::Auto)),
            ("off", Ok(MemoryLimit::Off)),
            ("128MiB", Ok(MemoryLimit::Bytes(128 << 20))),
            ("16GiB", Ok(MemoryLimit::Bytes(16 << 30))),
            ("67108864", Ok(MemoryLimit::Bytes(64 << 20))),
            ("none", Err("it is neither `auto`, `off` nor a size")),
            ("90%", Err("the unit `%` is not one of `B`, `KB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`")),
            ("1MiB", Err("it is less than 32 MiB, which the router needs without any traffic")),
            ("70000GiB", Err("it is more than 64 TiB")),
            ("99999999999999999999", Err("it is more than 64 TiB")),
        ] {
            assert_eq!(MemoryLimit::parse(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}

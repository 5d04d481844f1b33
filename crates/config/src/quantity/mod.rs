//! Quantities that a configuration writes as a number with a unit: durations (`30s`) and sizes (`64KiB`).

mod duration;
mod size;

pub use duration::print_duration;
pub use size::print_bytes;
pub(super) use size::{SIZE_MAX, parse_bytes};

/// A value that is written as a text with units.
pub(super) trait Quantity: Sized {
    /// Parses the text of a value. The error is the reason why it is invalid.
    fn parse(text: &str) -> Result<Self, String>;

    /// Prints the value in the largest unit that is exact.
    fn print(&self) -> String;
}

/// Serialization for `#[serde(with = …)]`.
pub(super) mod text {
    use super::Quantity;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T: Quantity, S: Serializer>(
        quantity: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&quantity.print())
    }

    pub(crate) fn deserialize<'de, T: Quantity, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        T::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Serialization for `#[serde(with = …)]` on an `Option`.
pub(super) mod optional_text {
    use super::Quantity;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<T: Quantity, S: Serializer>(
        quantity: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        quantity.as_ref().map(T::print).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Quantity, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| T::parse(&text).map_err(D::Error::custom)).transpose()
    }
}

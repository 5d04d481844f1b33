//! How many threads serve: `workers` and `reactors`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// More cores than machines have.
pub(super) const WORKERS_MAX: u16 = 1024;

/// One fills a core only with some hundred thousand messages a second.
pub(super) const REACTORS_MAX: u16 = 256;

/// How many cores serve requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// Every CPU that the process may use (affinity and cgroup quota respected).
    Auto,
    /// This many, from 1 to 1024.
    Count(u16),
}

/// How many threads hold lasting connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactorThreads {
    /// One for two cores, and at least one.
    Auto,
    /// This many, from 1 to 256.
    Count(u16),
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl Workers {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(0) => Err("without workers nothing would be served".into()),
            Ok(count @ 1..=WORKERS_MAX) => Ok(Self::Count(count)),
            Ok(_) => Err("it is more than 1024".into()),
            Err(_) => Err("it is neither `auto` nor a whole number".into()),
        }
    }
}

impl Serialize for ReactorThreads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for ReactorThreads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl ReactorThreads {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(0) => Err("`0` (a task for each connection) is no longer supported".into()),
            Ok(count @ 1..=REACTORS_MAX) => Ok(Self::Count(count)),
            Ok(_) => Err("it is more than 256".into()),
            Err(_) => Err("it is neither `auto` nor a whole number".into()),
        }
    }
}

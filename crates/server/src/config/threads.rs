//! Settings of the numbers of threads: `workers` and `reactors`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The maximum number of workers, more than machines have processors.
pub(super) const WORKERS_MAX: u16 = 1024;

/// The maximum number of reactors. One fills a processor only with some hundred thousand messages per second.
pub(super) const REACTORS_MAX: u16 = 256;

/// The number of worker threads that serve requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerCount {
    /// One for every CPU that the process may use (affinity and cgroup quota respected).
    Auto,
    /// This number, from 1 to 1024.
    Count(u16),
}

/// The number of threads that hold lasting connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactorCount {
    /// One for two workers, and at least one.
    Auto,
    /// This many, from 1 to 256.
    Count(u16),
}

impl Serialize for WorkerCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for WorkerCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl WorkerCount {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(0) => Err("at least one worker is needed".into()),
            Ok(count @ 1..=WORKERS_MAX) => Ok(Self::Count(count)),
            Ok(_) => Err("it is more than 1024".into()),
            Err(_) => Err("it is neither `auto` nor a whole number".into()),
        }
    }
}

impl Serialize for ReactorCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for ReactorCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl ReactorCount {
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

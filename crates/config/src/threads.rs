//! Settings of the numbers of threads: `workers` and `reactors`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The maximum number of workers, more than machines have processors.
pub(super) const WORKERS_MAX: u16 = 1024;

/// The maximum number of reactors. One fills a processor only with some hundred thousand messages per second.
pub(super) const REACTORS_MAX: u16 = 256;

/// The number of worker threads that serve requests. `auto` is one for every CPU that the process may use (affinity and
/// cgroup quota respected).
pub type WorkerCount = ThreadCount<WORKERS_MAX>;

/// The number of threads that hold lasting connections. `auto` is one for two workers, and at least one.
pub type ReactorCount = ThreadCount<REACTORS_MAX>;

/// A number of threads, from 1 to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCount<const MAX: u16> {
    /// The router decides.
    Auto,
    /// This number.
    Count(u16),
}

impl<const MAX: u16> Serialize for ThreadCount<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de, const MAX: u16> Deserialize<'de> for ThreadCount<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl<const MAX: u16> ThreadCount<MAX> {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(0) => Err("at least one thread is needed".into()),
            Ok(count) if count <= MAX => Ok(Self::Count(count)),
            Ok(_) => Err(format!("it is more than {MAX}")),
            Err(_) => Err("it is neither `auto` nor a whole number".into()),
        }
    }
}

//! What is logged, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logging, to standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least important level that is logged.
    #[schemars(example = &"warn")]
    pub level: LogLevel,

    /// How a line of the log looks. Errors that end a start are written in the same format.
    #[schemars(example = &"json")]
    pub format: LogFormat,
}

/// Levels, each with those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Someone must do something.
    Error,
    /// Someone should know.
    Warn,
    /// State changed.
    #[default]
    Info,
    /// For finding a mistake.
    Debug,
    /// Every step.
    Trace,
}

impl From<LogLevel> for tracing::level_filters::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// `text` in a terminal, `json` elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

//! Settings of the log.

use std::io::IsTerminal;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logging, to standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least important level that is logged.
    #[schemars(example = &"warn")]
    pub level: LogLevel,

    /// The format of a log line. Errors that end a start are written in the same format.
    #[schemars(example = &"json")]
    pub format: LogFormat,
}

impl Log {
    /// True if log lines are JSON.
    pub fn is_json(&self) -> bool {
        match self.format {
            LogFormat::Auto => !std::io::stderr().is_terminal(),
            LogFormat::Text => false,
            LogFormat::Json => true,
        }
    }
}

/// Levels of the log. Each includes the previous ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Logs nothing.
    Off,
    /// Problems that an operator must solve.
    Error,
    /// Events that an operator should know.
    Warn,
    /// Changes of state.
    #[default]
    Info,
    /// Details for finding a mistake.
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

/// The format of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// `text` in a terminal, `json` elsewhere.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

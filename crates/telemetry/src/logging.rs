//! Setup of the log: filter, format, and the place where lines go. Everything logs through `tracing`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

pub use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::log_writer::{self, LogWriter};

/// The variable that overrides `log.level`, in the syntax of `tracing_subscriber::EnvFilter`.
pub const FILTER_VARIABLE: &str = "STARLING_LOG";

/// Replaces the filter of the log. False if that is not possible.
type ReloadFilter = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// The filter of the log.
struct LogFilter {
    /// The one of the start.
    configured: String,
    reload: ReloadFilter,
}

/// Set at the start.
static FILTER: OnceLock<LogFilter> = OnceLock::new();

/// Returns the filter of a level.
fn default_filter(level: LevelFilter) -> String {
    // Libraries log only problems, and not even those below the configured level. The libraries for client connections
    // log a warning for each frame that is out of order, so a client could fill the log; their warnings are off.
    let libraries = level.min(LevelFilter::WARN);
    let transports = level.min(LevelFilter::ERROR);
    // The provider opens every connection to NATS itself, with a growing pause, and logs it. The library regards each
    // of them as one attempt, and would report an error ("max reconnection attempts reached") although the provider
    // keeps trying.
    format!(
        "{level},async_nats={libraries},async_nats::connector=off,hyper={transports},rustls={transports},h2={transports}"
    )
}

/// Returns the filter in `variable`, the value of [`FILTER_VARIABLE`], or else the one of `level`, with the reason why
/// the variable cannot be used.
fn filter(level: LevelFilter, variable: Option<OsString>) -> (EnvFilter, Option<String>) {
    let default = || EnvFilter::new(default_filter(level));
    let Some(variable) = variable else { return (default(), None) };
    match variable.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(parse_filter) {
        Ok(filter) => (filter, None),
        Err(reason) => (default(), Some(reason)),
    }
}

/// Parses a filter. A single word must be a level: the library takes a misspelt level for the name of a target, and
/// turns all other targets off.
fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    let is_word = !text.is_empty() && !text.contains(['=', ',', '[']);
    if is_word && text.parse::<LevelFilter>().is_err() {
        return Err(format!("`{text}` is not one of off, error, warn, info, debug and trace"));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Starts logging to standard error, with lines in JSON if `is_json` is set. Once per process; a second call has no
/// effect. Logging never waits and never fails: see `log_writer`.
pub fn start(level: LevelFilter, is_json: bool) {
    log_writer::start();
    let (filter, mistake) = filter(level, std::env::var_os(FILTER_VARIABLE));
    let terminal = std::io::stderr().is_terminal();
    let configured = filter.to_string();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        // The library would print to standard error itself, and panic if that fails.
        .log_internal_errors(false)
        .with_timer(SystemTime)
        .with_ansi(terminal);
    let reload: ReloadFilter = if is_json {
        let builder = builder.json().flatten_event(true).with_current_span(false);
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        let _ = builder.try_init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    } else {
        let builder = builder.with_target(false).with_filter_reloading();
        let handle = builder.reload_handle();
        let _ = builder.try_init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    };
    // A second start has no effect, and so it has no filter to replace either.
    let _ = FILTER.set(LogFilter { configured, reload });
    if let Some(reason) = mistake {
        tracing::warn!(
            reason,
            "the environment variable {FILTER_VARIABLE} is ignored, and `log.level` applies; write a level such as \
             `debug`, or `TARGET=LEVEL` for a part of the router"
        );
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let reason = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, reason, "the router has a defect; please report it");
    }));
}

/// Replaces the filter by that of `level`, or restores the one of the start if there is none. Returns false if logging
/// was not started.
pub fn set_level(level: Option<LevelFilter>) -> bool {
    let Some(log) = FILTER.get() else { return false };
    let filter = level.map_or_else(|| log.configured.clone(), default_filter);
    (log.reload)(EnvFilter::new(filter))
}

/// Waits until all lines of the log have been written, for at most a second. Must be called before the program ends,
/// and before it writes to standard error itself.
pub fn flush() {
    log_writer::flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_reported_and_the_configured_level_applies() {
        let read = |text: &str| {
            let (filter, mistake) = filter(LevelFilter::INFO, Some(text.into()));
            (filter.to_string(), mistake)
        };
        for text in ["debug", "WARN", "off", "hub=trace", "info,hub=debug", "warn,hub"] {
            let (_, mistake) = read(text);
            assert_eq!(mistake, None, "{text}");
        }
        assert_eq!(read("debug").0, "debug");
        let (configured, nothing) = filter(LevelFilter::INFO, None);
        assert_eq!(nothing, None);
        for text in ["debgu", "verbose", "hub=loud", "=", "info,hub=debgu"] {
            let (used, mistake) = read(text);
            assert!(mistake.is_some(), "{text}");
            assert_eq!(used, configured.to_string(), "{text}");
        }
    }

    #[test]
    fn attempts_to_reach_nats_are_logged_by_the_provider_alone() {
        for level in [LevelFilter::ERROR, LevelFilter::INFO, LevelFilter::TRACE] {
            let filter = EnvFilter::try_new(default_filter(level)).expect("a filter");
            let text = filter.to_string();
            assert!(text.contains("async_nats::connector=off"), "{text}");
            assert!(text.contains(&level.to_string()), "{text}");
        }
    }
}

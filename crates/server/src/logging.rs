//! Logs: readable in a terminal, JSON otherwise.

use std::io::{IsTerminal, Write as _};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::{Log, LogFormat};
use crate::diagnostic::{self, Diagnostic, Severity, Style};
use crate::log_writer::{self, LogWriter};

/// The variable that overrides `log.level`, in the syntax of `tracing_subscriber::EnvFilter`.
pub const FILTER_VARIABLE: &str = "STARLING_LOG";

/// True if log lines are JSON.
pub fn is_json(log: &Log) -> bool {
    match log.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    }
}

/// Writes findings to the log, one line each. Line breaks of the excerpt are part of a field.
pub fn report(diagnostics: &[Diagnostic]) {
    if !tracing::enabled!(tracing::Level::ERROR) {
        // Nothing is logged. Why the router does not start must not be lost all the same.
        let text = diagnostic::render(diagnostics, Style::Plain);
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
        return;
    }
    for diagnostic in diagnostics {
        let Diagnostic { severity, code, message, help, .. } = diagnostic;
        let (place, help) = (diagnostic.place(), help.as_deref());
        let excerpt = diagnostic.span.as_ref().map(|_| diagnostic.render(Style::Plain));
        match severity {
            Severity::Error => tracing::error!(%code, place, help, excerpt, "{message}"),
            Severity::Warning => tracing::warn!(%code, place, help, excerpt, "{message}"),
        }
    }
}

/// The filter of a level.
fn default_filter(level: LevelFilter) -> String {
    // Libraries below speak up only when something is wrong, and not even then where nobody wants to hear it. To those
    // that talk with clients a frame that is out of order is worth a warning; there a client could fill the log.
    let libraries = level.min(LevelFilter::WARN);
    let transports = level.min(LevelFilter::ERROR);
    // The provider makes every connection to NATS itself, with a pause that grows, and says so. Each of them is one
    // attempt for the library, which would report an error ("max reconnection attempts reached") although the provider
    // goes on.
    format!(
        "{level},async_nats={libraries},async_nats::connector=off,hyper={transports},rustls={transports},h2={transports}"
    )
}

/// Starts logging to standard error. Once per process; a second call changes nothing. Logging never waits and never
/// fails: see [`crate::log_writer`].
pub fn start(log: &Log) {
    log_writer::start();
    let level = LevelFilter::from(log.level);
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE)
        .unwrap_or_else(|_| EnvFilter::new(default_filter(level)));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogWriter)
        // It would print to standard error itself, and panic where that fails.
        .log_internal_errors(false)
        .with_timer(SystemTime)
        .with_ansi(terminal);
    let _ = if is_json(log) {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        builder.with_target(false).try_init()
    };
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "a defect of the router; please report it");
    }));
}

/// Waits until all lines of the log have been written, at most a second. To be called before the program ends, and
/// before it writes to standard error by itself.
pub fn flush() {
    log_writer::flush();
}

#[cfg(test)]
mod tests {
    use super::*;

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

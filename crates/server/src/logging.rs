//! Logs: readable in a terminal, JSON otherwise.

use std::io::{IsTerminal, Write as _};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::{Log, LogFormat};
use crate::diagnostic::{self, Diagnostic, Severity, Style};

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

/// Starts logging to standard error. Once per process; a second call changes nothing.
pub fn start(log: &Log) {
    let level = LevelFilter::from(log.level);
    // Libraries below speak up only when something is wrong, and not even then where nobody wants to hear it. To those
    // that talk with clients a frame that is out of order is worth a warning; there a client could fill the log.
    let libraries = level.min(LevelFilter::WARN);
    let transports = level.min(LevelFilter::ERROR);
    let default = format!(
        "{level},async_nats={libraries},hyper={transports},rustls={transports},h2={transports}"
    );
    let filter =
        EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
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

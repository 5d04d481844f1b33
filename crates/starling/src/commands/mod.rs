//! One module for each command, and their common parts: printing, and the runtime.

pub(crate) mod bench;
mod browser;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod compose;
pub(crate) mod config_init;
mod counted_usage;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod diff;
mod graph_file;
pub(crate) mod healthcheck;
pub(crate) mod migrate;
pub(crate) mod mock;
mod operation_files;
mod output_file;
pub(crate) mod plan;
pub(crate) mod serve;
pub(crate) mod subgraph;
mod usage_periods;
pub(crate) mod validate;

use std::io::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;

use config::diagnostic::{self, Diagnostic, Style};
use server::{RunningRouter, Signals};

/// Prints to standard output. A closed pipe (`| head`) ends the output, not the program.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints the result of a command to standard output. False if it cannot be written, for example to a full disk, which
/// is reported: a program that continues with the output must not take it for whole. A closed pipe is no failure.
fn print_result(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let message = format!("cannot write to standard output: {error}");
            report(&[Diagnostic::error("unwritable-output", message)]);
            false
        }
        _ => true,
    }
}

/// Prints to standard error.
pub(crate) fn print_error(text: &str) {
    telemetry::logging::flush();
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Formats a number with its noun.
fn count_of(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Prints findings to standard error.
pub(crate) fn report(diagnostics: &[Diagnostic]) {
    if !diagnostics.is_empty() {
        let style = Style::for_stream(&std::io::stderr());
        print_error(&format!("{}\n", diagnostic::render(diagnostics, style).trim_end()));
    }
}

/// Prints the JSON Schema of the configuration.
pub(crate) fn config_schema() -> ExitCode {
    print(&format!("{:#}\n", config::config_schema()));
    ExitCode::SUCCESS
}

/// Shuts down gracefully after a first signal; a second signal ends it at once.
pub(crate) async fn shut_down(running: RunningRouter, mut signals: Signals) -> ExitCode {
    tokio::select! {
        () = running.stop() => ExitCode::SUCCESS,
        _ = signals.next() => {
            // Written to the log: a standard error that is not read must not keep the process from ending.
            tracing::warn!("second signal: open requests and subscriptions are cut off");
            // The exit code that shells use for an interrupted program.
            ExitCode::from(130)
        }
    }
}

/// The maximum number of threads of the control runtime.
const CONTROL_THREADS_MAX: usize = 2;

/// Returns the control runtime. Two threads are enough for hub, providers, admin and watchers; requests run on the
/// workers. On one processor, a second thread would only cost switches: each thread that finds work wakes the other
/// one.
pub(crate) fn control_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(CONTROL_THREADS_MAX))
        .thread_name("control")
        .enable_all()
        .build()
}

/// Reads a text file; the error contains its path.
fn read_file(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes a text file; the error contains its path.
fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

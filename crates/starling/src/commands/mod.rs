//! One module for each command, and what they share: printing, and the runtime.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod mock;
pub(crate) mod plan;
pub(crate) mod serve;

use std::io::Write as _;
use std::process::ExitCode;

use server::diagnostic::{self, Diagnostic, Style};
use server::{Running, Signals};

/// Prints to standard output. A closed pipe (`| head`) ends the output, not the program.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints to standard error.
pub(crate) fn complain(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints findings to standard error.
pub(crate) fn report(diagnostics: &[Diagnostic]) {
    if !diagnostics.is_empty() {
        let style = Style::for_stream(&std::io::stderr());
        complain(&format!("{}\n", diagnostic::render(diagnostics, style).trim_end()));
    }
}

/// The JSON Schema of the configuration.
pub(crate) fn config_schema() -> ExitCode {
    print(&format!("{:#}\n", server::config::config_schema()));
    ExitCode::SUCCESS
}

/// Ends in good order, after a first signal; a second one ends at once.
pub(crate) async fn stop(running: Running, mut signals: Signals) -> ExitCode {
    tokio::select! {
        () = running.stop() => ExitCode::SUCCESS,
        _ = signals.next() => {
            complain("a second signal: whatever was not done is cut off\n");
            // As shells say it of a program that was interrupted.
            ExitCode::from(130)
        }
    }
}

/// The control runtime: two threads are enough for hub, providers, admin and watchers; requests run on the
/// cores.
pub(crate) fn control_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
}

//! The command `starling dev`: composes, serves and watches the subgraphs that somebody works on.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use config::diagnostic::Diagnostic;
use config::{Config, Log, LogLevel, Overrides};
use server::{GraphChange, GraphDifference, Options, RunningRouter, Signals, SupergraphSource};
use tokio::sync::mpsc;

use super::browser;
use crate::usage;

/// The interval at which running subgraphs are asked for their schemas: short enough to wait for after a restart.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The number of names of each kind that one line about a change shows.
const NAMES_MAX: usize = 8;

/// Composes the subgraphs, serves them on this machine, follows their changes and opens the page for trying out
/// queries.
#[derive(clap::Args)]
#[command(after_help = "\
The files are watched, and running subgraphs are asked for their schemas every second. Each change is composed and \
printed: what is different, or the errors. While there are errors, the last good graph serves; at the start, the \
command waits until they are corrected.\n\n\
Clients may use introspection and see the messages of subgraph errors. Ctrl-C ends the command.\n\n\
Example:\n  \
starling dev --config supergraph.yaml")]
pub(crate) struct DevArguments {
    /// The composition configuration (YAML), as for `starling compose`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A configuration of the router (YAML) for further settings, such as the providers of events. Its `supergraph` is
    /// not used.
    #[arg(long, value_name = "FILE")]
    router_config: Option<PathBuf>,
    /// The address of the router. Default: 127.0.0.1:4000, or the next free port.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    listen: Option<SocketAddr>,
    /// The address for health, metrics and test events. Default: 127.0.0.1:8088, or the next free port.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    admin_listen: Option<SocketAddr>,
    /// Does not open a browser.
    #[arg(long)]
    no_open: bool,
}

pub(crate) fn run(arguments: &DevArguments) -> ExitCode {
    if !arguments.config.exists() {
        let message = format!("there is no file {}", arguments.config.display());
        let help = "check the path given by `--config`";
        super::report(&[Diagnostic::error("unreadable-file", message).help(help)]);
        return ExitCode::FAILURE;
    }
    let config = match router_config(arguments) {
        Ok(config) => config,
        Err(problems) => {
            super::report(&problems);
            return ExitCode::FAILURE;
        }
    };
    telemetry::logging::start(config.log.level.into(), config.log.is_json());
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            super::print_error(&format!("cannot start threads: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(serve(arguments, config));
    // After a second signal tasks may still run; the process does not wait for them.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => {
            super::print_error(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the configuration of the router: that of `--router-config`, with the settings that suit development.
fn router_config(arguments: &DevArguments) -> Result<Config, Vec<Diagnostic>> {
    let overrides = Overrides {
        listen: arguments.listen,
        admin_listen: arguments.admin_listen,
        supergraph: None,
    };
    let loaded = config::load(arguments.router_config.as_deref(), &overrides)?;
    super::report(&loaded.warnings);
    let mut config = loaded.config;
    if arguments.router_config.is_none() {
        // Only warnings and errors are logged; this command prints the rest.
        config.log = Log { level: LogLevel::Warn, ..Log::default() };
    }
    config.admin.show_values = true;
    config.introspection = config::Introspection::default();
    config.ide.enabled = true;
    config.include_subgraph_errors.all = true;
    config.include_subgraph_errors.subgraphs.clear();
    config.include_subgraph_errors.rules.clear();
    Ok(config)
}

/// Serves until a signal.
async fn serve(arguments: &DevArguments, config: Config) -> Result<ExitCode, String> {
    let mut signals = Signals::listen().map_err(|error| error.to_string())?;
    let (sender, mut changes) = mpsc::unbounded_channel();
    let supergraph = SupergraphSource::Composition {
        file: arguments.config.clone(),
        poll_interval: POLL_INTERVAL,
    };
    // Ports that the user chose are not replaced by others.
    let has_defaults = arguments.router_config.is_none();
    let options = Options {
        next_free_port: has_defaults && arguments.listen.is_none(),
        next_free_admin_port: has_defaults && arguments.admin_listen.is_none(),
        // Closing the terminal ends the command.
        reloads_on_hang_up: false,
        graph_changes: Some(sender),
        waits_for_graph: true,
        ..Options::new(config, supergraph)
    };
    let starting = server::start(options);
    tokio::pin!(starting);
    let running = loop {
        tokio::select! {
            running = &mut starting => break running.map_err(|error| error.to_string())?,
            Some(change) = changes.recv() => print_waiting(change),
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        }
    };
    super::print(&greeting(arguments, &running));
    if let Some(address) = running.addresses.first().filter(|_| !arguments.no_open) {
        browser::open(&format!("http://{address}/"));
    }
    let printing = tokio::spawn(print_changes(changes));
    signals.next().await;
    super::print("\nGoodbye.\n");
    printing.abort();
    Ok(super::shut_down(running, signals).await)
}

/// Prints why there is no graph to start with.
fn print_waiting(change: GraphChange) {
    let GraphChange::Refused(problems) = change else { return };
    super::report(&problems);
    if problems.iter().any(|problem| problem.code == "events") {
        super::print("The file given by --router-config configures the providers of events.\n");
    }
    super::print("Waiting for a change of the subgraphs…\n");
}

/// Prints each further change: the result of a composition, or a rollback.
async fn print_changes(mut changes: mpsc::UnboundedReceiver<GraphChange>) {
    while let Some(change) = changes.recv().await {
        match change {
            GraphChange::Unchanged => super::print("Composed again: nothing has changed.\n"),
            GraphChange::Replaced(difference) => {
                super::print(&format!("Another graph serves: {}\n", describe(&difference)));
            }
            GraphChange::Refused(problems) => {
                super::report(&problems);
                super::print("The last good graph continues to serve.\n");
            }
        }
    }
}

/// Returns the elements that a new graph adds, changes and removes, in one line.
fn describe(difference: &GraphDifference) -> String {
    let GraphDifference { added, removed, changed } = difference;
    let mut parts = Vec::new();
    for (sign, names) in [("+", added), ("~", changed), ("-", removed)] {
        let shown = names.iter().take(NAMES_MAX).map(|name| format!("{sign} {name}"));
        parts.extend(shown);
        if names.len() > NAMES_MAX {
            parts.push(format!("{sign} {} more", names.len() - NAMES_MAX));
        }
    }
    match parts.is_empty() {
        true => "the schema that clients see has not changed.".to_owned(),
        false => parts.join(", "),
    }
}

fn greeting(arguments: &DevArguments, running: &RunningRouter) -> String {
    let mut text =
        format!("\nStarling serves the composition of {}.\n\n", arguments.config.display());
    for address in &running.addresses {
        let _ = writeln!(text, "  Open     http://{address}/");
    }
    let admin = running.admin;
    let _ = write!(
        text,
        "  Console  http://{admin}/console/\n  Live     http://{admin}/admin/subscriptions\n  Metrics  http://{admin}/metrics\n\n  \
         Changes of the subgraphs are composed at once. Ctrl-C ends everything.\n\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_described_in_one_line() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            describe(&GraphDifference::default()),
            "the schema that clients see has not changed."
        );
        let difference = GraphDifference {
            added: (0..10).map(|number| format!("A.f{number}")).collect(),
            removed: names(&["subgraph b"]),
            changed: names(&["Query.x"]),
        };
        assert_eq!(
            describe(&difference),
            "+ A.f0, + A.f1, + A.f2, + A.f3, + A.f4, + A.f5, + A.f6, + A.f7, + 2 more, ~ Query.x, - subgraph b"
        );
    }
}

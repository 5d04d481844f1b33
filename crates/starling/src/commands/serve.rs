//! The command `starling serve`: a router for a supergraph.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgGroup;
use config::diagnostic::{self, Diagnostic, Severity};
use config::{Log, Overrides};
use server::{ConfigSource, Options, Signal, Signals, SupergraphSource};
use telemetry::logging::LevelFilter;

use crate::usage;

/// Serves a supergraph: queries, mutations and subscriptions on one port.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["config", "supergraph"]).required(true).multiple(true)))]
#[command(after_help = "\
The supergraph file is watched. A new one that loads replaces the old one, and subscriptions continue; one that \
does not load is logged as an error, and the old one stays in use. With `supergraph.url` in the configuration, the \
router reads it from a server, at intervals. With `supergraph.compose` or `supergraph.directory`, it composes the \
subgraphs itself, and again when one of their schemas changes.\n\n\
Signals:\n  \
SIGTERM  shuts down gracefully: not ready for `shutdown.delay`, then drains for `subscriptions.drain_period` at most\n  \
SIGINT   the same without the delay; a second signal of either kind ends the delay, and then the process\n  \
SIGHUP   reloads the supergraph; the configuration is only read at the start, and the log reports if its file \
differs from the running configuration\n\n\
Environment:\n  \
STARLING_LOG  overrides `log.level`, for example `debug`\n\n\
Exit status: 0 after a signal, 1 if the router cannot start, 2 for a wrong command line, 130 after a second signal.\n\n\
Examples:\n  \
starling serve --supergraph supergraph.graphql --listen 0.0.0.0:4000\n  \
starling serve --config starling.yaml")]
pub(crate) struct ServeArguments {
    /// The configuration file (YAML). `starling config-schema` prints its schema.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The supergraph file (SDL), instead of the one in the configuration.
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
    /// The address for clients, instead of `listen` in the configuration.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    listen: Option<SocketAddr>,
    /// The address for operators and probes (health, metrics), instead of `admin.listen` in the configuration.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    admin_listen: Option<SocketAddr>,
}

pub(crate) fn run(arguments: &ServeArguments) -> ExitCode {
    if let Err(diagnostic) =
        usage::check_file_kinds(arguments.config.as_deref(), arguments.supergraph.as_deref())
    {
        return refuse_start(arguments, &[*diagnostic]);
    }
    let overrides = Overrides {
        listen: arguments.listen,
        admin_listen: arguments.admin_listen,
        supergraph: arguments.supergraph.clone(),
    };
    let loaded = match config::load(arguments.config.as_deref(), &overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => {
            let diagnostics =
                usage::recognize_composition(arguments.config.as_deref(), diagnostics);
            return refuse_start(arguments, &diagnostics);
        }
    };
    let log = loaded.config.log.clone();
    telemetry::logging::start(log.level.into(), log.is_json());
    report(&log, &loaded.warnings);
    profile::start_memory_return();
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_failure(&log, &format!("cannot start threads: {error}")),
    };
    let source = ConfigSource {
        path: arguments.config.clone(),
        overrides: overrides.clone(),
        current: loaded.config.clone(),
    };
    let supergraph = SupergraphSource::of(&loaded.config);
    let options = Options::new(loaded.config, supergraph);
    let code = runtime.block_on(async {
        let mut signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => {
                return report_failure(&log, &format!("cannot listen to signals: {error}"));
            }
        };
        let started = tokio::select! {
            started = server::start(options) => started,
            // Received, for example, while the router waits for a broker. Nothing is served yet, so there is nothing
            // to drain.
            _ = signals.next() => return ExitCode::SUCCESS,
        };
        match started {
            Ok(running) => {
                tokio::spawn(server::report_config_changes(source));
                if signals.next().await == Signal::Terminate {
                    tokio::select! {
                        () = running.announce_shutdown() => {}
                        _ = signals.next() => {}
                    }
                }
                super::shut_down(running, signals).await
            }
            Err(server::StartError::Refused(diagnostics)) => {
                report(&log, &diagnostics);
                ExitCode::FAILURE
            }
            Err(error) => report_failure(&log, &error.to_string()),
        }
    });
    // After a second signal tasks may still run; the process does not wait for them.
    runtime.shutdown_background();
    code
}

/// Reports why the router does not start, before the log has begun: in the format that the log would have. The settings
/// of the log may be readable even if the rest of the configuration is not.
fn refuse_start(arguments: &ServeArguments, diagnostics: &[Diagnostic]) -> ExitCode {
    let log = config::log_settings(arguments.config.as_deref()).unwrap_or_default();
    if log.is_json() {
        telemetry::logging::start(log.level.into(), true);
    }
    report(&log, diagnostics);
    ExitCode::FAILURE
}

/// Reports a failure of the start that neither a file nor an argument has caused.
fn report_failure(log: &Log, reason: &str) -> ExitCode {
    if log.is_json() {
        report(log, &[Diagnostic::error("start", reason)]);
    } else {
        super::print_error(&format!("error: {reason}\n"));
    }
    ExitCode::FAILURE
}

/// Reports findings in the format of the log: log collectors that expect JSON lines would lose text. Errors are the
/// reasons why the router does not start, and no level of the log hides them.
fn report(log: &Log, diagnostics: &[Diagnostic]) {
    if !log.is_json() {
        return super::report(diagnostics);
    }
    let has_errors = diagnostics.iter().any(|it| matches!(it.severity, Severity::Error));
    if has_errors && !diagnostic::is_logged() {
        telemetry::logging::set_level(Some(LevelFilter::ERROR));
    }
    diagnostic::log(diagnostics);
}

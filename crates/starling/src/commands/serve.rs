//! `starling serve`: a router for a supergraph.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgGroup;
use server::config::{self, Overrides, parse_address};
use server::{Options, Signal, Signals, SupergraphSource};

/// Serves a supergraph: queries, mutations and subscriptions on one port.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["config", "supergraph"]).required(true).multiple(true)))]
#[command(after_help = "\
The supergraph file is watched; SIGHUP asks for a look at it too. A new graph that loads takes over, \
one that does not is refused and the old one goes on serving.\n\n\
Examples:\n  \
starling serve --supergraph supergraph.graphql --listen 0.0.0.0:4000\n  \
starling serve --config starling.yaml")]
pub(crate) struct Arguments {
    /// The configuration file (YAML). `starling config-schema` prints its schema.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The supergraph file (SDL); instead of the one in the configuration.
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
    /// Where clients connect; instead of `listen` in the configuration.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Where operators connect (health, metrics); instead of `admin.listen` in the configuration.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    admin_listen: Option<SocketAddr>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let overrides = Overrides {
        listen: arguments.listen,
        admin_listen: arguments.admin_listen,
        supergraph: arguments.supergraph.clone(),
    };
    let loaded = match config::load(arguments.config.as_deref(), &overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => {
            super::report(&diagnostics);
            return ExitCode::FAILURE;
        }
    };
    super::report(&loaded.warnings);
    server::logging::start(&loaded.config.log);
    profile::give_memory_back();
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            super::complain(&format!("cannot start threads: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let options = Options {
        supergraph: SupergraphSource::File(loaded.config.supergraph.file.clone()),
        config: loaded.config,
        tabs: Vec::new(),
        next_free_port: false,
        next_free_admin_port: false,
    };
    let code = runtime.block_on(async {
        let mut signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => {
                super::complain(&format!("cannot listen to signals: {error}\n"));
                return ExitCode::FAILURE;
            }
        };
        let started = tokio::select! {
            started = server::start(options) => started,
            // While it waits for a broker, say. Nothing serves yet that could end in good order.
            _ = signals.next() => return ExitCode::SUCCESS,
        };
        match started {
            Ok(running) => {
                if signals.next().await == Signal::Terminate {
                    tokio::select! {
                        () = running.announce_shutdown() => {}
                        _ = signals.next() => {}
                    }
                }
                super::stop(running, signals).await
            }
            Err(server::StartError::Refused(diagnostics)) => {
                super::report(&diagnostics);
                ExitCode::FAILURE
            }
            Err(error) => {
                super::complain(&format!("error: {error}\n"));
                ExitCode::FAILURE
            }
        }
    });
    // After a second signal something may run still, and nobody waits for it.
    runtime.shutdown_background();
    code
}

//! The command `starling demo`: subgraphs, events and a router, all in this process.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use config::{Config, IncludeSubgraphErrors, Log, LogLevel};
use ide::Tab;
use server::{Options, RunningRouter, Signals};
use starling::demo;

use crate::usage;

/// Runs four small subgraphs, an event subgraph and the router on this machine. Needs no files and no network.
#[derive(clap::Args)]
pub(crate) struct DemoArguments {
    /// The address of the router. Default: 127.0.0.1:4000, or the next free port.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    listen: Option<SocketAddr>,
    /// The address for health, metrics and test events. Default: 127.0.0.1:8088, or the next free port.
    #[arg(long, value_name = "IP:PORT", value_parser = usage::parse_listen)]
    admin_listen: Option<SocketAddr>,
}

pub(crate) fn run(arguments: &DemoArguments) -> ExitCode {
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            super::print_error(&format!("cannot start threads: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(|error| error.to_string())?;
        let subgraphs = demo::subgraphs::start().await.map_err(|error| error.to_string())?;
        // Only warnings and errors are logged; the greeting below reports the rest.
        let log = Log { level: LogLevel::Warn, ..Log::default() };
        // The demo's subgraphs have no secrets, so their error messages are shown.
        let include_subgraph_errors =
            IncludeSubgraphErrors { all: true, ..IncludeSubgraphErrors::default() };
        let mut config = Config { log, include_subgraph_errors, ..Config::default() };
        config.admin.console.recorder.enabled = true;
        // Nor do its clients have any, so operators see the values in topics.
        config.admin.show_values = true;
        telemetry::logging::start(config.log.level.into(), config.log.is_json());
        if let Some(address) = arguments.listen {
            config.listen = vec![config::Listener::plain(address)];
        }
        if let Some(address) = arguments.admin_listen {
            config.admin.listen = address;
        }
        let requested = config.listen.first().and_then(config::Listener::address);
        let supergraph = server::SupergraphSource::Text {
            name: "demo.graphql".to_owned(),
            sdl: subgraphs.supergraph_sdl.clone(),
        };
        let options = Options {
            tabs: tabs(),
            // A port that the user requested is not replaced by another one.
            next_free_port: arguments.listen.is_none(),
            next_free_admin_port: arguments.admin_listen.is_none(),
            ..Options::new(config, supergraph)
        };
        let running = server::start(options).await.map_err(|error| error.to_string())?;
        super::print(&greeting(&subgraphs, &running, requested));
        let traffic =
            tokio::spawn(demo::generator::run(subgraphs.board.clone(), running.providers()));
        signals.next().await;
        super::print("\nGoodbye.\n");
        traffic.abort();
        let code = super::shut_down(running, signals).await;
        drop(subgraphs);
        Ok::<_, String>(code)
    });
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

fn tabs() -> Vec<Tab> {
    [demo::QUERY, demo::SUBSCRIPTION, demo::MUTATION]
        .map(|query| Tab { query: query.to_owned(), variables: None })
        .into()
}

fn greeting(
    subgraphs: &demo::subgraphs::Subgraphs,
    running: &RunningRouter,
    requested: Option<SocketAddr>,
) -> String {
    let Some(address) = running.addresses.first() else { return String::new() };
    let mut text = String::from("\nStarling demo: a departure board that moves.\n\n");
    for (name, server) in &subgraphs.servers {
        let _ = writeln!(text, "  subgraph {name:<9} {}", server.url(""));
    }
    let _ = writeln!(text, "  subgraph {:<9} no server: topics at {}", "events", demo::PROVIDER);
    if let Some(requested) =
        requested.filter(|requested| requested.port() != 0 && requested != address)
    {
        let _ = writeln!(
            text,
            "\n  Port {} is taken, so the router is on {}.",
            requested.port(),
            address.port()
        );
    }
    let _ = write!(
        text,
        "\n  Open     http://{address}/\n  Console  http://{admin}/console/\n  \
         Live     http://{admin}/admin/subscriptions\n  \
         Metrics  http://{admin}/metrics\n\n  \
         A query that joins three subgraphs:\n    {query}\n\n  \
         A subscription, joined from three subgraphs for each event:\n    {subscription}\n\n  \
         Ctrl-C ends everything.\n",
        admin = running.admin,
        query = curl(&format!("http://{address}/graphql"), "", CURL_QUERY),
        subscription = curl(
            &format!("http://{address}/graphql"),
            "-N -H 'accept: text/event-stream' ",
            CURL_SUBSCRIPTION
        ),
    );
    text
}

const CURL_QUERY: &str = "{ departures(first: 3) { id airline { name } destination { city weather { summary temperature } } } }";

const CURL_SUBSCRIPTION: &str =
    "subscription { flightMoved { id status altitude destination { city weather { summary } } } }";

fn curl(url: &str, options: &str, query: &str) -> String {
    format!(
        "curl -s {options}{url} -H 'content-type: application/json' -d '{{\"query\":\"{query}\"}}'"
    )
}

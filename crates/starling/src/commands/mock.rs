//! The command `starling mock`: subgraphs that need nothing but their schemas.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgGroup;
use load::subgraph::{Invention, Latency, Server, ServerBuilder, Subgraph};
use load::units::parse_share;

use super::read_file;
use crate::usage;

/// Serves made-up data for every subgraph of a supergraph, so that a graph can be tried without its backends.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["supergraph", "schema"]).required(true)))]
#[command(after_help = "\
The data follows from the schema and the seed: the same entity has the same fields in every response and in \
every subgraph that knows it. Names look like names and prices like prices, by field name and type. Arguments \
such as first, limit and offset are respected; an argument that names a key (id, ids, userId) finds that entity.\n\n\
Examples:\n  \
starling mock --supergraph supergraph.graphql > mock.yaml\n  \
starling serve --supergraph supergraph.graphql --config mock.yaml\n  \
starling mock --schema reviews.graphql --latency 'normal(20ms,5ms)' --errors 1%\n\n\
Subscriptions are served over WebSocket (graphql-transport-ws and graphql-ws) at the same URL. All of a subgraph get \
--event-rate events a second with different data. A POST to URL/_events publishes another one: its JSON body is the \
value of the root field, and the fields that it lacks are made up. A GET returns the numbers of connections and \
operations.\n\n\
A POST to URL/_entities changes an entity from then on: its JSON body has __typename, the fields of a key, and new \
values of other fields. A GET returns the numbers of changes and of requests.")]
pub(crate) struct MockArguments {
    /// The supergraph file (SDL): each of its subgraphs is served at /NAME.
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
    /// The schema of one subgraph (SDL), served at /NAME after the file's name; may be given several times. If only
    /// one is given, it is served at every path.
    #[arg(long, value_name = "FILE")]
    schema: Vec<PathBuf>,
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:4200", value_parser = usage::parse_listen)]
    listen: SocketAddr,
    /// The latency of responses: 20ms, uniform(5ms,50ms), normal(20ms,5ms), exponential(20ms) or
    /// lognormal(20ms,200ms), where the second time is the 99th percentile.
    #[arg(long, default_value = "0ms")]
    latency: Latency,
    /// The share of requests that fail: with status 500, a GraphQL error or a closed connection.
    #[arg(long, default_value = "0%", value_parser = parse_share)]
    errors: f64,
    /// The seed of the data and of the failing requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of entities of each type that refer to each other.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    entities: u64,
    /// The minimum and maximum number of items of a list.
    #[arg(long, value_name = "MIN..MAX", default_value = "1..5", value_parser = parse_list_range)]
    list: (u64, u64),
    /// The share of nullable fields that are null.
    #[arg(long, default_value = "0%", value_parser = parse_share)]
    nulls: f64,
    /// The number of events a second of each subscription; 0 for none but published ones.
    #[arg(long, value_name = "RATE", default_value_t = 1.0, value_parser = parse_event_rate)]
    event_rate: f64,
}

/// The maximum number of events a second: more than one thread can send.
const EVENT_RATE_MAX: f64 = 100_000.0;

/// The maximum number of items of a generated list if its field has no limiting argument.
const LIST_MAX: u64 = 1000;

pub(crate) fn run(arguments: &MockArguments) -> ExitCode {
    let served =
        configure(arguments).and_then(|(builder, names)| serve(builder, arguments.listen, &names));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            super::print_error(&format!("error: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

fn configure(arguments: &MockArguments) -> Result<(ServerBuilder, Vec<String>), String> {
    let invention = Invention {
        seed: arguments.seed,
        entities: arguments.entities,
        list: arguments.list,
        nulls: arguments.nulls,
    };
    let mut builder = Server::builder()
        .listen(arguments.listen)
        .latency(arguments.latency)
        .errors(arguments.errors)
        .events_per_second(arguments.event_rate)
        .seed(arguments.seed);
    let mut names: Vec<String> = Vec::new();
    for (name, sdl) in schemas(arguments)? {
        if names.contains(&name) {
            return Err(format!("two subgraphs are named `{name}`"));
        }
        let subgraph = Subgraph::builder(sdl)
            .invent(invention)
            .build()
            .map_err(|error| format!("subgraph `{name}`: {error}"))?;
        if arguments.supergraph.is_none() && arguments.schema.len() == 1 {
            builder = builder.subgraph("", subgraph.clone());
        }
        builder = builder.subgraph(&format!("/{name}"), subgraph);
        names.push(name);
    }
    if names.is_empty() {
        return Err("none of the supergraph's subgraphs has a server".to_owned());
    }
    Ok((builder, names))
}

/// Returns the names and schemas of the subgraphs to mock.
fn schemas(arguments: &MockArguments) -> Result<Vec<(String, String)>, String> {
    if let Some(path) = &arguments.supergraph {
        let subgraphs = load::mock::subgraphs(&read_file(path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // Event subgraphs have no server, so there is nothing to mock.
        let with_server = subgraphs.into_iter().filter(|subgraph| !subgraph.url.is_empty());
        return Ok(with_server.map(|subgraph| (subgraph.name, subgraph.sdl)).collect());
    }
    arguments
        .schema
        .iter()
        .map(|path| {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            Ok((name.unwrap_or_default(), read_file(path)?))
        })
        .collect()
}

fn serve(builder: ServerBuilder, listen: SocketAddr, names: &[String]) -> Result<(), String> {
    // One thread: a mock shares the machine with the server under load.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let server = builder.start().await.map_err(|error| {
            format!("cannot listen on {listen}: {error}; --listen takes another address")
        })?;
        let mut config = String::from(
            "# Configuration of a router that uses these mocks instead of the real subgraphs.\nsubgraphs:\n",
        );
        for name in names {
            let url = server.url(&format!("/{name}"));
            // JSON strings are YAML strings, whatever their content.
            let (name, url) = (serde_json::json!(name), serde_json::json!(url));
            let _ = writeln!(config, "  {name}: {{url: {url}}}");
        }
        super::print(&config);
        super::print_error(&format!(
            "serving {} mock subgraphs at {}\n",
            names.len(),
            server.address()
        ));
        tokio::signal::ctrl_c().await.map_err(|error| format!("cannot wait for signals: {error}"))
    })
}

fn parse_event_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=EVENT_RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is not a rate from 0 to {EVENT_RATE_MAX}"))
}

fn parse_list_range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("`{text}` is not a range: write 1..5, at most {LIST_MAX}");
    let (fewest, most) = text.split_once("..").unwrap_or((text, text));
    let (fewest, most): (u64, u64) =
        (fewest.parse().map_err(|_| wrong())?, most.parse().map_err(|_| wrong())?);
    if fewest > most || most > LIST_MAX { Err(wrong()) } else { Ok((fewest, most)) }
}

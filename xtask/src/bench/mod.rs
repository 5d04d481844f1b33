//! Measures the router against the floor on this machine: `cargo xtask bench NAME`.
//!
//! The router has a core of its own; subgraphs, mocks and the load generator share another one. Compared servers run
//! in turn within one run, and a figure is the median of several such pairs, with the smallest and the largest value
//! beside it. Reports go to `bench/` in the target folder.
//!
//! - `bench router`: the cost of a response above the floor, alone and under load that can and cannot be shared.
//! - `bench rate`: latency at 70 % of the maximum rate.
//! - `bench sizes`: cost and memory by the size of the response.
//! - `bench subscriptions`: the cost of open subscriptions and of sending events.
//! - `bench events`: the rate of events through one trigger, by provider, size and selection.

mod brokers;
mod events;
mod kafka;
mod rate;
mod router;
mod server_process;
mod sizes;
mod statistics;
mod subscriptions;

use crate::{Failure, process};
pub(crate) use brokers::Provider;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// The programs, folders and options of a measurement.
pub(crate) struct Bench {
    root: PathBuf,
    /// The release build of the router.
    starling: PathBuf,
    /// The program with load generator, floor and mocks.
    tool: PathBuf,
    /// The release build of the benchmark's subgraphs.
    subgraphs: PathBuf,
    /// The folder for reports.
    reports: PathBuf,
    /// The measured seconds of one run.
    seconds: u32,
    pairs: u32,
    /// The number of clients, if set on the command line.
    clients: Option<u32>,
    /// The providers of events, measured one after the other.
    providers: Vec<Provider>,
    /// The folder in `benches/routers` of the measured router.
    router: String,
}

/// The options of `cargo xtask bench`; `None` selects the default of the measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct Options {
    /// Measured seconds of one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Number of repetitions of each measurement
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: Option<u32>,
    /// Number of clients
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: Option<u32>,
    /// Run only the measurements with NAME in their names
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) filter: Option<String>,
    /// The only provider to measure
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) provider: Option<Provider>,
    /// The router to measure: a folder in `benches/routers`
    #[arg(long, value_name = "NAME")]
    pub(crate) router: Option<String>,
}

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The cost of a response above the floor, alone and under load
    Router,
    /// Latency at 70 % of the maximum rate
    Rate,
    /// Cost and memory by the size of the response
    Sizes,
    /// The cost of open subscriptions and of sending events
    Subscriptions,
    /// The rate of events through one trigger
    Events,
}

/// The default of the measured seconds of one run.
const SECONDS_DEFAULT: u32 = 4;

/// The default number of pairs of floor and router. It is odd so that there is a middle value.
const PAIRS_DEFAULT: u32 = 5;

/// Names an existing router to measure instead of building one, for example an older one. The program of the
/// benchmark's subgraphs must be in the same folder.
const BINARY_VARIABLE: &str = "STARLING_BIN";

/// Names another program for load generator, floor and mocks, for a router that does not contain them.
const TOOL_VARIABLE: &str = "STARLING_BENCH_BIN";

/// Builds the programs and runs the bench `name`.
pub(crate) fn run(root: &Path, name: Name, options: &Options) -> Result<(), Failure> {
    let (seconds, pairs) = match name {
        Name::Subscriptions => (subscriptions::SECONDS_DEFAULT, PAIRS_DEFAULT),
        Name::Events => (events::SECONDS_DEFAULT, events::REPEATS_DEFAULT),
        Name::Router | Name::Rate | Name::Sizes => (SECONDS_DEFAULT, PAIRS_DEFAULT),
    };
    let bench = prepare(root, seconds, pairs, options)?;
    let filter = options.filter.as_deref();
    match name {
        Name::Router => router::run(&bench, filter),
        Name::Rate => rate::run(&bench),
        Name::Subscriptions => subscriptions::run(&bench, filter),
        Name::Events => events::run(&bench, filter),
        Name::Sizes => sizes::run(&bench),
    }
}

/// Runs `cargo xtask soak churn`, which checks that disconnected clients leave nothing behind.
pub(crate) fn churn(root: &Path, seconds: u32) -> Result<(), Failure> {
    let bench = prepare(root, seconds, 1, &Options::default())?;
    subscriptions::churn(&bench)
}

/// Runs `cargo xtask soak reloads`, which checks that reloads of the graph do not disturb subscribers.
pub(crate) fn reloads(root: &Path, seconds: u32, subscribers: u32) -> Result<(), Failure> {
    let bench = prepare(root, seconds, 1, &Options::default())?;
    subscriptions::reloads(&bench, subscribers)
}

/// Builds the programs. `seconds` and `pairs` are the defaults of the two options.
fn prepare(root: &Path, seconds: u32, pairs: u32, options: &Options) -> Result<Bench, Failure> {
    server_process::check_cores()?;
    let providers = match options.provider {
        Some(provider) => vec![provider],
        None => Provider::value_variants().to_vec(),
    };
    let [starling, subgraphs] = match std::env::var_os(BINARY_VARIABLE) {
        Some(path) => [PathBuf::from(&path), PathBuf::from(path).with_file_name("bench-subgraphs")],
        None => build(root, ["starling", "bench-subgraphs"])?,
    };
    let tool = std::env::var_os(TOOL_VARIABLE).map_or_else(|| starling.clone(), PathBuf::from);
    let release = starling.parent().unwrap_or(Path::new("."));
    let reports = release.parent().unwrap_or(release).join("bench");
    std::fs::create_dir_all(&reports).map_err(|error| format!("{}: {error}", reports.display()))?;
    Ok(Bench {
        root: root.to_owned(),
        starling,
        tool,
        subgraphs,
        reports,
        seconds: options.seconds.unwrap_or(seconds),
        pairs: options.pairs.unwrap_or(pairs),
        clients: options.clients,
        providers,
        router: options.router.clone().unwrap_or_else(|| "starling".to_owned()),
    })
}

/// Makes release builds of the programs of these packages, with one command, so that the features of dependencies
/// agree and nothing is built twice.
fn build<const N: usize>(root: &Path, packages: [&str; N]) -> Result<[PathBuf; N], Failure> {
    let mut cargo = process::cargo();
    cargo.current_dir(root).args([
        "build",
        "--release",
        "--message-format=json-render-diagnostics",
    ]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    println!("building the release");
    let text = process::read_output(&mut cargo)?;
    let messages: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs = packages.map(|_| PathBuf::new());
    for (package, program) in packages.iter().zip(&mut programs) {
        let built = messages.iter().filter(|message| message["target"]["name"] == *package);
        *program = built
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back()
            .ok_or_else(|| format!("cargo built no program `{package}`"))?;
    }
    Ok(programs)
}

impl Bench {
    /// Returns the path of a file of the repository.
    fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

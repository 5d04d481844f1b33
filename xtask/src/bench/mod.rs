//! Measures the router against the floor, on this machine: `cargo xtask bench NAME`.
//!
//! The router has a core of its own; subgraphs, mocks and the load generator share another one. Everything that is
//! compared runs in turn within one run, and a figure is the median of several such pairs, with the smallest and the
//! largest beside it. Reports go to `bench/` in the target folder.
//!
//! - `bench router`: what an answer costs above the floor, alone and under load that can and cannot be shared.
//! - `bench rate`: latency at 70 % of the most it can do.
//! - `bench sizes`: cost and memory by the size of the answer.
//! - `bench subscriptions`: what holding subscriptions and sending events costs.
//! - `bench events`: events a second through one trigger, by provider, size and selection.

mod brokers;
mod events;
mod kafka;
mod machine;
mod rate;
mod router;
mod sizes;
mod statistics;
mod subscriptions;

use crate::{Failure, process};
use brokers::Provider;
use std::path::{Path, PathBuf};

/// What a measurement needs to know.
pub(crate) struct Bench {
    root: PathBuf,
    /// The release build of the router.
    starling: PathBuf,
    /// What drives it: load generator, floor and mocks.
    tool: PathBuf,
    /// The release build of the benchmark's subgraphs.
    subgraphs: PathBuf,
    /// Where reports go.
    reports: PathBuf,
    /// Measured seconds of one run.
    seconds: u32,
    pairs: u32,
    /// Clients of a measurement, where somebody wants others than it has by itself.
    clients: Option<u32>,
    /// Where events come from, one after the other.
    providers: Vec<Provider>,
    /// The folder in `benches/routers` of what is measured.
    router: String,
}

/// How to measure, as far as the command line says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Measured seconds of one run.
    pub(crate) seconds: Option<u32>,
    /// How often everything is measured.
    pub(crate) pairs: Option<u32>,
    /// Clients of a measurement.
    pub(crate) clients: Option<u32>,
    /// What is measured: names that contain it.
    pub(crate) filter: Option<String>,
    /// The one provider whose events are measured.
    pub(crate) provider: Option<String>,
    /// The router, by its folder in `benches/routers`.
    pub(crate) router: Option<String>,
}

/// What to run, by its name on the command line.
const NAMES: [&str; 5] = ["router", "rate", "sizes", "subscriptions", "events"];

/// Measured seconds of one run, if nobody says otherwise.
const SECONDS_DEFAULT: u32 = 4;

/// How often floor and router are measured in turn, if nobody says otherwise. An odd number has a middle.
const PAIRS_DEFAULT: u32 = 5;

/// Names a router to measure instead of building one, with the benchmark's subgraphs beside it: an older one, say.
const BINARY_VARIABLE: &str = "STARLING_BIN";

/// Names another binary for load generator, floor and mocks, for a router that has none of them.
const TOOL_VARIABLE: &str = "STARLING_BENCH_BIN";

/// Builds what is needed and measures.
pub(crate) fn run(root: &Path, name: &str, options: &Options) -> Result<(), Failure> {
    if !NAMES.contains(&name) {
        return Err(format!("no bench is called `{name}`; there are: {}", NAMES.join(", ")));
    }
    let (seconds, pairs) = match name {
        "subscriptions" => (subscriptions::SECONDS_DEFAULT, PAIRS_DEFAULT),
        "events" => (events::SECONDS_DEFAULT, events::REPEATS_DEFAULT),
        _ => (SECONDS_DEFAULT, PAIRS_DEFAULT),
    };
    let bench = prepare(root, seconds, pairs, options)?;
    let filter = options.filter.as_deref();
    match name {
        "router" => router::run(&bench, filter),
        "rate" => rate::run(&bench),
        "subscriptions" => subscriptions::run(&bench, filter),
        "events" => events::run(&bench, filter),
        _ => sizes::run(&bench),
    }
}

/// `cargo xtask soak churn`: whether anything is left of clients that came and went.
pub(crate) fn churn(root: &Path, seconds: u32) -> Result<(), Failure> {
    let bench = prepare(root, seconds, 1, &Options::default())?;
    subscriptions::churn(&bench)
}

/// `cargo xtask soak reloads`: whether subscribers notice that the graph is loaded anew.
pub(crate) fn reloads(root: &Path, seconds: u32, subscribers: u32) -> Result<(), Failure> {
    let bench = prepare(root, seconds, 1, &Options::default())?;
    subscriptions::reloads(&bench, subscribers)
}

/// Builds what is needed. Seconds and pairs are those of whoever says nothing.
fn prepare(root: &Path, seconds: u32, pairs: u32, options: &Options) -> Result<Bench, Failure> {
    machine::has_two_cores()?;
    let providers = match &options.provider {
        Some(name) => vec![Provider::parse(name)?],
        None => Provider::ALL.into(),
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

/// The release builds of these packages' programs. One command for all, so that the features of dependencies agree and
/// nothing is built twice.
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
    let text = process::read(&mut cargo)?;
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
    /// A file of the repository.
    fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

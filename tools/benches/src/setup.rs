//! The start of every measurement: checks of the machine, the built programs, the folders and the options.

use crate::arguments::Options;
use crate::provider::Provider;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use test_kit::builds::{self, Build};
use test_kit::commands::Failure;

/// Names an existing router to measure instead of building one, for example an older one. The program of the
/// benchmark's subgraphs must be in the same folder.
const BINARY_VARIABLE: &str = "STARLING_BIN";

/// Names another program for load generator, floor and mocks, for a router that does not contain them.
const TOOL_VARIABLE: &str = "STARLING_BENCH_BIN";

/// Names another build of Starling for `cargo xtask bench router --filter baseline`.
pub(crate) const BASELINE_VARIABLE: &str = "STARLING_BASELINE_BIN";

/// The defaults of `--seconds` and `--pairs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// The measured seconds of one run.
    pub(crate) seconds: u32,
    /// The number of pairs of floor and router. It is odd so that there is a middle value.
    pub(crate) pairs: u32,
}

impl Defaults {
    /// The defaults of measurements of queries.
    pub(crate) const OF_QUERIES: Self = Self { seconds: 4, pairs: 5 };
}

/// The programs, folders and options of a measurement.
#[derive(Clone)]
pub(crate) struct Bench {
    root: PathBuf,
    /// The release build of the router.
    pub(crate) starling: PathBuf,
    /// Another build of the router, to compare with.
    pub(crate) baseline: Option<PathBuf>,
    /// The program with load generator, floor and mocks.
    pub(crate) tool: PathBuf,
    /// The release build of the benchmark's subgraphs.
    pub(crate) subgraphs: PathBuf,
    /// The folder for reports.
    pub(crate) reports: PathBuf,
    /// The measured seconds of one run.
    pub(crate) seconds: u32,
    /// True if the command line sets the seconds.
    has_seconds: bool,
    pub(crate) pairs: u32,
    /// The number of clients, if set on the command line.
    pub(crate) clients: Option<u32>,
    /// The providers of events, measured one after the other.
    pub(crate) providers: Vec<Provider>,
    /// The folder in `benches/routers` of the measured router.
    pub(crate) router: String,
}

impl Bench {
    /// Returns the same with another default of the measured seconds.
    pub(crate) fn with_seconds(&self, default: u32) -> Self {
        let seconds = if self.has_seconds { self.seconds } else { default };
        Self { seconds, ..self.clone() }
    }

    /// Returns the same with at most this time for each run, for a part that needs no more.
    pub(crate) fn within_seconds(&self, most: u32) -> Self {
        Self { seconds: self.seconds.min(most), ..self.clone() }
    }

    /// Returns the same without the number of clients of the command line, for a part that has clients of its own.
    pub(crate) fn without_clients(&self) -> Self {
        Self { clients: None, ..self.clone() }
    }

    /// Returns the same with another measured router.
    pub(crate) fn with_router(&self, name: &str) -> Self {
        Self { router: name.to_owned(), ..self.clone() }
    }

    /// Returns the same with another build of Starling.
    pub(crate) fn with_starling(&self, path: &Path) -> Self {
        Self { starling: path.to_owned(), ..self.clone() }
    }

    /// Checks the machine and builds the programs.
    pub(crate) fn prepare(defaults: Defaults, options: &Options) -> Result<Self, Failure> {
        check_cores()?;
        let root = builds::workspace_root();
        let providers = match options.provider {
            Some(provider) => vec![provider],
            None => Provider::value_variants().to_vec(),
        };
        let [starling, subgraphs] = match std::env::var_os(BINARY_VARIABLE) {
            Some(path) => {
                [PathBuf::from(&path), PathBuf::from(path).with_file_name("bench-subgraphs")]
            }
            None => builds::build_programs(&root, Build::Dist, ["starling", "bench-subgraphs"])?,
        };
        let tool = std::env::var_os(TOOL_VARIABLE).map_or_else(|| starling.clone(), PathBuf::from);
        let release = starling.parent().unwrap_or(Path::new("."));
        let reports = release.parent().unwrap_or(release).join("bench");
        create_folder(&reports)?;
        Ok(Self {
            root,
            starling,
            baseline: std::env::var_os(BASELINE_VARIABLE).map(PathBuf::from),
            tool,
            subgraphs,
            reports,
            seconds: options.seconds.unwrap_or(defaults.seconds),
            has_seconds: options.seconds.is_some(),
            pairs: options.pairs.unwrap_or(defaults.pairs),
            clients: options.clients,
            providers,
            router: options.router.clone().unwrap_or_else(|| "starling".to_owned()),
        })
    }

    /// Returns the path of a file of the repository.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Creates the folder of a measurement for the files of the processes that it starts.
    pub(crate) fn scratch_folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.reports.join("scratch").join(name);
        create_folder(&folder)?;
        Ok(folder)
    }
}

/// Reads a file as text.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn create_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks that the machine has two cores and the program `taskset`, which pins processes to them.
fn check_cores() -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Err(
            "this needs two cores: one for the measured server, one for everything else".to_owned()
        );
    }
    let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).status();
    taskset.map(|_| ()).map_err(|error| format!("cannot run `taskset` (util-linux): {error}"))
}

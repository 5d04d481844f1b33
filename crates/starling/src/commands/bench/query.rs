//! `starling bench query`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use http::header::{HeaderName, HeaderValue};
use load::query::{self, Check, Condition, Load, Operation, Settings, Step, Target};
use load::rate::{Arrivals, Rate};
use load::report::{self, Interval, Run};
use load::units::parse_duration;
use serde_json::{Map, Value};

use super::Format;
use super::progress::Progress;
use crate::commands::{complain, print};

/// How long a run takes if nobody says otherwise.
const DURATION: Duration = Duration::from_secs(10);

/// How long one trial of a search takes if nobody says otherwise.
const TRIAL: Duration = Duration::from_secs(5);

/// Sends one operation over and over.
#[derive(clap::Args)]
#[command(after_help = "\
Without --rate the loop is closed: each connection asks again as soon as it has its answer. With --rate \
it is open: requests start when it is their time, and latency counts from then, also where a request had \
to wait for a free connection. So a server that stalls shows it.\n\n\
Every answer is checked. A failure is counted and shown, and the exit status is 1 if there was one.\n\n\
Examples:\n  \
starling bench query --url http://127.0.0.1:4000/graphql --operation query.graphql\n  \
starling bench query --url … --operation … --rate 1000..2000/120s --html report.html\n  \
starling bench query --url … --operation … --connections 200 --find-max 'p50<200ms'")]
pub(crate) struct Arguments {
    /// The GraphQL endpoint.
    #[arg(long)]
    url: String,
    /// A file with the operation (GraphQL).
    #[arg(long, value_name = "FILE")]
    operation: PathBuf,
    /// Which operation of the file; needed where it has several.
    #[arg(long, value_name = "NAME")]
    operation_name: Option<String>,
    /// A file with the variables (JSON): an object, or a list of objects that requests take in turn.
    #[arg(long, value_name = "FILE")]
    variables: Option<PathBuf>,
    /// A header of every request; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// A header with another value in every request, so that the server can share nothing between them.
    #[arg(long, value_name = "NAME")]
    unique_header: Option<String>,
    /// Connections at a time.
    #[arg(long, short = 'c', default_value_t = 50)]
    connections: usize,
    /// The measured time; 10s, or as long as --rate changes, or 5s for each trial of --find-max.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time before anything counts.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    warmup: Duration,
    /// Open loop: requests a second, or a rate that changes: 1000..2000/120s.
    #[arg(long, short = 'r', value_name = "RATE")]
    rate: Option<Rate>,
    /// Open loop: equal gaps, or those of independent clients.
    #[arg(long, value_enum, default_value_t = ArrivalsArgument::Constant)]
    arrivals: ArrivalsArgument,
    /// Searches the highest rate at which this holds, as p50<200ms or 'p99<1s and errors<0.1%'.
    #[arg(long, value_name = "CONDITION", conflicts_with = "rate")]
    find_max: Option<Condition>,
    /// What a right answer is.
    #[arg(long, value_enum, default_value_t = CheckArgument::Graphql)]
    check: CheckArgument,
    /// When a request is given up.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// The server's process on this machine: its CPU time and memory are reported.
    #[arg(long)]
    pid: Option<u32>,
    /// What the report calls the run; the URL if nothing is said.
    #[arg(long)]
    name: Option<String>,
    /// Decides the gaps of Poisson arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also writes the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also writes a page with plots that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Says nothing while it runs.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ArrivalsArgument {
    /// Equal gaps.
    Constant,
    /// Exponential gaps.
    Poisson,
}

#[derive(Clone, Copy, ValueEnum)]
enum CheckArgument {
    /// Status 200; the body is not looked at.
    Status,
    /// Status 200 and no `errors`.
    Graphql,
    /// As graphql, and as long as the first answer.
    Length,
    /// As graphql, and the same bytes as the first answer.
    Bytes,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let settings = settings(arguments)?;
    let mut progress = Progress::new(arguments.quiet);
    let runs = match &arguments.find_max {
        None => {
            let run = query::run(&settings, |interval| show_interval(&mut progress, interval));
            progress.end();
            vec![run.map_err(|error| error.to_string())?]
        }
        Some(condition) => search(&settings, condition, &mut progress)?,
    };
    let json = || format!("{:#}\n", serde_json::to_value(&runs).unwrap_or_default());
    match arguments.format {
        Format::Table => print(&report::text(&runs)),
        Format::Json => print(&json()),
    }
    if let Some(path) = &arguments.json {
        super::write(path, &json())?;
    }
    if let Some(path) = &arguments.html {
        super::write(path, &report::html(&settings.name, &runs))?;
    }
    // A search fails requests on purpose, beyond the rate that holds.
    let failed = runs.first().is_none_or(|run| run.failed > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The run at the highest rate that held, and the next one above it.
fn search(
    settings: &Settings,
    condition: &Condition,
    progress: &mut Progress,
) -> Result<Vec<Run>, String> {
    let found = query::find_max(settings, condition, |step| show_step(progress, &step));
    progress.end();
    let found = found.map_err(|error| error.to_string())?;
    let Some(best) = found.best else {
        return Err(format!("{condition} held at no rate that was tried"));
    };
    let rate = best.rate.map_or(0.0, |rate| rate.from);
    complain(&format!("{condition} holds up to {rate:.0} requests a second\n"));
    Ok([best].into_iter().chain(found.above).collect())
}

fn settings(arguments: &Arguments) -> Result<Settings, String> {
    let target = Target::parse(&arguments.url)?;
    let headers = arguments.headers.iter().map(|header| parse_header(header));
    let unique_header = arguments.unique_header.as_deref().map(header_name).transpose()?;
    let operation = Operation {
        text: super::read(&arguments.operation)?,
        name: arguments.operation_name.clone(),
        variables: arguments.variables.as_deref().map(variables).transpose()?.unwrap_or_default(),
        headers: headers.collect::<Result<_, _>>()?,
        unique_header,
    };
    let arrivals = match arguments.arrivals {
        ArrivalsArgument::Constant => Arrivals::Constant,
        ArrivalsArgument::Poisson => Arrivals::Poisson,
    };
    let load = match (arguments.rate, &arguments.find_max) {
        (Some(rate), _) => Load::Open { rate, arrivals },
        // The search puts its own rates in its place.
        (None, Some(_)) => Load::Open { rate: Rate::constant(1.0), arrivals },
        (None, None) => Load::Closed,
    };
    let change = arguments.rate.and_then(|rate| rate.change());
    let usual = if arguments.find_max.is_some() { TRIAL } else { DURATION };
    Ok(Settings {
        name: arguments.name.clone().unwrap_or_else(|| arguments.url.clone()),
        target,
        operation,
        connections: arguments.connections,
        warmup: arguments.warmup,
        duration: arguments.duration.or(change).unwrap_or(usual),
        load,
        check: match arguments.check {
            CheckArgument::Status => Check::Status,
            CheckArgument::Graphql => Check::Graphql,
            CheckArgument::Length => Check::Length,
            CheckArgument::Bytes => Check::Bytes,
        },
        timeout: arguments.timeout,
        pid: arguments.pid,
        seed: arguments.seed,
    })
}

fn variables(path: &std::path::Path) -> Result<Vec<Map<String, Value>>, String> {
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let value: Value =
        serde_json::from_str(&super::read(path)?).map_err(|error| wrong(&error.to_string()))?;
    let sets = match value {
        Value::Array(sets) => sets,
        one => vec![one],
    };
    sets.into_iter()
        .map(|set| match set {
            Value::Object(set) => Ok(set),
            _ => Err(wrong("variables are an object, or a list of objects")),
        })
        .collect()
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}` is not a header: write name: value"))?;
    let name = header_name(name.trim())?;
    // Not shown: it may be a secret.
    let value = HeaderValue::from_str(value.trim()).map_err(|_| {
        format!("the value of the header `{name}` has characters that no header may have")
    })?;
    Ok((name, value))
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    match name.parse::<HeaderName>() {
        Ok(name)
            if ["content-length", "transfer-encoding", "host", "connection"]
                .contains(&name.as_str()) =>
        {
            Err(format!("the header `{name}` is written by the load generator"))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(format!("`{name}` is not the name of a header")),
    }
}

/// Says how a run goes.
fn show_interval(progress: &mut Progress, interval: &Interval) {
    let mut line = format!(
        "{:6.0} s  {:9.0} answers/s  p50 {:9.3} ms  p99 {:9.3} ms",
        interval.at_seconds,
        interval.answers_per_second,
        interval.p50_us / 1e3,
        interval.p99_us / 1e3
    );
    if interval.failures_per_second > 0.0 {
        line.push_str(&format!("  {:.0} failures/s", interval.failures_per_second));
    }
    if let Some(cores) = interval.server_cores {
        line.push_str(&format!("  server {cores:.2} cores"));
    }
    if let Some(resident) = interval.server_resident_mib {
        line.push_str(&format!(" {resident:.1} MiB"));
    }
    progress.show(&line);
}

/// Says how a search goes.
fn show_step(progress: &mut Progress, step: &Step<'_>) {
    match step {
        Step::Trying(None) => progress.note("as fast as it goes, to begin with"),
        Step::Trying(Some(rate)) => progress.note(&format!("trying {rate:.0} requests a second")),
        Step::Interval(interval) => show_interval(progress, interval),
        Step::Tried(run, held) => {
            let verdict = if *held { "holds" } else { "does not hold" };
            progress.note(&format!(
                "{verdict}: {:.0} answers/s, p50 {:.3} ms, p99 {:.3} ms, {} failed",
                run.answers_per_second,
                run.latency.p50_us / 1e3,
                run.latency.p99_us / 1e3,
                run.failed
            ));
        }
    }
}

//! The command `starling bench query`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use load::query::{
    self, Check, Load, MeasuredOperation, QuerySettings, QueryTarget, RunCondition, SearchStep,
};
use load::rate::Rate;
use load::report::{self, QueryInterval, Run};
use load::units::parse_duration;

use super::choices::{ArrivalsArgument, ReportFormat};
use super::operation_input::{header_name, parse_header, read_variables};
use super::progress::Progress;
use crate::commands::{print, print_error, read_file, write_file};

/// The default duration of a run.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// The default duration of one trial of a search.
const TRIAL_DURATION_DEFAULT: Duration = Duration::from_secs(5);

/// Sends one operation repeatedly.
#[derive(clap::Args)]
#[command(after_help = "\
Without --rate the loop is closed: each connection sends its next request as soon as it has its response. With --rate \
it is open: requests are due at fixed times, and latency counts from then, even if a request had \
to wait for a free connection. A stalling server is therefore visible.\n\n\
Every response is checked. Failures are counted and shown, and the exit status is 1 if there were any.\n\n\
Examples:\n  \
starling bench query --url http://127.0.0.1:4000/graphql --operation query.graphql\n  \
starling bench query --url … --operation … --rate 1000..2000/120s --html report.html\n  \
starling bench query --url … --operation … --connections 200 --find-max 'p50<200ms'")]
pub(crate) struct QueryArguments {
    /// The GraphQL endpoint.
    #[arg(long)]
    url: String,
    /// The file with the operation (GraphQL).
    #[arg(long, value_name = "FILE", required_unless_present = "document_id")]
    operation: Option<PathBuf>,
    /// The id of a persisted document, which is sent as `documentId` in place of a text.
    #[arg(long, value_name = "ID", conflicts_with = "operation")]
    document_id: Option<String>,
    /// The name of the operation; required if the file has several.
    #[arg(long, value_name = "NAME")]
    operation_name: Option<String>,
    /// A file with the variables (JSON): an object, or a list of objects that requests use in turn.
    #[arg(long, value_name = "FILE")]
    variables: Option<PathBuf>,
    /// A header of every request; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// A header with a different value in every request, so that the server can share nothing between them.
    #[arg(long, value_name = "NAME")]
    unique_header: Option<String>,
    /// The number of concurrent connections.
    #[arg(long, short = 'c', default_value_t = 50)]
    connections: usize,
    /// The measured time. Default: 10s, the time of a changing --rate, or 5s for each trial of --find-max.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// The time before the measurement begins.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    warmup: Duration,
    /// Open loop: requests a second, or a rate that changes: 1000..2000/120s.
    #[arg(long, short = 'r', value_name = "RATE")]
    rate: Option<Rate>,
    /// Open loop: equal gaps, or the gaps of independent clients.
    #[arg(long, value_enum, default_value_t = ArrivalsArgument::Constant)]
    arrivals: ArrivalsArgument,
    /// Searches the highest rate at which this condition holds, such as p50<200ms or 'p99<1s and errors<0.1%'.
    #[arg(long, value_name = "CONDITION", conflicts_with = "rate")]
    find_max: Option<RunCondition>,
    /// The condition for a correct response.
    #[arg(long, value_enum, default_value_t = CheckArgument::Graphql)]
    check: CheckArgument,
    /// The time after which a request is abandoned.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// The id of the server's process on this machine: its CPU time and memory are reported.
    #[arg(long)]
    pid: Option<u32>,
    /// The name of the run in the report. Default: the URL.
    #[arg(long)]
    name: Option<String>,
    /// The seed of the gaps of Poisson arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The output format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Also writes the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also writes a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also writes a line for each correct response: when its request was sent, when it was complete, both in
    /// microseconds since 1970, and its body.
    #[arg(long, value_name = "FILE", conflicts_with = "find_max")]
    log: Option<PathBuf>,
    /// Prints no progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum CheckArgument {
    /// Status 200; the body is not checked.
    Status,
    /// Status 200 and no `errors`.
    Graphql,
    /// As graphql, and the length of the first response.
    Length,
    /// As graphql, and the bytes of the first response.
    Bytes,
}

pub(crate) fn run(arguments: &QueryArguments) -> Result<ExitCode, String> {
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
        ReportFormat::Table => print(&report::text(&runs)),
        ReportFormat::Json => print(&json()),
    }
    if let Some(path) = &arguments.json {
        write_file(path, &json())?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, &report::html(&settings.name, &runs))?;
    }
    // A search exceeds the rate that holds on purpose, so failures are expected there.
    let failed = runs.first().is_none_or(|run| run.failed > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the run at the highest rate that held, and the next one above it.
fn search(
    settings: &QuerySettings,
    condition: &RunCondition,
    progress: &mut Progress,
) -> Result<Vec<Run>, String> {
    let found = query::find_max(settings, condition, |step| show_step(progress, &step));
    progress.end();
    let found = found.map_err(|error| error.to_string())?;
    let Some(best) = found.best else {
        return Err(format!("{condition} did not hold at any tried rate"));
    };
    let rate = best.rate.map_or(0.0, |rate| rate.from);
    print_error(&format!("{condition} holds up to {rate:.0} requests a second\n"));
    Ok([best].into_iter().chain(found.above).collect())
}

fn settings(arguments: &QueryArguments) -> Result<QuerySettings, String> {
    let target = QueryTarget::parse(&arguments.url)?;
    let headers = arguments.headers.iter().map(|header| parse_header(header));
    let unique_header = arguments.unique_header.as_deref().map(header_name).transpose()?;
    let operation = MeasuredOperation {
        text: arguments.operation.as_deref().map(read_file).transpose()?.unwrap_or_default(),
        document_id: arguments.document_id.clone(),
        name: arguments.operation_name.clone(),
        variables: arguments
            .variables
            .as_deref()
            .map(read_variables)
            .transpose()?
            .unwrap_or_default(),
        headers: headers.collect::<Result<_, _>>()?,
        unique_header,
    };
    let arrivals = arguments.arrivals.arrivals();
    let load = match (arguments.rate, &arguments.find_max) {
        (Some(rate), _) => Load::Open { rate, arrivals },
        // The search replaces this rate by its own.
        (None, Some(_)) => Load::Open { rate: Rate::constant(1.0), arrivals },
        (None, None) => Load::Closed,
    };
    let change = arguments.rate.and_then(|rate| rate.change());
    let usual =
        if arguments.find_max.is_some() { TRIAL_DURATION_DEFAULT } else { DURATION_DEFAULT };
    Ok(QuerySettings {
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
        log: arguments.log.clone(),
    })
}

/// Shows the progress of a run.
fn show_interval(progress: &mut Progress, interval: &QueryInterval) {
    let mut line = format!(
        "{:6.0} s  {:9.0} responses/s  p50 {:9.3} ms  p99 {:9.3} ms",
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

/// Shows the progress of a search.
fn show_step(progress: &mut Progress, step: &SearchStep<'_>) {
    match step {
        SearchStep::Trying(None) => progress.note("as fast as possible, to begin with"),
        SearchStep::Trying(Some(rate)) => {
            progress.note(&format!("trying {rate:.0} requests a second"));
        }
        SearchStep::QueryInterval(interval) => show_interval(progress, interval),
        SearchStep::Tried(run, held) => {
            let verdict = if *held { "holds" } else { "does not hold" };
            progress.note(&format!(
                "{verdict}: {:.0} responses/s, p50 {:.3} ms, p99 {:.3} ms, {} failed",
                run.answers_per_second,
                run.latency.p50_us / 1e3,
                run.latency.p99_us / 1e3,
                run.failed
            ));
        }
    }
}

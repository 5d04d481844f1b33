//! The command `starling bench surge`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use load::query::{MeasuredOperation, QueryTarget};
use load::report::surge_report;
use load::report::{SurgeInterval, SurgeRun};
use load::subscriptions::SubscriptionTarget;
use load::surge::{
    self, ClientBehaviour, LoadShape, SurgeOperation, SurgeSettings, SurgeSubscriptions,
};
use load::units::parse_duration;

use super::choices::{ArrivalsArgument, ReportFormat};
use super::operation_input::{header_name, parse_header, read_variables};
use super::progress::Progress;
use super::surge_files::{FileProblems, read_mix, read_shape};
use crate::commands::{print, read_file, report, write_file};

/// The default rate of the named shapes.
const RATE_DEFAULT: f64 = 100.0;

/// The default duration of the named shapes.
const DURATION_DEFAULT: Duration = Duration::from_secs(60);

/// The number of lines of progress after which the names of the columns are repeated.
const LINES_PER_HEADING: usize = 20;

/// The class of an operation that was given on the command line.
const ONLY_CLASS: &str = "operation";

/// Sends a load that changes over time.
#[derive(clap::Args)]
#[command(after_help = "\
What happens to a server when traffic doubles? Users want requests at the planned times, whether the server keeps up \
or not. Each request belongs to one of --clients. A client uses a response again for its `cache-control: max-age`. If \
the server refuses (status 429 or 503), it waits for `retry-after` and a little longer, repeats the request up to \
--retries times, and gives up when its user has waited for --patience.\n\n\
How to read the lines, one for each second:\n  \
offered   requests that users want       sent      requests on the wire, with repetitions\n  \
admitted  the server did not refuse      in time   correct within --in-time: the goodput\n  \
refused   status 429 or 503              given up  users without patience left\n\n\
A healthy server under too much load: `in time` stays at its maximum, the rest is refused at once, and p99 stays low. \
An unhealthy one: `in time` falls, p99 rises, users give up. Latency counts from the planned time, so a stall cannot \
hide. The last line says if the load generator itself was the limit.\n\n\
Shapes (--rate R, --duration D):\n  \
constant   R all the time\n  \
ramp       from 0 to R\n  \
doubling   R, then twice R within the half of D, which stays\n  \
spike      R, and ten times R for a fifth of D, at once\n  \
FILE       points of a YAML or JSON file: points: [{seconds: 0, rate: 200}, {seconds: 600, rate: 800}]\n             \
--rate and --duration scale it\n\n\
Examples:\n  \
starling bench surge --url http://127.0.0.1:4000/graphql --operation query.graphql --shape doubling --rate 500\n  \
starling bench surge --url … --mix match-day-mix.yaml --shape match-day.yaml --svg surge.svg --json surge.json\n\n\
The exit status is 1 if responses were wrong or missing, or subscribers lost; refusals are results.")]
pub(crate) struct SurgeArguments {
    /// The GraphQL endpoint.
    #[arg(long)]
    url: String,
    /// The file with the operation (GraphQL).
    #[arg(long, value_name = "FILE", required_unless_present_any = ["document_id", "mix"])]
    operation: Option<PathBuf>,
    /// The id of a persisted document, which is sent as `documentId` in place of a text.
    #[arg(long, value_name = "ID", conflicts_with = "operation")]
    document_id: Option<String>,
    /// The name of the operation; required if the file has several.
    #[arg(long, value_name = "NAME")]
    operation_name: Option<String>,
    /// A file with the variables (JSON): an object, or a list of objects of which each request takes one.
    #[arg(long, value_name = "FILE")]
    variables: Option<PathBuf>,
    /// Several operations: a file (YAML) with `operations`, each with name, operation, variables, headers and weight.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["operation", "document_id", "operation_name", "variables"])]
    mix: Option<PathBuf>,
    /// A file with a subscription (GraphQL): --subscribers are connected over WebSocket before the surge, and stay.
    #[arg(long, value_name = "FILE", requires = "subscribers")]
    subscription: Option<PathBuf>,
    /// The number of subscribers.
    #[arg(long, value_name = "N", requires = "subscription")]
    subscribers: Option<usize>,
    /// A header of every request; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// A header with a value for each client, so that the server can tell clients apart.
    #[arg(long, value_name = "NAME")]
    client_header: Option<String>,
    /// The load over time: constant, ramp, doubling, spike, or a file with points.
    #[arg(long, value_name = "NAME|FILE", default_value = "doubling")]
    shape: String,
    /// Requests of users in a second, see the shapes below. Default: 100; with a file, that of its points.
    #[arg(long, short = 'r', value_name = "RATE")]
    rate: Option<f64>,
    /// The measured time. Default: 60s; with a file, that of its points.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// The time before the measurement begins, at the first rate of the shape.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    warmup: Duration,
    /// Equal gaps between the requests of users, or the gaps of independent users.
    #[arg(long, value_enum, default_value_t = ArrivalsArgument::Poisson)]
    arrivals: ArrivalsArgument,
    /// The number of clients, each with a cache of its own.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    clients: usize,
    /// Clients use no response twice.
    #[arg(long)]
    no_client_cache: bool,
    /// The number of times that a client repeats a refused request.
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// The time after which a user gives up, with all repetitions.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    patience: Duration,
    /// A correct response within this time is goodput; it counts from the planned time of the attempt.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    in_time: Duration,
    /// The maximum number of connections. They are opened as needed.
    #[arg(long, short = 'c', value_name = "N", default_value_t = 2000)]
    connections: usize,
    /// The maximum number of requests that wait for a connection; further ones are never sent and counted.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    waiting: usize,
    /// The id of the server's process on this machine: its CPU time and memory are reported.
    #[arg(long)]
    pid: Option<u32>,
    /// The name of the run in the report. Default: the URL.
    #[arg(long)]
    name: Option<String>,
    /// The seed of gaps and choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The output format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Also writes the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draws a picture: load, latency by class, and what was refused.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also writes a self-contained page with the result and the picture.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints no progress.
    #[arg(long, short)]
    quiet: bool,
}

/// A reason for which there is no run.
enum Refusal {
    Message(String),
    File(FileProblems),
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<FileProblems> for Refusal {
    fn from(problems: FileProblems) -> Self {
        Self::File(problems)
    }
}

pub(crate) fn run(arguments: &SurgeArguments) -> Result<ExitCode, String> {
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(Refusal::Message(message)) => return Err(message),
        Err(Refusal::File(problems)) => {
            report(&problems);
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut progress = Progress::new(arguments.quiet);
    let mut lines = 0;
    let run = surge::run(&settings, |classes, interval| {
        if lines % LINES_PER_HEADING == 0 {
            progress.note(&heading(classes));
        }
        lines += 1;
        progress.note(&interval_line(interval));
    });
    let run = run.map_err(|error| error.to_string())?;
    write_result(arguments, &run)?;
    let lost_subscribers = run.subscribers.as_ref().is_some_and(|it| !it.ended.is_empty());
    let has_failed = run.totals.failed > 0 || lost_subscribers;
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints and writes the run as the arguments request.
fn write_result(arguments: &SurgeArguments, run: &SurgeRun) -> Result<(), String> {
    let runs = std::slice::from_ref(run);
    let json = || format!("{:#}\n", serde_json::to_value(runs).unwrap_or_default());
    match arguments.format {
        ReportFormat::Table => print(&surge_report::text(runs)),
        ReportFormat::Json => print(&json()),
    }
    if let Some(path) = &arguments.json {
        write_file(path, &json())?;
    }
    if let Some(path) = &arguments.svg {
        write_file(path, &surge_report::svg(run))?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, &surge_report::html(&run.name, runs))?;
    }
    Ok(())
}

fn settings(arguments: &SurgeArguments) -> Result<SurgeSettings, Refusal> {
    let target = QueryTarget::parse(&arguments.url)?;
    let (shape_name, shape) = shape(arguments)?;
    Ok(SurgeSettings {
        name: arguments.name.clone().unwrap_or_else(|| arguments.url.clone()),
        target,
        operations: operations(arguments)?,
        shape_name,
        shape,
        arrivals: arguments.arrivals.arrivals(),
        warmup: arguments.warmup,
        behaviour: ClientBehaviour {
            clients: arguments.clients,
            caches: !arguments.no_client_cache,
            retries: arguments.retries,
            patience: arguments.patience,
        },
        in_time: arguments.in_time,
        connections_max: arguments.connections,
        waiting_max: arguments.waiting,
        subscriptions: subscriptions(arguments)?,
        pid: arguments.pid,
        seed: arguments.seed,
    })
}

/// Returns the operations of the mix, or the only one of the command line.
fn operations(arguments: &SurgeArguments) -> Result<Vec<SurgeOperation>, Refusal> {
    let headers = arguments.headers.iter().map(|header| parse_header(header));
    let base = MeasuredOperation {
        headers: headers.collect::<Result<_, _>>()?,
        unique_header: arguments.client_header.as_deref().map(header_name).transpose()?,
        ..MeasuredOperation::default()
    };
    if let Some(path) = &arguments.mix {
        return Ok(read_mix(path, &base)?);
    }
    let variables = arguments.variables.as_deref().map(read_variables).transpose()?;
    let operation = MeasuredOperation {
        text: arguments.operation.as_deref().map(read_file).transpose()?.unwrap_or_default(),
        document_id: arguments.document_id.clone(),
        name: arguments.operation_name.clone(),
        variables: variables.unwrap_or_default(),
        ..base
    };
    let class = arguments.operation_name.clone().unwrap_or_else(|| ONLY_CLASS.to_owned());
    Ok(vec![SurgeOperation::new(class, 1.0, operation)?])
}

/// Returns the subscribers, if there are any.
fn subscriptions(arguments: &SurgeArguments) -> Result<Option<SurgeSubscriptions>, Refusal> {
    let Some((file, count)) = arguments.subscription.as_deref().zip(arguments.subscribers) else {
        return Ok(None);
    };
    let target = SubscriptionTarget::parse(&arguments.url)?;
    Ok(Some(SurgeSubscriptions { target, query: read_file(file)?, count }))
}

/// Returns the name of the shape and the shape.
fn shape(arguments: &SurgeArguments) -> Result<(String, LoadShape), Refusal> {
    let rate = arguments.rate.unwrap_or(RATE_DEFAULT);
    let seconds = arguments.duration.unwrap_or(DURATION_DEFAULT).as_secs_f64();
    let made = match arguments.shape.as_str() {
        "constant" => LoadShape::constant(rate, seconds),
        "ramp" => LoadShape::ramp(rate, seconds),
        "doubling" => LoadShape::doubling(rate, seconds),
        "spike" => LoadShape::spike(rate, seconds),
        file => {
            let path = Path::new(file);
            if !path.exists() {
                let message = format!(
                    "there is no shape and no file `{file}`: write constant, ramp, doubling, spike, or the path of a file"
                );
                return Err(Refusal::Message(message));
            }
            let seconds = arguments.duration.map(|duration| duration.as_secs_f64());
            let scaled = read_shape(path)?.scaled(arguments.rate, seconds)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return Ok((name, scaled));
        }
    };
    let shape = made.map_err(|what| format!("--rate and --duration: {what}"))?;
    Ok((arguments.shape.clone(), shape))
}

/// Names the columns of the lines of progress.
fn heading(classes: &[String]) -> String {
    let mut line = format!(
        "{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "s", "offered", "sent", "admitted", "in time", "refused", "failed", "given up"
    );
    for class in classes {
        line.push_str(&format!("  {class}: p50, p99 ms"));
    }
    line
}

/// Formats one interval as a line of progress.
fn interval_line(interval: &SurgeInterval) -> String {
    let counts = &interval.counts;
    let mut line = format!("{:6.0}", interval.at_seconds);
    for count in [
        counts.offered,
        counts.sent,
        counts.admitted,
        counts.good,
        counts.refused,
        counts.failed,
        counts.given_up,
    ] {
        line.push_str(&format!(" {:9.0}", interval.per_second(count)));
    }
    for latency in &interval.latency {
        match latency.p50_us.zip(latency.p99_us) {
            Some((p50, p99)) => line.push_str(&format!("  {:8.1} {:8.1}", p50 / 1e3, p99 / 1e3)),
            None => line.push_str("         –        –"),
        }
    }
    if let Some(subscribers) = interval.subscribers {
        line.push_str(&format!(
            "  {} subscribed {:.0} results/s",
            subscribers.subscribed, subscribers.results_per_second
        ));
    }
    if let Some(cores) = interval.server_cores {
        line.push_str(&format!("  server {cores:.2} cores"));
    }
    if let Some(resident) = interval.server_resident_mib {
        line.push_str(&format!(" {resident:.1} MiB"));
    }
    for refusal in interval.refusals.iter().take(2) {
        line.push_str(&format!("  {} × {}", refusal.count, refusal.what));
    }
    if counts.unsent > 0 || interval.late_sends > 0 {
        line.push_str(&format!(
            "  generator: {} never sent, {} late",
            counts.unsent, interval.late_sends
        ));
    }
    line
}

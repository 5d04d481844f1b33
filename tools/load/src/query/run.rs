//! One run: checks of its settings and of the first response, the loop, and the report.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::check::{Check, RequestOutcome, classify_body};
use super::driver::{QueryDriver, RunPlan};
use super::exchange::exchange;
use super::recorder::QueryRecorder;
use super::request::{MeasuredOperation, QueryTarget, RequestTemplate};
use super::response_log::ResponseLog;
use crate::descriptors::raise_descriptors;
use crate::process::Process;
use crate::rate::{Arrivals, Rate, Schedule};
use crate::report::{FailureCount, QueryGeneratorUsage, QueryInterval, Run};

/// The maximum number of connections of one run; each needs a socket of the client and one of the server.
pub const CONNECTIONS_MAX: usize = 20_000;

/// The number of attempts to get a correct first response, so that a mock that fails some requests can be measured
/// too.
const FIRST_TRIES: usize = 5;

/// The maximum number of bytes shown of a wrong first response.
const SHOWN_BYTES_MAX: usize = 500;

/// The timer slack: sleeps end within a microsecond of their time; the kernel's default is 50.
pub(crate) const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// The reason for which a run did not take place.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached.
    #[error("cannot reach {url}: {error}")]
    Unreachable {
        /// The URL as given.
        url: String,
        /// The error of the connection.
        error: io::Error,
    },
    /// The first response is wrong, so that a run would measure nothing.
    #[error("the first response of {url} is wrong: {what}")]
    WrongFirstResponse {
        /// The URL as given.
        url: String,
        /// The problem, and the beginning of the response.
        what: String,
    },
    /// There is no such process.
    #[error("cannot observe process {pid}: {error}")]
    Process {
        /// The process id as given.
        pid: u32,
        /// The error of reading `/proc`.
        error: io::Error,
    },
    /// A system call failed.
    #[error("the load generator failed: {0}")]
    Io(#[from] io::Error),
}

/// The pattern of load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Each connection sends its next request as soon as its response is complete.
    Closed,
    /// Requests start as scheduled.
    Open {
        /// The number of requests a second.
        rate: Rate,
        /// The distribution of the gaps.
        arrivals: Arrivals,
    },
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct QuerySettings {
    /// The name of the run in reports.
    pub name: String,
    /// The destination of requests.
    pub target: QueryTarget,
    /// The operation to send.
    pub operation: MeasuredOperation,
    /// The number of concurrent connections, from 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// The time before the measured time.
    pub warmup: Duration,
    /// The measured time.
    pub duration: Duration,
    /// The pattern of load.
    pub load: Load,
    /// The condition for a correct response.
    pub check: Check,
    /// The time after which a request is abandoned.
    pub timeout: Duration,
    /// The id of the server's process, to read its resource usage.
    pub pid: Option<u32>,
    /// The seed of the gaps of Poisson arrivals.
    pub seed: u64,
    /// A file that gets a line for each correct response, with the times of the request and of the response in
    /// microseconds since 1970, and the body.
    pub log: Option<PathBuf>,
}

/// Runs load and measures it. `progress` is called for every interval that has passed, a second or longer.
///
/// # Errors
/// [`QueryError`] if the run cannot begin; later failures are counted in its report.
pub fn run(
    settings: &QuerySettings,
    progress: impl FnMut(&QueryInterval),
) -> Result<Run, QueryError> {
    if settings.connections == 0 || settings.connections > CONNECTIONS_MAX {
        let message = format!("the number of connections must be from 1 to {CONNECTIONS_MAX}");
        return Err(QueryError::Settings(message));
    }
    if settings.duration.is_zero() {
        return Err(QueryError::Settings("the duration must be longer than zero".to_owned()));
    }
    if settings.log.is_some() && settings.check == Check::Status {
        let message = "responses are logged only if their bodies are checked".to_owned();
        return Err(QueryError::Settings(message));
    }
    let log = settings.log.as_deref().map(ResponseLog::create).transpose()?;
    if let Some(pid) = settings.pid {
        Process::Id(pid).usage().map_err(|error| QueryError::Process { pid, error })?;
    }
    raise_descriptors(settings.connections, "connections").map_err(QueryError::Settings)?;
    let requests = settings.operation.requests(&settings.target).map_err(QueryError::Settings)?;
    let mut number = 0;
    let mut first = Vec::with_capacity(requests.len());
    for request in &requests {
        first.push(fetch_first_response(settings, request, &mut number)?);
    }

    // The slack of other threads stays. A kernel without timer slack is only less exact.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    let (schedule, counts_by_start) = match settings.load {
        Load::Closed => (None, false),
        Load::Open { rate, arrivals } => {
            (Some(Schedule::new(rate, arrivals, settings.warmup, settings.seed)), true)
        }
    };
    let observed_process = settings.pid.map(Process::Id);
    let mut recorder =
        QueryRecorder::new(settings.warmup, settings.duration, counts_by_start, observed_process);
    let plan = RunPlan {
        address: settings.target.address(),
        requests: &requests,
        first: &first,
        connections: settings.connections,
        check: settings.check,
        timeout: settings.timeout,
        begin: settings.warmup,
        end: settings.warmup + settings.duration,
        first_number: number,
        log,
    };
    let before = Process::Own.usage()?;
    let started = Instant::now();
    let ran =
        QueryDriver::new(plan, schedule).and_then(|driver| driver.run(&mut recorder, progress));
    let _ = rustix::thread::set_current_timer_slack(None);
    ran?;
    let elapsed = started.elapsed().as_secs_f64();
    let own = Process::Own.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(report(settings, &recorder, &first, own / elapsed))
}

fn report(
    settings: &QuerySettings,
    recorder: &QueryRecorder,
    first: &[Vec<u8>],
    own_cores: f64,
) -> Run {
    let seconds = settings.duration.as_secs_f64();
    let (rate, arrivals) = match settings.load {
        Load::Closed => (None, None),
        Load::Open { rate, arrivals } => (Some(rate), Some(arrivals)),
    };
    Run {
        name: settings.name.clone(),
        url: settings.target.url().to_owned(),
        connections: settings.connections,
        warmup_seconds: settings.warmup.as_secs_f64(),
        duration_seconds: seconds,
        rate,
        arrivals,
        unique_header: settings.operation.unique_header.as_ref().map(ToString::to_string),
        answer_bytes: first.iter().map(Vec::len).max().unwrap_or(0),
        requests: recorder.latency.count() + recorder.failed,
        failed: recorder.failed + recorder.unsent,
        unsent: recorder.unsent,
        failures: recorder
            .failures
            .iter()
            .map(|(outcome, count)| FailureCount { what: outcome.label(), count: *count })
            .collect(),
        example: recorder.example.clone(),
        answers_per_second: recorder.completed_in_window as f64 / seconds,
        bytes_per_second: recorder.body_bytes as f64 / seconds,
        latency: recorder.summary(),
        server: settings.pid.and_then(|pid| recorder.server(pid)),
        generator: QueryGeneratorUsage { cores: own_cores },
        intervals: recorder.intervals.clone(),
        histogram: recorder.latency.buckets(),
    }
}

/// Sends one request outside the loop and returns the body that later responses are compared with.
fn fetch_first_response(
    settings: &QuerySettings,
    request: &RequestTemplate,
    number: &mut u64,
) -> Result<Vec<u8>, QueryError> {
    let url = || settings.target.url().to_owned();
    let mut problem = String::new();
    for _ in 0..FIRST_TRIES {
        let mut text = Vec::new();
        request.write(*number, &mut text);
        *number += 1;
        let exchanged = exchange(settings.target.address(), settings.timeout, &text);
        let (status, encoded, body) = match exchanged {
            Ok((response, body)) => (response.status, response.encoded, body),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                problem = error.to_string();
                continue;
            }
            Err(error) => return Err(QueryError::Unreachable { url: url(), error }),
        };
        let outcome = match status {
            200 if settings.check == Check::Status => RequestOutcome::Correct,
            200 if encoded => {
                problem =
                    "it has a content coding, so its body cannot be checked (use --check status)"
                        .to_owned();
                continue;
            }
            200 => classify_body(&body),
            status => RequestOutcome::Status(status),
        };
        if outcome == RequestOutcome::Correct {
            return Ok(body);
        }
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
        problem = format!("{}: {shown}", outcome.label());
    }
    Err(QueryError::WrongFirstResponse { url: url(), what: problem })
}

//! `starling bench query`: sends one operation over and over, checks every answer, and says how fast they were.
//!
//! ```text
//! Settings ──run──► driver (epoll, one thread) ──► recorder ──► report::Run
//! ```
//!
//! - `request`: what is sent. `response`: what comes back. `check`: whether that is right.
//! - `driver`: the loop. `recorder`: the counts.
//! - `condition`, `search`: the highest rate that holds a condition.
//!
//! It is to be light, so that it can share a machine with what it measures: no allocation and no task for a request,
//! one read and one write for each. Linux only: it stands on epoll and `/proc`.

mod check;
mod condition;
mod driver;
mod recorder;
mod request;
pub(crate) mod response;
mod search;

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

pub use check::Check;
pub use condition::Condition;
pub use request::{Operation, Target};
pub use search::{Found, Step, find_max};

use check::{Outcome, look_into};
use driver::{Driver, Plan};
use recorder::Recorder;
use request::Request;
use response::ResponseReader;

use crate::process::Process;
use crate::rate::{Arrivals, Rate, Schedule};
use crate::report::{Failure, Generator, Interval, Run};

/// Connections of one run; each is a socket of the client and one of the server.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Tries for a right first answer: a mock that fails some requests on purpose can be measured too.
const FIRST_TRIES: usize = 5;

/// How many bytes of a wrong first answer are shown.
const SHOWN_BYTES_MAX: usize = 500;

/// Sleeps end within a microsecond of when they should, where the kernel's default is 50.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// Why a run did not take place.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The settings make no sense.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached at all.
    #[error("cannot reach {url}: {error}")]
    Unreachable {
        /// The URL as it was given.
        url: String,
        /// Why not.
        error: io::Error,
    },
    /// The first answer is not one that is worth measuring.
    #[error("the first answer of {url} is wrong: {what}")]
    WrongAnswer {
        /// The URL as it was given.
        url: String,
        /// What is wrong with it, and its beginning.
        what: String,
    },
    /// There is no such process.
    #[error("cannot watch process {pid}: {error}")]
    Process {
        /// Its id as it was given.
        pid: u32,
        /// Why not.
        error: io::Error,
    },
    /// The machine does not let us.
    #[error("the load generator failed: {0}")]
    Io(#[from] io::Error),
}

/// How load comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Each connection asks again as soon as it has its answer.
    Closed,
    /// Requests start when it is their time.
    Open {
        /// How many a second.
        rate: Rate,
        /// How they are spread.
        arrivals: Arrivals,
    },
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the report calls the run.
    pub name: String,
    /// Where requests go.
    pub target: Target,
    /// What they ask.
    pub operation: Operation,
    /// Connections at a time, from 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Before anything counts.
    pub warmup: Duration,
    /// The measured time.
    pub duration: Duration,
    /// How load comes.
    pub load: Load,
    /// What a right answer is.
    pub check: Check,
    /// When a request is given up.
    pub timeout: Duration,
    /// The server's process, to read what it uses.
    pub pid: Option<u32>,
    /// Decides the gaps of Poisson arrivals.
    pub seed: u64,
}

/// Runs load and measures it. `progress` is called for every interval that has passed, a second or longer.
///
/// # Errors
/// [`QueryError`] where the run does not begin; what fails later is counted in its report.
pub fn run(settings: &Settings, progress: impl FnMut(&Interval)) -> Result<Run, QueryError> {
    if settings.connections == 0 || settings.connections > CONNECTIONS_MAX {
        let message = format!("from 1 to {CONNECTIONS_MAX} connections are possible");
        return Err(QueryError::Settings(message));
    }
    if settings.duration.is_zero() {
        return Err(QueryError::Settings("a run takes some time".to_owned()));
    }
    if let Some(pid) = settings.pid {
        Process::Id(pid).usage().map_err(|error| QueryError::Process { pid, error })?;
    }
    let requests = settings.operation.requests(&settings.target).map_err(QueryError::Settings)?;
    let mut number = 0;
    let mut first = Vec::with_capacity(requests.len());
    for request in &requests {
        first.push(first_answer(settings, request, &mut number)?);
    }

    // The slack of other threads stays; a kernel without it is only less exact.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    let (schedule, by_start) = match settings.load {
        Load::Closed => (None, false),
        Load::Open { rate, arrivals } => {
            (Some(Schedule::new(rate, arrivals, settings.warmup, settings.seed)), true)
        }
    };
    let watched = settings.pid.map(Process::Id);
    let mut recorder = Recorder::new(settings.warmup, settings.duration, by_start, watched);
    let plan = Plan {
        address: settings.target.address(),
        requests: &requests,
        first: &first,
        connections: settings.connections,
        check: settings.check,
        timeout: settings.timeout,
        begin: settings.warmup,
        end: settings.warmup + settings.duration,
        first_number: number,
    };
    let before = Process::Own.usage()?;
    let started = Instant::now();
    let ran = Driver::new(plan, schedule).and_then(|driver| driver.run(&mut recorder, progress));
    let _ = rustix::thread::set_current_timer_slack(None);
    ran?;
    let elapsed = started.elapsed().as_secs_f64();
    let own = Process::Own.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(report(settings, &recorder, &first, own / elapsed))
}

fn report(settings: &Settings, recorder: &Recorder, first: &[Vec<u8>], own_cores: f64) -> Run {
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
            .map(|(outcome, count)| Failure { what: outcome.label(), count: *count })
            .collect(),
        example: recorder.example.clone(),
        answers_per_second: recorder.completed_in_window as f64 / seconds,
        bytes_per_second: recorder.body_bytes as f64 / seconds,
        latency: recorder.summary(),
        server: settings.pid.and_then(|pid| recorder.server(pid)),
        generator: Generator { cores: own_cores },
        intervals: recorder.intervals.clone(),
        histogram: recorder.latency.buckets(),
    }
}

/// Asks once, outside the loop, and returns the body that later answers are compared with.
fn first_answer(
    settings: &Settings,
    request: &Request,
    number: &mut u64,
) -> Result<Vec<u8>, QueryError> {
    let url = || settings.target.url().to_owned();
    let mut problem = String::new();
    for _ in 0..FIRST_TRIES {
        let mut text = Vec::new();
        request.write(*number, &mut text);
        *number += 1;
        let (status, encoded, body) = match ask(settings, &text) {
            Ok(answer) => answer,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                problem = error.to_string();
                continue;
            }
            Err(error) => return Err(QueryError::Unreachable { url: url(), error }),
        };
        let outcome = match status {
            200 if settings.check == Check::Status => Outcome::Right,
            200 if encoded => {
                problem = "it has a content coding, so it cannot be checked (--check status does not look)".to_owned();
                continue;
            }
            200 => look_into(&body),
            status => Outcome::Status(status),
        };
        if outcome == Outcome::Right {
            return Ok(body);
        }
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
        problem = format!("{}: {shown}", outcome.label());
    }
    Err(QueryError::WrongAnswer { url: url(), what: problem })
}

fn ask(settings: &Settings, request: &[u8]) -> io::Result<(u16, bool, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&settings.target.address(), settings.timeout)?;
    stream.set_read_timeout(Some(settings.timeout))?;
    stream.set_write_timeout(Some(settings.timeout))?;
    stream.write_all(request)?;
    let mut reader = ResponseReader::default();
    let mut body = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let unusable = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        let count = stream.read(&mut buffer)?;
        let completed = if count == 0 {
            Some(reader.closed().ok_or_else(|| unusable("the connection was closed"))?)
        } else {
            reader
                .read(&mut &buffer[..count], |bytes| body.extend_from_slice(bytes))
                .map_err(|malformed| unusable(malformed.0))?
        };
        if let Some(completed) = completed {
            return Ok((completed.status, completed.encoded, body));
        }
    }
}

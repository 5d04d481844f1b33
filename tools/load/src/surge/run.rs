//! One run: checks of its settings and of the first responses, the loop, and the report.

use std::io;
use std::time::{Duration, Instant};

use super::clients::{ClientBehaviour, RequestKind, SURGE_CLIENTS_MAX, VirtualClients};
use super::driver::{SurgeDriver, SurgePlan};
use super::outcome::{self, Outcome};
use super::recorder::SurgeRecorder;
use super::shape::{LoadShape, SurgeSchedule};
use super::subscribers::{ConnectedSubscribers, SurgeSubscriptions};
use crate::descriptors::raise_descriptors;
use crate::process::Process;
use crate::query::exchange::exchange;
use crate::query::request::RequestTemplate;
use crate::query::run::TIMER_SLACK;
use crate::query::{CONNECTIONS_MAX, MeasuredOperation, QueryError, QueryTarget};
use crate::rate::Arrivals;
use crate::report::{SurgeClass, SurgeCounts, SurgeGeneratorUsage, SurgeInterval, SurgeRun};

/// The largest bound of attempts that wait for a connection.
pub const WAITING_MAX: usize = 1_000_000;

/// The maximum number of classes; each has histograms of 135 kB.
const CLASSES_MAX: usize = 64;

/// The maximum number of operations with different variables.
const KINDS_MAX: usize = 10_000;

/// The time in which the first response to an operation must be complete.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of bytes shown of a wrong first response.
const SHOWN_BYTES_MAX: usize = 500;

/// The time after the last user's patience at which a run ends in any case.
const DRAIN_SPARE: Duration = Duration::from_secs(1);

/// The share of a core above which the load generator is likely to be the limit.
const GENERATOR_CORES_WARN: f64 = 0.9;

/// The share of late sends above which the load generator did not keep up.
const LATE_SHARE_WARN: f64 = 0.01;

/// One operation of the mix.
#[derive(Debug, Clone)]
pub struct SurgeOperation {
    /// The class: operations with one name are reported together.
    pub class: String,
    /// The weight among all operations; its sets of variables have equal parts of it.
    pub weight: f64,
    /// The operation. Its unique header, if it has one, has a value for each client.
    pub operation: MeasuredOperation,
    /// True for queries, which clients may cache, and repeat after a lost connection.
    pub is_query: bool,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct SurgeSettings {
    /// The name of the run in reports.
    pub name: String,
    /// The destination of requests.
    pub target: QueryTarget,
    /// The operations.
    pub operations: Vec<SurgeOperation>,
    /// The name of the shape in reports.
    pub shape_name: String,
    /// The offered load over time.
    pub shape: LoadShape,
    /// The distribution of the gaps.
    pub arrivals: Arrivals,
    /// The time before the measured time, at the first rate of the shape.
    pub warmup: Duration,
    /// The behaviour of the clients.
    pub behaviour: ClientBehaviour,
    /// The time within which a response is of use, from the planned time of its attempt.
    pub in_time: Duration,
    /// The maximum number of connections, from 1 to [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// The maximum number of attempts that wait for a connection, from 1 to [`WAITING_MAX`].
    pub waiting_max: usize,
    /// Subscribers that are connected before the surge, and stay.
    pub subscriptions: Option<SurgeSubscriptions>,
    /// The id of the server's process, to read its resource usage.
    pub pid: Option<u32>,
    /// The seed of the gaps and of the clients' choices.
    pub seed: u64,
}

impl SurgeOperation {
    /// Creates an operation, and reads from its text whether it is a query. A persisted document counts as one.
    ///
    /// # Errors
    /// The text is no GraphQL document, has no such operation, or the operation is a subscription.
    pub fn new(class: String, weight: f64, operation: MeasuredOperation) -> Result<Self, String> {
        use apollo_compiler::ast::{Definition, Document, OperationType};
        if operation.document_id.is_some() {
            return Ok(Self { class, weight, operation, is_query: true });
        }
        let document = Document::parse(operation.text.as_str(), "operation.graphql");
        let document = document.map_err(|invalid| invalid.errors.to_string())?;
        let mut found = document.definitions.iter().filter_map(|definition| match definition {
            Definition::OperationDefinition(it) => Some(it),
            _ => None,
        });
        let kind = match &operation.name {
            Some(name) => found.find(|it| it.name.as_ref().is_some_and(|it| it == name.as_str())),
            None => found.next(),
        };
        match kind.map(|it| it.operation_type) {
            Some(OperationType::Subscription) => {
                Err("subscriptions are measured by `starling bench subscriptions`".to_owned())
            }
            Some(kind) => {
                Ok(Self { class, weight, operation, is_query: kind == OperationType::Query })
            }
            None => Err(match &operation.name {
                Some(name) => format!("there is no operation with the name `{name}`"),
                None => "there is no operation in the text".to_owned(),
            }),
        }
    }
}

impl SurgeSettings {
    /// Checks the settings.
    fn check(&self) -> Result<(), String> {
        let within = |what: &str, number: usize, most: usize| match (1..=most).contains(&number) {
            true => Ok(()),
            false => Err(format!("the number of {what} must be from 1 to {most}")),
        };
        within("connections", self.connections_max, CONNECTIONS_MAX)?;
        within("waiting requests", self.waiting_max, WAITING_MAX)?;
        within("clients", self.behaviour.clients, SURGE_CLIENTS_MAX)?;
        if self.behaviour.patience.is_zero() || self.in_time.is_zero() {
            return Err("patience and the time of a useful response must be longer than 0".into());
        }
        let is_weight = |weight: f64| (0.0..=1e9).contains(&weight);
        if !self.operations.iter().all(|operation| is_weight(operation.weight)) {
            return Err("weights must be from 0 to 1,000,000,000".to_owned());
        }
        if self.operations.iter().all(|operation| operation.weight == 0.0) {
            return Err("at least one operation must have a weight above 0".to_owned());
        }
        Ok(())
    }

    /// Returns the names of the classes, in the order of the operations.
    fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = Vec::new();
        for operation in &self.operations {
            if !classes.contains(&operation.class) {
                classes.push(operation.class.clone());
            }
        }
        classes
    }
}

/// Runs a surge and measures it. `progress` is called with the names of the classes for every interval that has passed,
/// a second or longer.
///
/// # Errors
/// [`QueryError`] if the run cannot begin; later failures are counted in its report.
pub fn run(
    settings: &SurgeSettings,
    mut progress: impl FnMut(&[String], &SurgeInterval),
) -> Result<SurgeRun, QueryError> {
    settings.check().map_err(QueryError::Settings)?;
    if let Some(pid) = settings.pid {
        Process::Id(pid).usage().map_err(|error| QueryError::Process { pid, error })?;
    }
    let classes = settings.classes();
    if classes.len() > CLASSES_MAX {
        return Err(QueryError::Settings(format!("there are more than {CLASSES_MAX} classes")));
    }
    let RequestMix { requests, kinds } = request_mix(settings, &classes)?;
    let subscribers =
        settings.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.count);
    raise_descriptors(settings.connections_max + subscribers, "connections")
        .map_err(QueryError::Settings)?;

    // The slack of other threads stays. A kernel without timer slack is only less exact.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    let duration = Duration::from_secs_f64(settings.shape.seconds());
    let connect =
        |subscriptions| ConnectedSubscribers::connect(subscriptions, settings.warmup + duration);
    let subscribers = settings.subscriptions.as_ref().map(connect).transpose();
    let subscribers = subscribers.map_err(QueryError::Settings)?;
    let mut recorder = SurgeRecorder::new(
        classes.clone(),
        settings.warmup,
        duration,
        settings.in_time,
        settings.pid,
    );
    let plan = SurgePlan {
        address: settings.target.address(),
        requests: &requests,
        connections_max: settings.connections_max,
        waiting_max: settings.waiting_max,
        begin: settings.warmup,
        end: settings.warmup + duration,
        drain: settings.behaviour.patience + DRAIN_SPARE,
        subscribers: subscribers.as_ref(),
    };
    let clients = VirtualClients::new(settings.behaviour, kinds, settings.seed);
    let (shape, arrivals) = (settings.shape.clone(), settings.arrivals);
    // Another seed than that of the clients' choices, so that gaps and choices are independent.
    let schedule =
        SurgeSchedule::new(shape, arrivals, settings.warmup, settings.seed.wrapping_add(1));
    let before = Process::Own.usage()?;
    let started = Instant::now();
    let ran = SurgeDriver::new(plan, clients, schedule, &mut recorder)
        .and_then(|driver| driver.run(|interval| progress(&classes, interval)));
    let _ = rustix::thread::set_current_timer_slack(None);
    let connections_peak = ran?;
    let elapsed = started.elapsed().as_secs_f64();
    let own = Process::Own.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
    let subscribers = subscribers.map(ConnectedSubscribers::finish).transpose();
    let subscribers = subscribers.map_err(QueryError::Settings)?;
    Ok(SurgeRun { subscribers, ..report(settings, &recorder, connections_peak, own / elapsed) })
}

/// All requests of a run, in the same order as their kinds.
#[derive(Default)]
struct RequestMix {
    /// The texts, with the numbers of their classes.
    requests: Vec<(RequestTemplate, usize)>,
    kinds: Vec<RequestKind>,
}

/// Formats the requests, and checks the first response to each operation: a mistake in the URL or an operation would
/// otherwise look like a failing server. A refusal is accepted, since the server may have its surge already.
fn request_mix(settings: &SurgeSettings, classes: &[String]) -> Result<RequestMix, QueryError> {
    let RequestMix { mut requests, mut kinds } = RequestMix::default();
    for operation in &settings.operations {
        let class = classes.iter().position(|name| *name == operation.class).unwrap_or(0);
        let templates =
            operation.operation.requests(&settings.target).map_err(QueryError::Settings)?;
        if requests.len() + templates.len() > KINDS_MAX {
            let message = format!("there are more than {KINDS_MAX} operations with variables");
            return Err(QueryError::Settings(message));
        }
        if let Some(first) = templates.first() {
            check_first_response(settings, operation, first)?;
        }
        let weight = operation.weight / templates.len() as f64;
        kinds
            .extend(templates.iter().map(|_| RequestKind { weight, is_query: operation.is_query }));
        requests.extend(templates.into_iter().map(|template| (template, class)));
    }
    Ok(RequestMix { requests, kinds })
}

fn check_first_response(
    settings: &SurgeSettings,
    operation: &SurgeOperation,
    request: &RequestTemplate,
) -> Result<(), QueryError> {
    // A mutation has effects, so it is not sent only to look at its response.
    if !operation.is_query {
        return Ok(());
    }
    let url = || settings.target.url().to_owned();
    let mut text = Vec::new();
    request.write(0, &mut text);
    let (response, body) = match exchange(settings.target.address(), FIRST_TIMEOUT, &text) {
        Ok(exchanged) => exchanged,
        // An overloaded server may be too slow for this.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            return Ok(());
        }
        Err(error) => return Err(QueryError::Unreachable { url: url(), error }),
    };
    match outcome::classify(&response, &body, true) {
        Outcome::Wrong(reason) => {
            let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            let what = format!("`{}`: {}: {shown}", operation.class, reason.label());
            Err(QueryError::WrongFirstResponse { url: url(), what })
        }
        Outcome::Correct | Outcome::Refused(_) | Outcome::NoResponse(_) => Ok(()),
    }
}

fn report(
    settings: &SurgeSettings,
    recorder: &SurgeRecorder,
    connections_peak: usize,
    own_cores: f64,
) -> SurgeRun {
    let classes = recorder.classes();
    let (latency, until_served) = recorder.latency();
    let totals = total(&classes);
    let (refusals, failures) = recorder.reasons();
    let most = recorder.intervals.iter().map(|interval| interval.generator_cores);
    let cores_max = most.fold(own_cores, f64::max);
    let late_share = recorder.late_sends as f64 / totals.sent.max(1) as f64;
    SurgeRun {
        name: settings.name.clone(),
        url: settings.target.url().to_owned(),
        shape: settings.shape_name.clone(),
        points: settings.shape.points().to_vec(),
        warmup_seconds: settings.warmup.as_secs_f64(),
        duration_seconds: settings.shape.seconds(),
        clients: settings.behaviour.clients,
        caches: settings.behaviour.caches,
        retries: settings.behaviour.retries,
        patience_seconds: settings.behaviour.patience.as_secs_f64(),
        in_time_ms: settings.in_time.as_secs_f64() * 1e3,
        connections_max: settings.connections_max,
        connections_peak,
        totals,
        latency,
        until_served,
        refusals,
        failures,
        example: recorder.example.clone(),
        server: recorder.server(),
        subscribers: None,
        generator: SurgeGeneratorUsage {
            cores: own_cores,
            cores_max,
            late_sends: recorder.late_sends,
            late_max_ms: recorder.late_max.as_secs_f64() * 1e3,
            is_bottleneck: cores_max > GENERATOR_CORES_WARN
                || late_share > LATE_SHARE_WARN
                || totals.unsent > 0,
        },
        intervals: recorder.intervals.clone(),
        capacity: None,
        classes,
    }
}

/// Adds the counts of all classes.
fn total(classes: &[SurgeClass]) -> SurgeCounts {
    classes.iter().fold(SurgeCounts::default(), |sum, class| {
        let counts = &class.counts;
        SurgeCounts {
            offered: sum.offered + counts.offered,
            from_cache: sum.from_cache + counts.from_cache,
            sent: sum.sent + counts.sent,
            repeated: sum.repeated + counts.repeated,
            admitted: sum.admitted + counts.admitted,
            good: sum.good + counts.good,
            late: sum.late + counts.late,
            refused: sum.refused + counts.refused,
            failed: sum.failed + counts.failed,
            given_up: sum.given_up + counts.given_up,
            unsent: sum.unsent + counts.unsent,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(text: &str, name: Option<&str>) -> Result<SurgeOperation, String> {
        let name = name.map(str::to_owned);
        let operation =
            MeasuredOperation { text: text.to_owned(), name, ..MeasuredOperation::default() };
        SurgeOperation::new("a".to_owned(), 1.0, operation)
    }

    #[test]
    fn the_type_of_an_operation_is_read_from_its_text() {
        let several = "query A { a } mutation B { b } subscription C { c }";
        for (text, name, is_query) in [
            ("{ a }", None, true),
            ("mutation { a }", None, false),
            (several, Some("A"), true),
            (several, Some("B"), false),
        ] {
            assert_eq!(operation(text, name).unwrap().is_query, is_query, "{text} {name:?}");
        }
        for (text, name, expected) in [
            (several, Some("C"), "bench subscriptions"),
            (several, Some("D"), "no operation with the name `D`"),
            ("fragment F on A { a }", None, "no operation in the text"),
            ("{ a", None, "operation.graphql"),
        ] {
            let error = operation(text, name).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

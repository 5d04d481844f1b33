//! The command `starling bench subscriptions`.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use load::report::subscription_report as report;
use load::report::subscriptions::{SubscriptionInterval, SubscriptionRun};
use load::subscriptions::{
    self, Destination, Events, Scenario, Subscription, SubscriptionSettings, SubscriptionTarget,
};
use load::units::{parse_duration, parse_share};
use serde_json::{Map, Value};

use super::choices::ReportFormat;
use super::progress::Progress;
use super::simulated;
use crate::commands::{print, read_file, write_file};

/// The default number of clients.
const CLIENTS_DEFAULT: usize = 1000;

/// The number of clients connected at the same time in a churn: those of one second at the default rate.
const CHURN_CLIENTS: usize = 2000;

/// The default number of events.
const EVENTS_DEFAULT: u64 = 100;

/// The default number of events for simulated subscribers: each event is a million results.
const SIMULATED_EVENTS: u64 = 10;

/// The default number of events of a storm: they only show that all clients are served.
const STORM_EVENTS: u64 = 3;

/// The default number of events for slow consumers: with the padding they exceed the buffers of the kernel and of a
/// client's queue.
const SLOW_EVENTS: u64 = 500;

/// The default padding for slow consumers, see [`SLOW_EVENTS`].
const SLOW_PADDING_BYTES: usize = 2048;

/// Holds subscriptions open and measures their events.
#[derive(clap::Args)]
#[command(after_help = "\
Clients speak graphql-transport-ws. Every event carries the time of its publishing ($T), by which it is timed, identified \
and ordered; the query must select the field that contains it. Each client must receive every event of its key, or a \
notice of the number of lost events (extensions.lost). If other events are missing, the exit status is 1.\n\n\
Placeholders: in --query, --variables and --expect, $K is the client's key, $I its number, and $D its number modulo --distinct; in \
--event and --publish, $K is the event's key; in --event, $T is the time, $N the event's number, $P padding.\n\n\
Scenarios: fan-out (every client receives every event), filters (each client has a key of its own), slow-consumers (some never \
read), idle (no events for --hold), connect-storm (all connect at once), mass-disconnect and reconnect-storm (all \
connections are dropped at once), churn (--churn clients a second connect, subscribe, unsubscribe and disconnect), resubscribe \
(they stay connected, unsubscribe and subscribe again), throughput (events are published as fast as all clients receive \
them, for --duration, with at most --window in flight).\n\n\
Examples:\n  \
starling bench subscriptions --url ws://127.0.0.1:4000/graphql --query 'subscription { tick { id } }' \\\n    \
--publish nats://127.0.0.1:4222/tick --clients 10000 --events 100 --rate 10 --pid $(pidof starling) --floor\n  \
starling bench subscriptions --url … --query … --scenario idle --clients 10000 --hold 30s --pid …\n  \
starling bench subscriptions --url … --query 'subscription { tickOf(key: \"$K\") { id } }' --scenario filters \\\n    \
--publish 'memory://127.0.0.1:8088/tick.$K'\n  \
starling bench subscriptions --url … --query 'query @live { items(first: 1) { id note } }' \\\n    \
--change http://127.0.0.1:4200/prices/_entities --publish nats://127.0.0.1:4222/items.changed \\\n    \
--event '{\"__typename\":\"Item\",\"id\":\"1\",\"note\":\"$T\"}'")]
pub(crate) struct SubscriptionArguments {
    /// The endpoint, such as ws://127.0.0.1:4000/graphql or wss://localhost:4443/graphql.
    #[arg(long, required_unless_present = "simulate")]
    url: Option<String>,
    /// wss: trusts only the certificates in this file (PEM).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Instead of a server, runs a router in this process with COUNT subscribers that have everything but a socket,
    /// and reports their cost and the time in which an event reaches all of them.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["url", "query", "operation", "publish", "pid", "scenario", "clients"])]
    simulate: Option<u64>,
    /// The subscription or live query (GraphQL).
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["operation", "simulate"])]
    query: Option<String>,
    /// A file with the operation, instead of --query.
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    operation: Option<PathBuf>,
    /// The variables: a JSON object, or a file with one.
    #[arg(long, value_name = "JSON")]
    variables: Option<String>,
    /// The behaviour of the clients.
    #[arg(long, value_enum, default_value_t = ScenarioArgument::FanOut)]
    scenario: ScenarioArgument,
    /// The number of clients. Default: 1000, or 2000 for churn.
    #[arg(long, short = 'c')]
    clients: Option<usize>,
    /// The destination of events: nats://HOST:PORT/SUBJECT, memory://ADMIN_HOST:PORT/TOPIC (the router's memory
    /// provider, by its admin listener), redis://HOST:PORT/CHANNEL, kafka://HOST:PORT/TOPIC or http://… (each event is
    /// POSTed).
    #[arg(long, value_name = "URL")]
    publish: Option<Destination>,
    /// The http:// URL that each event is posted to before it is published, such as http://HOST:PORT/NAME/_entities
    /// of `starling mock`: the subgraph then has the change that the event names, as live queries need it.
    #[arg(long, value_name = "URL", requires = "publish")]
    change: Option<Destination>,
    /// The text of an event.
    #[arg(long, value_name = "JSON", default_value = r#"{"__typename":"Tick","id":"$T"}"#)]
    event: String,
    /// The length of $P in an event. Default: 2048 for slow consumers, otherwise 0.
    #[arg(long, value_name = "BYTES")]
    padding: Option<usize>,
    /// The number of measured events.
    #[arg(long)]
    events: Option<u64>,
    /// Events a second.
    #[arg(long, short = 'r', default_value_t = 10.0)]
    rate: f64,
    /// The number of keys; client n has key n modulo this number. Default: the number of clients for filters,
    /// otherwise 1.
    #[arg(long)]
    keys: Option<usize>,
    /// The number of different operations, for $D. Unlike keys they make no difference for events.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    distinct: usize,
    /// Gives each client a unique header `authorization` of this length.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    header_bytes: usize,
    /// A file with one token in each line: client n sends line n modulo their number as `authorization: Bearer …`.
    #[arg(long, value_name = "FILE", conflicts_with = "header_bytes")]
    tokens: Option<PathBuf>,
    /// slow-consumers: the share of clients that never read.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_share)]
    slow: f64,
    /// idle: the time for which subscriptions stay idle.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    hold: Duration,
    /// churn, resubscribe: the number of clients a second.
    #[arg(long, value_name = "RATE", default_value_t = 2000.0)]
    churn: f64,
    /// churn, resubscribe, throughput: the duration.
    #[arg(long, short = 'd', value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// throughput: the maximum number of events in flight, published and not yet received by all clients.
    #[arg(long, value_name = "EVENTS", default_value_t = 64)]
    window: u64,
    /// A text that each result must contain; $K and $I are replaced. Results without it count as those of other
    /// clients.
    #[arg(long, value_name = "TEXT")]
    expect: Option<String>,
    /// The number of loopback addresses to connect from, so that ports suffice. Default: one for each 20,000 clients,
    /// 16 for churn.
    #[arg(long, value_name = "COUNT")]
    sources: Option<usize>,
    /// The time after which a client that is not subscribed is given up.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// The number of times that a client returns that was refused for now: with status 429 or 503, with close code
    /// 1013, or with an error that has `extensions.retryAfter`. It waits as long as the server asks; --timeout counts
    /// from its first attempt.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    retries: u32,
    /// The silence after which missing events count as lost.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    quiet_time: Duration,
    /// The id of the server's process on this machine: its CPU time, memory, threads and descriptors are reported.
    #[arg(long)]
    pid: Option<u32>,
    /// Looks for messages all the time instead of sleeping until there are some. A server on the same machine then
    /// does not pay for waking this program, as it does not for clients on other machines.
    #[arg(long)]
    never_sleep: bool,
    /// Also measures the floor, on the same cores as --pid, and prints the figures as multiples of it.
    #[arg(long, requires = "publish")]
    floor: bool,
    /// The name of the run in the report. Default: the URL.
    #[arg(long)]
    name: Option<String>,
    /// The output format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Also writes the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also writes a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints no progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScenarioArgument {
    /// Every client receives every event.
    FanOut,
    /// All clients connect at the same time.
    ConnectStorm,
    /// No events are sent for a while.
    Idle,
    /// Every client receives the events of its own key.
    Filters,
    /// Some clients never read.
    SlowConsumers,
    /// All connections are dropped at the same time.
    MassDisconnect,
    /// All connections are dropped at the same time, and all clients reconnect at the same time.
    ReconnectStorm,
    /// Clients connect, subscribe, unsubscribe and disconnect.
    Churn,
    /// Clients stay connected, unsubscribe and subscribe again.
    Resubscribe,
    /// Events are published as fast as all clients receive them.
    Throughput,
}

pub(crate) fn run(arguments: &SubscriptionArguments) -> Result<ExitCode, String> {
    if let Some(count) = arguments.simulate {
        let events = arguments.events.unwrap_or(SIMULATED_EVENTS);
        return write_results(arguments, "simulated", vec![simulated::run(count, events)?]);
    }
    let read_settings = read_settings(arguments)?;
    let mut progress = Progress::new(arguments.quiet);
    let mut measure = |read_settings: &SubscriptionSettings| {
        let run =
            subscriptions::run(read_settings, |interval| show_interval(&mut progress, interval));
        progress.end();
        run.map_err(|error| error.to_string())
    };
    let run = measure(&read_settings)?;
    let mut runs = Vec::new();
    if arguments.floor {
        let floor = FloorProcess::start(&read_settings, run.message.as_deref())?;
        runs.push(measure(&floor.read_settings(&read_settings)?)?);
    }
    // The floor comes first, as the base of the comparison.
    runs.push(run);
    write_results(arguments, &read_settings.name, runs)
}

/// Prints and writes the runs as the arguments request; the exit code is success if all of them are sound.
fn write_results(
    arguments: &SubscriptionArguments,
    title: &str,
    runs: Vec<SubscriptionRun>,
) -> Result<ExitCode, String> {
    let json = || format!("{:#}\n", serde_json::to_value(&runs).unwrap_or_default());
    match arguments.format {
        ReportFormat::Table => print(&report::text(&runs)),
        ReportFormat::Json => print(&json()),
    }
    if let Some(path) = &arguments.json {
        write_file(path, &json())?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, &report::html(title, &runs))?;
    }
    let is_sound = runs.iter().all(SubscriptionRun::is_sound);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_settings(arguments: &SubscriptionArguments) -> Result<SubscriptionSettings, String> {
    use Scenario::{
        Churn, ConnectStorm, Filters, MassDisconnect, ReconnectStorm, Resubscribe, SlowConsumers,
        Throughput,
    };
    let scenario = match arguments.scenario {
        ScenarioArgument::FanOut => Scenario::FanOut,
        ScenarioArgument::ConnectStorm => ConnectStorm,
        ScenarioArgument::Idle => Scenario::Idle,
        ScenarioArgument::Filters => Filters,
        ScenarioArgument::SlowConsumers => SlowConsumers,
        ScenarioArgument::MassDisconnect => MassDisconnect,
        ScenarioArgument::ReconnectStorm => ReconnectStorm,
        ScenarioArgument::Churn => Churn,
        ScenarioArgument::Resubscribe => Resubscribe,
        ScenarioArgument::Throughput => Throughput,
    };
    // clap requires a URL unless --simulate is given.
    let url = arguments.url.as_deref().unwrap_or_default();
    let usual_clients = if scenario == Churn { CHURN_CLIENTS } else { CLIENTS_DEFAULT };
    let clients = arguments.clients.unwrap_or(usual_clients);
    let keys = arguments.keys.unwrap_or(if scenario == Filters { clients } else { 1 });
    let query = match (&arguments.query, &arguments.operation) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => read_file(file)?,
        (None, None) => {
            return Err("the subscription is missing: give --query or --operation".to_owned());
        }
    };
    let authorities = arguments.ca.as_deref().map(read_file).transpose()?;
    let is_slow = scenario == SlowConsumers;
    if scenario == MassDisconnect && arguments.pid.is_none() {
        return Err("mass-disconnect inspects the server's process: give --pid".to_owned());
    }
    Ok(SubscriptionSettings {
        name: arguments.name.clone().unwrap_or_else(|| url.to_owned()),
        target: SubscriptionTarget::parse_with_roots(
            url,
            authorities.as_deref().map(str::as_bytes),
        )?,
        subscription: Subscription {
            query,
            variables: arguments.variables.as_deref().map(variables).transpose()?,
            keys,
            distinct: arguments.distinct,
            expects: arguments.expect.clone(),
            header_bytes: arguments.header_bytes,
            tokens: arguments.tokens.as_deref().map(read_tokens).transpose()?.unwrap_or_default(),
        },
        clients,
        scenario,
        events: arguments.publish.as_ref().map(|destination| Events {
            destination: destination.clone(),
            changes: arguments.change.clone(),
            text: arguments.event.clone(),
            padding_bytes: arguments.padding.unwrap_or(if is_slow {
                SLOW_PADDING_BYTES
            } else {
                0
            }),
        }),
        event_count: arguments.events.unwrap_or(match scenario {
            ConnectStorm | ReconnectStorm => STORM_EVENTS,
            SlowConsumers => SLOW_EVENTS,
            // At least one event for each client, and two for each if there are few.
            Filters | Resubscribe => (keys as u64).max(EVENTS_DEFAULT),
            _ => EVENTS_DEFAULT,
        }),
        rate: arguments.rate,
        hold: arguments.hold,
        slow_share: arguments.slow,
        churn_rate: arguments.churn,
        duration: arguments.duration,
        window: arguments.window,
        sources: arguments.sources.or((scenario == Churn).then_some(16)),
        timeout: arguments.timeout,
        retries: arguments.retries,
        quiet: arguments.quiet_time,
        pid: arguments.pid,
        never_sleeps: arguments.never_sleep,
    })
}

/// Parses a JSON object, or a file with one.
/// Reads the tokens of a file, one in each line that is not empty.
fn read_tokens(path: &Path) -> Result<Vec<Box<str>>, String> {
    let text = read_file(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<Box<str>> = lines.map(Box::from).collect();
    // The tokens are not shown: they are secrets.
    if tokens.is_empty() {
        return Err(format!("{}: there are no tokens in this file", path.display()));
    }
    let is_visible = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
    match tokens.iter().position(|token| !is_visible(token)) {
        None => Ok(tokens),
        Some(at) => Err(format!(
            "{}: token {} has characters that are not allowed in a token",
            path.display(),
            at + 1
        )),
    }
}

fn variables(text: &str) -> Result<Map<String, Value>, String> {
    let owned;
    let json = if text.trim_start().starts_with('{') {
        text
    } else {
        owned = read_file(Path::new(text))?;
        &owned
    };
    serde_json::from_str(json).map_err(|error| format!("--variables is not an object: {error}"))
}

fn show_interval(progress: &mut Progress, interval: &SubscriptionInterval) {
    let mut line = format!("{:6.0} s  {:8} subscribed", interval.at_seconds, interval.subscribed);
    if interval.deliveries_per_second > 0.0 {
        let _ = write!(
            line,
            "  {:9.0} results/s  p50 {:9.3} ms  p99 {:9.3} ms",
            interval.deliveries_per_second,
            interval.p50_us / 1e3,
            interval.p99_us / 1e3
        );
    }
    if let Some(cores) = interval.server_cores {
        let _ = write!(line, "  server {cores:.2} cores");
    }
    if let Some(resident) = interval.server_resident_mib {
        let _ = write!(line, " {resident:.1} MiB");
    }
    progress.show(&line);
}

/// The floor in a process of its own, killed on drop.
struct FloorProcess {
    child: Child,
    address: SocketAddr,
}

impl FloorProcess {
    /// Starts a floor on the same cores, with messages of the server's length.
    fn start(read_settings: &SubscriptionSettings, message: Option<&str>) -> Result<Self, String> {
        let events = read_settings.events.as_ref().ok_or("--floor needs --publish")?;
        let message = message.ok_or("the server sent no result that the floor could repeat")?;
        let program = std::env::current_exe().map_err(|error| format!("no floor: {error}"))?;
        let mut command = Command::new(program);
        command.args(["bench", "floor", "--subscriptions", "--listen", "127.0.0.1:0"]);
        command.args(["--message", message]);
        if let Some((address, subject)) = events.destination.nats() {
            command.args(["--events", &format!("nats://{address}/{subject}")]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the floor: {error}"))?;
        if let Some(pid) = read_settings.pid {
            // If this is not permitted, the floor runs on any core: less comparable, but not wrong.
            let _ = subscriptions::share_cores(pid, child.id());
        }
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let address = line.trim().trim_start_matches("ws://").trim_end_matches('/').parse();
        match address {
            Ok(address) => Ok(Self { child, address }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err("the floor did not start".to_owned())
            }
        }
    }

    /// Returns the settings for the same run against the floor.
    fn read_settings(
        &self,
        read_settings: &SubscriptionSettings,
    ) -> Result<SubscriptionSettings, String> {
        let mut read_settings = read_settings.clone();
        read_settings.name = "floor".to_owned();
        read_settings.target = SubscriptionTarget::parse(&format!("ws://{}/", self.address))?;
        read_settings.pid = Some(self.child.id());
        if let Some(events) = &mut read_settings.events
            && events.destination.nats().is_none()
        {
            events.destination = format!("http://{}/", self.address).parse()?;
        }
        Ok(read_settings)
    }
}

impl Drop for FloorProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

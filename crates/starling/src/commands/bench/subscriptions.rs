//! `starling bench subscriptions`.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use load::report::subscription_report as report;
use load::report::subscriptions::{Interval, SubscriptionRun};
use load::subscriptions::{self, Destination, Events, Scenario, Settings, Subscription, Target};
use load::units::{parse_duration, parse_share};
use serde_json::{Map, Value};

use super::progress::Progress;
use super::{Format, simulated};
use crate::commands::print;

/// Clients, if nobody says otherwise.
const CLIENTS: usize = 1000;

/// Clients that come and go at a time: a second of them at the usual rate.
const CHURN_CLIENTS: usize = 2000;

/// Events, if nobody says otherwise.
const EVENTS: u64 = 100;

/// Events for simulated subscribers: each is a million results.
const SIMULATED_EVENTS: u64 = 10;

/// Events of a storm: they only show that everybody is served.
const STORM_EVENTS: u64 = 3;

/// Events for slow consumers: with the padding, more than a kernel and a queue hold for one client.
const SLOW_EVENTS: u64 = 500;

/// See [`SLOW_EVENTS`].
const SLOW_PADDING_BYTES: usize = 2048;

/// Holds subscriptions open and measures their events.
#[derive(clap::Args)]
#[command(after_help = "\
Clients speak graphql-transport-ws. Every event carries the time of its publishing ($T), by which it is timed, told from \
others and put in order; the query has to select the field it stands in. Each client has to get every event of its key, \
or be told how many were lost (extensions.lost). What else is missing makes the exit status 1.\n\n\
Placeholders: in --query, --variables and --expect, $K is the client's key and $I its number; in --event and --publish, $K is the \
event's key; in --event, $T is the time, $N the event's number, $P padding.\n\n\
Scenarios: fan-out (everybody gets every event), filters (each client has a key of its own), slow-consumers (some never \
read), idle (nothing happens for --hold), connect-storm (all connect at once), mass-disconnect and reconnect-storm (all \
connections vanish at once), churn (--churn clients a second come, subscribe, unsubscribe and go), resubscribe \
(they stay connected, unsubscribe and subscribe again), throughput (events are published as fast as everybody gets \
them, for --duration, with at most --window on their way).\n\n\
Examples:\n  \
starling bench subscriptions --url ws://127.0.0.1:4000/graphql --query 'subscription { tick { id } }' \\\n    \
--publish nats://127.0.0.1:4222/tick --clients 10000 --events 100 --rate 10 --pid $(pidof starling) --floor\n  \
starling bench subscriptions --url … --query … --scenario idle --clients 10000 --hold 30s --pid …\n  \
starling bench subscriptions --url … --query 'subscription { tickOf(key: \"$K\") { id } }' --scenario filters \\\n    \
--publish 'memory://127.0.0.1:8088/tick.$K'")]
pub(crate) struct Arguments {
    /// The endpoint, as ws://127.0.0.1:4000/graphql or wss://localhost:4443/graphql.
    #[arg(long, required_unless_present = "simulate")]
    url: Option<String>,
    /// wss: trusts the certificates of this file (PEM), and no others.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Instead of a server, a router in this process with so many subscribers that have everything but a socket: what
    /// they cost, and how long an event takes to all of them.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["url", "query", "operation", "publish", "pid", "scenario", "clients"])]
    simulate: Option<u64>,
    /// The subscription (GraphQL).
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["operation", "simulate"])]
    query: Option<String>,
    /// A file with the subscription instead.
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    operation: Option<PathBuf>,
    /// Its variables: a JSON object, or a file with one.
    #[arg(long, value_name = "JSON")]
    variables: Option<String>,
    /// What happens to the clients.
    #[arg(long, value_enum, default_value_t = ScenarioArgument::FanOut)]
    scenario: ScenarioArgument,
    /// How many there are; 1000, or 2000 that come and go.
    #[arg(long, short = 'c')]
    clients: Option<usize>,
    /// Where events are published: nats://HOST:PORT/SUBJECT, memory://ADMIN_HOST:PORT/TOPIC (the router's memory
    /// provider, by its admin listener), redis://HOST:PORT/CHANNEL, kafka://HOST:PORT/TOPIC or http://… (a POST of
    /// each).
    #[arg(long, value_name = "URL")]
    publish: Option<Destination>,
    /// The text of an event.
    #[arg(long, value_name = "JSON", default_value = r#"{"__typename":"Tick","id":"$T"}"#)]
    event: String,
    /// Length of $P in an event; 2048 for slow consumers, otherwise 0.
    #[arg(long, value_name = "BYTES")]
    padding: Option<usize>,
    /// How many events are measured.
    #[arg(long)]
    events: Option<u64>,
    /// Events a second.
    #[arg(long, short = 'r', default_value_t = 10.0)]
    rate: f64,
    /// How many keys there are; client n has key n modulo this. As many as clients for filters, otherwise 1.
    #[arg(long)]
    keys: Option<usize>,
    /// Gives each client a header `authorization` of its own, of so many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    header_bytes: usize,
    /// slow-consumers: the share of clients that never read.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_share)]
    slow: f64,
    /// idle: for how long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    hold: Duration,
    /// churn, resubscribe: how many clients a second.
    #[arg(long, value_name = "RATE", default_value_t = 2000.0)]
    churn: f64,
    /// churn, resubscribe, throughput: for how long.
    #[arg(long, short = 'd', value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// throughput: how many events may be on their way, published and not yet with everybody.
    #[arg(long, value_name = "EVENTS", default_value_t = 64)]
    window: u64,
    /// What each result has to contain; $K and $I are replaced. Results without it are those of other clients.
    #[arg(long, value_name = "TEXT")]
    expect: Option<String>,
    /// From how many loopback addresses to connect, so that ports suffice; one for 20,000 clients, 16 for a churn.
    #[arg(long, value_name = "COUNT")]
    sources: Option<usize>,
    /// When a client that is not subscribed is given up.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// How long nothing may come until what is missing is taken for lost.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    quiet_time: Duration,
    /// The server's process on this machine: its CPU time, memory, threads and descriptors are reported.
    #[arg(long)]
    pid: Option<u32>,
    /// Also measures the floor, on the same cores as --pid, and prints how often it is contained in the figures.
    #[arg(long, requires = "publish")]
    floor: bool,
    /// What the report calls the run; the URL if nothing is said.
    #[arg(long)]
    name: Option<String>,
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
enum ScenarioArgument {
    /// Everybody gets every event.
    FanOut,
    /// All connect at once.
    ConnectStorm,
    /// Nothing happens for a while.
    Idle,
    /// Every client gets the events of its own key.
    Filters,
    /// Some never read.
    SlowConsumers,
    /// All connections vanish at once.
    MassDisconnect,
    /// All connections vanish at once, and all clients come back at once.
    ReconnectStorm,
    /// Clients come, subscribe, unsubscribe and go.
    Churn,
    /// Clients stay connected, unsubscribe and subscribe again.
    Resubscribe,
    /// Events are published as fast as everybody gets them.
    Throughput,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Some(count) = arguments.simulate {
        let events = arguments.events.unwrap_or(SIMULATED_EVENTS);
        return conclude(arguments, "simulated", vec![simulated::run(count, events)?]);
    }
    let settings = settings(arguments)?;
    let mut progress = Progress::new(arguments.quiet);
    let mut measure = |settings: &Settings| {
        let run = subscriptions::run(settings, |interval| show(&mut progress, interval));
        progress.end();
        run.map_err(|error| error.to_string())
    };
    let run = measure(&settings)?;
    let mut runs = Vec::new();
    if arguments.floor {
        let floor = Floor::start(&settings, run.message.as_deref())?;
        runs.push(measure(&floor.settings(&settings)?)?);
    }
    // What it is compared with comes first.
    runs.push(run);
    conclude(arguments, &settings.name, runs)
}

/// Shows the runs as it was asked for, and says whether all of them are sound.
fn conclude(
    arguments: &Arguments,
    title: &str,
    runs: Vec<SubscriptionRun>,
) -> Result<ExitCode, String> {
    let json = || format!("{:#}\n", serde_json::to_value(&runs).unwrap_or_default());
    match arguments.format {
        Format::Table => print(&report::text(&runs)),
        Format::Json => print(&json()),
    }
    if let Some(path) = &arguments.json {
        super::write(path, &json())?;
    }
    if let Some(path) = &arguments.html {
        super::write(path, &report::html(title, &runs))?;
    }
    let is_sound = runs.iter().all(SubscriptionRun::is_sound);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn settings(arguments: &Arguments) -> Result<Settings, String> {
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
    // clap wants one where nothing is simulated.
    let url = arguments.url.as_deref().unwrap_or_default();
    let usual_clients = if scenario == Churn { CHURN_CLIENTS } else { CLIENTS };
    let clients = arguments.clients.unwrap_or(usual_clients);
    let keys = arguments.keys.unwrap_or(if scenario == Filters { clients } else { 1 });
    let query = match (&arguments.query, &arguments.operation) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => super::read(file)?,
        (None, None) => return Err("say what to subscribe to: --query or --operation".to_owned()),
    };
    let authorities = arguments.ca.as_deref().map(super::read).transpose()?;
    let is_slow = scenario == SlowConsumers;
    if scenario == MassDisconnect && arguments.pid.is_none() {
        return Err("mass-disconnect looks at the server's process; name it by --pid".to_owned());
    }
    Ok(Settings {
        name: arguments.name.clone().unwrap_or_else(|| url.to_owned()),
        target: Target::trusting(url, authorities.as_deref().map(str::as_bytes))?,
        subscription: Subscription {
            query,
            variables: arguments.variables.as_deref().map(variables).transpose()?,
            keys,
            expects: arguments.expect.clone(),
            header_bytes: arguments.header_bytes,
        },
        clients,
        scenario,
        events: arguments.publish.as_ref().map(|destination| Events {
            destination: destination.clone(),
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
            // Each client one, and each two where that is not much.
            Filters | Resubscribe => (keys as u64).max(EVENTS),
            _ => EVENTS,
        }),
        rate: arguments.rate,
        hold: arguments.hold,
        slow_share: arguments.slow,
        churn_rate: arguments.churn,
        duration: arguments.duration,
        window: arguments.window,
        sources: arguments.sources.or((scenario == Churn).then_some(16)),
        timeout: arguments.timeout,
        quiet: arguments.quiet_time,
        pid: arguments.pid,
    })
}

/// A JSON object, or a file with one.
fn variables(text: &str) -> Result<Map<String, Value>, String> {
    let owned;
    let json = if text.trim_start().starts_with('{') {
        text
    } else {
        owned = super::read(Path::new(text))?;
        &owned
    };
    serde_json::from_str(json).map_err(|error| format!("--variables is not an object: {error}"))
}

fn show(progress: &mut Progress, interval: &Interval) {
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

/// The floor as a process of its own; killed when dropped.
struct Floor {
    child: Child,
    address: SocketAddr,
}

impl Floor {
    /// Starts a floor whose messages are as long as the server's, on the same cores.
    fn start(settings: &Settings, message: Option<&str>) -> Result<Self, String> {
        let events = settings.events.as_ref().ok_or("--floor needs --publish")?;
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
        if let Some(pid) = settings.pid {
            // Where it is not allowed, the floor runs where it likes: less comparable, not wrong.
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

    /// The same run, against the floor.
    fn settings(&self, settings: &Settings) -> Result<Settings, String> {
        let mut settings = settings.clone();
        settings.name = "floor".to_owned();
        settings.target = Target::parse(&format!("ws://{}/", self.address))?;
        settings.pid = Some(self.child.id());
        if let Some(events) = &mut settings.events
            && events.destination.nats().is_none()
        {
            events.destination = format!("http://{}/", self.address).parse()?;
        }
        Ok(settings)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

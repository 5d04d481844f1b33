//! `starling bench subscriptions --simulate`: a router in this process, with subscribers that have everything but a
//! socket. The whole path is the real one: protocol machine, operation, hub, fan-out, and the frame for each
//! subscriber.

use std::time::{Duration, Instant};

use config::{Config, Listener, Log, LogLevel};
use events::Message;
use load::histogram::Histogram;
use load::process::Process;
use load::report::LatencySummary;
use load::report::subscriptions::{SubscriptionRun, SubscriptionServerUsage};
use load::subscriptions::Subscription;
use server::{Options, RunningRouter, SupergraphSource};

/// A supergraph with one event of the memory provider.
const SUPERGRAPH: &str = include_str!("simulated.graphql");

/// The subscription of all subscribers.
const QUERY: &str = "subscription { tick { id } }";

const TOPIC: &str = "tick";

/// The deadline for one event to reach all subscribers.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks of the number of sent messages.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Runs a router with `count` subscribers and publishes `events` events, one after the other.
pub(super) fn run(count: u64, events: u64) -> Result<SubscriptionRun, String> {
    let runtime = crate::commands::control_runtime()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let run = runtime.block_on(async {
        let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        // Suppresses the warning about more connections than descriptors: these connections need none.
        let log = Log { level: LogLevel::Error, ..Log::default() };
        let mut config =
            Config { log, listen: vec![Listener::plain(any_port)], ..Config::default() };
        config.admin.listen = any_port;
        // All subscribers begin at once, without handshakes that would have their turns.
        config.admission.enabled = false;
        // No simulated client responds to pings.
        config.websocket.ping_interval = Duration::from_secs(24 * 3600);
        config.http.max_connections = u32::try_from(count).unwrap_or(u32::MAX);
        telemetry::logging::start(config.log.level.into(), config.log.is_json());
        let supergraph = SupergraphSource::Text {
            name: "simulated.graphql".to_owned(),
            sdl: SUPERGRAPH.to_owned(),
        };
        let options = Options {
            next_free_port: true,
            next_free_admin_port: true,
            ..Options::new(config, supergraph)
        };
        let router = server::start(options).await.map_err(|error| error.to_string())?;
        simulate(&router, count, events).await
    });
    // Closing a million connections one by one would take long.
    runtime.shutdown_background();
    run
}

async fn simulate(
    router: &RunningRouter,
    count: u64,
    events: u64,
) -> Result<SubscriptionRun, String> {
    let usage = || Process::Own.usage().map_err(|error| error.to_string());
    let mib = |kib: u64| kib as f64 / 1024.0;
    let before = usage()?;
    let [connection_init, subscribe] =
        Subscription { query: QUERY.to_owned(), ..Subscription::default() }.opening_messages(0);
    let began = Instant::now();
    let subscribed = router.simulate_subscribers(count, &connection_init, &subscribe).await;
    let joining_seconds = began.elapsed().as_secs_f64();
    let idle = usage()?;
    // The messages of the protocol itself, which accept the connections.
    let (greetings, _) = router.simulated_deliveries().await;
    let providers = router.providers();
    let provider =
        providers.resolve("memory/default").map_err(|error| format!("no provider: {error}"))?;
    let mut latency = Histogram::default();
    let (mut messages, mut bytes) = router.simulated_deliveries().await;
    let bytes_before = bytes;
    let fanning_out = Instant::now();
    for number in 0..events {
        let event = format!(r#"{{"__typename":"Tick","id":"{:016}"}}"#, number);
        let published = Instant::now();
        provider.publish(Message::new(TOPIC, event)).await.map_err(|error| error.to_string())?;
        let expected = greetings + (number + 1) * subscribed;
        while messages < expected && published.elapsed() < EVENT_TIMEOUT {
            tokio::time::sleep(POLL_INTERVAL).await;
            (messages, bytes) = router.simulated_deliveries().await;
        }
        latency.record(u64::try_from(published.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let seconds = fanning_out.elapsed().as_secs_f64().max(1e-9);
    let after = usage()?;
    let (expected, received) = (subscribed * events, messages - greetings);
    let cpu = after.cpu.saturating_sub(idle.cpu).as_secs_f64();
    Ok(SubscriptionRun {
        name: "simulated".to_owned(),
        url: "in this process".to_owned(),
        scenario: "simulated".to_owned(),
        clients: count,
        keys: 1,
        subscribed,
        joining_seconds,
        events,
        rate: events as f64 / seconds,
        expected,
        received,
        missing: expected.saturating_sub(received),
        surplus: received.saturating_sub(expected),
        deliveries: received,
        deliveries_per_second: received as f64 / seconds,
        message_bytes: (bytes - bytes_before) as f64 / received.max(1) as f64,
        latency: LatencySummary::from_histogram(&latency),
        histogram: latency.buckets(),
        server: Some(SubscriptionServerUsage {
            pid: std::process::id(),
            cpu_us_per_delivery: (received > 0).then(|| cpu * 1e6 / received as f64),
            busy_cores: Some(cpu / seconds),
            cpu_us_per_joining: Some(
                idle.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / subscribed.max(1) as f64,
            ),
            resident_before_mib: mib(before.resident_kib),
            resident_idle_mib: mib(idle.resident_kib),
            resident_after_mib: mib(after.resident_kib),
            resident_peak_mib: mib(after.resident_peak_kib),
            bytes_per_subscription: (idle.resident_kib as f64 - before.resident_kib as f64)
                * 1024.0
                / subscribed.max(1) as f64,
            threads_before: before.threads,
            threads_idle: idle.threads,
            threads_after: after.threads,
            ..SubscriptionServerUsage::default()
        }),
        ..SubscriptionRun::default()
    })
}

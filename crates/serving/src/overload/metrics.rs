//! The metrics of overload protection.

use std::sync::Arc;

use admission::{Class, Load, RefusalReason, UNITS};
use telemetry::{Metric, read};

use super::protection::OverloadProtection;
use super::readiness::ReadinessWatch;

/// The state of overload protection at one moment.
#[derive(Debug)]
pub struct AdmissionReading {
    load: Load,
    protection: Arc<OverloadProtection>,
}

/// The state of one class at one moment.
#[derive(Debug)]
pub struct ClassReading {
    class: Class,
    load: Load,
    protection: Arc<OverloadProtection>,
}

impl OverloadProtection {
    /// Reads the state for [`ADMISSION_METRICS`].
    pub fn reading(self: &Arc<Self>) -> AdmissionReading {
        AdmissionReading { load: self.load(), protection: Arc::clone(self) }
    }
}

impl AdmissionReading {
    /// Returns the state of each class with its name, for [`ADMISSION_CLASS_METRICS`].
    pub fn classes(&self) -> [(&'static str, ClassReading); Class::ALL.len()] {
        let load = self.load;
        Class::ALL.map(|class| {
            let protection = Arc::clone(&self.protection);
            (class.name(), ClassReading { class, load, protection })
        })
    }
}

fn operations(units: u64) -> f64 {
    units as f64 / f64::from(UNITS)
}

/// The metrics of overload protection.
pub const ADMISSION_METRICS: &[Metric<AdmissionReading>] = &[
    Metric::gauges(
        "starling_admission_limit",
        "Work that may be in flight, in average operations",
        |it, samples| samples.add(operations(it.load.limit)),
    ),
    Metric::gauges(
        "starling_admission_in_flight",
        "Work in flight that counts in the limit, in average operations",
        |it, samples| samples.add(operations(it.load.in_flight)),
    ),
    Metric::gauges(
        "starling_admission_uncounted",
        "Work in flight that waits for subgraphs that hang, in average operations",
        |it, samples| samples.add(operations(it.load.uncounted)),
    ),
    Metric::gauges(
        "starling_admission_slow_down",
        "How many times longer operations take than without load",
        |it, samples| samples.add(it.load.slow_down),
    ),
    Metric::gauge("starling_admission_clients", "Clients with work in flight or waiting", |it| {
        it.load.clients as u64
    }),
    Metric::counter(
        "starling_admission_gave_way",
        "Requests that waited until their worker had nothing else to do, because their client had more than its share",
        |it| read(&it.protection.stats().gave_way),
    ),
    Metric::gauge(
        "starling_admission_giving_way",
        "Requests that wait until their worker has nothing else to do",
        |it| read(&it.protection.stats().giving_way),
    ),
    Metric::histogram(
        "starling_admission_wait_seconds",
        "Time that admitted requests waited for their admission",
        |it| it.protection.stats().waits(),
    ),
];

/// The metrics of the readiness, if it depends on refused requests.
pub const READINESS_METRICS: &[Metric<OverloadProtection>] = &[
    Metric::gauge(
        "starling_admission_ready",
        "1 if the readiness check succeeds as far as refused requests and memory are concerned, 0 if it fails",
        |it| u64::from(it.unready_reason().is_none()),
    ),
    Metric::counter(
        "starling_admission_unready",
        "Times that the readiness check began to fail because of refused requests or memory",
        |it| it.readiness.as_ref().map_or(0, ReadinessWatch::unready_count),
    ),
];

/// The metrics of each class of requests.
pub const ADMISSION_CLASS_METRICS: &[Metric<ClassReading>] = &[
    Metric::counter(
        "starling_admission_admitted",
        "Operations, batches and WebSocket handshakes admitted, by class",
        |it| it.protection.stats().admitted(it.class),
    ),
    Metric::counters(
        "starling_admission_refused",
        "Operations, batches and WebSocket handshakes refused because of overload, by class and reason",
        |it, samples| {
            RefusalReason::ALL.into_iter().try_for_each(|reason| {
                let count = read(&it.protection.stats().refused[it.class.index()][reason.index()]);
                samples.add_labelled(("reason", reason.name()), count)
            })
        },
    ),
    Metric::counter(
        "starling_admission_streams_refused",
        "New subscriptions, live queries and WebSocket handshakes refused because of overload, by class: 0 for \
         critical, and without handshakes refused because of their pace",
        |it| read(&it.protection.stats().streams_refused[it.class.index()]),
    ),
    Metric::gauge("starling_admission_requests", "Admitted requests in flight, by class", |it| {
        it.load.requests[it.class.index()]
    }),
    Metric::gauge(
        "starling_admission_waiting",
        "Requests that wait for admission, by class",
        |it| it.load.waiting[it.class.index()],
    ),
];

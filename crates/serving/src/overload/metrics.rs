//! The metrics of overload protection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::{Class, Load, RefusalReason, UNITS};
use telemetry::{DurationHistogram, Metric, read};

use super::OverloadProtection;

/// The counters of overload protection.
#[derive(Debug, Default)]
pub(super) struct AdmissionStats {
    /// By class.
    admitted: [AtomicU64; Class::ALL.len()],
    /// By class and reason.
    refused: [[AtomicU64; RefusalReason::ALL.len()]; Class::ALL.len()],
    waits: DurationHistogram,
}

impl AdmissionStats {
    pub(super) fn count_admitted(&self, class: Class, waited: Duration) {
        self.admitted[class.index()].fetch_add(1, Ordering::Relaxed);
        self.waits.add(waited);
    }

    pub(super) fn count_refused(&self, class: Class, reason: RefusalReason) {
        self.refused[class.index()][reason.index()].fetch_add(1, Ordering::Relaxed);
    }
}

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
        AdmissionReading { load: self.lock().control.load(), protection: Arc::clone(self) }
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
        "Work in flight, in average operations",
        |it, samples| samples.add(operations(it.load.in_flight)),
    ),
    Metric::gauges(
        "starling_admission_slow_down",
        "How many times longer operations take than without load",
        |it, samples| samples.add(it.load.slow_down),
    ),
    Metric::gauge("starling_admission_clients", "Clients with work in flight or waiting", |it| {
        it.load.clients as u64
    }),
    Metric::histogram(
        "starling_admission_wait_seconds",
        "Time that admitted requests waited for their admission",
        |it| it.protection.stats.waits.read(),
    ),
];

/// The metrics of each class of requests.
pub const ADMISSION_CLASS_METRICS: &[Metric<ClassReading>] = &[
    Metric::counter("starling_admission_admitted", "Requests admitted, by class", |it| {
        read(&it.protection.stats.admitted[it.class.index()])
    }),
    Metric::counters(
        "starling_admission_refused",
        "Requests refused because of overload, by class and reason",
        |it, samples| {
            RefusalReason::ALL.into_iter().try_for_each(|reason| {
                let count = read(&it.protection.stats.refused[it.class.index()][reason.index()]);
                samples.add_labelled(("reason", reason.name()), count)
            })
        },
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

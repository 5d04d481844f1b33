//! The metrics of the process, under the names that Prometheus' own clients use.

use telemetry::Metric;

use crate::usage::{Descriptors, Usage};

/// The metrics of CPU, memory and threads. CPU seconds divided by `starling_http_answers` is the cost of a request.
pub const USAGE_METRICS: &[Metric<Usage>] = &[
    Metric::counters("process_cpu_seconds", "CPU time of all threads", |it, samples| {
        samples.add(it.cpu_seconds)
    }),
    Metric::gauge("process_resident_memory_bytes", "Resident memory", |it| it.resident_bytes),
    Metric::gauge("process_virtual_memory_bytes", "Virtual memory", |it| it.virtual_bytes),
    Metric::gauge("process_threads", "Threads that are alive", |it| it.threads),
    Metric::gauges(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970",
        |it, samples| it.start_seconds.map_or(Ok(()), |start| samples.add(start)),
    ),
];

/// The metrics of file descriptors.
pub const DESCRIPTOR_METRICS: &[Metric<Descriptors>] = &[
    Metric::gauge("process_open_fds", "Open file descriptors", |it| it.open),
    Metric::gauge("process_max_fds", "Limit on open file descriptors", |it| it.limit),
];

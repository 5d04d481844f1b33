//! The declaration of counters together with their metrics, so that each is named and described once.

/// Declares a struct of counters and the table of their metrics. Each row has the type of the metric, the field (a
/// public `AtomicU64`), the name of the metric and its help text, which is the documentation of the field, too. Further
/// fields of the struct have no row.
///
/// ```
/// telemetry::counters! {
///     /// What a queue has done.
///     pub struct QueueStats;
///     /// The metrics of a queue.
///     pub const QUEUE_METRICS;
///     {
///         gauge waiting = "starling_queue_waiting": "Jobs that wait for a worker";
///         counter jobs = "starling_queue_jobs": "Jobs that have ended";
///     }
///     /// Durations of jobs.
///     pub durations: telemetry::DurationHistogram,
/// }
///
/// let stats = QueueStats::default();
/// stats.jobs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
/// assert_eq!((telemetry::read(&stats.jobs), QUEUE_METRICS.len()), (1, 2));
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])* $visibility:vis struct $name:ident;
        $(#[$table_meta:meta])* $table_visibility:vis const $table:ident;
        { $($(#[$further:meta])* $kind:ident $field:ident = $metric:literal: $help:literal;)* }
        $($(#[$other_meta:meta])* $other_visibility:vis $other:ident: $other_type:ty,)*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $visibility struct $name {
            $(
                #[doc = concat!($help, ".")]
                $(#[$further])*
                pub $field: ::std::sync::atomic::AtomicU64,
            )*
            $($(#[$other_meta])* $other_visibility $other: $other_type,)*
        }

        $(#[$table_meta])*
        $table_visibility const $table: &[$crate::Metric<$name>] = &[
            $($crate::Metric::$kind($metric, $help, |it| $crate::read(&it.$field)),)*
        ];
    };
}

//! The metrics of one subgraph that are not plain counters; those are beside the counters in `stats`.

use std::time::Duration;

use telemetry::{Metric, read};

use crate::hedge::HedgeRefusal;
use crate::reported_errors::OTHER_CODES;
use crate::stats::FailureKind;
use crate::upstream::Upstream;

/// The metrics of one subgraph. The label that names the subgraph is added by the caller.
pub const UPSTREAM_METRICS: &[Metric<Upstream>] = &[
    Metric::gauge(
        "starling_subgraph_breaker_state",
        "Circuit breaker: 0 closed, 1 half-open, 2 open",
        |it| it.breaker() as u64,
    ),
    Metric::counters(
        "starling_subgraph_queue_seconds",
        "Time that requests waited for a connection",
        |it, samples| samples.add(Duration::from_micros(read(&it.stats().queued_micros))),
    ),
    Metric::histogram(
        "starling_subgraph_request_duration_seconds",
        "Time from the first attempt to the end of the response or the failure",
        |it| it.stats().seconds.read(),
    ),
    Metric::counters(
        "starling_subgraph_failures",
        "Requests to subgraphs that failed, by kind",
        |it, samples| {
            FailureKind::ALL.into_iter().try_for_each(|kind| {
                samples.add_labelled(("kind", kind.as_str()), it.stats().failures(kind))
            })
        },
    ),
    Metric::counters(
        "starling_subgraph_hedges_refused",
        "Requests with a late response that were not sent a second time, by reason",
        |it, samples| {
            HedgeRefusal::ALL.into_iter().try_for_each(|refusal| {
                let count = it.stats().hedges_refused(refusal);
                samples.add_labelled(("reason", refusal.as_str()), count)
            })
        },
    ),
    Metric::counters(
        "starling_subgraph_errors",
        "Responses of subgraphs with GraphQL errors, by the code of the first one; `none` without a code",
        |it, samples| {
            let (codes, others) = it.stats().reported_errors.counts();
            let rows = codes.iter().map(|it| (it.row, &*it.code, it.count));
            samples.add_rows("code", rows, (OTHER_CODES, others))
        },
    ),
];

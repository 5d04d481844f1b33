//! The counting of an operation against all rate limits that apply to it.

use std::time::Instant;

use execute::GraphqlError;
use expressions::RequestFacts;

use super::rate_limit::{RateLimit, Taken};
use super::shared_decision::PendingLimits;
use crate::expression_stats::ExpressionStats;

/// Counts an operation against all limits of this process with this weight: 1, or its cost. An operation without a
/// weight is not limited. Returns those that several routers share, with the units to be returned if one of those
/// refuses; `None` if there are none.
///
/// # Errors
/// A limit is reached, or the weight is above the burst of one. The operation counts against none of them.
pub(crate) fn admit<'a>(
    limits: &'a [RateLimit],
    facts: &RequestFacts<'_>,
    weight: u64,
    stats: &ExpressionStats,
) -> Result<Option<PendingLimits<'a>>, GraphqlError> {
    if weight == 0 {
        return Ok(None);
    }
    let now = Instant::now();
    let (mut local, mut shared): (Vec<Taken<'a>>, Vec<Taken<'a>>) = (Vec::new(), Vec::new());
    for limit in limits {
        let Some(key) = limit.key(facts, stats) else { continue };
        let taken = Taken { limit, key, weight };
        if weight > limit.quota {
            taken.count_refused();
            local.iter().for_each(Taken::give_back_local);
            return Err(limit.too_expensive(weight));
        }
        if limit.shared.is_some() {
            shared.push(taken);
            continue;
        }
        if let Err(refusal) = taken.take_local(now) {
            taken.count_refused();
            local.iter().for_each(Taken::give_back_local);
            return Err(refusal);
        }
        local.push(taken);
    }
    if !shared.is_empty() {
        return Ok(Some(PendingLimits { local, shared }));
    }
    local.iter().for_each(Taken::count_admitted);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use execute::ErrorCode;
    use redis_store::Stores;
    use telemetry::read;

    use super::*;

    /// Returns limits with these bursts, each a unit per hour.
    fn limits(bursts: &[u32]) -> Vec<RateLimit> {
        let limit = |(index, &burst): (usize, &u32)| {
            let settings = config::RateLimit {
                name: format!("limit-{index}"),
                key: None,
                when: None,
                unit: config::RateUnit::Cost,
                rate: 1,
                per: std::time::Duration::from_secs(3600),
                burst: Some(burst),
                max_keys: 1000,
                store: None,
                on_failure: Default::default(),
                close_after: 0,
            };
            RateLimit::new(&settings, "limit", &Stores::default(), &[])
                .unwrap_or_else(|error| panic!("{error:?}"))
        };
        bursts.iter().enumerate().map(limit).collect()
    }

    fn outcome(limits: &[RateLimit], weight: u64) -> Result<(), (ErrorCode, String)> {
        let admitted = admit(limits, &RequestFacts::default(), weight, &ExpressionStats::default());
        let admitted = admitted.map(|pending| assert!(pending.is_none(), "no limit is shared"));
        admitted.map_err(|error| (error.code, error.message.to_string()))
    }

    fn refused(limit: &RateLimit) -> u64 {
        read(&limit.state().refused)
    }

    #[test]
    fn an_operation_takes_its_weight_from_all_limits_or_from_none() {
        let limits = limits(&[10, 6]);
        assert_eq!(outcome(&limits, 5), Ok(()));
        let (code, message) = outcome(&limits, 2).expect_err("the second limit has one unit left");
        assert_eq!(code, ErrorCode::RateLimited);
        assert!(
            message.starts_with("the rate limit `limit-1` is reached: try again in "),
            "{message}"
        );
        assert_eq!(outcome(&limits[..1], 5), Ok(()), "the first limit got its units back");
        assert_eq!((refused(&limits[0]), refused(&limits[1])), (0, 1));
    }

    #[test]
    fn a_cost_above_the_burst_is_refused_for_good_and_takes_nothing() {
        let limits = limits(&[10]);
        for (cost, is) in [
            (11, "is 11"),
            (u64::MAX - 1, "is 18446744073709551614"),
            (u64::MAX, "is too large to count"),
        ] {
            let message = format!(
                "the estimated cost of the operation {is}, and the rate limit `limit-0` admits at most 10 at once"
            );
            let expected = Err((ErrorCode::CostEstimatedTooExpensive, message));
            assert_eq!(outcome(&limits, cost), expected);
        }
        assert_eq!(outcome(&limits, 10), Ok(()));
    }

    #[test]
    fn an_operation_without_a_cost_is_not_limited_and_leaves_no_key() {
        let limits = limits(&[1]);
        for _ in 0..5 {
            assert_eq!(outcome(&limits, 0), Ok(()));
        }
        assert_eq!(limits[0].state().rate.keys(), 0);
        assert_eq!(outcome(&limits, 1), Ok(()));
        assert!(outcome(&limits, 1).is_err());
        assert_eq!(outcome(&limits, 0), Ok(()), "also when the limit is reached");
    }
}

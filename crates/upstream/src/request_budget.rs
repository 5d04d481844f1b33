//! Bounds the requests that one subgraph gets in addition: retries, and second requests for late responses.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The additional requests that one subgraph's requests have earned, for the whole process.
///
/// Requests pay in by being counted elsewhere; only additional requests take the lock.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    percent: u32,
    limits: BudgetLimits,
    inner: Mutex<BudgetAccount>,
}

/// The amounts that a budget may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetLimits {
    /// Maximum number of earned requests that are saved up.
    saved_max: f64,
    /// Additional requests available at the start, and where requests are rare. It grows by one a second.
    reserve: f64,
}

/// The limits for retries.
pub(crate) const RETRY_LIMITS: BudgetLimits = BudgetLimits { saved_max: 100.0, reserve: 10.0 };

/// The limits for second requests. Without a reserve they never exceed their share of the requests, and only a few of
/// them are sent at once when a subgraph becomes slow.
pub(crate) const HEDGE_LIMITS: BudgetLimits = BudgetLimits { saved_max: 10.0, reserve: 0.0 };

/// Growth of the reserve, in requests a second.
const RESERVE_PER_SECOND: f64 = 1.0;

#[derive(Debug)]
struct BudgetAccount {
    earned: f64,
    reserve: f64,
    /// The number of requests and the time up to which the account is settled.
    requests: u64,
    at: Instant,
}

impl RequestBudget {
    /// Creates a budget of `percent` of the requests. `requests` is their number so far, which earns nothing.
    pub(crate) fn new(percent: u32, limits: BudgetLimits, requests: u64, now: Instant) -> Self {
        let account = BudgetAccount { earned: 0.0, reserve: limits.reserve, requests, at: now };
        Self { percent, limits, inner: Mutex::new(account) }
    }

    /// Withdraws one additional request, if there is one. `requests` is the number of all requests so far.
    pub(crate) fn withdraw(&self, requests: u64, now: Instant) -> bool {
        let mut account = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let more = requests.saturating_sub(account.requests) as f64;
        let earned = account.earned + more * f64::from(self.percent) / 100.0;
        account.earned = earned.min(self.limits.saved_max);
        account.requests = account.requests.max(requests);
        let seconds = now.saturating_duration_since(account.at).as_secs_f64();
        let reserve = account.reserve + seconds * RESERVE_PER_SECOND;
        account.reserve = reserve.min(self.limits.reserve);
        account.at = account.at.max(now);
        if account.earned >= 1.0 {
            account.earned -= 1.0;
        } else if account.reserve >= 1.0 && self.percent > 0 {
            account.reserve -= 1.0;
        } else {
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn drain(budget: &RequestBudget, requests: u64, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.withdraw(requests, now)).count()
    }

    #[test]
    fn retries_are_earned_by_requests_beside_a_small_reserve() {
        let now = Instant::now();
        let budget = RequestBudget::new(20, RETRY_LIMITS, 0, now);
        assert_eq!(drain(&budget, 0, now), 10, "the reserve");
        assert_eq!(drain(&budget, 50, now), 10, "a fifth of 50");
        assert_eq!(drain(&budget, 50, now), 0);
        assert_eq!(drain(&budget, 10_050, now), 100, "what may be saved");
        let later = now + Duration::from_secs(4);
        assert_eq!(drain(&budget, 10_050, later), 4, "the reserve comes back");
        let none = RequestBudget::new(0, RETRY_LIMITS, 0, now);
        assert!(!none.withdraw(100, now));
    }

    #[test]
    fn second_requests_are_earned_only() {
        let now = Instant::now();
        let budget = RequestBudget::new(5, HEDGE_LIMITS, 1_000, now);
        assert_eq!(drain(&budget, 1_000, now), 0, "earlier requests earn nothing");
        let hour = now + Duration::from_secs(3600);
        assert_eq!(drain(&budget, 1_019, hour), 0, "time earns nothing");
        assert_eq!(drain(&budget, 1_020, hour), 1, "a twentieth of 20");
        assert_eq!(drain(&budget, 9_000, hour), 10, "what may be saved");
    }
}

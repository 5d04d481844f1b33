//! Decides which requests are sent again and after which pause, and bounds the load of retries.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use execute::FetchError;
use http::StatusCode;

use crate::RetrySettings;

/// Maximum number of earned retries that are saved up.
const SAVED_MAX: f64 = 100.0;

/// Retries available at the start, and where requests are rare.
const RESERVE: f64 = 10.0;

/// Growth of the reserve, in retries a second.
const RESERVE_PER_SECOND: f64 = 1.0;

/// One attempt that failed.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) error: FetchError,
    /// The part of the exchange that took place.
    pub(crate) sent: SentState,
    /// True if the response asks for a longer pause than the client waits (`retry-after`).
    pub(crate) asks_for_a_pause: bool,
}

/// The part of an exchange that took place before it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentState {
    /// Certainly no byte was sent.
    NotSent,
    /// The request may have been sent; no byte of a response has come.
    NoResponse,
    /// A response has come, in whole or in part.
    ResponseBegun,
}

impl From<FetchError> for FailedAttempt {
    fn from(error: FetchError) -> Self {
        Self { error, sent: SentState::ResponseBegun, asks_for_a_pause: false }
    }
}

impl FailedAttempt {
    /// True if the request may be sent again, and may succeed then.
    pub(crate) fn may_repeat(&self, is_mutation: bool) -> bool {
        let is_passing = match &self.error {
            // A certificate that is not trusted now will not be trusted in a moment either.
            FetchError::Connect(reason) => !reason.starts_with("TLS:"),
            FetchError::Closed(_) => self.sent != SentState::ResponseBegun,
            FetchError::Status { status, .. } => is_passing(*status) && !self.asks_for_a_pause,
            _ => false,
        };
        is_passing && (!is_mutation || self.sent == SentState::NotSent)
    }
}

/// True for statuses of proxies whose server is unavailable for a moment (RFC 9110, sections 15.6.3
/// to 15.6.5).
fn is_passing(status: StatusCode) -> bool {
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .contains(&status)
}

/// The conclusion from a failed request about its subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing was sent to the subgraph.
    Unknown,
    /// The subgraph works: the failure is about this request or its response.
    Works,
    /// The subgraph fails, or this request makes it fail: a server that cannot read a request may
    /// close the connection, and one with a defect in its code responds with 500.
    Unclear,
    /// The subgraph does not work.
    Fails,
}

/// Concludes from a failure about the subgraph.
pub(crate) fn judge_failure(error: &FetchError) -> Verdict {
    match error {
        FetchError::Overloaded => Verdict::Unknown,
        FetchError::Connect(_) | FetchError::Timeout(_) => Verdict::Fails,
        FetchError::Closed(_) | FetchError::Protocol(_) => Verdict::Unclear,
        FetchError::Status { status, .. } if is_passing(*status) => Verdict::Fails,
        FetchError::Status { status, .. } if status.is_server_error() => Verdict::Unclear,
        _ => Verdict::Works,
    }
}

/// The pause before retry number `number`, from 0: doubled each time, then reduced to between half
/// and all of that by `random` (any 32 bits), so that requests that failed together do not return
/// together.
pub(crate) fn retry_pause(settings: &RetrySettings, number: u32, random: u32) -> Duration {
    let doubled = settings.initial.saturating_mul(1 << number.min(20)).min(settings.max);
    doubled.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}

/// The retries that one subgraph's requests have earned, for the whole process.
///
/// Requests pay in by being counted elsewhere; only retries take the lock.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    percent: u32,
    inner: Mutex<BudgetAccount>,
}

#[derive(Debug)]
struct BudgetAccount {
    earned: f64,
    reserve: f64,
    /// The number of requests and the time up to which the account is settled.
    requests: u64,
    at: Instant,
}

impl RetryBudget {
    pub(crate) fn new(settings: &RetrySettings, now: Instant) -> Self {
        let account = BudgetAccount { earned: 0.0, reserve: RESERVE, requests: 0, at: now };
        Self { percent: settings.budget_percent, inner: Mutex::new(account) }
    }

    /// Withdraws one retry, if there is one. `requests` is the number of all requests so far.
    pub(crate) fn withdraw(&self, requests: u64, now: Instant) -> bool {
        let mut account = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let more = requests.saturating_sub(account.requests) as f64;
        account.earned = (account.earned + more * f64::from(self.percent) / 100.0).min(SAVED_MAX);
        account.requests = account.requests.max(requests);
        let seconds = now.saturating_duration_since(account.at).as_secs_f64();
        account.reserve = (account.reserve + seconds * RESERVE_PER_SECOND).min(RESERVE);
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
    use super::*;

    fn failure(error: FetchError, sent: SentState) -> FailedAttempt {
        FailedAttempt { error, sent, asks_for_a_pause: false }
    }

    fn status(code: u16) -> FetchError {
        let status = StatusCode::from_u16(code).unwrap();
        FetchError::Status { status, content_type: None, body: None }
    }

    #[test]
    fn queries_are_repeated_after_transient_failures_and_mutations_if_nothing_was_sent() {
        use SentState::{NoResponse, NotSent, ResponseBegun};
        let connect = || FetchError::Connect("connection refused".into());
        let closed = || FetchError::Closed("reset".into());
        for (error, sent, query, mutation) in [
            (connect(), NotSent, true, true),
            (FetchError::Connect("TLS: not trusted".into()), NotSent, false, false),
            (closed(), NotSent, true, true),
            (closed(), NoResponse, true, false),
            (closed(), ResponseBegun, false, false),
            (status(503), ResponseBegun, true, false),
            (status(502), ResponseBegun, true, false),
            (status(500), ResponseBegun, false, false),
            (status(404), ResponseBegun, false, false),
            (FetchError::Timeout(Duration::ZERO), NoResponse, false, false),
            (FetchError::TooLarge { limit: 1 }, ResponseBegun, false, false),
            (FetchError::Overloaded, NotSent, false, false),
        ] {
            let failure = failure(error, sent);
            let may = (failure.may_repeat(false), failure.may_repeat(true));
            assert_eq!(may, (query, mutation), "{failure:?}");
        }
        let busy = FailedAttempt { asks_for_a_pause: true, ..failure(status(503), ResponseBegun) };
        assert!(!busy.may_repeat(false));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_are_jittered_by_half() {
        let settings = RetrySettings {
            initial: Duration::from_millis(100),
            max: Duration::from_millis(500),
            ..RetrySettings::default()
        };
        let of = |random| [0, 1, 2, 3, 99].map(|it| retry_pause(&settings, it, random).as_millis());
        assert_eq!(of(u32::MAX), [100, 200, 400, 500, 500]);
        assert_eq!(of(0), [50, 100, 200, 250, 250]);
    }

    #[test]
    fn retries_are_earned_by_requests_beside_a_small_reserve() {
        let now = Instant::now();
        let settings = RetrySettings { budget_percent: 20, ..RetrySettings::default() };
        let budget = RetryBudget::new(&settings, now);
        let drain =
            |requests, now| (0..1000).take_while(|_| budget.withdraw(requests, now)).count();
        assert_eq!(drain(0, now), 10, "the reserve");
        assert_eq!(drain(50, now), 10, "a fifth of 50");
        assert_eq!(drain(50, now), 0);
        assert_eq!(drain(10_050, now), 100, "what may be saved");
        assert_eq!(drain(10_050, now + Duration::from_secs(4)), 4, "the reserve comes back");
        let none = RetryBudget::new(&RetrySettings { budget_percent: 0, ..settings }, now);
        assert!(!none.withdraw(100, now));
    }
}

//! Decides which requests are sent again and after which pause. `request_budget` bounds the load of retries.

use std::time::Duration;

use execute::FetchError;
use http::StatusCode;

use crate::RetrySettings;

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
}

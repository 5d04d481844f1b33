//! Sends a request, and sends it a second time if its response is late: see `hedge`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use execute::{FetchError, HedgeOutcome, LocalFuture, SubgraphRequest, SubgraphResponse};
use telemetry::GaugeGuard;
use tokio::time::Sleep;

use crate::hedge::{HedgeFacts, HedgeRace, HedgeRefusal, Hedging, Runner};
use crate::pool::AttemptKind;
use crate::retry::{FailedAttempt, SentState};
use crate::stats::count;
use crate::upstream::{TimedAttempt, Upstream};
use crate::{BreakerState, pool};

type AttemptResult = Result<SubgraphResponse, FailedAttempt>;

/// The two requests, and the timer that says that the first one is late. Each is `None` once it has ended.
struct RacingRequests<'a, F> {
    first: Option<Pin<&'a mut F>>,
    second: Option<LocalFuture<'a, AttemptResult>>,
    late: Option<Pin<&'a mut Sleep>>,
}

enum RaceEvent {
    Late,
    Ended(Runner, AttemptResult),
}

impl<F: Future<Output = AttemptResult>> RacingRequests<'_, F> {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<RaceEvent> {
        if let Some(first) = &mut self.first
            && let Poll::Ready(result) = first.as_mut().poll(context)
        {
            self.first = None;
            return Poll::Ready(RaceEvent::Ended(Runner::First, result));
        }
        if let Some(second) = &mut self.second
            && let Poll::Ready(result) = second.as_mut().poll(context)
        {
            self.second = None;
            return Poll::Ready(RaceEvent::Ended(Runner::Second, result));
        }
        if let Some(late) = &mut self.late
            && late.as_mut().poll(context).is_ready()
        {
            self.late = None;
            return Poll::Ready(RaceEvent::Late);
        }
        Poll::Pending
    }
}

impl Upstream {
    /// Sends a query, and a second time if its response is late. The first complete response counts, and the other
    /// request ends when this returns: its connection is closed, or its stream reset. `deadline` is that of both
    /// requests.
    pub(crate) async fn attempt_hedged(
        &self,
        request: &SubgraphRequest<'_>,
        hedging: &Hedging,
        deadline: Instant,
    ) -> TimedAttempt {
        let began = Instant::now();
        let note_first = || hedging.note_latency(began.elapsed(), self.clock().now());
        let first = pin!(self.attempt_request(request));
        let Some(delay) = hedging.delay(self.clock().now()) else {
            let result = first.await;
            if result.is_ok() {
                note_first();
            }
            return TimedAttempt { result, took: began.elapsed(), was_hedged: false };
        };
        let late = pin!(tokio::time::sleep_until((began + delay).into()));
        let mut requests = RacingRequests { first: Some(first), second: None, late: Some(late) };
        let mut race = HedgeRace::default();
        let mut second_began = None;
        let mut first_failure = None;
        loop {
            let (runner, result) = match poll_fn(|context| requests.poll_event(context)).await {
                RaceEvent::Ended(runner, result) => (runner, result),
                RaceEvent::Late => {
                    if race.on_late(self.decide_hedge(hedging, deadline)) {
                        second_began = Some(Instant::now());
                        requests.second = Some(Box::pin(self.attempt_second(request)));
                    }
                    continue;
                }
            };
            let Some(counting) = race.on_end(runner, result.is_ok()) else {
                if runner == Runner::First {
                    first_failure = result.err();
                }
                continue;
            };
            let Ok(mut response) = result else {
                // Of two failures that of the first request counts, whichever came last.
                let failure = if runner == counting { None } else { first_failure.map(Err) };
                let result = failure.unwrap_or(result);
                let was_hedged = second_began.is_some();
                return TimedAttempt { result, took: began.elapsed(), was_hedged };
            };
            if first_failure.is_none() {
                note_first();
            }
            let is_second = counting == Runner::Second;
            if is_second {
                count(&self.stats().hedges_won);
            }
            response.hedge = second_began.map(|_| match is_second {
                true => HedgeOutcome::Won,
                false => HedgeOutcome::Lost,
            });
            let took = second_began.filter(|_| is_second).unwrap_or(began).elapsed();
            let was_hedged = second_began.is_some();
            return TimedAttempt { result: Ok(response), took, was_hedged };
        }
    }

    /// Decides whether the late request is sent a second time.
    fn decide_hedge(&self, hedging: &Hedging, deadline: Instant) -> Result<(), HedgeRefusal> {
        let state = self.state();
        let now = self.clock().now();
        let speaks_http2 = self.speaks_http2();
        let facts = HedgeFacts {
            is_admitted: self.breaker() == BreakerState::Closed,
            has_room: state.limits.has_room(speaks_http2)
                && (state.limits.has_connection() || pool::has_connection(state)),
            time_left: deadline.saturating_duration_since(Instant::now()),
            fastest: state.fastest.duration(now),
            requests: state.stats.requests.load(Ordering::Relaxed),
        };
        let decision = hedging.decide(facts, now);
        match decision {
            Ok(()) => count(&state.stats.hedges),
            Err(refusal) => state.stats.hedges_refused.count(refusal),
        }
        decision
    }

    /// Sends a request a second time, without a wait in a queue and on another connection than the first one, if there
    /// is one.
    async fn attempt_second(&self, request: &SubgraphRequest<'_>) -> AttemptResult {
        if let Some(span) = request.headers.span {
            span.note_retry();
        }
        let state = self.state();
        let permit = state.limits.try_acquire(self.speaks_http2());
        let Some(_permit) = permit else {
            let failure = FailedAttempt::from(FetchError::Overloaded);
            return Err(FailedAttempt { sent: SentState::NotSent, ..failure });
        };
        let _in_flight = GaugeGuard::up(&state.stats.in_flight);
        self.attempt_with_permit(request, AttemptKind::Second).await
    }
}

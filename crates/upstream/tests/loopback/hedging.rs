//! Queries with a late response, which are sent a second time. `tests/e2e/js/suites/hedging.test.mjs` has the
//! behaviour that a client sees.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use execute::{HedgeOutcome, Subgraph as _};
use tokio::sync::Notify;
use upstream::{
    BreakerSettings, BreakerState, HedgeDelay, HedgeRefusal, HedgeSettings, RetrySettings,
    Upstream, UpstreamSettings,
};

use crate::scripted::{
    MINUTE, Server, Step, defaults, fetch, fetch_with, fetch_within, local, ordinary_bytes,
    ordinary_response, read, response, until,
};

/// Longer than an ordinary response takes on a busy machine.
const DELAY: Duration = Duration::from_millis(200);

fn hedged(budget_percent: u32) -> UpstreamSettings {
    let hedge = HedgeSettings { after: HedgeDelay::Fixed(DELAY), budget_percent };
    let retry = RetrySettings { retries: 0, ..RetrySettings::default() };
    UpstreamSettings { hedge: Some(hedge), retry, ..defaults() }
}

fn refused(upstream: &Upstream) -> [u64; 3] {
    HedgeRefusal::ALL.map(|refusal| upstream.stats().hedges_refused(refusal))
}

#[tokio::test]
async fn the_second_response_counts_if_it_is_the_first_and_the_other_connection_is_closed() {
    let server = Server::start(vec![vec![Step::Hang], vec![ordinary_response()]]).await;
    let upstream = server.upstream(hedged(100));
    let response = local(fetch(&upstream)).await.unwrap();
    assert_eq!(response.hedge, Some(HedgeOutcome::Won));
    assert_eq!(server.connections(), [0, 1]);
    let stats = upstream.stats();
    assert_eq!([read(&stats.requests), read(&stats.hedges), read(&stats.hedges_won)], [1, 1, 1]);
    until("the late connection is closed", || read(&stats.connections) <= 1).await;
    assert_eq!(read(&stats.in_flight), 0);
}

#[tokio::test]
async fn a_response_in_time_is_not_waited_for_twice() {
    let server = Server::start(vec![vec![ordinary_response()]]).await;
    let upstream = server.upstream(hedged(100));
    let response = local(fetch(&upstream)).await.unwrap();
    assert_eq!(response.hedge, None);
    assert_eq!((server.connections().len(), refused(&upstream)), (1, [0; 3]));
}

#[tokio::test]
async fn a_mutation_is_never_sent_a_second_time() {
    let told = Arc::new(Notify::new());
    let late = Step::RespondWhen(Arc::clone(&told), ordinary_bytes());
    // The query begins later, and so it is late later, too.
    let server = Server::start(vec![vec![late], vec![Step::Hang], vec![ordinary_response()]]).await;
    let upstream = server.upstream(hedged(100));
    local(async {
        let mutation = fetch_with(&upstream, true, &[]);
        let query = async {
            let response = fetch(&upstream).await;
            told.notify_one();
            response
        };
        let (mutation, query) = tokio::join!(mutation, query);
        assert_eq!(mutation.unwrap().hedge, None);
        assert_eq!(query.unwrap().hedge, Some(HedgeOutcome::Won));
    })
    .await;
    assert_eq!(server.connections().len(), 3);
}

#[tokio::test]
async fn of_two_failures_that_of_the_first_request_counts_and_the_breaker_counts_one() {
    let told = Arc::new(Notify::new());
    let first = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let first = Step::RespondWhen(Arc::clone(&told), Bytes::from_static(first.as_bytes()));
    let second = response("502 Bad Gateway", "text/plain", "second");
    let server = Server::start(vec![vec![first], vec![second]]).await;
    let breaker = BreakerSettings { min_requests: 2, ..BreakerSettings::default() };
    let upstream = server.upstream(UpstreamSettings { breaker: Some(breaker), ..hedged(100) });
    local(async {
        let both_are_sent = async {
            until("two requests", || server.connections().len() == 2).await;
            told.notify_one();
        };
        let (result, ()) = tokio::join!(fetch(&upstream), both_are_sent);
        let failure = result.unwrap_err().to_string();
        assert!(failure.starts_with("HTTP status 503"), "{failure}");
    })
    .await;
    assert_eq!(upstream.breaker(), BreakerState::Closed);
    assert_eq!(read(&upstream.stats().hedges_won), 0);
}

#[tokio::test]
async fn a_late_request_without_budget_room_or_time_stays_alone() {
    let [budget, too_late, overloaded] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    let one = UpstreamSettings { max_connections: 1, ..hedged(100) };
    for (settings, time, expected) in [
        (hedged(5), MINUTE, budget),
        (one, MINUTE, overloaded),
        // The fastest response that is known took longer than what is left.
        (hedged(100), DELAY * 2, too_late),
    ] {
        let late = Arc::new(Notify::new());
        let slow = Step::RespondAfter(DELAY * 3 / 2, ordinary_bytes());
        let steps = vec![slow, Step::RespondWhen(Arc::clone(&late), ordinary_bytes())];
        let server = Server::start(vec![steps]).await;
        // A mutation is the first request, so that its duration is known and nothing is sent twice.
        let upstream = server.upstream(settings);
        local(async {
            fetch_with(&upstream, true, &[]).await.unwrap();
            let respond = async {
                until("a refusal", || refused(&upstream) == expected).await;
                late.notify_one();
            };
            let (response, ()) = tokio::join!(fetch_within(&upstream, time), respond);
            // If there is little time, it may be over before the response comes.
            if time == MINUTE {
                assert_eq!(response.unwrap().hedge, None);
            }
        })
        .await;
        assert_eq!(read(&upstream.stats().hedges), 0, "{expected:?}");
    }
}

#[tokio::test]
async fn a_slow_subgraph_gets_no_second_requests() {
    let told = Arc::new(Notify::new());
    let late = Step::RespondWhen(Arc::clone(&told), ordinary_bytes());
    let server = Server::start(vec![vec![late]]).await;
    let upstream = server.upstream(hedged(100));
    upstream.note_slowness(true);
    local(async {
        let respond = async {
            until("a refusal", || refused(&upstream) == [0, 0, 1]).await;
            told.notify_one();
        };
        let (response, ()) = tokio::join!(fetch(&upstream), respond);
        assert_eq!(response.unwrap().hedge, None);
    })
    .await;
}

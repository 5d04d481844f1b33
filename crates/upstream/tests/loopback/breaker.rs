//! Subgraphs that fail all the time.

use std::time::Duration;

use execute::FetchError;
use http::{HeaderName, HeaderValue};
use upstream::{BreakerSettings, BreakerState, Clock, FailureKind, UpstreamSettings};

use crate::scripted::{
    Server, Step, fetch, fetch_with, local, no_retries, ordinary_response, read, response,
};

const OPEN_FOR: Duration = Duration::from_secs(5);

fn settings() -> UpstreamSettings {
    let breaker = BreakerSettings { failure_percent: 50, min_requests: 4, open_for: OPEN_FOR };
    UpstreamSettings { breaker: Some(breaker), ..no_retries() }
}

fn broken() -> Step {
    response("500 Internal Server Error", "text/plain", "broken")
}

#[tokio::test]
async fn a_failing_subgraph_receives_no_requests_until_it_works_again() {
    // Each time before the breaker opens, one check is sent.
    let mut script: Vec<_> = (0..7).map(|_| broken()).collect();
    script.extend((0..4).map(|_| ordinary_response()));
    let server = Server::start(vec![script]).await;
    let clock = Clock::default();
    let upstream = server.upstream(settings()).with_clock(clock.clone());
    local(async {
        for _ in 0..4 {
            let failed = fetch(&upstream).await.unwrap_err();
            assert!(matches!(failed, FetchError::Status { .. }), "{failed:?}");
        }
        assert_eq!(upstream.breaker(), BreakerState::Open);
        let refused = fetch(&upstream).await.unwrap_err();
        assert!(matches!(refused, FetchError::Unavailable(_)), "{refused:?}");
        assert_eq!(server.connections().len(), 5, "it was not asked");
        // The first probe fails, and the breaker opens again.
        clock.advance(OPEN_FOR);
        fetch(&upstream).await.unwrap_err();
        assert_eq!((upstream.breaker(), server.connections().len()), (BreakerState::Open, 7));
        clock.advance(OPEN_FOR);
        for _ in 0..4 {
            fetch(&upstream).await.unwrap();
        }
    })
    .await;
    assert_eq!(upstream.breaker(), BreakerState::Closed);
    assert_eq!(read(&upstream.stats().breaker_opened), 2);
    assert_eq!(upstream.stats().failures(FailureKind::BreakerOpen), 1);
}

#[tokio::test]
async fn requests_over_another_transport_count_like_those_over_http() {
    let server = Server::start(vec![]).await;
    let upstream = server.upstream(settings());
    let lost = || FetchError::Closed("lost".into());
    let refused = || FetchError::Connect("connection refused".into());
    // The request itself may be the cause of a loss.
    for _ in 0..8 {
        let failed = upstream.fetch_over(None, async { Err(lost()) }).await;
        assert_eq!(failed.unwrap_err(), lost());
    }
    assert_eq!(upstream.breaker(), BreakerState::Closed);
    for _ in 0..4 {
        let failed = upstream.fetch_over(None, async { Err(refused()) }).await;
        assert_eq!(failed.unwrap_err(), refused());
    }
    assert_eq!(upstream.breaker(), BreakerState::Open);
    let failed = upstream.fetch_over(None, async { Err(refused()) }).await.unwrap_err();
    assert!(matches!(failed, FetchError::Unavailable(_)), "{failed:?}");
    let stats = upstream.stats();
    let kinds = [FailureKind::Closed, FailureKind::Connect, FailureKind::BreakerOpen];
    assert_eq!((read(&stats.requests), kinds.map(|it| stats.failures(it))), (13, [8, 4, 1]));
}

#[tokio::test]
async fn errors_of_clients_do_not_open_it() {
    let refused = || response("400 Bad Request", "text/plain", "no");
    let server = Server::start(vec![(0..20).map(|_| refused()).collect()]).await;
    let upstream = server.upstream(settings());
    local(async {
        for _ in 0..20 {
            fetch(&upstream).await.unwrap_err();
        }
    })
    .await;
    assert_eq!((upstream.breaker(), server.connections().len()), (BreakerState::Closed, 20));
}

#[tokio::test]
async fn requests_that_the_subgraph_cannot_handle_do_not_make_it_unavailable_to_other_clients() {
    let Step::Respond(well) = ordinary_response() else {
        unreachable!("ordinary_response makes one")
    };
    let connection = || vec![Step::CloseOn("x-unreadable", well.clone()); 100];
    let server = Server::start((0..100).map(|_| connection()).collect()).await;
    let clock = Clock::default();
    let upstream = server.upstream(settings()).with_clock(clock.clone());
    let unreadable = [(HeaderName::from_static("x-unreadable"), HeaderValue::from_static("1"))];
    local(async {
        for _ in 0..10 {
            for _ in 0..4 {
                let failed = fetch_with(&upstream, false, &unreadable).await.unwrap_err();
                assert!(matches!(failed, FetchError::Closed(_)), "{failed:?}");
            }
            fetch(&upstream).await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
    })
    .await;
    assert_eq!(
        (upstream.breaker(), read(&upstream.stats().breaker_opened)),
        (BreakerState::Closed, 0)
    );
    let checks: Vec<_> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .filter(|it| it.1.contains("{__typename}"))
        .cloned()
        .collect();
    assert!((1..=10).contains(&checks.len()), "{checks:?}");
    assert_eq!(read(&upstream.stats().breaker_checks), checks.len() as u64);
}

#[tokio::test]
async fn a_subgraph_that_only_closes_connections_opens_it() {
    let server = Server::start(vec![vec![Step::Close]; 5]).await;
    let upstream = server.upstream(settings());
    local(async {
        for _ in 0..4 {
            fetch(&upstream).await.unwrap_err();
        }
    })
    .await;
    assert_eq!(upstream.breaker(), BreakerState::Open);
}

#[tokio::test]
async fn a_subgraph_that_hangs_opens_it() {
    let server = Server::start((0..4).map(|_| vec![Step::Hang]).collect()).await;
    let timeout = Duration::from_millis(20);
    let upstream = server.upstream(UpstreamSettings { timeout, ..settings() });
    local(async {
        for _ in 0..4 {
            assert_eq!(fetch(&upstream).await.unwrap_err(), FetchError::Timeout(timeout));
        }
    })
    .await;
    assert_eq!(upstream.breaker(), BreakerState::Open);
}

//! The whole of preparing through its public face: the cache, who waits for whom, and what comes out.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use graph::Supergraph;
use plan::OperationKind;
use prepare::{OperationRequest, PrepareError, PrepareSettings, Preparer};

const SCHEMA: &str = include_str!("fixtures/schema.graphql");

fn preparer() -> Preparer {
    let graph = Supergraph::from_sdl(SCHEMA, "schema.graphql").expect("the fixtures use it");
    let graph = Arc::new(graph);
    Preparer::new(graph, 1, PrepareSettings::default())
}

fn request(query: &str) -> OperationRequest {
    OperationRequest { query: Bytes::copy_from_slice(query.as_bytes()), ..Default::default() }
}

/// Hits, misses, operations refused by a limit.
fn stats(preparer: &Preparer) -> (u64, u64, u64) {
    let stats = preparer.stats();
    (stats.hits.load(Relaxed), stats.misses.load(Relaxed), stats.limited.load(Relaxed))
}

#[tokio::test]
async fn the_same_text_is_prepared_once() {
    let preparer = preparer();
    let first = preparer.prepare(&request("{ me { id name } }")).await.unwrap();
    let again = preparer.prepare(&request("{ me { id name } }")).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(stats(&preparer), (1, 1, 0));
    assert_eq!(preparer.len(), 1);
    assert_eq!(first.kind, OperationKind::Query);
    let graph = Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap();
    let plan = first.plan.to_text(&graph);
    assert!(plan.contains("id") && plan.contains("name"), "{plan}");
}

#[tokio::test]
async fn another_operation_of_the_same_text_is_another_entry() {
    let preparer = preparer();
    let mut request = request("query A { me { id } } query B { me { name } }");
    for name in ["A", "B"] {
        request.operation_name = Some(name.into());
        let prepared = preparer.prepare(&request).await.unwrap();
        assert_eq!(prepared.name.as_deref(), Some(name));
    }
    request.operation_name = None;
    let error = preparer.prepare(&request).await.unwrap_err();
    assert!(matches!(error, PrepareError::UnknownOperation(_)), "{error}");
    assert_eq!(stats(&preparer), (0, 3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_want_the_same_wait_for_one() {
    let preparer = Arc::new(preparer());
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let preparer = Arc::clone(&preparer);
            tokio::spawn(async move {
                let query = format!("{{ me {{ {} }} }}", "id name ".repeat(200));
                preparer.prepare(&request(&query)).await.unwrap()
            })
        })
        .collect();
    let mut prepared = Vec::new();
    for task in tasks {
        prepared.push(task.await.unwrap());
    }
    assert!(prepared.iter().all(|it| Arc::ptr_eq(it, &prepared[0])));
    assert_eq!(stats(&preparer), (49, 1, 0));
}

#[tokio::test]
async fn failures_are_not_kept() {
    let preparer = preparer();
    for _ in 0..2 {
        let error = preparer.prepare(&request("{ nope }")).await.unwrap_err();
        assert!(matches!(error, PrepareError::Validation(_)), "{error}");
    }
    let bomb = format!("{{ me {{ {} }} }}", "a: id ".repeat(101));
    let error = preparer.prepare(&request(&bomb)).await.unwrap_err();
    assert!(matches!(error, PrepareError::Limit { .. }), "{error}");
    assert_eq!(stats(&preparer), (0, 3, 1));
    assert!(preparer.is_empty());
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_the_others_unharmed() {
    let preparer = preparer();
    let wanted = request("{ me { id } }");
    let mut abandoned = Box::pin(preparer.prepare(&wanted));
    // Polled once, it holds the place of the one that prepares; then nobody is left to fill it.
    assert!(futures_poll(&mut abandoned).is_none());
    let other = preparer.prepare(&wanted);
    tokio::pin!(other);
    assert!(futures_poll(&mut other.as_mut()).is_none());
    drop(abandoned);
    other.await.unwrap();
    assert_eq!(preparer.len(), 1);
}

/// Polls once.
fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_cache_is_bounded_by_what_its_entries_weigh() {
    let preparer = preparer();
    // Introspection keeps the syntax tree: more than 1 MB each by estimate, so that 128 MiB hold a hundred.
    let comment = "x".repeat(40_000);
    for index in 0..200 {
        let query = format!("query Q{index} {{ __schema {{ queryType {{ name }} }} }} # {comment}");
        preparer.prepare(&request(&query)).await.unwrap();
    }
    let kept = preparer.len();
    assert!((50..=110).contains(&kept), "{kept}");
}

#[tokio::test]
async fn what_is_prepared_coerces_and_introspects() {
    let preparer = preparer();
    let query = "query($n: String = \"Kind\") { me { id } __type(name: $n) { name } }";
    let prepared = preparer.prepare(&request(query)).await.unwrap();
    for (variables, expected) in [
        ("", r#"{"__type":{"name":"Kind"}}"#),
        (r#"{"n": "User"}"#, r#"{"__type":{"name":"User"}}"#),
        (r#"{"n": "join__Graph"}"#, r#"{"__type":null}"#),
    ] {
        let values = prepared.coerce(&Bytes::from(variables)).unwrap();
        assert_eq!(prepared.introspect(&values).unwrap().unwrap(), expected);
    }
    let error = prepared.coerce(&Bytes::from(r#"{"n": null}"#)).unwrap_err();
    assert!(matches!(error, PrepareError::Variables(_)), "{error}");
}

#[tokio::test]
async fn the_benchmark_operation_is_prepared() {
    let sdl = include_str!("../../../fixtures/federation-benchmark/supergraph.graphql");
    let operation = include_str!("../../../fixtures/federation-benchmark/operation.graphql");
    let graph = Arc::new(Supergraph::from_sdl(sdl, "supergraph.graphql").unwrap());
    let preparer = Preparer::new(graph, 1, PrepareSettings::default());
    let prepared = preparer.prepare(&request(operation)).await.unwrap();
    assert_eq!(prepared.name.as_deref(), Some("TestQuery"));
    assert!(prepared.introspect(&prepared.coerce(&Bytes::new()).unwrap()).unwrap().is_none());
}

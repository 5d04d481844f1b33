//! Query execution on real input: the supergraph, the four subgraphs and the operation of the federation benchmark.

#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::router::Router;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/federation-benchmark").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_benchmark_operation_is_answered_byte_for_byte_as_expected() {
    let subgraphs = bench_subgraphs::start("127.0.0.1:0".parse().unwrap(), Duration::ZERO);
    let subgraphs = subgraphs.await.unwrap();
    let urls: String = bench_subgraphs::NAMES
        .iter()
        .map(|name| format!("  {name}: {{url: \"{}\"}}\n", subgraphs.url(&format!("/{name}"))))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("starling.yaml");
    let supergraph = fixture("supergraph.graphql");
    let text = format!("supergraph: {{file: {supergraph:?}}}\nsubgraphs:\n{urls}");
    fs::write(&config, text).unwrap();
    let operation = fs::read_to_string(fixture("operation.graphql")).unwrap();
    let expected = fs::read(fixture("expected_response.json")).unwrap();

    let response = tokio::task::spawn_blocking(move || {
        let router = Router::start(["serve", "--config", config.to_str().unwrap()]);
        router.post(&serde_json::json!({ "query": operation }).to_string()).unwrap()
    });
    let response = response.await.unwrap();

    assert_eq!(response.status, 200);
    assert!(
        response.body.trim_ascii() == expected.trim_ascii(),
        "the response differs from expected_response.json; it begins with {}",
        response.text().chars().take(500).collect::<String>()
    );
}

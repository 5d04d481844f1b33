//! A standard error that cannot be written or is not read, and log lines about failing subgraphs.

use std::fs::OpenOptions;
use std::io::{Read, pipe};
use std::process::Stdio;

use bytes::Bytes;
use load::subgraph::Fault;

use crate::shop::Shop;

const QUERY: &str = "{ latestReview { text } }";

/// The number of requests; their log at the level `debug` is several times the size of a pipe (64 KiB).
const REQUESTS: usize = 600;

/// An error of more than a hundred bytes, which each request logs.
const ERROR: &str = r#"{"errors":[{"message":"the shelf fell over, and with it the books, the vase, the lamp, the clock, the radio and the bowl with the fish"}]}"#;

/// Makes the router log a lot, and checks that each request is served nevertheless.
fn log_a_lot(shop: &Shop) {
    let body = Bytes::from_static(ERROR.as_bytes());
    let content_type = "application/json".to_owned();
    shop.subgraph("reviews").set_fault(Fault::Response { status: 200, content_type, body });
    for _ in 0..REQUESTS {
        assert_eq!(shop.query(QUERY).status, 200);
    }
    shop.subgraph("reviews").clear_fault();
}

fn dropped_lines(shop: &Shop) -> u64 {
    shop.router.metric("starling_log_lines_dropped_total").unwrap()
}

/// Checks that the router serves, and shuts down gracefully on request.
fn assert_serves_and_ends(shop: Shop) {
    assert!(shop.query("{ warehouse { city } }").text().contains("Bergen"));
    let (router, _parts) = shop.into_parts();
    assert_eq!(router.interrupt(), Some(0));
}

#[test]
fn a_full_disk_loses_only_log_lines() {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let shop = Shop::with_stderr("log: {level: debug}", full);
    log_a_lot(&shop);
    assert!(dropped_lines(&shop) > 0);
    assert_serves_and_ends(shop);
}

#[test]
fn a_closed_pipe_loses_only_log_lines() {
    // The reading end is dropped immediately.
    let closed = || Stdio::from(pipe().unwrap().1);
    let shop = Shop::with_stderr("log: {level: debug}", closed);
    log_a_lot(&shop);
    assert!(dropped_lines(&shop) > 0);
    assert_serves_and_ends(shop);
}

#[test]
fn a_reader_that_stalls_does_not_stop_the_router() {
    let (mut reader, writer) = pipe().unwrap();
    let stderr = || Stdio::from(writer.try_clone().unwrap());
    let shop = Shop::with_stderr("log: {level: debug}", stderr);
    log_a_lot(&shop);
    assert_serves_and_ends(shop);
    // Nothing was read until now: the pipe is full.
    drop(writer);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).unwrap();
    assert!(output.len() >= 60_000, "{} bytes were logged, fewer than a pipe holds", output.len());
}

#[test]
fn a_failing_subgraph_is_one_warning_with_address_and_reason_at_the_default_level() {
    let shop = Shop::open();
    shop.subgraph("reviews").set_fault(Fault::InternalServerError);
    for _ in 0..50 {
        shop.query(QUERY);
    }
    shop.subgraph("reviews").clear_fault();
    assert_warns_once(&shop, &["http://127.0.0.1:", "/reviews", "500", "failures"]);
    shop.assert_unaffected();
}

#[test]
fn a_subgraph_whose_responses_cannot_be_used_is_one_warning_with_the_reason() {
    let shop = Shop::open();
    shop.subgraph("reviews").set_fault(Fault::TruncatedJson);
    for _ in 0..50 {
        shop.query(QUERY);
    }
    shop.subgraph("reviews").clear_fault();
    assert_warns_once(&shop, &["http://127.0.0.1:", "/reviews", "not valid JSON"]);
    shop.assert_unaffected();
}

#[test]
fn an_open_circuit_breaker_is_a_warning_with_address_reason_and_number_of_failures() {
    let shop = Shop::with("traffic: {all: {circuit_breaker: {min_requests: 4}}}");
    shop.subgraph("reviews").set_fault(Fault::InternalServerError);
    for _ in 0..4 {
        shop.query(QUERY);
    }
    shop.subgraph("reviews").clear_fault();
    let warning = e2e::eventually("the warning", || {
        let output = shop.router.output();
        let mut lines = output.lines();
        lines.find(|line| line.contains("the circuit breaker has opened")).map(str::to_owned)
    });
    for part in [
        r#""level":"WARN""#,
        r#""subgraph":"reviews""#,
        "http://127.0.0.1:",
        "/reviews",
        "HTTP status 500",
        r#""failures":4"#,
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    shop.assert_unaffected();
}

#[test]
fn the_message_of_a_subgraph_is_in_no_line_of_the_default_level() {
    let shop = Shop::with("include_subgraph_errors: {all: false}");
    log_a_lot(&shop);
    let output = shop.router.output();
    let warning = output.lines().find(|line| line.contains("a subgraph reports errors"));
    let warning = warning.unwrap_or_else(|| panic!("there is no warning: {output}"));
    for part in ["WARN", "reviews", "http://127.0.0.1:"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(!output.contains("shelf"), "{output}");
    shop.assert_unaffected();
}

fn assert_warns_once(shop: &Shop, parts: &[&str]) {
    let output = shop.router.output();
    let warnings: Vec<&str> =
        output.lines().filter(|line| line.contains("requests to a subgraph fail")).collect();
    // A second warning occurs only if this took more than ten seconds.
    assert!((1..=3).contains(&warnings.len()), "{output}");
    for part in ["WARN", "reviews"].iter().chain(parts) {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }
    // A subgraph may recover, so nothing about it is an error.
    assert!(warnings[0].contains(r#""level":"WARN""#), "{}", warnings[0]);
    assert!(!output.contains(r#""level":"ERROR""#), "{output}");
}

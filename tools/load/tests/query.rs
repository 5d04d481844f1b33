//! The load generator against real sockets: the floor, mocks with faults, misbehaving servers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed setup fails the test

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use load::floor::Floor;
use load::query::{
    Check, Load, MeasuredOperation, QueryError, QuerySettings, QueryTarget, SearchStep, find_max,
    run,
};
use load::rate::{Arrivals, Rate};
use load::report::{Run, Runs};

const BODY: &str = r#"{"data":{"a":1}}"#;

fn settings(address: SocketAddr) -> QuerySettings {
    QuerySettings {
        name: "test".to_owned(),
        target: QueryTarget::parse(&format!("http://{address}/graphql")).unwrap(),
        operation: MeasuredOperation { text: "{ a }".to_owned(), ..MeasuredOperation::default() },
        connections: 4,
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        load: Load::Closed,
        check: Check::Graphql,
        timeout: Duration::from_secs(10),
        pid: None,
        seed: 1,
        log: None,
    }
}

fn run_once(settings: &QuerySettings) -> Run {
    run(settings, |_| {}).unwrap()
}

/// Starts a floor with this body; it ends with the test's process.
fn floor(body: &'static str) -> SocketAddr {
    let floor = Floor::bind("127.0.0.1:0".parse().unwrap(), body.as_bytes()).unwrap();
    let address = floor.address().unwrap();
    std::thread::spawn(move || floor.serve());
    address
}

/// Starts a server whose responses `respond` returns by the request's number, counted over all connections: the bytes
/// to write, and whether the connection stays open.
fn server(mut response: impl FnMut(u64) -> (Vec<u8>, bool) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            while read_request(&mut stream) {
                let (bytes, goes_on) = response(number);
                number += 1;
                if stream.write_all(&bytes).is_err() || !goes_on {
                    break;
                }
            }
        }
    });
    address
}

fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return true;
            }
        }
    }
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn a_closed_loop_keeps_every_connection_busy_and_counts_correct_responses() {
    let run = run_once(&settings(floor(BODY)));
    assert_eq!(run.failed, 0, "{:?}", run.failures);
    assert!(run.requests > 4, "{}", run.requests);
    assert_eq!(run.answer_bytes, BODY.len());
    assert!(run.latency.min_us > 0.0 && run.latency.p50_us <= run.latency.p99_us);
    assert_eq!(run.histogram.0.iter().map(|(_, count)| count).sum::<u64>(), run.requests);
}

#[test]
fn an_open_loop_starts_the_scheduled_number_of_requests() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let load = Load::Open { rate: Rate::constant(200.0), arrivals };
        let duration = Duration::from_secs(1);
        let run = run_once(&QuerySettings { load, duration, ..settings(floor(BODY)) });
        assert_eq!(run.failed, 0, "{:?}", run.failures);
        let expected = if arrivals == Arrivals::Constant { 195..=201 } else { 140..=260 };
        assert!(expected.contains(&run.requests), "{}", run.requests);
    }
}

#[test]
fn a_request_that_waited_for_a_connection_counts_from_its_scheduled_start() {
    // The server stalls once, so that all requests due meanwhile are late on the only connection.
    let stall = Duration::from_millis(300);
    let address = server(move |number| {
        if number == 20 {
            std::thread::sleep(stall);
        }
        (http("200 OK", BODY), true)
    });
    let run = run_once(&QuerySettings {
        connections: 1,
        duration: Duration::from_secs(1),
        load: Load::Open { rate: Rate::constant(100.0), arrivals: Arrivals::Constant },
        ..settings(address)
    });
    // A closed loop would have seen one slow response of a hundred; here a large part of them waited.
    assert!(run.latency.p90_us > 50_000.0, "{:?}", run.latency);
    assert!(run.latency.max_us >= 290_000.0, "{:?}", run.latency);
    assert!(run.requests >= 98, "{}", run.requests);
}

#[test]
fn an_unsent_request_is_a_failure() {
    let address = server(|number| {
        if number > 2 {
            std::thread::sleep(Duration::from_millis(120));
        }
        (http("200 OK", BODY), true)
    });
    let run = run_once(&QuerySettings {
        connections: 1,
        load: Load::Open { rate: Rate::constant(1000.0), arrivals: Arrivals::Constant },
        ..settings(address)
    });
    assert!(run.unsent > 200, "{}", run.unsent);
    assert!(run.failed >= run.unsent);
}

#[test]
fn each_kind_of_failure_is_counted_by_its_name() {
    let errors = r#"{"errors":[{"message":"x"}]}"#;
    for (bad, goes_on, check, what) in [
        (http("503 Service Unavailable", "busy"), true, Check::Graphql, "status 503"),
        (http("200 OK", errors), true, Check::Graphql, "responses with errors"),
        (http("200 OK", "oops"), true, Check::Graphql, "not a GraphQL response"),
        (
            http("200 OK", r#"{"data":{"a":2}}"#),
            true,
            Check::Bytes,
            "differs from the first response",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal".to_vec(),
            false,
            Check::Graphql,
            "connection closed",
        ),
        (b"SSH-2.0-x\r\n\r\n".to_vec(), false, Check::Graphql, "not an HTTP response"),
    ] {
        // The first response is correct; otherwise there would be no run.
        let address = server(move |number| match number {
            0 => (http("200 OK", BODY), false),
            number if number % 3 == 1 => (bad.clone(), goes_on),
            _ => (http("200 OK", BODY), true),
        });
        let duration = Duration::from_secs(1);
        let run = run_once(&QuerySettings { connections: 1, check, duration, ..settings(address) });
        let kinds: Vec<&str> = run.failures.iter().map(|failure| failure.what.as_str()).collect();
        assert_eq!(kinds, [what]);
        assert!(run.requests > run.failed, "{what}: {} of {}", run.failed, run.requests);
        assert!(run.example.is_some_and(|example| example.starts_with(what)));
    }
}

#[test]
fn a_request_without_a_response_is_abandoned() {
    let address = server(|number| {
        let response = if number == 0 { http("200 OK", BODY) } else { Vec::new() };
        (response, number > 0)
    });
    let timeout = Duration::from_millis(100);
    let run = run_once(&QuerySettings { connections: 1, timeout, ..settings(address) });
    assert!(run.failures.iter().any(|failure| failure.what == "timeout"), "{:?}", run.failures);
}

#[test]
fn a_server_that_closes_after_each_response_is_reconnected() {
    let address = server(|_| {
        let close = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        (close.into_bytes(), false)
    });
    let run = run_once(&QuerySettings { connections: 1, ..settings(address) });
    assert_eq!(run.failed, 0, "{:?}", run.failures);
    assert!(run.requests > 1, "{}", run.requests);
}

#[test]
fn a_run_begins_only_with_a_correct_response() {
    let wrong = server(|_| (http("200 OK", r#"{"errors":[{"message":"no such field"}]}"#), true));
    let error = run(&settings(wrong), |_| {}).unwrap_err();
    assert!(error.to_string().contains("no such field"), "{error}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(matches!(run(&settings(nobody), |_| {}), Err(QueryError::Unreachable { .. })));
    let none = QuerySettings { connections: 0, ..settings(nobody) };
    assert!(matches!(run(&none, |_| {}), Err(QueryError::Settings(_))));
    let gone = QuerySettings { pid: Some(u32::MAX), ..settings(nobody) };
    assert!(matches!(run(&gone, |_| {}), Err(QueryError::Process { .. })));
}

#[test]
fn every_correct_response_is_logged_with_its_times() {
    // The first response is that of the comparison; each third one is wrong, and the others count.
    let address = server(|number| {
        let body = match number {
            0 => BODY.to_owned(),
            number if number % 3 == 0 => "oops".to_owned(),
            number => format!("{{\"data\":\n{{\"a\":{number}}}}}"),
        };
        (http("200 OK", &body), true)
    });
    let file = std::env::temp_dir().join(format!("load-response-log-{}", std::process::id()));
    let now =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    let before = now();
    let run =
        run_once(&QuerySettings { connections: 1, log: Some(file.clone()), ..settings(address) });
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let (mut last, mut numbers) = (before, Vec::new());
    for line in text.lines() {
        let mut parts = line.splitn(3, ' ');
        let [sent, ended] = [(); 2].map(|()| parts.next().unwrap().parse::<u128>().unwrap());
        assert!(last <= sent && sent <= ended, "{line}");
        last = ended;
        let body: serde_json::Value = serde_json::from_str(parts.next().unwrap()).unwrap();
        numbers.push(body["data"]["a"].as_u64().unwrap());
    }
    assert!(last <= now());
    let expected: Vec<u64> = (1..).filter(|number| number % 3 != 0).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
    assert!(numbers.len() as u64 >= run.requests - run.failed && run.failed > 0, "{numbers:?}");

    let blind = QuerySettings { check: Check::Status, log: Some(file), ..settings(address) };
    assert!(matches!(load::query::run(&blind, |_| {}), Err(QueryError::Settings(_))));
}

#[test]
fn the_highest_rate_that_holds_is_found() {
    // One connection and 10 ms per response: at most a hundred responses a second.
    let address = server(|_| {
        std::thread::sleep(Duration::from_millis(10));
        (http("200 OK", BODY), true)
    });
    let settings = QuerySettings { connections: 1, ..settings(address) };
    let condition = "p50<10s".parse().unwrap();
    let mut tried = Vec::new();
    let found = find_max(&settings, &condition, |step| {
        if let SearchStep::Tried(run, held) = step {
            tried.push((run.rate.unwrap().from, held));
        }
    });
    let found = found.unwrap();
    assert_eq!(found.trials, tried.len());
    let best = found.best.unwrap().rate.unwrap().from;
    assert!(best > 1.0 && best < 110.0, "{tried:?}");
    let above = found.above.map_or(f64::MAX, |run| run.rate.unwrap().from);
    assert!(best < above, "{tried:?}");
}

#[test]
fn a_report_survives_json_and_back() {
    let run = run_once(&QuerySettings { pid: Some(std::process::id()), ..settings(floor(BODY)) });
    assert!(run.server.as_ref().is_some_and(|server| server.resident_end_mib > 0.0));
    let text = serde_json::to_string(&[&run]).unwrap();
    let Runs::Query(read) = Runs::read(&text).unwrap() else { panic!("a report of another kind") };
    assert_eq!(read.len(), 1);
    assert_eq!((read[0].requests, &read[0].histogram), (run.requests, &run.histogram));
    assert!(load::report::html("t", &read).contains("test"));
}

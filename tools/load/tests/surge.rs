//! The load generator of surges against real sockets: its clients' caches and repetitions, bounds, and coordinated
//! omission.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed setup fails the test

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use load::query::{MeasuredOperation, QueryError, QueryTarget};
use load::rate::Arrivals;
use load::report::SurgeRun;
use load::surge::{ClientBehaviour, LoadShape, SurgeOperation, SurgeSettings, run};

const BODY: &str = r#"{"data":{"a":1}}"#;
const OVERLOADED: &str = r#"{"errors":[{"message":"x","extensions":{"code":"OVERLOADED"}}]}"#;

fn settings(address: SocketAddr, shape: LoadShape) -> SurgeSettings {
    let operation = |class: &str, weight, text: &str| {
        let operation = MeasuredOperation { text: text.to_owned(), ..MeasuredOperation::default() };
        SurgeOperation::new(class.to_owned(), weight, operation).unwrap()
    };
    SurgeSettings {
        name: "test".to_owned(),
        target: QueryTarget::parse(&format!("http://{address}/graphql")).unwrap(),
        operations: vec![operation("often", 3.0, "{ a }"), operation("rarely", 1.0, "{ a: b }")],
        shape_name: "test".to_owned(),
        shape,
        arrivals: Arrivals::Constant,
        warmup: Duration::ZERO,
        behaviour: ClientBehaviour {
            clients: 10,
            caches: true,
            retries: 10,
            patience: Duration::from_secs(30),
        },
        // Longer than any pause on a busy machine.
        in_time: Duration::from_secs(20),
        connections_max: 50,
        waiting_max: 10_000,
        subscriptions: None,
        pid: None,
        seed: 1,
    }
}

fn constant(rate: f64, seconds: f64) -> LoadShape {
    LoadShape::constant(rate, seconds).unwrap()
}

fn run_once(settings: &SurgeSettings) -> SurgeRun {
    run(settings, |_, _| {}).unwrap()
}

/// Starts a server with a thread for each connection. `respond` returns the response by the number of the request,
/// which is counted over all connections. Returns the address and that number.
fn server(
    respond: impl Fn(u64) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let respond = Arc::new(respond);
    let number = Arc::new(AtomicU64::new(0));
    let counter = number.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, respond, counter) =
                (stream.unwrap(), respond.clone(), counter.clone());
            std::thread::spawn(move || {
                while read_request(&mut stream) {
                    match respond(counter.fetch_add(1, Ordering::SeqCst)) {
                        Some(bytes) if stream.write_all(&bytes).is_ok() => {}
                        Some(_) => return,
                        // The response never comes.
                        None => while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {},
                    }
                }
            });
        }
    });
    (address, number)
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

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Every request of a user has one end.
fn assert_balanced(run: &SurgeRun, wrong: u64) {
    let it = &run.totals;
    let ends = it.from_cache + it.good + it.late + it.given_up + it.unsent + wrong;
    assert_eq!(it.offered, ends, "{it:?}");
}

#[test]
fn every_planned_request_is_sent_and_counted_in_its_class() {
    let (address, _) = server(|_| Some(http("200 OK", "", BODY)));
    let shape = LoadShape::doubling(100.0, 2.0).unwrap();
    let run = run_once(&settings(address, shape.clone()));
    assert_eq!(run.totals.offered as f64, shape.total());
    assert_eq!((run.totals.sent, run.totals.good), (run.totals.offered, run.totals.offered));
    assert_eq!((run.totals.failed, run.totals.refused, run.totals.unsent), (0, 0, 0));
    let [often, rarely] = &run.classes[..] else { panic!("{:?}", run.classes) };
    assert!(often.counts.offered > 2 * rarely.counts.offered, "{:?}", run.classes);
    assert_eq!(often.counts.offered + rarely.counts.offered, run.totals.offered);
    assert!(run.latency.p50_us > 0.0 && run.latency.p50_us <= run.latency.p99_us);
    assert_eq!(run.intervals.len(), 2);
    assert!(run.connections_peak >= 1 && run.connections_peak <= 50);
    assert_balanced(&run, 0);
}

#[test]
fn clients_use_responses_again_for_their_time() {
    let (address, requests) =
        server(|_| Some(http("200 OK", "cache-control: max-age=600\r\n", BODY)));
    // Longer than any pause of a busy machine, in which everything would be sent.
    let base = settings(address, constant(100.0, 4.0));
    let run = run_once(&base);
    // Ten clients with two operations need each response once; more only where one was still on its way.
    assert!(run.totals.from_cache >= 100, "{:?}", run.totals);
    assert!(run.totals.sent >= 15 && run.totals.sent + run.totals.from_cache == 400);
    assert_balanced(&run, 0);
    let before = requests.load(Ordering::SeqCst);
    let behaviour = ClientBehaviour { caches: false, ..base.behaviour };
    let run = run_once(&SurgeSettings { behaviour, ..base });
    assert_eq!((run.totals.from_cache, run.totals.sent), (0, 400));
    // One more for the first response of each operation.
    assert_eq!(requests.load(Ordering::SeqCst) - before, 402);
}

#[test]
fn refused_requests_are_repeated_after_the_given_time_until_they_are_served() {
    let (address, _) = server(|number| {
        Some(match number {
            0..40 => http("503 Service Unavailable", "retry-after: 1\r\n", OVERLOADED),
            _ => http("200 OK", "", BODY),
        })
    });
    let run = run_once(&settings(address, constant(100.0, 1.0)));
    let totals = &run.totals;
    // Two refusals were those of the first responses.
    assert_eq!((totals.offered, totals.refused), (100, 38), "{totals:?}");
    assert_eq!((totals.good, totals.repeated, totals.sent), (100, 38, 138), "{totals:?}");
    assert_eq!(run.refusals[0].what, "503 OVERLOADED");
    assert!(run.until_served.max_us >= 1e6, "{:?}", run.until_served);
    assert_balanced(&run, 0);
}

#[test]
fn users_without_patience_give_up_and_the_bounds_of_the_generator_hold() {
    // The first responses are correct, so that the run begins.
    let (address, _) = server(|number| (number < 2).then(|| http("200 OK", "", BODY)));
    let base = settings(address, constant(200.0, 1.0));
    let behaviour = ClientBehaviour { patience: Duration::from_millis(500), ..base.behaviour };
    let hung = SurgeSettings { behaviour, connections_max: 5, waiting_max: 10, ..base };
    let run = run_once(&hung);
    assert_eq!((run.totals.good, run.totals.offered), (0, 200));
    assert!(run.totals.given_up > 0 && run.totals.unsent > 0, "{:?}", run.totals);
    assert!(run.connections_peak <= 5, "{}", run.connections_peak);
    assert!(run.generator.is_bottleneck, "it says that it could not send everything");
    assert_balanced(&run, 0);
}

#[test]
fn a_stall_of_the_server_shows_in_the_latency_of_all_requests_that_were_due_meanwhile() {
    let (address, _) = server(|number| {
        if number == 2 {
            std::thread::sleep(Duration::from_millis(600));
        }
        Some(http("200 OK", "", BODY))
    });
    // All requests wait for the one that stalls, because there is one connection.
    let run =
        run_once(&SurgeSettings { connections_max: 1, ..settings(address, constant(100.0, 1.0)) });
    assert_eq!(run.totals.good, 100);
    // Sixty of the hundred requests were due during the stall.
    assert!(run.latency.p50_us >= 50_000.0, "{:?}", run.latency);
    assert!(run.latency.max_us >= 590_000.0, "{:?}", run.latency);
}

#[test]
fn wrong_responses_fail_and_are_not_repeated() {
    let (address, _) = server(|number| {
        Some(match number % 2 {
            0 => http("200 OK", "", BODY),
            _ if number < 2 => http("200 OK", "", BODY),
            _ => http("500 Oops", "", "oops"),
        })
    });
    let run = run_once(&settings(address, constant(100.0, 1.0)));
    assert_eq!((run.totals.good, run.totals.failed, run.totals.repeated), (50, 50, 0));
    assert_eq!((run.failures[0].what.as_str(), run.failures[0].count), ("500", 50));
    assert_eq!(run.example.as_deref(), Some("500: oops"));
    assert_balanced(&run, 50);
}

#[test]
fn a_run_does_not_begin_with_a_wrong_url_operation_or_bound() {
    let (address, _) = server(|_| Some(http("404 Not Found", "", "no such page")));
    let base = settings(address, constant(10.0, 1.0));
    let error = run(&base, |_, _| {}).unwrap_err();
    assert!(matches!(error, QueryError::WrongFirstResponse { .. }), "{error}");
    assert!(error.to_string().contains("`often`: 404: no such page"), "{error}");
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&settings(nowhere, constant(10.0, 1.0)), |_, _| {}).unwrap_err();
    assert!(matches!(error, QueryError::Unreachable { .. }), "{error}");
    for (settings, expected) in [
        (SurgeSettings { connections_max: 0, ..base.clone() }, "connections must be from 1"),
        (SurgeSettings { waiting_max: 9_999_999, ..base.clone() }, "waiting requests must be"),
        (SurgeSettings { in_time: Duration::ZERO, ..base.clone() }, "longer than 0"),
        (SurgeSettings { operations: Vec::new(), ..base }, "a weight above 0"),
    ] {
        let error = run(&settings, |_, _| {}).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

//! Decisions about policies: by expressions, by a real Open Policy Agent, and by decision points that do not work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use execute::{ClaimPath, Claims};
use expressions::RequestFacts;
use policies::{
    DecisionPoint, DecisionPointSettings, EngineSettings, InputSettings, PolicyDecider,
    PolicySettings,
};
use test_kit::open_policy_agent::OpenPolicyAgent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

/// Longer than a busy machine takes for a request.
const LONG: Duration = Duration::from_secs(10);

/// Shorter than a decision point that hangs.
const SHORT: Duration = Duration::from_millis(300);

/// Rules that answer by a list: staff may do everything, others read.
const LIST: &str = r#"package starling
allow contains policy if {
    some policy in input.policies
    input.claims.role == "staff"
}
allow contains "read" if "read" in input.policies
"#;

/// The same rules, which answer by an object.
const OBJECT: &str = r#"package starling
allow[policy] := decision if {
    some policy in input.policies
    decision := permits(policy)
}
default permits(_) := false
permits(_) if input.claims.role == "staff"
permits("read") if input.claims.role != "staff"
"#;

fn claims(text: &'static str) -> Claims {
    Claims::new(text.into()).expect("an object")
}

fn settings(
    expressions: &[(&str, &str)],
    decision_point: Option<DecisionPointSettings>,
) -> PolicySettings {
    let expressions = expressions.iter().map(|&(name, text)| (name.into(), text.into()));
    let engine = decision_point.map(|it| EngineSettings::DecisionPoint(Box::new(it)));
    PolicySettings { expressions: expressions.collect(), engine }
}

/// A decider that asks the decision point at this URL about the role of clients.
fn asking(url: &str, timeout: Duration, ttl: Duration) -> PolicyDecider {
    let role = ClaimPath::parse("role").expect("a path");
    let point = DecisionPointSettings {
        input: InputSettings { claims: vec![("role".into(), role)], ..InputSettings::default() },
        timeout,
        ttl,
        ..DecisionPointSettings::new(url)
    };
    PolicyDecider::new(&settings(&[], Some(point))).expect("usable settings")
}

fn point(decider: &PolicyDecider) -> &DecisionPoint {
    decider.decision_point().expect("a decision point")
}

async fn decide(decider: &PolicyDecider, policies: &[&str], claims: Option<&Claims>) -> Vec<bool> {
    let facts = RequestFacts {
        method: "POST",
        path: "/graphql",
        claims: claims.into(),
        ..RequestFacts::default()
    };
    LocalSet::new().run_until(decider.decide(policies, &facts)).await
}

/// A server that treats each connection like `respond`, and counts them.
async fn server<F: Future<Output = ()> + Send + 'static>(
    respond: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1/data/x?key=hidden", listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(respond(stream));
        }
    });
    (url, count)
}

/// Reads the head of a request and writes `response`.
async fn exchange(mut stream: TcpStream, response: String) {
    let mut buffer = vec![0; 16_384];
    let _ = stream.read(&mut buffer).await;
    let _ = stream.write_all(response.as_bytes()).await;
    // The client closes the connection.
    let _ = stream.read(&mut buffer).await;
}

fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn an_expression_decides_and_one_without_a_value_denies() {
    let expressions = [
        ("staff", "claims.role == \"staff\""),
        ("post", "request.method == \"POST\""),
        ("never", "false"),
    ];
    let decider = PolicyDecider::new(&settings(&expressions, None)).expect("usable settings");
    let staff = claims(r#"{"role":"staff"}"#);
    let policies = ["post", "staff", "never", "unknown", "staff"];
    let decided = decide(&decider, &policies, Some(&staff)).await;
    assert_eq!(decided, [true, true, false, false, true]);
    // Without claims, the expression has no value.
    assert_eq!(decide(&decider, &policies, None).await, [true, false, false, false, false]);
    let stats = &decider.stats;
    assert_eq!(stats.allowed.load(Ordering::Relaxed), 4);
    assert_eq!(stats.denied.load(Ordering::Relaxed), 2);
    assert_eq!(stats.undecided.load(Ordering::Relaxed), 4);
    assert!(decider.has_policy("staff") && !decider.has_policy("unknown"));
    assert_eq!(decider.claims().len(), 1);
    assert_eq!(decide(&decider, &[], None).await, [false; 0]);
}

#[test]
fn a_wrong_expression_is_refused_with_its_name() {
    let expressions = [("a", "nothing.of.this"), ("b", "1 +"), ("c", "true")];
    let point = DecisionPointSettings::new("ftp://127.0.0.1");
    let problems = PolicyDecider::new(&settings(&expressions, Some(point)));
    let problems = problems.expect_err("three mistakes");
    let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].starts_with("policy `a`: "), "{messages:?}");
    assert!(messages[1].starts_with("policy `b`: "), "{messages:?}");
    assert!(messages[2].starts_with("the URL of the decision point: "), "{messages:?}");
}

#[tokio::test]
async fn open_policy_agent_decides_about_all_policies_in_one_request() {
    for rules in [LIST, OBJECT] {
        let Some(agent) = OpenPolicyAgent::start(rules) else { return };
        let asking = asking(&agent.url("starling/allow"), LONG, LONG);
        let policies = ["write", "read", "write"];
        let staff = claims(r#"{"role":"staff","sub":"a"}"#);
        assert_eq!(decide(&asking, &policies, Some(&staff)).await, [true; 3]);
        let user = claims(r#"{"role":"user"}"#);
        assert_eq!(decide(&asking, &policies, Some(&user)).await, [false, true, false]);
        assert_eq!(point(&asking).stats.decided.load(Ordering::Relaxed), 2);
        // Clients with equal listed claims share decisions, in whatever order the policies are named.
        let other = claims(r#"{"sub":"b","role":"staff"}"#);
        assert_eq!(decide(&asking, &["read", "write"], Some(&other)).await, [true; 2]);
        assert_eq!(point(&asking).stats.decided.load(Ordering::Relaxed), 2);
        assert_eq!(point(&asking).stats.cached.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn policies_are_denied_while_open_policy_agent_is_away_or_knows_no_such_document() {
    let Some(mut agent) = OpenPolicyAgent::start(LIST) else { return };
    let staff = claims(r#"{"role":"staff"}"#);
    let unknown = asking(&agent.url("other/document"), LONG, LONG);
    assert_eq!(decide(&unknown, &["read"], Some(&staff)).await, [false]);
    assert_eq!(point(&unknown).stats.failed.load(Ordering::Relaxed), 1);
    let asking = asking(&agent.url("starling/allow"), LONG, Duration::ZERO);
    assert_eq!(decide(&asking, &["read"], Some(&staff)).await, [true]);
    agent.kill();
    assert_eq!(decide(&asking, &["read"], Some(&staff)).await, [false]);
    assert_eq!(asking.stats.undecided.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_policy_with_an_expression_is_not_asked_for() {
    let (url, count) =
        server(|stream| exchange(stream, http("200 OK", r#"{"result":["b"]}"#))).await;
    let point = DecisionPointSettings { timeout: LONG, ..DecisionPointSettings::new(url) };
    let decider = PolicyDecider::new(&settings(&[("a", "true")], Some(point)));
    let decider = decider.expect("usable settings");
    assert_eq!(decide(&decider, &["a"], None).await, [true]);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(decide(&decider, &["c", "a", "b"], None).await, [false, true, true]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_decision_point_that_lies_floods_or_fails_denies() {
    let large = format!(r#"{{"result":["a"],"x":"{}"}}"#, "x".repeat(100_000));
    for response in [
        http("200 OK", "<html>"),
        http("200 OK", "{}"),
        http("200 OK", r#"{"result":{"a":"true"}}"#),
        http("200 OK", r#"{"result":true}"#),
        http("200 OK", &large),
        http("500 Internal Server Error", r#"{"result":["a"]}"#),
        http("403 Forbidden", r#"{"result":["a"]}"#),
        http("302 Found", r#"{"result":["a"]}"#),
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"result\":[\"a\"]}".to_owned(),
        "nonsense".to_owned(),
    ] {
        let (url, _) = server({
            let response = response.clone();
            move |stream| exchange(stream, response.clone())
        })
        .await;
        let decider = asking(&url, Duration::from_secs(2), LONG);
        let shown: String = response.chars().take(100).collect();
        assert_eq!(decide(&decider, &["a"], None).await, [false], "{shown}");
        assert_eq!(point(&decider).stats.failed.load(Ordering::Relaxed), 1, "{shown}");
        assert!(!format!("{decider:?}").contains("hidden"), "{decider:?}");
    }
    let (url, _) = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b' '; 16_384]).await.is_ok() {}
    })
    .await;
    assert_eq!(decide(&asking(&url, LONG, LONG), &["a"], None).await, [false]);
}

#[tokio::test]
async fn a_decision_point_that_hangs_costs_its_timeout_and_then_nothing() {
    let (url, count) = server(|stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let decider = asking(&url, SHORT, LONG);
    for number in 0..3 {
        let name = format!("policy-{number}");
        assert_eq!(decide(&decider, &[&name], None).await, [false]);
    }
    for number in 0..100 {
        let name = format!("later-{number}");
        assert_eq!(decide(&decider, &[&name], None).await, [false]);
    }
    // After a pause of a second, one of them may have been sent.
    let sent = count.load(Ordering::Relaxed);
    assert!((3..10).contains(&sent), "{sent} requests");
    assert!(point(&decider).stats.backoff.load(Ordering::Relaxed) > 90);
}

#[tokio::test]
async fn equal_questions_in_flight_are_sent_once() {
    let (url, count) = server(|stream| async move {
        tokio::task::yield_now().await;
        exchange(stream, http("200 OK", r#"{"result":["a"]}"#)).await;
    })
    .await;
    let decider = Arc::new(asking(&url, LONG, Duration::ZERO));
    let local = LocalSet::new();
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let decider = Arc::clone(&decider);
            local.spawn_local(async move {
                let facts = RequestFacts::default();
                decider.decide(&["a", "b"], &facts).await
            })
        })
        .collect();
    local.await;
    for caller in callers {
        assert_eq!(caller.await.expect("no panic"), [true, false]);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert_eq!(point(&decider).stats.decided.load(Ordering::Relaxed), 1);
}

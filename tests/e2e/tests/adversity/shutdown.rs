//! Shutdown of the router while clients are connected.

use std::time::{Duration, Instant};

use e2e::request;
use load::subgraph::Fault;

use crate::shop::{Shop, assert_no_defects};
use crate::socket::Socket;
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

#[test]
fn open_subscriptions_are_closed_and_the_router_exits_cleanly() {
    for signal in ["INT", "TERM"] {
        let shop = Shop::with_provider("memory/default", "shutdown: {delay: 0s}");
        let mut socket = Socket::ready(shop.address());
        socket.subscribe("1", SUBSCRIPTION);
        let idle = Socket::ready(shop.address());
        let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
        shop.wait_for_subscribers(2);
        let begin = Instant::now();
        shop.router.signal(signal);
        assert_eq!(socket.transcript(), "closed 1001 The router is shutting down\n");
        let error = r#"{"errors":[{"message":"the router is shutting down; connect again, to another instance","extensions":{"code":"SHUTTING_DOWN"}}]}"#;
        assert_eq!(stream.transcript(), format!("next {error}\ncomplete\nend\n"));
        drop(idle);
        let (router, _rest) = shop.into_parts();
        let (code, output) = router.wait_for_exit();
        assert_eq!(code, Some(0), "{output}");
        // Far shorter than the drain period, because the router waited for no client.
        assert!(begin.elapsed() < Duration::from_secs(20), "{output}");
        assert_no_defects(&output);
    }
}

#[test]
fn many_subscribers_are_disconnected_one_after_the_other() {
    const SOCKETS: usize = 400;
    let shop = Shop::with_provider("memory/default", "");
    let mut sockets: Vec<_> = (0..SOCKETS).map(|_| Socket::ready(shop.address())).collect();
    sockets.iter_mut().for_each(|socket| socket.subscribe("1", SUBSCRIPTION));
    shop.wait_for_subscribers(SOCKETS as u64);
    let begin = Instant::now();
    shop.router.signal("TERM");
    for socket in &mut sockets {
        assert_eq!(socket.transcript(), "closed 1001 The router is shutting down\n");
    }
    // One millisecond for each client, and the last one was not among the first.
    assert!(begin.elapsed() > Duration::from_millis(300), "all were asked at once");
    let (router, _rest) = shop.into_parts();
    let (code, output) = router.wait_for_exit();
    assert_eq!(code, Some(0), "{output}");
    assert_no_defects(&output);
}

#[test]
fn a_request_in_flight_is_answered_before_the_exit_and_new_connections_are_refused() {
    let shop = Shop::with_provider("memory/default", "");
    shop.subgraph("reviews").set_fault(Fault::Hold);
    let address = shop.address();
    let asking = std::thread::spawn(move || {
        let headers = [("content-type", "application/json")];
        request(address, "POST", "/graphql", &headers, br#"{"query":"{ latestReview { text } }"}"#)
    });
    shop.wait_for_metric(r#"starling_subgraph_requests_in_flight{subgraph="reviews"}"#, 1);
    shop.router.signal("TERM");
    e2e::eventually("the listener to close", || {
        std::net::TcpStream::connect(address).is_err().then_some(())
    });
    shop.subgraph("reviews").clear_fault();
    let response = asking.join().unwrap().unwrap();
    assert_eq!(response.text(), r#"{"data":{"latestReview":{"text":"Shines."}}}"#);
    let (router, _rest) = shop.into_parts();
    let (code, output) = router.wait_for_exit();
    assert_eq!(code, Some(0), "{output}");
    assert_no_defects(&output);
}

#[test]
fn clients_that_stay_connected_are_cut_off_after_the_drain_period() {
    let shop = Shop::with_provider("memory/default", "subscriptions: {drain_period: 500ms}");
    shop.subgraph("reviews").set_fault(Fault::Hold);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    let address = shop.address();
    let asking = std::thread::spawn(move || {
        let headers = [("content-type", "application/json")];
        request(address, "POST", "/graphql", &headers, br#"{"query":"{ latestReview { text } }"}"#)
    });
    shop.wait_for_metric(r#"starling_subgraph_requests_in_flight{subgraph="reviews"}"#, 1);
    shop.router.signal("TERM");
    // The socket stays open and unread, and the request stays unanswered.
    let (router, _rest) = shop.into_parts();
    let (code, output) = router.wait_for_exit();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("closing connections that did not end in time"), "{output}");
    assert!(asking.join().unwrap().is_err());
    assert_eq!(socket.transcript(), "closed 1001 The router is shutting down\n");
    assert_no_defects(&output);
}

#[test]
fn a_second_signal_ends_the_router_at_once() {
    let shop = Shop::with_provider("memory/default", "");
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    shop.subgraph("reviews").set_fault(Fault::Hold);
    socket.subscribe("2", "{ latestReview { text } }");
    let (router, _rest) = shop.into_parts();
    // The close frame gets no reply, so after the first signal alone the router would wait.
    router.signal("TERM");
    e2e::eventually("the shutdown to begin", || {
        router.output().contains("shutting down").then_some(())
    });
    let begin = Instant::now();
    router.signal("TERM");
    let (code, output) = router.wait_for_exit();
    assert_eq!(code, Some(130), "{output}");
    assert!(begin.elapsed() < Duration::from_secs(4), "{output}");
}

#[test]
fn after_sigterm_the_router_is_not_ready_and_serves_until_load_balancers_have_noticed() {
    let shop = Shop::with_provider("memory/default", "shutdown: {delay: 1h}");
    shop.router.signal("TERM");
    let ready = || request(shop.router.admin(), "GET", "/health/ready", &[], b"").unwrap();
    e2e::eventually("the readiness check to fail", || (ready().status == 503).then_some(()));
    assert_eq!(shop.query("{ latestReview { text } }").status, 200);
    // After a second signal the router does not wait for the delay, but still completes requests.
    shop.router.signal("TERM");
    let (router, _rest) = shop.into_parts();
    let (code, output) = router.wait_for_exit();
    assert_eq!(code, Some(0), "{output}");
    assert_no_defects(&output);
}

//! The end of the router while clients hold on to it.

use std::time::{Duration, Instant};

use e2e::request;
use load::subgraph::Fault;

use crate::shop::{Shop, assert_sound};
use crate::socket::Socket;
use crate::stream::Stream;

const SUBSCRIPTION: &str = "subscription { productChanged { id } }";

#[test]
fn open_subscriptions_are_told_that_the_router_goes_and_it_ends_cleanly() {
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
        let (code, said) = router.wait_for_end();
        assert_eq!(code, Some(0), "{said}");
        // Far below the drain period: nobody had to be waited for.
        assert!(begin.elapsed() < Duration::from_secs(20), "{said}");
        assert_sound(&said);
    }
}

#[test]
fn many_subscribers_are_asked_to_leave_one_after_the_other() {
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
    // A millisecond for each, and the last one was not among the first.
    assert!(begin.elapsed() > Duration::from_millis(300), "all were asked at once");
    let (router, _rest) = shop.into_parts();
    let (code, said) = router.wait_for_end();
    assert_eq!(code, Some(0), "{said}");
    assert_sound(&said);
}

#[test]
fn a_request_in_flight_is_answered_before_the_end_and_new_ones_find_nobody() {
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
    let answer = asking.join().unwrap().unwrap();
    assert_eq!(answer.text(), r#"{"data":{"latestReview":{"text":"Shines."}}}"#);
    let (router, _rest) = shop.into_parts();
    let (code, said) = router.wait_for_end();
    assert_eq!(code, Some(0), "{said}");
    assert_sound(&said);
}

#[test]
fn who_does_not_let_go_is_cut_off_after_the_drain_period() {
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
    // The socket stays open and unread, the request unanswered.
    let (router, _rest) = shop.into_parts();
    let (code, said) = router.wait_for_end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("closing connections that did not end in time"), "{said}");
    assert!(asking.join().unwrap().is_err());
    assert_eq!(socket.transcript(), "closed 1001 The router is shutting down\n");
    assert_sound(&said);
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
    // Nobody answers the close frame, so the first signal alone would wait.
    router.signal("TERM");
    e2e::eventually("the end to begin", || router.said().contains("shutting down").then_some(()));
    let begin = Instant::now();
    router.signal("TERM");
    let (code, said) = router.wait_for_end();
    assert_eq!(code, Some(130), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(4), "{said}");
}

#[test]
fn after_sigterm_the_router_is_not_ready_and_serves_until_balancers_have_noticed() {
    let shop = Shop::with_provider("memory/default", "shutdown: {delay: 1h}");
    shop.router.signal("TERM");
    let ready = || request(shop.router.admin(), "GET", "/health/ready", &[], b"").unwrap();
    e2e::eventually("the readiness check to fail", || (ready().status == 503).then_some(()));
    assert_eq!(shop.query("{ latestReview { text } }").status, 200);
    // A second signal does not wait for the delay, and lets requests and connections end.
    shop.router.signal("TERM");
    let (router, _rest) = shop.into_parts();
    let (code, said) = router.wait_for_end();
    assert_eq!(code, Some(0), "{said}");
    assert_sound(&said);
}

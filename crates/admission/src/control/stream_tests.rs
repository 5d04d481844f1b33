//! New subscriptions and handshakes beside other requests.

use super::tests::{admitted, at, control, finish};
use super::*;

/// Asks for an operation of one client at the start.
fn ask_for(control: &mut AdmissionControl, operation: u64) -> Decision {
    let request = Request { client: 1, operation, ..Request::default() };
    control.request(request, Duration::MAX, at(0), 0)
}

/// Teaches the control that operation 7 opens a stream. It costs as much as the usual one.
fn learn_subscription(control: &mut AdmissionControl) {
    for (operation, outcome) in
        [(1, Outcome::Completed { cost: 100 }), (7, Outcome::Opened { cost: 100 })]
    {
        let ticket = admitted(ask_for(control, operation));
        control.finish(ticket, outcome, at(0), 0);
    }
}

#[test]
fn new_streams_leave_a_part_of_the_limit_to_other_requests() {
    let mut control = control(20, 10);
    learn_subscription(&mut control);
    let mut tickets: Vec<_> = (0..17).map(|_| admitted(ask_for(&mut control, 7))).collect();
    assert!(matches!(ask_for(&mut control, 7), Decision::Waiting(..)));
    let handshake = Request { client: 1, opens_stream: true, ..Request::default() };
    let decision = control.request(handshake, Duration::MAX, at(0), 0);
    assert!(matches!(decision, Decision::Waiting(..)), "{decision:?}");
    // Streams count in no share: the queries of the client are less than half of its share, so two exceed the
    // limit.
    tickets.extend((0..5).map(|_| admitted(ask_for(&mut control, 1))));
    assert!(matches!(ask_for(&mut control, 1), Decision::Waiting(..)));
}

#[test]
fn a_heavy_stream_does_not_starve_behind_light_queries() {
    let mut control = control(20, 1000);
    learn_subscription(&mut control);
    let heavy = admitted(ask_for(&mut control, 8));
    control.finish(heavy, Outcome::Opened { cost: 500 }, at(0), 0);
    let fill = || match ask_for(&mut control, 1) {
        Decision::Admitted(ticket) => Some(ticket),
        _ => None,
    };
    let mut running: VecDeque<_> = std::iter::from_fn(fill).collect();
    let stream = waiting(ask_for(&mut control, 8));
    let mut queries = 0;
    loop {
        // One ends, and another one arrives.
        let ended = running.pop_front().expect("some are in flight");
        control.finish(ended, Outcome::Unmeasured { cost: 100 }, at(0), 0);
        match ask_for(&mut control, 1) {
            Decision::Admitted(ticket) => running.push_back(ticket),
            Decision::Waiting(..) => {}
            Decision::Refused(refusal) => panic!("{refusal:?}"),
        }
        let mut is_opened = false;
        while let Some(Event::Admitted(id, ticket, _)) = control.poll_event() {
            is_opened |= id == stream;
            running.push_back(ticket);
        }
        if is_opened {
            break;
        }
        queries += 1;
        assert!(queries < 100, "the stream starves");
    }
}

#[test]
fn critical_subscriptions_use_the_whole_limit() {
    let mut control = control(20, 10);
    learn_subscription(&mut control);
    let critical = Request { operation: 7, class: Class::Critical, ..Request::default() };
    let _tickets: Vec<_> =
        (0..20).map(|_| admitted(control.request(critical, Duration::MAX, at(0), 0))).collect();
    let decision = control.request(critical, Duration::MAX, at(0), 0);
    assert!(matches!(decision, Decision::Waiting(..)), "{decision:?}");
}

fn waiting(decision: Decision) -> WaiterId {
    match decision {
        Decision::Waiting(id, _) => id,
        other => panic!("{other:?}"),
    }
}

/// Returns the request that is admitted after its wait.
fn admitted_next(control: &mut AdmissionControl) -> (WaiterId, Ticket) {
    match control.poll_event() {
        Some(Event::Admitted(id, ticket, _)) => (id, ticket),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_query_that_waits_comes_before_a_subscription_that_waited_longer() {
    let mut control = control(1, 10);
    learn_subscription(&mut control);
    let first = admitted(ask_for(&mut control, 1));
    let subscription = waiting(ask_for(&mut control, 7));
    let query = waiting(ask_for(&mut control, 1));
    finish(&mut control, first, 1);
    let (id, ticket) = admitted_next(&mut control);
    assert_eq!(id, query);
    assert!(control.poll_event().is_none());
    finish(&mut control, ticket, 2);
    let (id, _ticket) = admitted_next(&mut control);
    assert_eq!(id, subscription);
}

#[test]
fn subscriptions_do_not_starve_behind_queries() {
    let mut control = control(1, 10);
    learn_subscription(&mut control);
    let mut running = admitted(ask_for(&mut control, 1));
    let subscription = waiting(ask_for(&mut control, 7));
    let mut queries = 0;
    loop {
        waiting(ask_for(&mut control, 1));
        control.finish(running, Outcome::Unmeasured { cost: 100 }, at(0), 0);
        let (id, ticket) = admitted_next(&mut control);
        if id == subscription {
            break;
        }
        running = ticket;
        queries += 1;
    }
    // Three were admitted before it came.
    assert_eq!(queries, OPERATIONS_BEFORE_STREAM - 3);
}

fn ask_for_sheddable(control: &mut AdmissionControl, operation: u64) -> Decision {
    let class = Class::Sheddable;
    let request = Request { client: 1, operation, class, ..Request::default() };
    control.request(request, Duration::MAX, at(0), 0)
}

/// Ends requests of the class `normal`, and admits another one for each.
fn repeat_normal(control: &mut AdmissionControl, normal: &mut VecDeque<Ticket>, number: u32) {
    for _ in 0..number {
        let ended = normal.pop_front().expect("some are in flight");
        control.finish(ended, Outcome::Unmeasured { cost: 100 }, at(0), 0);
        normal.push_back(admitted(ask_for(control, 1)));
    }
}

#[test]
fn queries_of_a_class_with_little_room_do_not_starve_behind_its_subscriptions() {
    let mut control = control(20, 1000);
    learn_subscription(&mut control);
    let mut normal: VecDeque<_> = (0..19).map(|_| admitted(ask_for(&mut control, 1))).collect();
    // The class may always have one operation in flight, and has room for no other one.
    let mut running = admitted(ask_for_sheddable(&mut control, 1));
    let (mut queries, mut subscriptions) = (0, 0);
    for _ in 0..33 {
        waiting(ask_for_sheddable(&mut control, 7));
        waiting(ask_for_sheddable(&mut control, 1));
        repeat_normal(&mut control, &mut normal, 20);
        control.finish(running, Outcome::Unmeasured { cost: 100 }, at(0), 0);
        running = admitted_next(&mut control).1;
        *(if running.is_stream { &mut subscriptions } else { &mut queries }) += 1;
    }
    assert_eq!((queries, subscriptions), (30, 3), "one for each ten queries of the class");
}

#[test]
fn subscriptions_of_a_class_without_queries_do_not_starve_behind_other_classes() {
    let mut control = control(20, 1000);
    learn_subscription(&mut control);
    let mut normal: VecDeque<_> = (0..19).map(|_| admitted(ask_for(&mut control, 1))).collect();
    let first = admitted(ask_for_sheddable(&mut control, 7));
    let second = waiting(ask_for_sheddable(&mut control, 7));
    repeat_normal(&mut control, &mut normal, OPERATIONS_BEFORE_STREAM);
    control.finish(first, Outcome::Opened { cost: 100 }, at(0), 0);
    assert_eq!(admitted_next(&mut control).0, second);
}

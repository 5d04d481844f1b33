//! Limits, queues, shares, costs and latencies as the control applies them.

use super::*;

pub(super) fn control(limit: u32, waiting_max: u32) -> AdmissionControl {
    AdmissionControl::new(AdmissionSettings {
        limit: LimitBounds { initial: limit, min: limit, max: limit },
        queue: QueueSettings { waiting_max, ..QueueSettings::default() },
        ramp: Duration::ZERO,
    })
}

pub(super) fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn request(control: &mut AdmissionControl, client: u64, class: Class, millis: u64) -> Decision {
    let request = Request { client, operation: 1, class, ..Request::default() };
    control.request(request, Duration::MAX, at(millis), 0)
}

pub(super) fn admitted(decision: Decision) -> Ticket {
    match decision {
        Decision::Admitted(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

pub(super) fn finish(control: &mut AdmissionControl, ticket: Ticket, millis: u64) {
    control.finish(ticket, Outcome::Completed { cost: 100 }, at(millis), 0);
}

#[test]
fn work_waits_at_the_limit_and_begins_when_other_work_ends() {
    let mut control = control(2, 10);
    let first = admitted(request(&mut control, 1, Class::Normal, 0));
    let _second = admitted(request(&mut control, 1, Class::Normal, 0));
    let Decision::Waiting(id, until) = request(&mut control, 1, Class::Normal, 1) else {
        panic!("it waits")
    };
    assert_eq!(until, at(51));
    assert!(control.poll_event().is_none());
    finish(&mut control, first, 20);
    match control.poll_event() {
        Some(Event::Admitted(admitted, _, waited)) => {
            assert_eq!((admitted, waited), (id, at(19)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(control.leave(id, at(21), 0), None, "it waits no longer");
    assert_eq!(control.load().in_flight, 2000);
}

/// Admits requests while there is room, and returns their number.
fn fill(control: &mut AdmissionControl, millis: u64) -> usize {
    let room = || match request(control, 1, Class::Normal, millis) {
        Decision::Admitted(ticket) => Some(ticket),
        Decision::Waiting(..) | Decision::Refused(_) => None,
    };
    let tickets: Vec<_> = std::iter::from_fn(room).collect();
    let count = tickets.len();
    for ticket in tickets {
        control.finish(ticket, Outcome::Abandoned { cost: 0 }, at(millis), 0);
    }
    count
}

#[test]
fn the_limit_grows_with_the_ramp_from_a_tenth_to_the_whole() {
    let mut control = AdmissionControl::new(AdmissionSettings {
        limit: LimitBounds { initial: 100, min: 1, max: 100 },
        queue: QueueSettings { waiting_max: 0, ..QueueSettings::default() },
        ramp: at(9_000),
    });
    assert_eq!(fill(&mut control, 50_000), 10, "it has not begun");
    control.begin_ramp(at(60_000));
    for (millis, expected) in [(60_000, 10), (63_000, 40), (66_000, 70), (69_000, 100)] {
        assert_eq!(fill(&mut control, millis), expected, "{millis}");
    }
    assert_eq!(control.load().limit, 100_000);
}

#[test]
fn the_ramp_leaves_the_lowest_limit() {
    let mut control = AdmissionControl::new(AdmissionSettings {
        limit: LimitBounds { initial: 100, min: 32, max: 100 },
        queue: QueueSettings { waiting_max: 0, ..QueueSettings::default() },
        ramp: at(9_000),
    });
    assert_eq!(fill(&mut control, 0), 32);
}

#[test]
fn a_request_that_waits_for_too_long_is_refused() {
    let mut control = control(1, 1);
    let ticket = admitted(request(&mut control, 1, Class::Normal, 0));
    let Decision::Waiting(id, _) = request(&mut control, 1, Class::Normal, 0) else {
        panic!("it waits")
    };
    let Decision::Refused(refusal) = request(&mut control, 1, Class::Normal, 0) else {
        panic!("the queue is full")
    };
    assert_eq!(refusal.reason, RefusalReason::QueueFull);
    // The work ends after the time of the request is over.
    finish(&mut control, ticket, 200);
    match control.poll_event() {
        Some(Event::Refused(refused, refusal)) => {
            assert_eq!((refused, refusal.reason), (id, RefusalReason::WaitedTooLong));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(control.load().waiting, [0; 3]);
    assert_eq!(control.load().clients, 0);
}

#[test]
fn critical_requests_pass_work_of_other_classes() {
    let mut control = control(10, 10);
    let mut tickets = Vec::new();
    while let Decision::Admitted(ticket) = request(&mut control, 1, Class::Normal, 0) {
        tickets.push(ticket);
    }
    assert_eq!(tickets.len(), 10);
    for _ in 0..10 {
        tickets.push(admitted(request(&mut control, 1, Class::Critical, 0)));
    }
    assert!(matches!(request(&mut control, 1, Class::Critical, 0), Decision::Waiting(..)));
    // The place of normal work does not go to other normal work while the limit is exceeded.
    finish(&mut control, tickets.remove(0), 1);
    assert!(control.poll_event().is_none());
}

#[test]
fn a_client_far_below_its_share_is_admitted_at_the_limit_and_one_far_above_is_refused() {
    let mut control = control(20, 10);
    let mut tickets: Vec<_> =
        (0..20).map(|_| admitted(request(&mut control, 1, Class::Normal, 0))).collect();
    assert!(matches!(request(&mut control, 1, Class::Normal, 0), Decision::Waiting(..)));
    let quiet = admitted(request(&mut control, 2, Class::Normal, 0));
    let Decision::Refused(refusal) = request(&mut control, 1, Class::Normal, 0) else {
        panic!("the other client has work")
    };
    assert_eq!(refusal.reason, RefusalReason::ClientShare);
    tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
    assert!(
        matches!(request(&mut control, 2, Class::Normal, 0), Decision::Waiting(..)),
        "such work is a tenth of the limit at most"
    );
    finish(&mut control, quiet, 1);
}

#[test]
fn requests_of_a_greedy_client_give_way_while_the_processors_are_busy() {
    let mut control = control(1000, 0);
    let of = |client, class| Request { client, operation: 1, class, opens_stream: false };
    let work = [(1, 100), (2, 10)];
    for client in work.into_iter().flat_map(|(client, count)| [client].repeat(count)) {
        let _in_flight = admitted(request(&mut control, client, Class::Normal, 0));
    }
    let mut give_way = |has_spare: bool, request: Request| {
        let load = ProcessorLoad { has_spare, busy_part: None };
        control.set_processor_load(load, at(0));
        let key = control.begin_giving_way(&request);
        key.map(|key| control.end_giving_way(key)).is_some()
    };
    let (greedy, other) = (of(1, Class::Normal), of(2, Class::Normal));
    assert!(give_way(false, greedy) && !give_way(true, greedy));
    assert!(!give_way(false, other));
    assert!(give_way(false, of(1, Class::Sheddable)) && !give_way(false, of(1, Class::Critical)));
    assert!(!give_way(false, Request { opens_stream: true, ..greedy }), "streams have their own");
    let first = control.begin_giving_way(&greedy).expect("the client is greedy");
    assert_eq!(control.load().clients, 2);
    control.end_giving_way(first);
}

#[test]
fn the_refusals_of_a_greedy_client_do_not_make_others_wait_for_longer() {
    let mut control = control(20, 0);
    let mut tickets: Vec<_> =
        (0..20).map(|_| admitted(request(&mut control, 1, Class::Normal, 0))).collect();
    tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
    let refused = |control: &mut AdmissionControl, client| {
        let request = Request { client, operation: 1, ..Request::default() };
        match control.request(request, Duration::MAX, at(0), 59) {
            Decision::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let of_greedy = (0..1000).map(|_| refused(&mut control, 1)).last();
    let of_greedy = of_greedy.expect("it was refused");
    assert_eq!(of_greedy.reason, RefusalReason::ClientShare);
    assert_eq!(of_greedy.retry_after_seconds, 30);
    tickets.push(admitted(request(&mut control, 2, Class::Normal, 0)));
    let of_other = refused(&mut control, 2);
    assert_eq!(of_other.reason, RefusalReason::QueueFull);
    assert_eq!(of_other.retry_after_seconds, 2);
}

/// Teaches the control a heavy operation, 2, beside the usual one.
fn learn_heavy_operation(control: &mut AdmissionControl) {
    for (operation, cost) in [(1, 100), (2, 10_000)].repeat(2000) {
        let request = Request { client: 1, operation, ..Request::default() };
        let ticket = admitted(control.request(request, Duration::MAX, at(0), 0));
        control.finish(ticket, Outcome::Completed { cost }, at(1), 0);
    }
}

fn ask(control: &mut AdmissionControl, client: u64, operation: u64) -> Decision {
    let request = Request { client, operation, ..Request::default() };
    control.request(request, Duration::MAX, at(2), 0)
}

#[test]
fn requests_that_fit_do_not_wait_behind_a_heavy_one_of_another_client() {
    let mut control = control(10, 10);
    learn_heavy_operation(&mut control);
    let mut heavy: Vec<_> = (0..5).map(|_| admitted(ask(&mut control, 1, 2))).collect();
    assert!(matches!(ask(&mut control, 1, 2), Decision::Waiting(..)));
    // A tenth of the limit is for clients far below their share.
    let _light: Vec<_> = (0..10).map(|_| admitted(ask(&mut control, 3, 1))).collect();
    let Decision::Waiting(light, _) = ask(&mut control, 2, 1) else { panic!("it waits") };
    let ticket = heavy.remove(0);
    control.finish(ticket, Outcome::Unmeasured { cost: 10_000 }, at(3), 0);
    match control.poll_event() {
        Some(Event::Admitted(id, ..)) => assert_eq!(id, light),
        other => panic!("{other:?}"),
    }
    assert!(control.poll_event().is_none(), "there is no room for the heavy one");
}

#[test]
fn a_request_that_leaves_makes_room_for_the_one_behind_it() {
    let mut control = control(11, 10);
    learn_heavy_operation(&mut control);
    let _heavy: Vec<_> = (0..5).map(|_| admitted(ask(&mut control, 1, 2))).collect();
    let Decision::Waiting(heavy, _) = ask(&mut control, 1, 2) else { panic!("it waits") };
    let Decision::Waiting(light, _) = ask(&mut control, 1, 1) else { panic!("it waits") };
    assert!(control.leave(heavy, at(3), 0).is_some());
    match control.poll_event() {
        Some(Event::Admitted(id, ..)) => assert_eq!(id, light),
        other => panic!("{other:?}"),
    }
}

#[test]
fn shared_work_changes_neither_the_cost_nor_the_latency_of_an_operation() {
    let mut control = control(100, 10);
    let mut run = |outcome, millis: u64| {
        let ticket = admitted(ask(&mut control, 1, 1));
        control.finish(ticket, outcome, at(2 + millis), 0);
        (control.operations.baseline(1), control.operations.known_cost(1))
    };
    let learnt = (0..8).map(|_| run(Outcome::Completed { cost: 1000 }, 50)).last();
    let learnt = learnt.expect("it was executed");
    assert!(learnt.0.is_some() && learnt.1.is_some());
    for _ in 0..1000 {
        assert_eq!(run(Outcome::Shared, 5), learnt);
    }
}

#[test]
fn failed_work_counts_with_its_cost_and_with_a_latency_that_is_longer_than_usual() {
    let mut control = control(100, 10);
    let mut now = 0;
    let mut run = |outcome, latency| {
        let request = Request { client: 1, operation: 1, ..Request::default() };
        for _ in 0..1000 {
            let ticket = admitted(control.request(request, Duration::MAX, at(now), 0));
            now += latency;
            control.finish(ticket, outcome, at(now), 0);
        }
        (control.load().slow_down, control.operations.known_cost(1).unwrap_or_default())
    };
    let (slow_down, cost) = run(Outcome::Completed { cost: 100 }, 20);
    assert!(slow_down < 1.01 && cost.round() == 100.0, "{slow_down} {cost}");
    let (slow_down, cost) = run(Outcome::Failed { cost: 300 }, 1);
    assert!(slow_down < 1.01 && cost.round() == 300.0, "often quick: {slow_down} {cost}");
    let (slow_down, _) = run(Outcome::Failed { cost: 300 }, 100);
    assert!(slow_down > 2.0, "{slow_down}");
}

#[test]
fn the_cost_of_work_that_was_given_up_counts_if_it_is_more_than_usual() {
    let mut control = control(100, 10);
    let mut run = |operation, outcome| {
        for _ in 0..1000 {
            let ticket = admitted(ask(&mut control, 1, operation));
            control.finish(ticket, outcome, at(2), 0);
        }
        control.operations.look_up(operation).0
    };
    assert_eq!(run(1, Outcome::Completed { cost: 100 }), UNITS);
    assert_eq!(run(1, Outcome::Abandoned { cost: 1 }), UNITS, "only the beginning was done");
    assert_eq!(run(2, Outcome::Abandoned { cost: 1 }), UNITS);
    let weight = run(3, Outcome::Abandoned { cost: 10_000 });
    assert!(weight > UNITS, "it is never done, and not cheap: {weight}");
}

#[test]
fn cheap_operations_take_a_small_part_of_the_limit() {
    let mut control = control(10, 0);
    let run = |control: &mut AdmissionControl, operation, cost| {
        let request = Request { client: 1, operation, ..Request::default() };
        let ticket = admitted(control.request(request, Duration::MAX, at(0), 0));
        control.finish(ticket, Outcome::Completed { cost }, at(1), 0);
    };
    for _ in 0..1000 {
        run(&mut control, 1, 10);
        run(&mut control, 2, 1000);
    }
    let mut count = |operation| {
        let mut tickets = Vec::new();
        let request = Request { client: 1, operation, ..Request::default() };
        while let Decision::Admitted(ticket) = control.request(request, Duration::MAX, at(1), 0) {
            tickets.push(ticket);
        }
        let count = tickets.len();
        for ticket in tickets {
            control.finish(ticket, Outcome::Abandoned { cost: 0 }, at(1), 0);
        }
        count
    };
    assert_eq!(count(1), 100);
    assert_eq!(count(2), 5);
}

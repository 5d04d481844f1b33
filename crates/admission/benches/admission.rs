//! The time of one admission with its end. Budget: 1 µs.

use std::time::Duration;

use admission::{
    AdmissionControl, AdmissionSettings, Bulkhead, Class, Decision, Outcome, Request, RouterWork,
    UNITS,
};

fn main() {
    divan::main();
}

/// Admits requests of this number of clients and operations, each of which ends while a hundred are in flight.
#[divan::bench(args = [1, 1000])]
fn admit_and_finish(bencher: divan::Bencher<'_, '_>, keys: u64) {
    let mut control = AdmissionControl::new(AdmissionSettings::default());
    let (mut number, mut now) = (0_u64, Duration::ZERO);
    let mut in_flight = std::collections::VecDeque::new();
    bencher.bench_local(|| {
        number += 1;
        now += Duration::from_micros(10);
        let key = (number % keys).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let request = Request { client: key, operation: key, ..Request::default() };
        if let Decision::Admitted(ticket) = control.request(request, Duration::MAX, now, number) {
            in_flight.push_back(ticket);
        }
        if in_flight.len() > 100
            && let Some(ticket) = in_flight.pop_front()
        {
            control.finish(ticket, Outcome::Completed { cost: 100 }, now, number);
        }
    });
}

/// Refuses requests: the limit is reached and the queue is full.
#[divan::bench]
fn refuse(bencher: divan::Bencher<'_, '_>) {
    let mut control = AdmissionControl::new(AdmissionSettings::default());
    let request = Request { client: 1, operation: 1, ..Request::default() };
    let mut tickets = Vec::new();
    loop {
        match control.request(request, Duration::MAX, Duration::ZERO, 0) {
            Decision::Admitted(ticket) => tickets.push(ticket),
            Decision::Waiting(..) => {}
            Decision::Refused(_) => break,
        }
    }
    bencher.bench_local(|| control.request(request, Duration::MAX, Duration::ZERO, 0));
}

/// Takes a place in the share of a subgraph, sends a request to it, and gives the place back.
#[divan::bench]
fn use_a_subgraph(bencher: divan::Bencher<'_, '_>) {
    let mut bulkhead = Bulkhead::default();
    let (mut now, limit) = (Duration::ZERO, 500 * u64::from(UNITS));
    let mut work = RouterWork { limit, arrived: 0 };
    bencher.bench_local(|| {
        now += Duration::from_micros(10);
        work.arrived += u64::from(UNITS);
        let place = bulkhead.enter(Class::Normal, UNITS, 0.5, work, now);
        bulkhead.begin_request(now);
        bulkhead.end_request(now, true, now + Duration::from_micros(5));
        if let Some(place) = place {
            bulkhead.leave(place);
        }
    });
}

//! Random conditions, one after the other: how much is offered of which class, whether requests open streams, and how
//! long operations take. Whatever they are, the work per second does not fall far below what is possible, no client and
//! no kind of request starves, and the limit comes to rest.

use admission::Class;

use crate::bottleneck::{Operation, Phase, PhaseReport, Spread, Stream};
use crate::processors::Processors;
use crate::{REGRESSIONS, for_cases_and, new_simulation, phase};

/// The clients. Each sends an equal part of everything.
const CLIENTS: u64 = 3;

/// The critical work that is offered at most, as a part of what the bottleneck can do: only a small part of the load
/// may be critical.
const CRITICAL_MAX: f64 = 0.2;

/// The relative standard deviation of the limit, without probes, in the last 30 s of constant conditions. In 360 of
/// them it was 0.07 in the middle, 0.38 at most in all but one, and 0.51 in that. Random service times make most of it,
/// and a floor that is measured anew the rest.
const SPREAD_MAX: f64 = 0.55;

/// One stream is opened for ten queries of its class, or for 18 if it is so heavy that it has to wait for room.
const QUERIES_PER_STREAM_MAX: u64 = 20;

/// The part of the requests of an operation that is served, relative to that of all of its class: operations of which
/// each weighs ten times as much as others are served less. At ten times the load it was a tenth. While newer requests
/// took the turn of heavy ones, it was four thousandths.
const OPERATION_SHARE_MIN: f64 = 0.03;

/// The streams that are opened in any case: one in three seconds.
const STREAMS_MIN: u64 = 10;

/// Requests of one class that open streams, or do not.
#[derive(Clone, Copy, Debug)]
struct Kind {
    class: Class,
    opens_streams: bool,
    /// The work that is offered, as a part of what the bottleneck can do.
    load: f64,
}

/// Chooses what is offered. All together is `load`, half of the time without classes and streams.
fn random_kinds(load: f64, random: &mut fastrand::Rng) -> Vec<Kind> {
    let is_plain = random.bool();
    let mut choose = |parts: [f64; 3]| load * parts[random.usize(..3)];
    let critical = choose([0.0, 0.02, 0.05]).min(CRITICAL_MAX);
    let sheddable = choose([0.0, 0.2, 0.5]);
    let streams = choose([0.0, 0.1, 0.3]);
    let sheddable_streams = choose([0.0, 0.0, 0.1]);
    if is_plain {
        return vec![Kind { class: Class::Normal, opens_streams: false, load }];
    }
    let others = [
        (Class::Critical, false, critical),
        (Class::Sheddable, false, sheddable),
        (Class::Normal, true, streams),
        (Class::Sheddable, true, sheddable_streams),
    ];
    let rest = load - others.iter().map(|it| it.2).sum::<f64>();
    let all = std::iter::once((Class::Normal, false, rest)).chain(others);
    all.filter(|it| it.2 > 0.0)
        .map(|(class, opens_streams, load)| Kind { class, opens_streams, load })
        .collect()
}

/// The operations of a run.
struct Operations {
    queries: Vec<Operation>,
    subscription: Operation,
}

impl Operations {
    fn random(random: &mut fastrand::Rng) -> Self {
        let mut operation = |key: u64, opens_stream| Operation {
            key: 100 + key,
            is_unique: false,
            service: 0.005 + 0.05 * random.f64(),
            elsewhere: 0.1 * random.f64(),
            spread: [Spread::Fixed, Spread::Exponential, Spread::Bimodal][random.usize(..3)],
            cost: 50 + random.u64(..500),
            opens_stream,
        };
        let queries = (0..3).map(|key| operation(key, false)).collect();
        Self { queries, subscription: operation(3, true) }
    }

    fn of(&self, kind: Kind) -> &[Operation] {
        match kind.opens_streams {
            true => std::slice::from_ref(&self.subscription),
            false => &self.queries,
        }
    }

    /// Returns the streams of requests of a kind: of each operation as many requests, divided among all clients.
    fn streams(&self, kind: Kind, servers: usize, service_factor: f64) -> Vec<Stream> {
        let operations = self.of(kind);
        let work = operations.iter().map(|it| it.service).sum::<f64>() * service_factor;
        let rate = servers as f64 * kind.load / work / CLIENTS as f64;
        let of_client = |client| {
            operations.iter().map(move |&operation| Stream {
                client,
                class: kind.class,
                operation,
                rate,
            })
        };
        (0..CLIENTS).flat_map(of_client).collect()
    }
}

/// What was offered and done of a kind, or of one operation of it.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    offered: u64,
    served: u64,
    /// The time at the bottleneck, in seconds.
    work: f64,
}

/// Adds the reports of some streams.
fn sum(report: &PhaseReport, streams: &[Stream], is_counted: impl Fn(&Stream) -> bool) -> Sum {
    let mut sum = Sum::default();
    for (report, stream) in report.streams.iter().zip(streams).filter(|it| is_counted(it.1)) {
        let served = report.latencies.len() as u64;
        sum.offered += report.offered;
        sum.served += served;
        sum.work += served as f64 * stream.operation.service;
    }
    sum
}

#[test]
fn any_sequence_of_conditions_keeps_the_goodput() {
    for_cases_and(REGRESSIONS, Processors::ALL, |processors, seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let servers = 4 + random.usize(..30);
        let operations = Operations::random(&mut random);
        let mut simulation = new_simulation(processors, seed);
        for step in 0..6 {
            let service_factor = [1.0, 1.0, 2.0][random.usize(..3)];
            let elsewhere_factor = [1.0, 1.0, 4.0][random.usize(..3)];
            let load = [0.3, 0.7, 1.0, 2.0, 5.0, 10.0][random.usize(..6)];
            let kinds = random_kinds(load, &mut random);
            let streams: Vec<Stream> = kinds
                .iter()
                .flat_map(|kind| operations.streams(*kind, servers, service_factor))
                .collect();
            let conditions = Phase {
                settling: 50.0,
                service_factor,
                elsewhere_factor,
                ..phase(80.0, servers, streams)
            };
            let report = simulation.run(&conditions);
            let outcome = Outcome { kinds, conditions, report, load };
            println!("seed {seed} {processors:?} step {step}: {outcome}");
            outcome.check();
        }
    });
}

/// What came of conditions.
struct Outcome {
    kinds: Vec<Kind>,
    conditions: Phase,
    report: PhaseReport,
    load: f64,
}

impl Outcome {
    fn sum(&self, is_counted: impl Fn(&Stream) -> bool) -> Sum {
        sum(&self.report, &self.conditions.streams, is_counted)
    }

    fn of_kind(&self, kind: Kind) -> Sum {
        self.sum(|it| it.class == kind.class && it.operation.opens_stream == kind.opens_streams)
    }

    /// Returns work as a part of what the bottleneck can do.
    fn part(&self, sum: Sum) -> f64 {
        let Phase { service_factor, servers, .. } = self.conditions;
        sum.work * service_factor / self.report.seconds / servers as f64
    }

    fn check(&self) {
        let all = self.sum(|_| true);
        assert!(self.part(all) >= 0.85 * self.load.min(1.0), "{self}");
        for client in 0..CLIENTS {
            let served = self.sum(|it| it.client == client).served;
            assert!(served as f64 >= 0.5 * all.served as f64 / CLIENTS as f64, "{self}");
        }
        let (_, spread) = self.report.limit_spread_beside_probes();
        assert!(spread <= SPREAD_MAX, "{self}");
        for kind in &self.kinds {
            self.check_kind(*kind);
        }
    }

    /// Checks that requests of a kind do not starve.
    fn check_kind(&self, kind: Kind) {
        let sum = self.of_kind(kind);
        if kind.opens_streams {
            let queries = self.of_kind(Kind { opens_streams: false, ..kind }).served;
            let least = u64::max(queries / QUERIES_PER_STREAM_MAX, STREAMS_MIN);
            assert!(sum.served >= least.min(sum.offered / 2), "{kind:?}: {self}");
            return;
        }
        let least = match kind.class {
            Class::Critical => 0.75 * kind.load,
            Class::Normal => f64::min(0.4 * kind.load, 0.1),
            Class::Sheddable => f64::min(0.4 * kind.load, 0.02),
        };
        assert!(self.part(sum) >= least, "{kind:?}: {self}");
        if kind.class == Class::Sheddable {
            return;
        }
        for operation in self.of(kind) {
            let own = self.sum(|it| it.class == kind.class && it.operation.key == operation.key);
            let share = own.served as f64 / own.offered as f64;
            let of_kind = sum.served as f64 / sum.offered as f64;
            assert!(
                own.offered < 50 || share >= OPERATION_SHARE_MIN * of_kind,
                "{}: {self}",
                operation.key
            );
        }
    }

    /// Returns the operations of a kind.
    fn of(&self, kind: Kind) -> impl Iterator<Item = Operation> {
        let streams = self.conditions.streams.iter();
        let is_of_kind = move |it: &&Stream| {
            it.client == 0
                && it.class == kind.class
                && it.operation.opens_stream == kind.opens_streams
        };
        streams.filter(is_of_kind).map(|it| it.operation)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Phase { servers, service_factor, elsewhere_factor, .. } = self.conditions;
        let all = self.sum(|_| true);
        let (limit, spread) = self.report.limit_spread_beside_probes();
        let p99 = self.report.total().quantile(0.99);
        write!(
            f,
            "{servers} servers, load {}, service ×{service_factor}, elsewhere ×{elsewhere_factor}: work {:.3}, \
             p99 {p99:.3}, limit {limit:.0} ± {spread:.3}",
            self.load,
            self.part(all)
        )?;
        for kind in &self.kinds {
            let sum = self.of_kind(*kind);
            let (class, streams) =
                (kind.class.name(), if kind.opens_streams { " streams" } else { "" });
            write!(f, ", {class}{streams} {:.3} of {:.3}", self.part(sum), kind.load)?;
            for operation in self.of(*kind) {
                let of = self.sum(|it| it.class == kind.class && it.operation.key == operation.key);
                write!(f, " [{} of {}, cost {}]", of.served, of.offered, operation.cost)?;
            }
        }
        Ok(())
    }
}

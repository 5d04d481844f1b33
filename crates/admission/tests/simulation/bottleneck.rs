//! A service in virtual time, with [`AdmissionControl`] in front: requests arrive at random, wait for a part that any
//! number of requests can use at the same time (other services), and for a part that only a few can (the bottleneck).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use admission::{
    AdmissionControl, AdmissionSettings, Class, Decision, Event, Outcome, ProcessorLoad, Request,
    Ticket, UNITS, WaiterId,
};

use crate::processors::{ProcessorWatch, Processors};

/// How the service times of an operation vary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    /// Every time is the mean.
    Fixed,
    /// Exponential around the mean.
    Exponential,
    /// One in ten takes 5.5 times the mean, the others half of it.
    Bimodal,
}

/// An operation of the service. All times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) key: u64,
    /// True if each request has a key of its own: its text contains values.
    pub(crate) is_unique: bool,
    /// The time at the bottleneck.
    pub(crate) service: f64,
    /// The time elsewhere.
    pub(crate) elsewhere: f64,
    pub(crate) spread: Spread,
    /// The cost that the control learns.
    pub(crate) cost: u64,
    /// True if the operation opens a stream.
    pub(crate) opens_stream: bool,
}

/// Requests of one client that arrive at random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) client: u64,
    pub(crate) class: Class,
    pub(crate) operation: Operation,
    /// Requests per second.
    pub(crate) rate: f64,
}

/// A stretch of time with constant conditions.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) seconds: f64,
    /// Seconds at the start of the phase that are not counted.
    pub(crate) settling: f64,
    pub(crate) streams: Vec<Stream>,
    /// The number of requests that the bottleneck serves at the same time.
    pub(crate) servers: usize,
    /// The factors by which the bottleneck and the rest are slower.
    pub(crate) service_factor: f64,
    pub(crate) elsewhere_factor: f64,
    /// The part of the bottleneck that handshakes at their pace take. While requests are slow, they take a quarter of
    /// it.
    pub(crate) handshakes: f64,
}

/// The counts of a stream, in the order of the phase's streams.
#[derive(Clone, Default, Debug)]
pub(crate) struct StreamReport {
    pub(crate) offered: u64,
    pub(crate) refused: u64,
    /// The seconds from arrival to completion, sorted.
    pub(crate) latencies: Vec<f64>,
}

impl StreamReport {
    pub(crate) fn served(&self) -> f64 {
        self.latencies.len() as f64 / (self.offered as f64).max(1.0)
    }

    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let index = (self.latencies.len() as f64 * quantile) as usize;
        self.latencies.get(index).or(self.latencies.last()).copied().unwrap_or(f64::INFINITY)
    }
}

/// The counts of a phase.
#[derive(Debug)]
pub(crate) struct PhaseReport {
    pub(crate) seconds: f64,
    pub(crate) streams: Vec<StreamReport>,
    /// The limit in average operations, every 100 ms.
    pub(crate) limits: Vec<f64>,
    /// The same without the probes, which lower it for a moment.
    pub(crate) limits_beside_probes: Vec<f64>,
    /// The parts of their pace that handshakes had.
    handshake_parts: Vec<f64>,
}

impl PhaseReport {
    /// Returns the requests per second that were completed within a time.
    pub(crate) fn goodput(&self, within: f64) -> f64 {
        let good = self.streams.iter().flat_map(|it| &it.latencies).filter(|it| **it <= within);
        good.count() as f64 / self.seconds
    }

    /// Returns all streams as one.
    pub(crate) fn total(&self) -> StreamReport {
        let mut total = StreamReport::default();
        for stream in &self.streams {
            total.offered += stream.offered;
            total.refused += stream.refused;
            total.latencies.extend(&stream.latencies);
        }
        total.latencies.sort_by(f64::total_cmp);
        total
    }

    /// Returns the part of the handshakes at their full pace that began.
    pub(crate) fn handshakes(&self) -> f64 {
        self.handshake_parts.iter().sum::<f64>() / self.handshake_parts.len() as f64
    }

    /// Returns mean and relative standard deviation of the limit.
    pub(crate) fn limit_spread(&self) -> (f64, f64) {
        spread(&self.limits)
    }

    /// Returns the same of the limit without the probes.
    pub(crate) fn limit_spread_beside_probes(&self) -> (f64, f64) {
        spread(&self.limits_beside_probes)
    }
}

fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt() / mean)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Arrive(usize),
    EndElsewhere(u64),
    EndService(u64),
    EndWait(u64),
    Sample,
    WatchProcessors,
    Handshake,
}

struct Job {
    arrived: f64,
    stream: usize,
    phase: usize,
    operation: Operation,
    ticket: Option<Ticket>,
    waiter: Option<WaiterId>,
}

/// The simulation.
pub(crate) struct Simulation {
    control: AdmissionControl,
    processors: Processors,
    watch: ProcessorWatch,
    /// The time for which servers were busy since the last measurement, summed over all of them.
    busy_seconds: f64,
    /// The part of the bottleneck that handshakes take now.
    handshakes: f64,
    /// The parts of their pace that they had, one every 20 ms.
    handshake_parts: Vec<f64>,
    random: fastrand::Rng,
    now: f64,
    steps: BinaryHeap<Reverse<(Duration, u64, Step)>>,
    order: u64,
    jobs: BTreeMap<u64, Job>,
    waiting: HashMap<WaiterId, u64>,
    queue: VecDeque<u64>,
    serving: usize,
    next_job: u64,
    phases: usize,
    phase: Phase,
    phase_started: f64,
    report: Vec<StreamReport>,
    limits: Vec<f64>,
    limits_beside_probes: Vec<f64>,
}

impl Simulation {
    pub(crate) fn new(settings: AdmissionSettings, processors: Processors, seed: u64) -> Self {
        let phase = Phase {
            seconds: 0.0,
            settling: 0.0,
            streams: Vec::new(),
            servers: 1,
            service_factor: 1.0,
            elsewhere_factor: 1.0,
            handshakes: 0.0,
        };
        let mut simulation = Self {
            control: AdmissionControl::new(settings),
            processors,
            watch: ProcessorWatch::default(),
            busy_seconds: 0.0,
            handshakes: 0.0,
            handshake_parts: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            now: 0.0,
            steps: BinaryHeap::new(),
            order: 0,
            jobs: BTreeMap::new(),
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            serving: 0,
            next_job: 0,
            phases: 0,
            phase,
            phase_started: 0.0,
            report: Vec::new(),
            limits: Vec::new(),
            limits_beside_probes: Vec::new(),
        };
        if processors != Processors::Unknown {
            simulation.schedule(1.0, Step::WatchProcessors);
        }
        simulation
    }

    /// Runs one phase. Work of the phase before continues.
    pub(crate) fn run(&mut self, phase: &Phase) -> PhaseReport {
        self.phases += 1;
        self.phase = phase.clone();
        self.phase_started = self.now;
        self.report = vec![StreamReport::default(); phase.streams.len()];
        (self.limits, self.limits_beside_probes) = (Vec::new(), Vec::new());
        self.steps.retain(|Reverse((_, _, step))| {
            !matches!(step, Step::Arrive(_) | Step::Sample | Step::Handshake)
        });
        for stream in 0..phase.streams.len() {
            self.schedule_arrival(stream);
        }
        self.schedule(0.1, Step::Sample);
        self.handshakes = 0.0;
        if phase.handshakes > 0.0 {
            self.schedule(0.0, Step::Handshake);
        }
        let end = self.now + phase.seconds;
        while let Some(Reverse((at, _, step))) = self.steps.peek().copied()
            && at.as_secs_f64() <= end
        {
            self.steps.pop();
            self.advance(at.as_secs_f64());
            self.step(step);
        }
        self.advance(end);
        let mut streams = std::mem::take(&mut self.report);
        for stream in &mut streams {
            stream.latencies.sort_by(f64::total_cmp);
        }
        let limits = std::mem::take(&mut self.limits);
        let limits_beside_probes = std::mem::take(&mut self.limits_beside_probes);
        let seconds = phase.seconds - phase.settling;
        let handshake_parts = std::mem::take(&mut self.handshake_parts);
        PhaseReport { seconds, streams, limits, limits_beside_probes, handshake_parts }
    }

    fn advance(&mut self, now: f64) {
        self.busy_seconds += self.serving as f64 * (now - self.now);
        self.now = now;
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    fn schedule(&mut self, after: f64, step: Step) {
        self.schedule_at(Duration::from_secs_f64(self.now + after), step);
    }

    fn schedule_at(&mut self, at: Duration, step: Step) {
        self.order += 1;
        self.steps.push(Reverse((at, self.order, step)));
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.f64()).ln()
    }

    fn schedule_arrival(&mut self, stream: usize) {
        let rate = self.phase.streams[stream].rate;
        if rate > 0.0 {
            let after = self.exponential(1.0 / rate);
            self.schedule(after, Step::Arrive(stream));
        }
    }

    fn varied(&mut self, mean: f64, spread: Spread) -> f64 {
        match spread {
            Spread::Fixed => mean,
            Spread::Exponential => self.exponential(mean),
            Spread::Bimodal if self.random.u32(..10) == 0 => mean * 5.5,
            Spread::Bimodal => mean * 0.5,
        }
    }

    /// True if requests that arrive now are counted.
    fn counts(&self, arrived: f64) -> bool {
        arrived - self.phase_started >= self.phase.settling
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(stream) => self.arrive(stream),
            Step::EndElsewhere(job) => {
                self.queue.push_back(job);
                self.serve();
            }
            Step::EndService(job) => {
                self.serving -= 1;
                self.complete(job);
                self.serve();
            }
            Step::EndWait(job) => {
                let Some(waiter) = self.jobs.get(&job).and_then(|it| it.waiter) else { return };
                let random = self.random.u64(..);
                let left = self.control.leave(waiter, self.time(), random);
                assert!(left.is_some(), "a waiting request is in the queue");
                self.refuse(job);
                self.handle_events();
            }
            Step::Sample => {
                if self.counts(self.now) {
                    let operations = |units: u64| units as f64 / f64::from(UNITS);
                    self.limits.push(operations(self.control.load().limit));
                    self.limits_beside_probes.push(operations(self.control.limit()));
                }
                self.schedule(0.1, Step::Sample);
            }
            Step::Handshake => {
                self.control.note_other_work(self.time());
                let part = if self.control.is_pressed() { 0.25 } else { 1.0 };
                self.handshakes = self.phase.handshakes * part;
                self.handshake_parts.push(part);
                self.schedule(0.02, Step::Handshake);
            }
            Step::WatchProcessors => {
                self.watch_processors();
                self.schedule(1.0, Step::WatchProcessors);
            }
        }
        self.check();
    }

    /// Measures the last second.
    fn watch_processors(&mut self) {
        let busy_seconds = std::mem::take(&mut self.busy_seconds);
        let busy_part = match self.processors {
            Processors::Bottleneck => busy_seconds / self.phase.servers as f64,
            Processors::Unknown | Processors::Idle => 0.0,
        };
        let has_work = self.control.load().in_flight > 0;
        let has_spare = self.watch.has_spare(has_work, busy_part);
        let is_known = self.processors != Processors::Unknown;
        let load = ProcessorLoad { has_spare, busy_part: is_known.then_some(busy_part) };
        self.control.set_processor_load(load, self.time());
    }

    fn check(&self) {
        let load = self.control.load();
        let waiting = load.waiting.iter().sum::<u64>() as usize;
        assert_eq!(waiting, self.waiting.len());
        let admitted = self.jobs.len() - waiting;
        assert_eq!(load.requests.iter().sum::<u64>() as usize, admitted);
    }

    fn arrive(&mut self, index: usize) {
        self.schedule_arrival(index);
        let Stream { client, class, operation, .. } = self.phase.streams[index];
        if self.counts(self.now) {
            self.report[index].offered += 1;
        }
        let job = self.next_job;
        self.next_job += 1;
        let (arrived, phase) = (self.now, self.phases);
        let entry = Job { arrived, stream: index, phase, operation, ticket: None, waiter: None };
        self.jobs.insert(job, entry);
        let key = if operation.is_unique { self.random.u64(..) } else { operation.key };
        let request = Request { client, operation: key, class, ..Request::default() };
        let random = self.random.u64(..);
        match self.control.request(request, Duration::MAX, self.time(), random) {
            Decision::Admitted(ticket) => self.begin(job, ticket),
            Decision::Refused(_) => self.refuse(job),
            Decision::Waiting(waiter, until) => {
                self.job(job).waiter = Some(waiter);
                self.waiting.insert(waiter, job);
                self.schedule_at(until, Step::EndWait(job));
            }
        }
        self.handle_events();
    }

    fn job(&mut self, job: u64) -> &mut Job {
        self.jobs.get_mut(&job).expect("the job exists until it ends")
    }

    fn begin(&mut self, job: u64, ticket: Ticket) {
        let entry = self.job(job);
        entry.ticket = Some(ticket);
        if let Some(waiter) = entry.waiter.take() {
            self.waiting.remove(&waiter);
        }
        let Operation { elsewhere, spread, .. } = self.job(job).operation;
        let after = self.varied(elsewhere * self.phase.elsewhere_factor, spread);
        self.schedule(after, Step::EndElsewhere(job));
    }

    fn refuse(&mut self, job: u64) {
        let entry = self.jobs.remove(&job).expect("the job exists until it ends");
        if let Some(waiter) = entry.waiter {
            self.waiting.remove(&waiter);
        }
        if entry.phase == self.phases && self.counts(entry.arrived) {
            self.report[entry.stream].refused += 1;
        }
    }

    fn serve(&mut self) {
        while self.serving < self.phase.servers
            && let Some(job) = self.queue.pop_front()
        {
            self.serving += 1;
            let Operation { service, spread, .. } = self.job(job).operation;
            let after =
                self.varied(service * self.phase.service_factor / (1.0 - self.handshakes), spread);
            self.schedule(after, Step::EndService(job));
        }
    }

    fn complete(&mut self, job: u64) {
        let entry = self.jobs.remove(&job).expect("the job exists until it ends");
        let (now, time, random) = (self.now, self.time(), self.random.u64(..));
        if entry.phase == self.phases && self.counts(entry.arrived) {
            self.report[entry.stream].latencies.push(now - entry.arrived);
        }
        let ticket = entry.ticket.expect("a job that runs was admitted");
        let cost = entry.operation.cost;
        let outcome = match entry.operation.opens_stream {
            true => Outcome::Opened { cost },
            false => Outcome::Completed { cost },
        };
        self.control.finish(ticket, outcome, time, random);
        self.handle_events();
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.control.poll_event() {
            match event {
                Event::Admitted(waiter, ticket, _) => {
                    let job = self.waiting[&waiter];
                    self.begin(job, ticket);
                }
                Event::Refused(waiter, _) => {
                    let job = self.waiting[&waiter];
                    self.refuse(job);
                }
            }
        }
    }
}

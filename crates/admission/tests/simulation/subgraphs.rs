//! A router in virtual time with [`AdmissionControl`] in front and a [`Bulkhead`] for each of its subgraphs. Operations
//! arrive at random and visit the subgraphs that they need one after the other. A subgraph does a few requests at a
//! time, and may take longer for each, or hang.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use admission::{
    AdmissionControl, AdmissionSettings, Bulkhead, BulkheadPlace, Class, Decision, Event, Outcome,
    ProcessorLoad, Request, RouterWork, Ticket, WaiterId,
};

use crate::processors::{ProcessorWatch, Processors};

/// The time after which the router gives up a request to a subgraph, in seconds.
const TIMEOUT: f64 = 5.0;

/// The cost of every operation.
const COST: u64 = 100;

/// A subgraph under certain conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// The number of requests that it does at the same time.
    pub(crate) parallel: usize,
    /// The mean time of a request, in seconds. Infinite: it hangs.
    pub(crate) seconds: f64,
}

/// Operations that arrive at random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// The subgraphs that they need, in this order.
    pub(crate) needs: &'static [usize],
    pub(crate) per_second: f64,
}

/// The counts of one kind of traffic.
#[derive(Clone, Default, Debug)]
pub(crate) struct TrafficReport {
    pub(crate) offered: u64,
    /// Complete responses.
    pub(crate) complete: u64,
    /// Responses without the parts of subgraphs that were left out at once, or did not respond in time.
    pub(crate) left_out: u64,
    pub(crate) timed_out: u64,
    /// Operations that the control has refused.
    pub(crate) refused: u64,
    /// The complete responses of each second, by the time at which they were complete.
    pub(crate) by_second: Vec<u64>,
}

impl TrafficReport {
    pub(crate) fn complete_share(&self) -> f64 {
        self.complete as f64 / (self.offered as f64).max(1.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Arrive(usize),
    /// A subgraph has done a request of this job, which was its visit with this number.
    Respond(u64, usize),
    TimeOut(u64, usize),
    EndWait(u64),
    WatchProcessors,
}

struct Job {
    traffic: usize,
    arrived: f64,
    ticket: Option<Ticket>,
    waiter: Option<WaiterId>,
    places: Vec<(usize, BulkheadPlace)>,
    closed: Vec<usize>,
    visit: usize,
    /// The time at which the request of this visit began.
    began: Duration,
    has_timed_out: bool,
}

struct SubgraphState {
    server: Server,
    serving: usize,
    queue: VecDeque<(u64, usize)>,
    bulkhead: Bulkhead,
}

/// The simulation.
pub(crate) struct Router {
    control: AdmissionControl,
    watch: ProcessorWatch,
    subgraphs: Vec<SubgraphState>,
    /// The share of the limit that a slow subgraph may hold.
    share: f64,
    /// The units of work that have arrived.
    arrived: u64,
    random: fastrand::Rng,
    now: f64,
    steps: BinaryHeap<Reverse<(Duration, u64, Step)>>,
    order: u64,
    jobs: BTreeMap<u64, Job>,
    waiting: HashMap<WaiterId, u64>,
    next_job: u64,
    traffic: Vec<Traffic>,
    started: f64,
    counted_from: f64,
    report: Vec<TrafficReport>,
}

impl Router {
    /// Creates a router that only waits for its subgraphs. It measures that unless its processors are unknown.
    pub(crate) fn new(
        settings: AdmissionSettings,
        processors: Processors,
        subgraphs: usize,
        share: f64,
        seed: u64,
    ) -> Self {
        let idle = Server { parallel: 1, seconds: 0.0 };
        let subgraph = || SubgraphState {
            server: idle,
            serving: 0,
            queue: VecDeque::new(),
            bulkhead: Bulkhead::default(),
        };
        let mut router = Self {
            control: AdmissionControl::new(settings),
            watch: ProcessorWatch::default(),
            subgraphs: (0..subgraphs).map(|_| subgraph()).collect(),
            share,
            arrived: 0,
            random: fastrand::Rng::with_seed(seed),
            now: 0.0,
            steps: BinaryHeap::new(),
            order: 0,
            jobs: BTreeMap::new(),
            waiting: HashMap::new(),
            next_job: 0,
            traffic: Vec::new(),
            started: 0.0,
            counted_from: 0.0,
            report: Vec::new(),
        };
        if processors != Processors::Unknown {
            // A router has been measured before it is ready.
            router.watch_processors();
        }
        router
    }

    /// Runs for some seconds under these conditions, of which the first `settling` seconds are not counted. Work in
    /// flight continues.
    pub(crate) fn run(
        &mut self,
        seconds: f64,
        settling: f64,
        servers: &[Server],
        traffic: &[Traffic],
    ) -> Vec<TrafficReport> {
        for (state, server) in self.subgraphs.iter_mut().zip(servers) {
            state.server = *server;
        }
        self.traffic = traffic.to_vec();
        self.started = self.now;
        self.counted_from = self.now + settling;
        let by_second = vec![0; (seconds - settling).ceil() as usize];
        self.report = vec![TrafficReport { by_second, ..TrafficReport::default() }; traffic.len()];
        self.steps.retain(|Reverse((_, _, step))| !matches!(step, Step::Arrive(_)));
        // A subgraph that hangs has accepted requests that it never answers.
        for subgraph in 0..self.subgraphs.len() {
            self.serve(subgraph);
        }
        for index in 0..traffic.len() {
            self.schedule_arrival(index);
        }
        let end = self.now + seconds;
        while let Some(Reverse((at, _, step))) = self.steps.peek().copied()
            && at.as_secs_f64() <= end
        {
            self.steps.pop();
            self.now = at.as_secs_f64();
            self.step(step);
        }
        self.now = end;
        std::mem::take(&mut self.report)
    }

    /// The part of the limit that operations in flight hold that need a subgraph.
    pub(crate) fn held_share(&self, subgraph: usize) -> f64 {
        self.subgraphs[subgraph].bulkhead.held() as f64 / self.control.limit() as f64
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    fn schedule(&mut self, after: f64, step: Step) {
        self.order += 1;
        self.steps.push(Reverse((Duration::from_secs_f64(self.now + after), self.order, step)));
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.f64()).ln()
    }

    fn schedule_arrival(&mut self, index: usize) {
        let rate = self.traffic[index].per_second;
        if rate > 0.0 {
            let after = self.exponential(1.0 / rate);
            self.schedule(after, Step::Arrive(index));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(index) => self.arrive(index),
            Step::Respond(job, visit) => {
                if let Some(subgraph) = self.subgraph_of(job, visit) {
                    self.end_visit(job, subgraph, true);
                }
            }
            Step::TimeOut(job, visit) => {
                if let Some(subgraph) = self.subgraph_of(job, visit) {
                    self.jobs.get_mut(&job).unwrap().has_timed_out = true;
                    self.end_visit(job, subgraph, false);
                }
            }
            Step::EndWait(job) => {
                let Some(waiter) = self.jobs.get(&job).and_then(|it| it.waiter) else { return };
                let random = self.random.u64(..);
                self.control.leave(waiter, self.time(), random);
                self.refuse(job);
                self.handle_events();
            }
            Step::WatchProcessors => self.watch_processors(),
        }
    }

    fn watch_processors(&mut self) {
        let has_spare = self.watch.has_spare(self.control.load().in_flight > 0, 0.0);
        let load = ProcessorLoad { has_spare, busy_part: Some(0.0) };
        self.control.set_processor_load(load, self.time());
        self.schedule(1.0, Step::WatchProcessors);
    }

    /// Returns the subgraph that a job visits, if this is still the visit with that number.
    fn subgraph_of(&self, job: u64, visit: usize) -> Option<usize> {
        let job = self.jobs.get(&job).filter(|it| it.visit == visit)?;
        self.traffic.get(job.traffic)?.needs.get(visit).copied()
    }

    fn counts(&self) -> bool {
        self.now >= self.counted_from
    }

    fn arrive(&mut self, index: usize) {
        self.schedule_arrival(index);
        if self.counts() {
            self.report[index].offered += 1;
        }
        let job = self.next_job;
        self.next_job += 1;
        self.jobs.insert(
            job,
            Job {
                traffic: index,
                arrived: self.now,
                ticket: None,
                waiter: None,
                places: Vec::new(),
                closed: Vec::new(),
                visit: 0,
                began: Duration::ZERO,
                has_timed_out: false,
            },
        );
        self.count_waiting_in_vain();
        let client = self.random.u64(..20);
        let request = Request { client, operation: 100 + index as u64, ..Request::default() };
        let random = self.random.u64(..);
        match self.control.request(request, Duration::MAX, self.time(), random) {
            Decision::Admitted(ticket) => self.begin(job, ticket),
            Decision::Refused(_) => self.refuse(job),
            Decision::Waiting(waiter, until) => {
                self.jobs.get_mut(&job).unwrap().waiter = Some(waiter);
                self.waiting.insert(waiter, job);
                self.order += 1;
                self.steps.push(Reverse((until, self.order, Step::EndWait(job))));
            }
        }
        self.handle_events();
    }

    fn begin(&mut self, id: u64, ticket: Ticket) {
        let (now, weight) = (self.time(), ticket.weight());
        self.arrived += u64::from(weight);
        let work = RouterWork { limit: self.control.limit(), arrived: self.arrived };
        let job = self.jobs.get_mut(&id).unwrap();
        if let Some(waiter) = job.waiter.take() {
            self.waiting.remove(&waiter);
        }
        job.ticket = Some(ticket);
        for &subgraph in self.traffic[job.traffic].needs {
            let bulkhead = &mut self.subgraphs[subgraph].bulkhead;
            match bulkhead.enter(Class::Normal, weight, self.share, work, now) {
                Some(place) => job.places.push((subgraph, place)),
                None => job.closed.push(subgraph),
            }
        }
        self.visit(id);
    }

    /// Begins the next visit of a job, or ends it.
    fn visit(&mut self, id: u64) {
        let now = self.time();
        let job = self.jobs.get_mut(&id).unwrap();
        let needs = self.traffic[job.traffic].needs;
        while needs.get(job.visit).is_some_and(|it| job.closed.contains(it)) {
            job.visit += 1;
        }
        let visit = job.visit;
        let Some(&subgraph) = needs.get(visit) else { return self.complete(id) };
        job.began = now;
        // The router does the same.
        let known = self.subgraphs.iter().filter_map(|it| it.bulkhead.usual_latency());
        let greatest = known.reduce(f64::max);
        let state = &mut self.subgraphs[subgraph];
        if let Some(usual) = greatest {
            state.bulkhead.assume_usual(usual);
        }
        state.bulkhead.begin_request(now);
        state.queue.push_back((id, visit));
        self.schedule(TIMEOUT, Step::TimeOut(id, visit));
        self.serve(subgraph);
    }

    /// Tells the control what waits for subgraphs that hang.
    fn count_waiting_in_vain(&mut self) {
        let now = self.time();
        let units = self.subgraphs.iter().map(|it| it.bulkhead.waiting_in_vain(now)).sum();
        self.control.set_uncounted(units);
    }

    fn serve(&mut self, subgraph: usize) {
        while self.subgraphs[subgraph].serving < self.subgraphs[subgraph].server.parallel
            && self.subgraphs[subgraph].server.seconds.is_finite()
            && let Some((job, visit)) = self.subgraphs[subgraph].queue.pop_front()
        {
            // The router has closed the connections of requests that have timed out.
            if self.subgraph_of(job, visit) != Some(subgraph) {
                continue;
            }
            self.subgraphs[subgraph].serving += 1;
            let seconds = self.exponential(self.subgraphs[subgraph].server.seconds);
            self.schedule(seconds, Step::Respond(job, visit));
        }
    }

    fn end_visit(&mut self, id: u64, subgraph: usize, is_response: bool) {
        let now = self.time();
        let job = self.jobs.get_mut(&id).unwrap();
        job.visit += 1;
        let (began, visit) = (job.began, job.visit - 1);
        let state = &mut self.subgraphs[subgraph];
        state.bulkhead.end_request(began, is_response, now);
        let waits = state.queue.iter().position(|it| *it == (id, visit));
        match waits {
            // It was not begun.
            Some(place) => drop(state.queue.remove(place)),
            None => state.serving -= 1,
        }
        self.serve(subgraph);
        self.visit(id);
    }

    fn refuse(&mut self, id: u64) {
        let job = self.jobs.remove(&id).unwrap();
        if let Some(waiter) = job.waiter {
            self.waiting.remove(&waiter);
        }
        if job.arrived >= self.counted_from {
            self.report[job.traffic].refused += 1;
        }
    }

    fn complete(&mut self, id: u64) {
        let now = self.time();
        let job = self.jobs.remove(&id).unwrap();
        let is_kept_apart =
            job.places.iter().any(|it| self.subgraphs[it.0].bulkhead.is_kept_apart(now));
        for (subgraph, place) in job.places {
            self.subgraphs[subgraph].bulkhead.leave(place);
        }
        let is_complete = job.closed.is_empty() && !job.has_timed_out;
        if job.arrived >= self.counted_from {
            let report = &mut self.report[job.traffic];
            report.complete += u64::from(is_complete);
            report.left_out += u64::from(!job.closed.is_empty());
            report.timed_out += u64::from(job.has_timed_out);
            let second = (self.now - self.counted_from) as usize;
            if is_complete && let Some(count) = report.by_second.get_mut(second) {
                *count += 1;
            }
        }
        // The router does the same.
        let outcome = match is_complete {
            true => Outcome::Completed { cost: COST },
            false if is_kept_apart => Outcome::Unmeasured { cost: COST },
            false => Outcome::Failed { cost: COST },
        };
        self.count_waiting_in_vain();
        let random = self.random.u64(..);
        self.control.finish(job.ticket.unwrap(), outcome, self.time(), random);
        self.handle_events();
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.control.poll_event() {
            match event {
                Event::Admitted(waiter, ticket, _) => self.begin(self.waiting[&waiter], ticket),
                Event::Refused(waiter, _) => self.refuse(self.waiting[&waiter]),
            }
        }
    }
}

//! One run and its stages: clients join, the server becomes idle, events are published, and the results of each client
//! are compared with the events published for it.

use std::time::Duration;

use super::driver::SubscriptionDriver;
use super::publisher::{Batch, Pace, Publisher};
use super::recorder::{SubscriptionRecorder, list_ends};
use super::run_error::SubscriptionRunError;
use super::scenario::Scenario;
use super::server_usage::{ObservedServer, ServerSample};
use super::settings::SubscriptionSettings;
use crate::clock::now_us;
use crate::process::Process;
use crate::report::subscriptions::{
    DisconnectReport, SlowConsumerReport, SubscriptionInterval, SubscriptionRun,
    SubscriptionServerUsage,
};
use crate::report::{FailureCount, LatencySummary};

/// The time the server has to become idle after all clients have subscribed.
const SETTLING_MAX: Duration = Duration::from_secs(15);

/// The windows in which the server's CPU is measured meanwhile. Two quiet ones in a row are enough.
const SETTLING_WINDOW: Duration = Duration::from_millis(250);

/// The CPU time of a window that counts as none: two ticks of the kernel's clock.
const SETTLED_CPU: Duration = Duration::from_millis(20);

/// The time that an idle server has before its memory is measured. jemalloc returns the memory of a storm of
/// connections in two steps, the second of them 15 to 20 s later (5,000 clients: 3.6 MiB, which is 750 bytes of each).
const MEMORY_SETTLES: Duration = Duration::from_secs(25);

/// The time to wait if there is no process to watch.
const SETTLING_BLIND: Duration = Duration::from_secs(2);

/// The maximum number of rounds of warm-up: a broker may need some time until every subscription is in place.
const WARMUP_ROUNDS: usize = 20;

/// The maximum duration of one round.
const WARMUP_ROUND_TIME: Duration = Duration::from_secs(1);

/// The time between the events of one round, if each key needs one.
const WARMUP_GAP: Duration = Duration::from_micros(200);

/// The maximum number of additional events published if results are missing.
const EPILOGUES_MAX: usize = 3;

/// The deadline for the server to close dropped connections.
const VANISHING_MAX: Duration = Duration::from_secs(60);

/// The number of descriptors that a server may open for other reasons.
const DESCRIPTORS_SPARE: usize = 8;

/// A run in progress.
pub(super) struct RunStages<'a> {
    pub(super) settings: &'a SubscriptionSettings,
    pub(super) driver: SubscriptionDriver<'a>,
    publisher: Option<Publisher>,
    pub(super) observed_server: ObservedServer,
    pub(super) progress: &'a mut dyn FnMut(&SubscriptionInterval),
    /// The number of the next event.
    pub(super) next_event: u64,
    /// The number of clients that never read; they are the last ones.
    slow: usize,
    /// The clients that read and were subscribed when the counts began.
    pub(super) counted: Vec<usize>,
}

impl<'a> RunStages<'a> {
    /// Connects to the broker and prepares the clients; none is connected yet.
    pub(super) fn start(
        settings: &'a SubscriptionSettings,
        observed_server: ObservedServer,
        progress: &'a mut dyn FnMut(&SubscriptionInterval),
    ) -> Result<Self, SubscriptionRunError> {
        let publisher = settings.events.as_ref().map(Publisher::start).transpose();
        let publisher = publisher.map_err(SubscriptionRunError::Settings)?;
        let slow = match settings.scenario {
            Scenario::SlowConsumers => {
                (settings.clients as f64 * settings.slow_share).round() as usize
            }
            _ => 0,
        };
        let slow = slow.min(settings.clients - 1);
        let recorder = SubscriptionRecorder::new(
            settings.clients,
            settings.clients - slow,
            observed_server.process(),
        );
        let driver = SubscriptionDriver::new(settings, recorder)?;
        let counted = Vec::new();
        Ok(Self {
            settings,
            driver,
            publisher,
            observed_server,
            progress,
            next_event: 0,
            slow,
            counted,
        })
    }
}

impl RunStages<'_> {
    /// Connects and subscribes all clients, at most `joining_max` at a time. Returns the time that it took.
    pub(super) fn join_all(
        &mut self,
        joining_max: usize,
    ) -> Result<Duration, SubscriptionRunError> {
        let began = self.driver.now();
        let mut next = 0;
        while next < self.settings.clients || self.driver.joining() > 0 {
            while next < self.settings.clients && self.driver.pending() < joining_max {
                self.driver.connect(next);
                next += 1;
            }
            self.poll_events()?;
        }
        if self.driver.live() == 0 {
            let recorder = &self.driver.recorder;
            let ends = list_ends(&recorder.ends).into_iter().map(|failure| failure.what);
            let what: Vec<String> = ends.chain(recorder.problem.clone()).collect();
            let url = self.settings.target.url().to_owned();
            return Err(SubscriptionRunError::NoSubscriber { url, what: what.join("; ") });
        }
        Ok(self.driver.now() - began)
    }

    /// Waits until the server has finished the work that the subscriptions caused.
    pub(super) fn wait_until_idle(&mut self) -> Result<(), SubscriptionRunError> {
        let Some(mut last) = self.observed_server.sample() else {
            return self.wait(SETTLING_BLIND);
        };
        if self.settings.scenario == Scenario::Idle {
            self.wait(MEMORY_SETTLES)?;
        }
        let until = self.driver.now() + SETTLING_MAX;
        let mut quiet = 0;
        while quiet < 2 && self.driver.now() < until {
            self.wait(SETTLING_WINDOW)?;
            let Some(now) = self.observed_server.sample() else { return Ok(()) };
            quiet = if now.cpu_since(&last) <= SETTLED_CPU { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }

    /// Warms up, publishes, and waits for the results. Returns the number of clients that are subscribed after the
    /// warm-up. A client does not learn whether its subscription still waits for its turn; its first result shows it.
    pub(super) fn measure(
        &mut self,
        run: &mut SubscriptionRun,
    ) -> Result<u64, SubscriptionRunError> {
        if self.publisher.is_none() {
            return Ok(self.driver.live() as u64);
        }
        self.warm_up()?;
        self.count_from_here();
        let subscribed = self.driver.live() as u64;
        let first = self.next_event;
        let before = self.observed_server.sample();
        let own_before = Process::Own.usage()?;
        let began = self.driver.now();
        self.driver.recorder.timed_from = Some(now_us());
        let gap = Duration::from_secs_f64(1.0 / self.settings.rate);
        let last = self.publish(first, self.settings.event_count, gap)?;
        let seconds = (last - began).as_secs_f64().max(1e-3);
        let own = Process::Own.usage()?.cpu.saturating_sub(own_before.cpu);
        let after = self.observed_server.sample();
        let recorder = &mut self.driver.recorder;
        recorder.timed_from = None;
        let deliveries = recorder.deliveries;
        run.events = self.settings.event_count;
        run.deliveries = deliveries;
        run.deliveries_per_second = deliveries as f64 / seconds;
        run.message_bytes = recorder.bytes as f64 / (deliveries.max(1)) as f64;
        run.latency = LatencySummary::from_histogram(&recorder.latency);
        run.histogram = recorder.latency.buckets();
        let per_delivery =
            |cpu: Duration| (deliveries > 0).then(|| cpu.as_secs_f64() * 1e6 / deliveries as f64);
        run.generator.cpu_us_per_delivery = per_delivery(own);
        if let (Some(before), Some(after), Some(server)) = (before, after, &mut run.server) {
            let cpu = after.cpu_since(&before);
            server.cpu_us_per_delivery = per_delivery(cpu);
            server.busy_cores = Some(cpu.as_secs_f64() / seconds);
        }
        if self.slow > 0 {
            self.driver.resume_slow();
            self.until_quiet(|_| false)?;
        }
        self.publish_until_announced(first)?;
        self.count_results(first, run);
        Ok(subscribed)
    }

    /// Starts the counts: from here on each subscribed client must receive every event.
    pub(super) fn count_from_here(&mut self) {
        self.count_all();
        self.driver.recorder.restart();
    }

    fn count_all(&mut self) {
        self.counted = (0..self.settings.clients).filter(|it| self.driver.reads(*it)).collect();
    }

    /// Publishes until each client has a result, and until those that were refused have returned or given up.
    pub(super) fn warm_up(&mut self) -> Result<(), SubscriptionRunError> {
        let keys = self.settings.subscription.keys.max(1) as u64;
        self.driver.recorder.restart();
        let first = self.next_event;
        let mut rounds = 0;
        while rounds < WARMUP_ROUNDS {
            // The client that returned last needs rounds, too.
            rounds = if self.driver.joining() > 0 { 0 } else { rounds + 1 };
            self.begin(self.next_event, keys, WARMUP_GAP);
            let mut until = None;
            loop {
                self.poll_events()?;
                let now = self.driver.now();
                if until.is_none() && self.finished()?.is_some() {
                    until = Some(now + WARMUP_ROUND_TIME);
                }
                let all_have = (0..self.settings.clients).all(|client| {
                    let has_result = self.driver.recorder.tallies[client].received > 0;
                    !self.driver.is_joining(client) && (has_result || !self.driver.reads(client))
                });
                let is_over = until.is_some_and(|until| all_have || now >= until);
                if is_over && all_have {
                    self.check_result()?;
                    // Events that are still in flight belong to the warm-up.
                    self.count_all();
                    let expected = self.expected(first);
                    return self.until_quiet(|driver| driver.recorder.received >= expected);
                }
                if is_over {
                    break;
                }
            }
        }
        let without = (0..self.settings.clients)
            .filter(|it| self.driver.reads(*it) && self.driver.recorder.tallies[*it].received == 0)
            .count();
        Err(SubscriptionRunError::Settings(format!(
            "{without} of {} subscribed clients received none of the first events: check that the query and --publish use the same topic",
            self.driver.live()
        )))
    }

    /// Checks that results contain the time at which their event was published.
    fn check_result(&self) -> Result<(), SubscriptionRunError> {
        let recorder = &self.driver.recorder;
        let stamped = recorder
            .message
            .as_deref()
            .is_none_or(|message| super::message::find_stamp(message.as_bytes()).is_some());
        if stamped {
            return Ok(());
        }
        Err(SubscriptionRunError::Settings(format!(
            "results do not contain the publishing time of their event: the query must select the field that has $T in the event, in quotes: {}",
            recorder.message.as_deref().unwrap_or_default()
        )))
    }

    /// Publishes events and waits for all their results. Returns the time of the last result.
    fn publish(
        &mut self,
        first: u64,
        count: u64,
        gap: Duration,
    ) -> Result<Duration, SubscriptionRunError> {
        self.begin(self.next_event, count, gap);
        let expected = self.expected(first);
        let has_all = |driver: &SubscriptionDriver<'_>| {
            driver.recorder.received + driver.recorder.lost >= expected
        };
        while self.finished()?.is_none() {
            self.poll_events()?;
        }
        self.until_quiet(has_all)
            .map(|()| self.driver.recorder.last_received.unwrap_or_else(|| self.driver.now()))
    }

    /// Waits until `done`, or until no result has arrived for a while.
    pub(super) fn until_quiet(
        &mut self,
        done: impl Fn(&SubscriptionDriver<'_>) -> bool,
    ) -> Result<(), SubscriptionRunError> {
        let began = self.driver.now();
        while !done(&self.driver) {
            let last = self.driver.recorder.last_received.unwrap_or(began).max(began);
            if self.driver.now().saturating_sub(last) >= self.settings.quiet {
                break;
            }
            self.poll_events()?;
        }
        Ok(())
    }

    /// Publishes more events if results are missing, so that servers can announce a loss.
    pub(super) fn publish_until_announced(
        &mut self,
        first: u64,
    ) -> Result<(), SubscriptionRunError> {
        let keys = self.settings.subscription.keys.max(1) as u64;
        for _ in 0..EPILOGUES_MAX {
            let recorder = &self.driver.recorder;
            if recorder.received + recorder.lost >= self.expected(first) {
                break;
            }
            self.publish(first, keys, WARMUP_GAP)?;
        }
        Ok(())
    }

    /// Compares the results of each client with the events published for it.
    pub(super) fn count_results(&mut self, first: u64, run: &mut SubscriptionRun) {
        let recorder = &self.driver.recorder;
        for &client in &self.counted {
            let expected = self.expected_of(client, first);
            let tally = &recorder.tallies[client];
            let had = tally.received + tally.lost;
            run.expected += expected;
            run.received += tally.received;
            run.lost += tally.lost;
            run.missing += expected.saturating_sub(had);
            run.surplus += had.saturating_sub(expected);
        }
        run.disordered = recorder.disordered;
        run.gaps = recorder.gaps;
        run.errors = recorder.errors;
        run.foreign = recorder.foreign;
        if self.slow == 0 {
            return;
        }
        let mut fates = list_ends(&recorder.slow_ends);
        let (mut told, mut all, mut neither) = (0, 0, 0);
        for client in self.settings.clients - self.slow..self.settings.clients {
            if !self.driver.is_connected(client) {
                continue;
            }
            let tally = &recorder.tallies[client];
            let expected = self.expected_of(client, first);
            *match (tally.lost, tally.received + tally.lost >= expected) {
                (1.., _) => &mut told,
                (0, true) => &mut all,
                (0, false) => &mut neither,
            } += 1;
        }
        for (what, count) in [
            ("still connected, notified of their losses", told),
            ("still connected, received everything late", all),
            ("still connected, not notified of their losses", neither),
        ] {
            if count > 0 {
                fates.push(FailureCount { what: what.to_owned(), count });
            }
        }
        let met = recorder.slow_ends.values().sum::<u64>() + told;
        run.slow = Some(SlowConsumerReport { clients: self.slow as u64, met_policy: met, fates });
    }

    /// Returns the number of results of the events from `first_sample` on, for all counted clients.
    pub(super) fn expected(&self, first: u64) -> u64 {
        self.counted.iter().map(|client| self.expected_of(*client, first)).sum()
    }

    fn expected_of(&self, client: usize, first: u64) -> u64 {
        let keys = self.settings.subscription.keys.max(1) as u64;
        events_of_key(first, self.next_event, keys, self.settings.subscription.key(client) as u64)
    }

    /// Drops all connections at once and measures how the server closes them.
    pub(super) fn measure_disconnect(
        &mut self,
        before: Option<ServerSample>,
        idle: Option<ServerSample>,
    ) -> Result<DisconnectReport, SubscriptionRunError> {
        let connections = self.driver.live() as u64;
        let began = self.driver.now();
        self.driver.drop_all();
        let base = before.and_then(|before| before.descriptors);
        let mut is_gone = false;
        while !is_gone && base.is_some() && self.driver.now() - began < VANISHING_MAX {
            self.wait(Duration::from_millis(20))?;
            let now = self.observed_server.sample().and_then(|moment| moment.descriptors);
            is_gone = now.zip(base).is_some_and(|(now, base)| now <= base + DESCRIPTORS_SPARE);
        }
        let seconds = (self.driver.now() - began).as_secs_f64();
        self.wait_until_idle()?;
        let cpu = idle.zip(self.observed_server.sample()).map(|(idle, now)| now.cpu_since(&idle));
        Ok(DisconnectReport {
            connections,
            seconds: is_gone.then_some(seconds),
            cpu_us_per_connection: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / connections as f64),
        })
    }

    pub(super) fn server(
        &self,
        before: &ServerSample,
        joined: Option<ServerSample>,
        idle: &ServerSample,
    ) -> SubscriptionServerUsage {
        let clients = self.driver.live().max(1) as f64;
        let joining = joined.map(|joined| joined.cpu_since(before));
        let mut server = SubscriptionServerUsage {
            pid: self.settings.pid.unwrap_or(0),
            resident_before_mib: before.resident_mib(),
            threads_before: before.usage.threads,
            threads_idle: idle.usage.threads,
            descriptors_before: before.descriptors.unwrap_or(0) as u64,
            descriptors_idle: idle.descriptors.unwrap_or(0) as u64,
            cpu_us_per_joining: joining.map(|cpu| cpu.as_secs_f64() * 1e6 / clients),
            ..SubscriptionServerUsage::default()
        };
        self.set_idle_memory(&mut server, before, idle);
        server
    }

    /// Sets the memory with all clients subscribed.
    pub(super) fn set_idle_memory(
        &self,
        server: &mut SubscriptionServerUsage,
        before: &ServerSample,
        idle: &ServerSample,
    ) {
        let kib = idle.usage.resident_kib as f64 - before.usage.resident_kib as f64;
        server.resident_idle_mib = idle.resident_mib();
        server.bytes_per_subscription = kib * 1024.0 / self.driver.live().max(1) as f64;
    }

    fn begin(&mut self, first: u64, count: u64, gap: Duration) {
        let keys = self.settings.subscription.keys.max(1) as u64;
        self.next_event = first + count;
        self.publish_batch(Batch { first, keys, pace: Pace::Steady { count, gap } });
    }

    /// Starts to publish a batch.
    pub(super) fn publish_batch(&self, batch: Batch) {
        if let Some(publisher) = &self.publisher {
            publisher.begin(batch);
        }
    }

    /// Wakes the publisher, so that it checks its gate.
    pub(super) fn wake_publisher(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.wake();
        }
    }

    /// Returns the number of events in the last batch, once it is published.
    pub(super) fn finished(&self) -> Result<Option<u64>, SubscriptionRunError> {
        let Some(publisher) = &self.publisher else { return Ok(Some(0)) };
        publisher.finished().map_err(SubscriptionRunError::Settings)
    }

    /// Drives the clients for this time.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), SubscriptionRunError> {
        let until = self.driver.now() + time;
        while self.driver.now() < until {
            self.driver.poll_events(until, self.progress)?;
        }
        Ok(())
    }

    fn poll_events(&mut self) -> Result<(), SubscriptionRunError> {
        Ok(self.driver.poll_events(Duration::MAX, self.progress)?)
    }
}

/// Returns how many of the events from `first_sample` up to but excluding `end` have this key.
fn events_of_key(first: u64, end: u64, keys: u64, key: u64) -> u64 {
    // Events of the key below a number.
    let below = |number: u64| number / keys + u64::from(number % keys > key);
    below(end) - below(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_key_are_counted_as_they_come() {
        for keys in 1..7 {
            for first in 0..10 {
                for end in first..20 {
                    for key in 0..keys {
                        let counted = (first..end).filter(|number| number % keys == key).count();
                        assert_eq!(events_of_key(first, end, keys, key), counted as u64);
                    }
                }
            }
        }
    }
}

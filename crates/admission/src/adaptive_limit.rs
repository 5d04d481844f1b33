//! The adaptive limit: how much work may be in flight.
//!
//! Netflix's `Gradient2` and TCP Vegas compare the latency now with the latency without load, and set the limit so that
//! a short queue remains, which keeps the bottleneck busy. This limit does the same, with three differences:
//!
//! - It compares each execution with the baseline of its own operation, so that another mix of operations is not taken
//!   for load. The sum of latencies divided by the sum of baselines is the slow-down of a window. Executions that
//!   usually take much longer than others count with a part of their time, so that a few of them do not decide.
//! - It reacts once to what it has caused: after the limit was lowered, nothing counts for as long as an operation
//!   takes.
//! - The slow-down without load (the floor) is measured, not averaged, as BBR does: at intervals, if work had to wait
//!   because of the limit for some time, it is lowered for some latencies (a probe). If the latency falls with the work
//!   in flight, there was a queue and the floor is not above what was measured. If the latency stays, the work takes
//!   longer for another reason, and the floor rises. An average of all latencies would take a long overload for normal,
//!   and grow without end.
//!
//! The limit is lowered below the work in flight only while it is reached. Slow operations alone only bound it from
//! above, so that a queue cannot grow until an old limit is reached.
//!
//! Storms of connections make operations slow, too, and fewer operations would not make them faster. Meanwhile the limit
//! is not lowered below what would be in flight without them, and some more (`other_work`).
//!
//! While the processors have time to spare, the router itself makes nothing slow. Then the limit stays at its initial
//! value at least, so that a slow subgraph alone does not have a quiet router refuse requests, and it grows fast while
//! operations are not slower than usual.

use std::time::Duration;

use crate::UNITS;
use crate::other_work::OtherWork;
use crate::spare_share::SpareShare;

/// The bounds of the limit, in average operations that are in flight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitBounds {
    /// The limit at the start, and the least one while the processors have time to spare.
    pub initial: u32,
    /// The limit never falls below this: up to this much work is always admitted.
    pub min: u32,
    /// The limit never rises above this.
    pub max: u32,
}

impl Default for LimitBounds {
    fn default() -> Self {
        // 32 requests in flight need no protection. 500 are 10,000 requests per second that take 50 ms.
        Self { initial: 500, min: 32, max: 20_000 }
    }
}

/// The slow-down that is normal: a short queue keeps the bottleneck busy. A longer one costs more than latency: the
/// more requests a saturated router has in flight, the less of their memory is in the caches of its processors. With
/// less than this, chance alone lowers the limit.
const TOLERANCE: f64 = 1.18;

/// The part by which a window raises the limit at most while the processors have time to spare.
const GROWTH_WITH_SPARE: f64 = 0.5;

/// The share of a computed change that is applied after each window.
const STEP: f64 = 0.5;

/// The factor by which one window lowers the limit at most.
const DECREASE_MAX: f64 = 0.5;

/// An execution counts with at most this multiple of the usual slow-down, so that a few do not decide. With a quarter
/// of executions that hang, the slow-down of the others counts three times at most.
const RATIO_MAX: f64 = 3.0;

/// The multiple of the smoothed baseline with which an execution counts at most. One that takes seconds would otherwise
/// weigh as much as all others of a window.
const BASELINE_RATIO_MAX: f64 = 4.0;

/// The share of one execution in the smoothed baseline.
const BASELINE_STEP: f64 = 1.0 / 256.0;

/// The number of executions in a window. The mean of so many, with latencies that vary as much as their mean, is within
/// an eighth.
const EXECUTIONS_MIN: u32 = 64;

/// The bounds of the length of a window. In between it is two latencies.
const WINDOW_MIN: Duration = Duration::from_millis(50);
const WINDOW_MAX: Duration = Duration::from_secs(2);

/// A window that has not seen enough executions ends after this time. It counts if it has seen a few.
const WINDOW_TIMEOUT: Duration = Duration::from_secs(5);
const EXECUTIONS_FEW: u32 = 8;

/// The share of a window in the smoothed slow-down.
const SLOW_DOWN_STEP: f64 = 0.4;

/// The share of a lower slow-down in the floor.
const FLOOR_STEP: f64 = 0.1;

/// The rise of the floor for each second: the floor must not stay too low for ever if a single measurement was.
const FLOOR_RISE: f64 = 0.002;

/// The rise of the floor for each second while the limit is at its minimum, where it cannot be measured.
const FLOOR_RISE_AT_MIN: f64 = 0.05;

/// The part of the work in flight to which a probe lowers the limit.
const PROBE_SHARE: f64 = 0.6;

/// The same while only greedy clients and sheddable requests want more than there is: the others must not notice it,
/// and use most of the rest.
const PROBE_SHARE_SPARE: f64 = 0.8;

/// The time between two probes, at least: in seconds, and in times that the last one took. A fifth of the work is
/// missing during a probe, so that all of them together cost about a hundredth.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_INTERVAL_RATIO: u32 = 15;

/// Each probe that confirms the floor multiplies the time to the next one by this, up to the maximum for all of them.
/// Meanwhile the floor rises more slowly by the same factor.
const CONFIRMED_FACTOR: u32 = 2;
const CONFIRMED_FACTOR_MAX: u32 = 8;

/// The part of the floor by which a measurement that confirms it differs at most.
const CONFIRMED_WITHIN: f64 = 0.1;

/// The same while the slow-down of several windows is this multiple of that at which the limit comes to rest.
const SLOW_RATIO: f64 = 1.2;
const PROBE_INTERVAL_SLOW: Duration = Duration::from_secs(1);
const PROBE_INTERVAL_SLOW_RATIO: u32 = 4;
const SLOW_WINDOWS: u32 = 3;

/// The windows in which work must have waited or been refused before a probe. A probe refuses work, so it is not for a
/// limit that only a burst has reached.
const EFFECT_WINDOWS: u32 = 3;

/// The multiple of the smoothed slow-down above which that of a window shows that a queue is growing. A probe would
/// then measure a longer queue with less work in flight, and take it for normal.
const RISING_RATIO: f64 = 1.5;

/// The number of executions that a probe measures at least. The mean of so many is within a tenth.
const PROBE_EXECUTIONS: u32 = 128;

/// The latencies for which a probe waits: once the work in flight has fallen, and once work that was admitted later has
/// ended.
const PROBE_SETTLING_LATENCIES: f64 = 1.0;
const PROBE_FOLLOWING_LATENCIES: f64 = 0.5;

/// The elasticity of latency to the work in flight above which a probe has found a queue. With nothing but a queue it
/// is 1, without a queue 0.
const QUEUE_ELASTICITY: f64 = 0.5;

/// The rise of the floor after which the next probe follows soon: a queue that was growing looks like slow operations.
/// This is for probes that cost greedy clients and sheddable requests alone.
const UNSURE_RISE: f64 = 1.3;

/// The share of a lower measurement in the floor. One that is too low by chance must not lower it by much.
const PROBE_STEP: f64 = 0.5;

/// The elasticity above which there is a queue also with the work of the probe in flight. The limit then stays at that,
/// and the next probe follows at once.
const DEEP_QUEUE_ELASTICITY: f64 = 0.85;

/// The part of the limit that must have been in flight for the limit to count as reached, and for it to grow.
const REACHED_SHARE: f64 = 0.9;

/// The multiple of the work in flight to which the limit is bounded while operations are slow and the limit is not
/// reached.
const SLOW_HEADROOM: f64 = 1.1;

/// A measurement of the slow-down with less work in flight.
#[derive(Debug)]
struct Probe {
    /// The limit of the probe. For a probe with `is_spare` only greedy clients and sheddable requests are held to it,
    /// and the limit of all others stays: they do not want more than there is.
    limit: f64,
    is_spare: bool,
    /// The limit before the probe.
    limit_before: f64,
    slow_down_before: f64,
    in_flight_before: f64,
    started: Duration,
    /// The time at which the work in flight had fallen to the limit of the probe.
    drained: Option<Duration>,
    /// The time from which executions count.
    measured_since: Option<Duration>,
    sums: Sums,
}

/// The executions of a window, or of a probe.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    latency: f64,
    baseline: f64,
    /// The latencies, without a bound of the baseline.
    time: f64,
    executions: u32,
}

impl Sums {
    /// Adds an execution. `scale` is the part of its latency and of its baseline that counts.
    fn add(&mut self, latency: f64, baseline: f64, scale: f64, usual_slow_down: f64) {
        let latency = latency.min(baseline * usual_slow_down * RATIO_MAX);
        self.latency += latency * scale;
        self.baseline += baseline * scale;
        self.time += latency;
        self.executions += 1;
    }

    fn slow_down(&self) -> f64 {
        self.latency / self.baseline.max(f64::MIN_POSITIVE)
    }
}

/// The adaptive limit.
#[derive(Debug)]
pub struct AdaptiveLimit {
    min: f64,
    max: f64,
    initial: f64,
    /// True while the processors have time to spare.
    has_spare_processors: bool,
    /// In average operations.
    limit: f64,
    /// The slow-down without load. Until the first window ends, `has_floor` is false.
    floor: f64,
    has_floor: bool,
    /// The smoothed slow-down.
    slow_down: f64,
    /// The smoothed latency, in seconds.
    latency: f64,
    /// The smoothed baseline of executions, each of them bounded, in seconds; 0 before the first one.
    baseline: f64,
    /// Executions that end before this time do not count.
    counted_since: Duration,
    window_started: Duration,
    window: Sums,
    in_flight: f64,
    in_flight_changed: Duration,
    /// The integral of the work in flight over the window.
    in_flight_area: f64,
    in_flight_peak: f64,
    /// True if work has waited or was refused in the window because the limit was reached.
    is_reached: bool,
    /// True if work was refused in the window because it did not fit into the spare share.
    is_spare_reached: bool,
    spare: SpareShare,
    slow_windows: u32,
    /// The windows since the last probe in which work has waited or was refused, less those in which none was, and
    /// [`EFFECT_WINDOWS`] at most. Without such windows a probe would refuse work to learn nothing.
    effect_windows: u32,
    /// The end of the last probe, and the time that it took.
    last_probe: Duration,
    last_probe_took: Duration,
    /// The factor of the time to the next probe, by the probes that have confirmed the floor.
    confirmed_factor: u32,
    /// True if the last probe has found a queue that it did not empty.
    has_deep_queue: bool,
    /// True if the next probe must show whether the last one was right.
    is_unsure: bool,
    probe: Option<Probe>,
    other_work: OtherWork,
}

impl AdaptiveLimit {
    /// Creates a limit at its initial value.
    pub fn new(bounds: LimitBounds) -> Self {
        let (min, max) =
            (f64::from(bounds.min.max(1)), f64::from(bounds.max.max(bounds.min).max(1)));
        let initial = f64::from(bounds.initial).clamp(min, max);
        Self {
            min,
            max,
            initial,
            has_spare_processors: false,
            limit: initial,
            floor: 1.0,
            has_floor: false,
            slow_down: 1.0,
            latency: 0.0,
            baseline: 0.0,
            counted_since: Duration::ZERO,
            window_started: Duration::ZERO,
            window: Sums::default(),
            in_flight: 0.0,
            in_flight_changed: Duration::ZERO,
            in_flight_area: 0.0,
            in_flight_peak: 0.0,
            is_reached: false,
            is_spare_reached: false,
            spare: SpareShare::new(),
            slow_windows: 0,
            effect_windows: 0,
            last_probe: Duration::ZERO,
            last_probe_took: Duration::ZERO,
            confirmed_factor: 1,
            has_deep_queue: false,
            is_unsure: false,
            probe: None,
            other_work: OtherWork::new(initial),
        }
    }

    /// Returns the limit in units of work.
    pub fn units(&self) -> u64 {
        (self.limit * f64::from(UNITS)) as u64
    }

    /// Returns the limit in average operations, without the effect of a probe.
    pub fn operations(&self) -> f64 {
        match &self.probe {
            Some(probe) if !probe.is_spare => probe.limit_before,
            _ => self.limit,
        }
    }

    /// Returns how much longer operations take than without load: 1 for no longer.
    pub fn slow_down(&self) -> f64 {
        (self.slow_down / self.floor.max(f64::MIN_POSITIVE)).max(1.0)
    }

    /// Notes the units of work that are in flight from now on.
    pub fn set_in_flight(&mut self, units: u64, now: Duration) {
        let elapsed = now.saturating_sub(self.in_flight_changed).as_secs_f64();
        self.in_flight_area += self.in_flight * elapsed;
        self.in_flight_changed = now;
        self.in_flight = units as f64 / f64::from(UNITS);
        self.in_flight_peak = self.in_flight_peak.max(self.in_flight);
        if let Some(probe) = &mut self.probe
            && probe.drained.is_none()
            && self.in_flight <= probe.limit
        {
            probe.drained = Some(now);
        }
        // Without latencies that count, a measurement would never end.
        if self.probe.as_ref().is_some_and(|it| self.is_overdue(it, now)) {
            self.end_probe_if_complete(now);
        }
    }

    /// True if a probe has taken so long that it ends in any case.
    fn is_overdue(&self, probe: &Probe, now: Duration) -> bool {
        now.saturating_sub(probe.started) >= self.latencies(8.0).max(WINDOW_TIMEOUT)
    }

    /// Notes whether the processors have time to spare.
    pub fn set_spare_processors(&mut self, has_spare: bool) {
        self.has_spare_processors = has_spare;
    }

    /// True if the processors have time to spare, as far as was said.
    pub fn has_spare_processors(&self) -> bool {
        self.has_spare_processors
    }

    /// Notes that work that the limit does not count, and that has a bound of its own, makes operations slow now and
    /// for a second.
    pub fn note_other_work(&mut self, now: Duration) {
        if let Some(least) = self.other_work.note(now) {
            // It would take what the other work does for normal.
            self.abandon_probe(now);
            // The other work may have lowered the limit before it was noted.
            self.limit = self.limit.max(least);
        }
    }

    /// True if this much work in flight leaves no room for other work.
    pub fn is_pressed(&self, units: u64) -> bool {
        self.other_work.is_pressed(units as f64 / f64::from(UNITS), self.min)
    }

    /// Notes that work waits or is refused because the limit is reached.
    pub fn note_reached(&mut self) {
        self.is_reached = true;
    }

    /// Returns the units of work in flight up to which greedy clients and sheddable requests are admitted: the spare
    /// share of the limit, and what a probe leaves.
    ///
    /// Also while the processors have time to spare: greedy clients may be what makes a subgraph slow.
    pub(crate) fn spare_units(&self) -> u64 {
        let limit = (self.operations() * f64::from(UNITS)) as u64;
        let spare = self.spare.of(limit);
        let of_probe = |probe: &Probe| (probe.limit * f64::from(UNITS)) as u64;
        self.probe.as_ref().map_or(spare, |probe| spare.min(of_probe(probe)))
    }

    /// Notes that work is refused because that part is reached.
    pub(crate) fn note_spare_reached(&mut self) {
        match self.spare.is_open() {
            true => self.is_reached = true,
            false => self.is_spare_reached = true,
        }
    }

    /// Counts the latency of an execution that ends now, and the latency of its operation without load, both in
    /// seconds. Returns the slow-down of all operations if this has ended a window.
    pub fn count_latency(&mut self, latency: f64, baseline: f64, now: Duration) -> Option<f64> {
        if self.latency == 0.0 {
            self.latency = latency;
        }
        let scale = self.scale(baseline);
        if now >= self.counted_since {
            self.window.add(latency, baseline, scale, self.slow_down);
        }
        let settling = self.latencies(PROBE_SETTLING_LATENCIES);
        let following = self.latencies(PROBE_FOLLOWING_LATENCIES);
        if let Some(probe) = &mut self.probe {
            if let (None, Some(drained)) = (probe.measured_since, probe.drained)
                && now.as_secs_f64() - latency >= drained.as_secs_f64()
            {
                probe.measured_since = Some((drained + settling).max(now + following));
            }
            if probe.measured_since.is_some_and(|since| now >= since) {
                probe.sums.add(latency, baseline, scale, self.slow_down);
            }
            self.end_probe_if_complete(now);
        }
        self.end_window_if_complete(now)
    }

    /// Returns the part of an execution with this baseline that counts.
    fn scale(&mut self, baseline: f64) -> f64 {
        if self.baseline == 0.0 {
            self.baseline = baseline;
        }
        let counted = baseline.min(self.baseline * BASELINE_RATIO_MAX);
        self.baseline += (counted - self.baseline) * BASELINE_STEP;
        counted / baseline.max(f64::MIN_POSITIVE)
    }

    /// Returns this number of latencies, as a duration.
    fn latencies(&self, number: f64) -> Duration {
        Duration::from_secs_f64((self.latency * number).clamp(0.0, 60.0))
    }

    fn end_window_if_complete(&mut self, now: Duration) -> Option<f64> {
        let elapsed = now.saturating_sub(self.window_started);
        let is_full = self.window.executions >= EXECUTIONS_MIN
            && elapsed >= self.latencies(2.0).clamp(WINDOW_MIN, WINDOW_MAX);
        if !is_full && elapsed < WINDOW_TIMEOUT {
            return None;
        }
        let measured = (self.window.executions >= EXECUTIONS_FEW).then(|| self.window.slow_down());
        if let Some(slow_down) = measured {
            if !self.has_floor {
                // Work has just begun, so there is no queue yet.
                (self.has_floor, self.floor, self.slow_down) = (true, slow_down, slow_down);
            }
            self.slow_down += (slow_down - self.slow_down) * SLOW_DOWN_STEP;
            let mean = self.window.time / f64::from(self.window.executions);
            self.latency += (mean - self.latency) * SLOW_DOWN_STEP;
            let excess = match self.has_spare_processors {
                true => 1.0,
                false => (slow_down / self.floor.max(f64::MIN_POSITIVE)).max(1.0),
            };
            let (in_flight, limit) = (self.mean_in_flight(elapsed), self.operations());
            self.other_work.note_window(in_flight, excess, limit);
            self.adapt(elapsed, now);
        }
        self.begin_window(now);
        measured
    }

    /// Returns the mean of the work in flight of a window of this length.
    fn mean_in_flight(&self, elapsed: Duration) -> f64 {
        self.in_flight_area / elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn begin_window(&mut self, now: Duration) {
        self.window = Sums::default();
        self.window_started = now;
        self.in_flight_area = 0.0;
        self.in_flight_changed = now;
        self.in_flight_peak = self.in_flight;
        self.is_reached = false;
        self.is_spare_reached = false;
    }

    /// Changes the limit after a window.
    fn adapt(&mut self, elapsed: Duration, now: Duration) {
        let is_at_min = self.limit <= self.min;
        let excess = self.slow_down / self.floor.max(f64::MIN_POSITIVE);
        // Only greedy clients and sheddable requests want more than there is.
        let is_spare_only = self.is_spare_reached && !self.is_reached;
        if excess < 1.0 {
            self.floor += (self.slow_down - self.floor) * FLOOR_STEP;
        } else {
            let is_stuck = is_at_min && self.is_reached && excess > TOLERANCE;
            let rise = match is_stuck {
                true => FLOOR_RISE_AT_MIN,
                false => FLOOR_RISE / f64::from(self.confirmed_factor),
            };
            self.floor *= 1.0 + rise * elapsed.as_secs_f64().min(10.0);
        }
        if self.probe.is_some() {
            return;
        }
        self.spare.note(excess);
        if is_spare_only && self.spare.adapt(excess, self.limit >= self.max) {
            self.is_reached = true;
        }
        let is_reached = self.is_reached || self.in_flight_peak >= self.limit * REACHED_SHARE;
        // The limit comes to rest where growth and gradient cancel out.
        let at_rest = TOLERANCE / (1.0 - 1.0 / self.limit.sqrt()).max(0.5);
        let is_slow = excess > at_rest * SLOW_RATIO;
        self.slow_windows = if is_slow { self.slow_windows.saturating_add(1) } else { 0 };
        let least = self.least(now);
        self.count_effect(self.is_reached || (is_spare_only && !is_reached));
        if !is_reached {
            if excess > TOLERANCE {
                self.limit = self.limit.min((self.in_flight_peak * SLOW_HEADROOM).max(least));
            }
            if is_spare_only {
                self.begin_probe_if_due(true, elapsed, now);
            }
            return;
        }
        let gradient = (TOLERANCE / excess).clamp(DECREASE_MAX, 1.0);
        let growth = self.limit.sqrt().max(self.limit * self.growth_with_spare(excess));
        let target = self.limit * gradient + growth;
        let before = self.limit;
        let step = if excess > 2.0 * TOLERANCE { 1.0 } else { STEP };
        self.limit = (self.limit + (target - self.limit) * step).clamp(least, self.max);
        if self.limit < before {
            self.counted_since = now + self.latencies(1.0);
        }
        self.begin_probe_if_due(false, elapsed, now);
    }

    /// Returns the part by which the limit grows because the processors have time to spare. It falls to nothing as
    /// operations become slower: with all of it up to the tolerance, the limit would overshoot what a subgraph can do
    /// at a time by up to a quarter, be lowered, and overshoot again.
    fn growth_with_spare(&self, excess: f64) -> f64 {
        match self.has_spare_processors {
            true => GROWTH_WITH_SPARE * ((TOLERANCE - excess) / (TOLERANCE - 1.0)).clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    /// Counts a window in which work has waited or was refused, or in which none was.
    fn count_effect(&mut self, had_effect: bool) {
        // Work that waits right after a probe waits because of the probe.
        if self.window_started <= self.last_probe {
            return;
        }
        self.effect_windows = match had_effect {
            true => (self.effect_windows + 1).min(EFFECT_WINDOWS),
            false => self.effect_windows.saturating_sub(1),
        };
    }

    /// Returns the least limit at present.
    fn least(&self, now: Duration) -> f64 {
        let least = if self.has_spare_processors { self.initial } else { self.min };
        least.max(self.other_work.least_limit(now))
    }

    fn begin_probe_if_due(&mut self, is_spare: bool, elapsed: Duration, now: Duration) {
        let (interval, ratio) = match self.slow_windows >= SLOW_WINDOWS || self.is_unsure {
            true => (PROBE_INTERVAL_SLOW, PROBE_INTERVAL_SLOW_RATIO),
            false => (PROBE_INTERVAL * self.confirmed_factor, PROBE_INTERVAL_RATIO),
        };
        let interval = interval.max(self.last_probe_took * ratio);
        let share = if is_spare { PROBE_SHARE_SPARE } else { PROBE_SHARE };
        let mean = self.mean_in_flight(elapsed);
        let probe_limit = (mean.min(self.limit) * share).max(self.min);
        // With less of a difference nothing could be told from the latencies.
        let is_possible = probe_limit <= mean * PROBE_SHARE_SPARE;
        let is_due = self.has_deep_queue || now.saturating_sub(self.last_probe) >= interval;
        let has_effect = self.effect_windows >= EFFECT_WINDOWS;
        let is_rising = self.window.slow_down() > self.slow_down * RISING_RATIO;
        // With other work, latencies do not show what the work in flight does.
        let is_disturbed = is_rising || self.other_work.is_present(now);
        if !is_possible || !is_due || is_disturbed || !(has_effect || self.has_deep_queue) {
            return;
        }
        self.probe = Some(Probe {
            limit: probe_limit,
            is_spare,
            limit_before: self.limit,
            slow_down_before: self.slow_down,
            in_flight_before: mean,
            started: now,
            drained: None,
            measured_since: None,
            sums: Sums::default(),
        });
        if !is_spare {
            self.limit = probe_limit;
        }
    }

    /// Ends a probe that has measured nothing.
    fn abandon_probe(&mut self, now: Duration) {
        let Some(probe) = self.probe.take() else { return };
        if !probe.is_spare {
            self.limit = probe.limit_before;
        }
        self.last_probe = now;
        self.begin_window(now);
    }

    fn end_probe_if_complete(&mut self, now: Duration) {
        let Some(probe) = &self.probe else { return };
        let is_measured = probe.sums.executions >= PROBE_EXECUTIONS
            && probe.measured_since.is_some_and(|it| now >= it + self.latencies(1.0));
        if !is_measured && !self.is_overdue(probe, now) {
            return;
        }
        let Some(probe) = self.probe.take() else { return };
        let probe_limit = probe.limit;
        if !probe.is_spare {
            self.limit = probe.limit_before;
        }
        self.effect_windows = 0;
        self.counted_since = now + self.latencies(1.0);
        self.last_probe = now;
        self.last_probe_took = now.saturating_sub(probe.started);
        self.begin_window(now);
        if !is_measured {
            (self.has_deep_queue, self.is_unsure, self.confirmed_factor) = (false, false, 1);
            return;
        }
        let measured = probe.sums.slow_down();
        let elasticity =
            (probe.slow_down_before / measured).ln() / (probe.in_flight_before / probe_limit).ln();
        self.has_deep_queue = elasticity > DEEP_QUEUE_ELASTICITY;
        let is_confirmed =
            !self.has_deep_queue && (measured / self.floor - 1.0).abs() <= CONFIRMED_WITHIN;
        self.confirmed_factor = match is_confirmed {
            true => (self.confirmed_factor * CONFIRMED_FACTOR).min(CONFIRMED_FACTOR_MAX),
            false => 1,
        };
        let has_risen = probe.is_spare && measured > self.floor * UNSURE_RISE;
        self.is_unsure = has_risen || (self.is_unsure && elasticity > QUEUE_ELASTICITY);
        if self.has_deep_queue {
            // The same work is done with less in flight.
            self.floor = self.floor.min(measured);
            let least = self.least(now);
            self.limit = probe_limit.max(least);
            // The next probe would be below the least limit.
            self.has_deep_queue = probe_limit >= least;
        } else if measured < self.floor {
            self.floor += (measured - self.floor) * PROBE_STEP;
        } else if elasticity <= QUEUE_ELASTICITY {
            self.floor = measured;
        }
        self.slow_down = measured;
        self.slow_windows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executions at a bottleneck that does `capacity` operations at the same time, each in 50 ms: with more in flight,
    /// each takes longer. `demand` operations want to be in flight.
    fn run(
        limit: &mut AdaptiveLimit,
        from: f64,
        seconds: f64,
        service: f64,
        capacity: f64,
        demand: f64,
    ) {
        let mut now = from;
        while now < from + seconds {
            let in_flight = demand.min(limit.limit);
            if demand > limit.limit {
                limit.note_reached();
            }
            limit
                .set_in_flight((in_flight * f64::from(UNITS)) as u64, Duration::from_secs_f64(now));
            let latency = service * (in_flight / capacity).max(1.0);
            now += latency / in_flight;
            limit.count_latency(latency, 0.050, Duration::from_secs_f64(now));
        }
    }

    fn limit(initial: u32) -> AdaptiveLimit {
        AdaptiveLimit::new(LimitBounds { initial, min: 10, max: 5000 })
    }

    fn is_near_capacity(limit: &AdaptiveLimit, capacity: f64) {
        let ratio = limit.operations() / capacity;
        assert!((1.0..1.8).contains(&ratio), "{limit:?}");
    }

    #[test]
    fn the_limit_finds_the_capacity_from_above_and_from_below() {
        for initial in [20, 100, 2000] {
            let mut limit = limit(initial);
            run(&mut limit, 0.0, 120.0, 0.050, 100.0, 10_000.0);
            is_near_capacity(&limit, 100.0);
        }
    }

    #[test]
    fn a_slow_subgraph_does_not_lower_the_limit_of_a_router_with_time_to_spare() {
        for (has_spare, least) in [(true, 500.0), (false, 0.0)] {
            let mut limit = limit(500);
            limit.set_spare_processors(has_spare);
            run(&mut limit, 0.0, 10.0, 0.050, 10_000.0, 20.0);
            // A second instead of 50 ms: now 400 want to be in flight.
            run(&mut limit, 10.0, 10.0, 1.0, 10_000.0, 400.0);
            assert!(limit.operations() >= least, "{limit:?}");
            assert_eq!(limit.operations() >= 400.0, has_spare, "{limit:?}");
        }
    }

    #[test]
    fn other_work_does_not_lower_the_limit_below_what_was_in_flight() {
        for has_other_work in [true, false] {
            let mut limit = limit(500);
            run(&mut limit, 0.0, 19.7, 0.050, 80.0, 80.0);
            // The work has effect before it is noted.
            run(&mut limit, 19.7, 0.3, 0.050, 40.0, 110.0);
            if has_other_work {
                // A probe has just begun. It must not take what follows for normal.
                (limit.has_deep_queue, limit.in_flight_area) = (true, 80.0);
                limit.begin_probe_if_due(false, Duration::from_secs(1), Duration::from_secs(20));
                assert!(limit.probe.is_some(), "{limit:?}");
            }
            // Handshakes take half of the processor, and twice as many operations want to be in flight.
            for tenth in 0..100 {
                let from = 20.0 + f64::from(tenth) / 10.0;
                if has_other_work {
                    limit.note_other_work(Duration::from_secs_f64(from));
                }
                run(&mut limit, from, 0.1, 0.050, 40.0, 160.0);
            }
            let operations = limit.operations();
            assert_eq!((100.0..200.0).contains(&operations), has_other_work, "{limit:?}");
            // After it, the limit finds the capacity as ever.
            run(&mut limit, 30.0, 60.0, 0.050, 40.0, 160.0);
            is_near_capacity(&limit, 40.0);
        }
    }

    #[test]
    fn other_work_does_not_raise_a_limit_that_is_reached() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 100.0, 10_000.0);
        let before = limit.operations();
        for tenth in 0..600 {
            let from = 60.0 + f64::from(tenth) / 10.0;
            limit.note_other_work(Duration::from_secs_f64(from));
            run(&mut limit, from, 0.1, 0.050, 75.0, 10_000.0);
        }
        assert!(limit.operations() <= before * 1.05, "{before} {limit:?}");
    }

    #[test]
    fn a_limit_grows_fast_while_processors_have_time_to_spare() {
        let mut limit = limit(500);
        limit.set_spare_processors(true);
        run(&mut limit, 0.0, 3.0, 0.050, 10_000.0, 3000.0);
        assert!(limit.operations() >= 3000.0, "{limit:?}");
    }

    #[test]
    fn a_queue_that_grows_is_not_taken_for_normal() {
        let mut limit = limit(500);
        run(&mut limit, 0.0, 20.0, 0.050, 1000.0, 80.0);
        // Far more is offered than can be done, and the latency doubles every 100 ms.
        for number in 0..1000 {
            let seconds = f64::from(number) * 0.001;
            let now = Duration::from_secs_f64(20.0 + seconds);
            limit.note_reached();
            limit.set_in_flight(500 * u64::from(UNITS), now);
            limit.count_latency(0.050 * (seconds * 10.0).exp2(), 0.050, now);
            assert!(limit.probe.is_none(), "{number}: {limit:?}");
        }
    }

    #[test]
    fn a_limit_that_grows_fast_comes_to_rest_at_what_a_subgraph_can_do() {
        let mut limit = limit(20);
        limit.set_spare_processors(true);
        run(&mut limit, 0.0, 60.0, 0.050, 100.0, 10_000.0);
        let mut limits = Vec::new();
        for tenth in 0..600 {
            run(&mut limit, 60.0 + f64::from(tenth) / 10.0, 0.1, 0.050, 100.0, 10_000.0);
            limits.push(limit.operations());
        }
        let lowest = limits.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = limits.iter().copied().fold(0.0, f64::max);
        assert!(lowest >= 100.0 && highest <= 1.3 * lowest, "{lowest} {highest}");
    }

    #[test]
    fn a_limit_that_is_not_reached_stays() {
        let mut limit = limit(500);
        run(&mut limit, 0.0, 600.0, 0.050, 1000.0, 100.0);
        assert_eq!(limit.operations(), 500.0);
        // Slow operations alone leave room for all work.
        run(&mut limit, 600.0, 600.0, 0.500, 1000.0, 100.0);
        assert!((100.0..120.0).contains(&limit.operations()), "{limit:?}");
    }

    #[test]
    fn a_few_operations_that_take_seconds_do_not_hide_an_overload_of_the_others() {
        // Of 200 executions, one takes ten seconds, whatever the load.
        let mut limit = limit(100);
        let mut slow_down = |of_others: f64, from: u32| {
            for number in from..from + 4000 {
                let now = Duration::from_millis(u64::from(number) * 5);
                match number % 200 {
                    0 => limit.count_latency(10.0, 10.0, now),
                    _ => limit.count_latency(0.050 * of_others, 0.050, now),
                };
            }
            limit.slow_down()
        };
        assert!(slow_down(1.0, 0) < 1.01);
        let measured = slow_down(2.0, 4000);
        assert!(measured > 1.7, "{measured}");
    }

    #[test]
    fn a_burst_that_reaches_the_limit_begins_no_probe() {
        let mut limit = limit(100);
        let mut from = 0.0;
        for _ in 0..20 {
            run(&mut limit, from, 2.0, 0.050, 1000.0, 80.0);
            // More than the limit, for a window or two.
            let demand = 2.0 * limit.limit;
            run(&mut limit, from + 2.0, 0.1, 0.050, 1000.0, demand);
            from += 2.1;
            assert!(limit.probe.is_none() && limit.last_probe == Duration::ZERO, "{limit:?}");
        }
        run(&mut limit, from, 2.0, 0.050, 100.0, 10_000.0);
        assert!(limit.last_probe > Duration::ZERO, "the limit is reached all the time: {limit:?}");
    }

    /// Runs with a load that stays the same, and returns the times at which probes ended.
    fn probe_ends(limit: &mut AdaptiveLimit, from: f64, seconds: u32, capacity: f64) -> Vec<f64> {
        let mut ends = Vec::new();
        for tenth in 0..seconds * 10 {
            let before = limit.last_probe;
            run(limit, from + f64::from(tenth) / 10.0, 0.1, 0.050, capacity, 10_000.0);
            if limit.last_probe != before {
                ends.push(limit.last_probe.as_secs_f64());
            }
        }
        ends
    }

    #[test]
    fn probes_that_confirm_the_floor_become_rare_until_one_does_not() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 100.0, 10_000.0);
        let ends = probe_ends(&mut limit, 60.0, 600, 100.0);
        let last = ends.last_chunk().map(|[before, last]| last - before);
        assert!(last.is_some_and(|it| (79.0..83.0).contains(&it)), "{ends:?}");
        is_near_capacity(&limit, 100.0);
        // Half of the capacity makes operations slow, so the limit is lowered at once.
        let ends = probe_ends(&mut limit, 660.0, 20, 50.0);
        is_near_capacity(&limit, 50.0);
        assert!(ends.len() <= 3, "{ends:?}");
    }

    #[test]
    fn operations_that_take_longer_without_a_queue_are_not_taken_for_load() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 1000.0, 90.0);
        // Each takes four times as long, and as many more are in flight.
        run(&mut limit, 60.0, 60.0, 0.200, 1000.0, 360.0);
        assert!(limit.operations() > 300.0, "{limit:?}");
    }

    #[test]
    fn a_lower_capacity_lowers_the_limit_and_a_higher_one_raises_it() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 200.0, 10_000.0);
        is_near_capacity(&limit, 200.0);
        run(&mut limit, 60.0, 60.0, 0.050, 50.0, 10_000.0);
        is_near_capacity(&limit, 50.0);
        run(&mut limit, 120.0, 120.0, 0.050, 400.0, 10_000.0);
        is_near_capacity(&limit, 400.0);
    }

    #[test]
    fn hours_of_overload_are_not_taken_for_normal() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 100.0, 10_000.0);
        for hour in 0..3 {
            run(&mut limit, 60.0 + 3600.0 * f64::from(hour), 3600.0, 0.050, 100.0, 10_000.0);
            is_near_capacity(&limit, 100.0);
        }
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        let mut limit = limit(100);
        run(&mut limit, 0.0, 60.0, 0.050, 2.0, 10_000.0);
        assert!((10.0..50.0).contains(&limit.operations()), "{limit:?}");
        run(&mut limit, 60.0, 600.0, 0.050, 1e9, 1e9);
        assert_eq!(limit.operations(), 5000.0);
    }
}

//! The history of one watched subscriber: when it got results, when its socket was full, what it lost, and why it
//! ended. Bounded, and without clocks: the time goes in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use execute::Missed;

/// The maximum number of entries. Under constant load there is one of each kind in a second, so this is the detail of
/// some minutes; the totals have everything.
const ENTRIES_MAX: usize = 400;

/// Equal steps within this time after the first one are one entry.
const ENTRY_TIME: Duration = Duration::from_secs(1);

/// The number of entries among which an equal one is looked for: one of each kind.
const LOOKED_BACK: usize = 5;

/// The maximum number of waiting results with a known time. More wait only with a larger `subscriptions.queue_events`;
/// those behind them are counted, but not how long they wait.
const WAITING_MAX: usize = 4_096;

/// A step in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryStep {
    /// Results were written to the socket. On a reactor thread, a result for several subscribers has one time: that at
    /// which the last of them was served.
    Delivered,
    /// Results had to wait, because the socket was full.
    Queued,
    /// Waiting results were dropped: by the policy for slow subscribers, or when the client completed the subscription
    /// or its connection ended.
    Dropped,
    /// Nothing waits any more.
    CaughtUp,
    /// The subscription has ended for this reason.
    Ended(&'static str),
}

/// Equal steps at about the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    /// The time of the first one, from the start of the history.
    pub at: Duration,
    /// The kind.
    pub step: HistoryStep,
    /// The number of results.
    pub count: u64,
    /// The bytes of delivered results.
    pub bytes: u64,
    /// The losses that delivered results announced.
    pub lost: u64,
    /// True if a delivered result announced a gap.
    pub has_gap: bool,
    /// The longest time that a result waited for the socket; for [`HistoryStep::CaughtUp`] the time since the socket
    /// was full first.
    pub waited: Duration,
    /// The most results that were waiting.
    pub waiting: usize,
}

/// The sums over a whole history.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HistoryTotals {
    /// Results that were written to the socket.
    pub delivered: u64,
    /// Their bytes, without framing and before compression.
    pub bytes: u64,
    /// Results that had to wait, because the socket was full.
    pub queued: u64,
    /// Waiting results that were dropped.
    pub dropped: u64,
    /// The losses that were announced to the client: the dropped results, and those lost before its queue.
    pub lost: u64,
    /// The gaps that were announced to the client.
    pub gaps: u64,
    /// The longest time that a result waited for the socket.
    pub longest_wait: Duration,
    /// The time during which results waited because the socket was full.
    pub behind: Duration,
}

/// A copy of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryReading {
    /// The time since the start of the history.
    pub age: Duration,
    /// The latest entries, the oldest first.
    pub entries: Vec<HistoryEntry>,
    /// The number of older entries that are not kept.
    pub left_out: u64,
    /// The sums.
    pub totals: HistoryTotals,
    /// The number of results that wait now.
    pub waiting: usize,
    /// The time since the socket was full first, if the subscriber has not caught up since.
    pub behind_for: Option<Duration>,
}

/// The history, see the module.
#[derive(Debug)]
pub(crate) struct SubscriberHistory {
    began: Instant,
    entries: VecDeque<HistoryEntry>,
    left_out: u64,
    totals: HistoryTotals,
    waiting: usize,
    /// The times at which the oldest waiting results were queued, the oldest first.
    queued_at: VecDeque<Instant>,
    behind_since: Option<Instant>,
    has_ended: bool,
}

impl SubscriberHistory {
    /// Begins a history of a subscriber for which `waiting` results wait.
    pub(crate) fn new(now: Instant, waiting: usize) -> Self {
        let mut history = Self {
            began: now,
            entries: VecDeque::new(),
            left_out: 0,
            totals: HistoryTotals::default(),
            waiting: 0,
            queued_at: VecDeque::new(),
            behind_since: None,
            has_ended: false,
        };
        for _ in 0..waiting {
            history.note_queued(now, waiting, true);
        }
        history
    }

    /// Notes a result that was written to a socket with room.
    pub(crate) fn note_sent(&mut self, now: Instant, bytes: usize, missed: Missed) {
        self.add_delivery(now, bytes, missed, Duration::ZERO);
    }

    /// Notes a result that was queued. `waiting` results wait then, and the socket `is_full` unless its writer has only
    /// not run yet.
    pub(crate) fn note_queued(&mut self, now: Instant, waiting: usize, is_full: bool) {
        // Behind a result without a time, a time would be taken for that of the other result.
        if self.waiting < WAITING_MAX && self.queued_at.len() == self.waiting {
            self.queued_at.push_back(now);
        }
        self.waiting += 1;
        if is_full {
            self.totals.queued += 1;
            self.behind_since.get_or_insert(now);
            let entry = self.entry(now, HistoryStep::Queued);
            entry.count += 1;
            entry.waiting = entry.waiting.max(waiting);
        }
        self.note_waiting(now, waiting);
    }

    /// Notes that only `waiting` results are left. The oldest others were dropped.
    pub(crate) fn note_waiting(&mut self, now: Instant, waiting: usize) {
        let dropped = self.waiting.saturating_sub(waiting);
        if dropped > 0 {
            self.waiting = waiting;
            self.queued_at.drain(..dropped.min(self.queued_at.len()));
            self.totals.dropped += dropped as u64;
            self.entry(now, HistoryStep::Dropped).count += dropped as u64;
            self.stop_if_finished(now);
        }
    }

    /// Notes a queued result that was written to the socket. `waiting` results are left.
    pub(crate) fn note_taken(
        &mut self,
        now: Instant,
        bytes: usize,
        missed: Missed,
        waiting: usize,
    ) {
        self.waiting = self.waiting.saturating_sub(1);
        let waited = self.queued_at.pop_front().map_or(Duration::ZERO, |at| now - at);
        self.add_delivery(now, bytes, missed, waited);
        self.note_waiting(now, waiting);
        if waiting == 0 {
            self.note_caught_up(now);
        }
    }

    /// Notes the end of the subscription. Only the first reason counts. The results that wait then are still written,
    /// unless their queue is discarded: that is noted by [`SubscriberHistory::note_waiting`].
    pub(crate) fn note_end(&mut self, now: Instant, reason: &'static str) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.entry(now, HistoryStep::Ended(reason)).count = 1;
            self.stop_if_finished(now);
        }
    }

    /// True if the subscription has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// True if the subscription has ended and nothing waits for its socket any more.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_ended && self.waiting == 0
    }

    /// Returns a copy.
    pub(crate) fn read(&self, now: Instant) -> HistoryReading {
        HistoryReading {
            age: now - self.began,
            entries: self.entries.iter().cloned().collect(),
            left_out: self.left_out,
            totals: self.totals.clone(),
            waiting: self.waiting,
            behind_for: self.behind_since.map(|since| now - since),
        }
    }

    /// Ends the time for which the subscriber is behind, if there is nothing left that it could catch up with.
    fn stop_if_finished(&mut self, now: Instant) {
        if self.is_finished()
            && let Some(since) = self.behind_since.take()
        {
            self.totals.behind += now - since;
        }
    }

    fn note_caught_up(&mut self, now: Instant) {
        let Some(since) = self.behind_since.take() else { return };
        self.totals.behind += now - since;
        let entry = self.entry(now, HistoryStep::CaughtUp);
        entry.count += 1;
        entry.waited = entry.waited.max(now - since);
    }

    fn add_delivery(&mut self, now: Instant, bytes: usize, missed: Missed, waited: Duration) {
        let totals = &mut self.totals;
        totals.delivered += 1;
        totals.bytes += bytes as u64;
        totals.lost = totals.lost.saturating_add(missed.lost);
        totals.gaps += u64::from(missed.gap);
        totals.longest_wait = totals.longest_wait.max(waited);
        let entry = self.entry(now, HistoryStep::Delivered);
        entry.count += 1;
        entry.bytes += bytes as u64;
        entry.lost = entry.lost.saturating_add(missed.lost);
        entry.has_gap |= missed.gap;
        entry.waited = entry.waited.max(waited);
    }

    /// Returns the entry of a step that happens now: a recent one of the same kind, or a new one.
    fn entry(&mut self, now: Instant, step: HistoryStep) -> &mut HistoryEntry {
        let at = now - self.began;
        let first = self.entries.len().saturating_sub(LOOKED_BACK);
        let is_equal = |it: &HistoryEntry| it.step == step && at.saturating_sub(it.at) < ENTRY_TIME;
        let known = self.entries.range(first..).rposition(is_equal).map(|place| first + place);
        let place = known.unwrap_or_else(|| {
            if self.entries.len() >= ENTRIES_MAX {
                // The end stays, also if waiting results are written long after it.
                let is_end = |it: &HistoryEntry| matches!(it.step, HistoryStep::Ended(_));
                self.entries.remove(usize::from(self.entries.front().is_some_and(is_end)));
                self.left_out += 1;
            }
            self.entries.push_back(HistoryEntry {
                at,
                step,
                count: 0,
                bytes: 0,
                lost: 0,
                has_gap: false,
                waited: Duration::ZERO,
                waiting: 0,
            });
            self.entries.len() - 1
        });
        &mut self.entries[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Missed = Missed { lost: 0, gap: false };

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    fn steps(history: &SubscriberHistory) -> Vec<(u64, HistoryStep, u64)> {
        history.entries.iter().map(|it| (it.at.as_millis() as u64, it.step, it.count)).collect()
    }

    #[test]
    fn results_within_a_second_are_one_entry() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 0);
        for millis in [0, 400, 999, 1_000, 2_500] {
            history.note_sent(at(start, millis), 10, NOTHING);
        }
        let delivered = HistoryStep::Delivered;
        assert_eq!(
            steps(&history),
            [(0, delivered, 3), (1_000, delivered, 1), (2_500, delivered, 1)]
        );
        let reading = history.read(at(start, 3_000));
        assert_eq!((reading.totals.delivered, reading.totals.bytes), (5, 50));
        assert_eq!(reading.age, Duration::from_secs(3));
    }

    #[test]
    fn a_slow_subscriber_has_its_waiting_times_and_what_was_dropped() {
        use HistoryStep::{CaughtUp, Delivered, Dropped, Queued};
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 0);
        for waiting in 1..=3 {
            history.note_queued(at(start, 100 * waiting), waiting as usize, true);
        }
        // One more than may wait: the oldest one is dropped.
        history.note_queued(at(start, 400), 3, true);
        assert_eq!(history.read(at(start, 500)).behind_for, Some(Duration::from_millis(400)));
        let lost = Missed { lost: 1, gap: false };
        history.note_taken(at(start, 2_200), 10, lost, 2);
        history.note_taken(at(start, 2_300), 10, NOTHING, 1);
        history.note_taken(at(start, 2_400), 10, NOTHING, 0);
        assert_eq!(
            steps(&history),
            [(100, Queued, 4), (400, Dropped, 1), (2_200, Delivered, 3), (2_400, CaughtUp, 1)]
        );
        let reading = history.read(at(start, 2_500));
        let expected = HistoryTotals {
            delivered: 3,
            bytes: 30,
            queued: 4,
            dropped: 1,
            lost: 1,
            gaps: 0,
            longest_wait: Duration::from_millis(2_000),
            behind: Duration::from_millis(2_300),
        };
        assert_eq!((reading.totals, reading.waiting), (expected, 0));
        assert_eq!((reading.behind_for, reading.entries[0].waiting), (None, 3));
    }

    #[test]
    fn results_that_wait_at_the_end_are_still_delivered() {
        use HistoryStep::{CaughtUp, Delivered, Ended, Queued};
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 2);
        history.note_end(at(start, 100), "source_completed");
        let reading = history.read(at(start, 150));
        assert_eq!((reading.waiting, reading.behind_for), (2, Some(Duration::from_millis(150))));
        history.note_taken(at(start, 200), 10, NOTHING, 1);
        assert!(history.has_ended() && !history.is_finished());
        history.note_taken(at(start, 300), 10, NOTHING, 0);
        assert!(history.is_finished());
        assert_eq!(
            steps(&history),
            [
                (0, Queued, 2),
                (100, Ended("source_completed"), 1),
                (200, Delivered, 2),
                (300, CaughtUp, 1)
            ]
        );
        let totals = history.read(at(start, 900)).totals;
        assert_eq!((totals.delivered, totals.dropped), (2, 0));
        assert_eq!(totals.behind, Duration::from_millis(300));
    }

    #[test]
    fn results_that_are_discarded_after_the_end_are_dropped() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 2);
        history.note_end(at(start, 100), "source_completed");
        history.note_waiting(at(start, 200), 0);
        history.note_end(at(start, 200), "connection_closed");
        let reading = history.read(at(start, 900));
        assert_eq!((reading.totals.dropped, reading.waiting), (2, 0));
        assert_eq!((reading.totals.behind.as_millis(), reading.behind_for), (200, None));
    }

    #[test]
    fn results_without_a_known_time_are_counted_too() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, WAITING_MAX + 1);
        assert_eq!(history.read(start).waiting, WAITING_MAX + 1);
        history.note_queued(at(start, 10), WAITING_MAX + 1, true);
        let reading = history.read(start);
        assert_eq!((reading.totals.dropped, reading.waiting), (1, WAITING_MAX + 1));
        // Those with a known time are dropped. None is measured until the others have gone, too.
        history.note_waiting(at(start, 20), 2);
        history.note_queued(at(start, 1_000), 3, true);
        for waiting in [2, 1, 0] {
            history.note_taken(at(start, 1_500), 1, NOTHING, waiting);
        }
        let totals = history.read(at(start, 1_500)).totals;
        assert_eq!((totals.delivered, totals.dropped), (3, WAITING_MAX as u64));
        assert_eq!(totals.longest_wait, Duration::ZERO);
        history.note_queued(at(start, 2_000), 1, true);
        history.note_taken(at(start, 2_100), 1, NOTHING, 0);
        let totals = history.read(at(start, 2_100)).totals;
        assert_eq!(totals.longest_wait, Duration::from_millis(100));
    }

    #[test]
    fn results_that_waited_before_the_history_are_part_of_it() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 2);
        history.note_taken(at(start, 50), 1, NOTHING, 1);
        history.note_waiting(at(start, 60), 0);
        history.note_end(at(start, 60), "SLOW_SUBSCRIBER");
        history.note_end(at(start, 70), "connection_closed");
        let reading = history.read(at(start, 80));
        assert_eq!((reading.totals.dropped, reading.totals.behind.as_millis()), (1, 60));
        let last = reading.entries.last().map(|it| it.step);
        assert_eq!(last, Some(HistoryStep::Ended("SLOW_SUBSCRIBER")));
        assert!(history.has_ended());
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_the_totals_are_not() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 0);
        let count = ENTRIES_MAX as u64 + 20;
        for second in 0..count {
            history.note_sent(at(start, 1_000 * second), 1, NOTHING);
        }
        let reading = history.read(at(start, 1_000 * count));
        assert_eq!((reading.entries.len(), reading.left_out), (ENTRIES_MAX, 20));
        assert_eq!(reading.totals.delivered, count);
        // The results that waited at the end are written long after it.
        history.note_end(at(start, 1_000 * count), "source_completed");
        for second in count..3 * count {
            history.note_sent(at(start, 1_000 * second), 1, NOTHING);
        }
        let reading = history.read(at(start, 3_000 * count));
        assert_eq!(reading.entries.len(), ENTRIES_MAX);
        assert_eq!(reading.entries[0].step, HistoryStep::Ended("source_completed"));
    }

    #[test]
    fn a_writer_that_has_not_run_yet_makes_no_slow_subscriber() {
        let start = Instant::now();
        let mut history = SubscriberHistory::new(start, 0);
        history.note_queued(start, 1, false);
        history.note_taken(at(start, 1), 1, NOTHING, 0);
        assert_eq!(steps(&history), [(1, HistoryStep::Delivered, 1)]);
    }
}

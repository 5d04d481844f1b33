//! The support of `ping` messages at a subgraph, as its lost connections show it.

use std::sync::atomic::{AtomicU32, Ordering};

use wire::upstream::ConnectionEnd;

/// The number of connections in a row that may be lost directly after a `ping` before the message counts as refused.
/// One such loss may be a chance: a gateway also closes connections when it has lost its server.
const LOSSES_MAX: u32 = 2;

/// The connections in a row that were lost directly after a `ping` of the subprotocol.
#[derive(Debug, Default)]
pub(super) struct PingLosses(AtomicU32);

/// The number of such losses when a connection was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PingLossCount(u32);

impl PingLosses {
    /// Returns the number of losses, for a connection that is opened now.
    pub(super) fn count(&self) -> PingLossCount {
        PingLossCount(self.0.load(Ordering::Relaxed))
    }

    /// Notes the loss of a connection that was opened at `count`. `follows_ping` is true if it was lost directly after
    /// a `ping`.
    pub(super) fn note_loss(&self, count: PingLossCount, end: &ConnectionEnd, follows_ping: bool) {
        if matches!(end, ConnectionEnd::PingRefused(_)) {
            self.0.store(LOSSES_MAX, Ordering::Relaxed);
            return;
        }
        if count.forbids_pings() {
            return;
        }
        // Connections that were open at the same time may have one cause in common, so only the first of them counts.
        let next = if follows_ping { count.0 + 1 } else { 0 };
        let _ = self.0.compare_exchange(count.0, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl PingLossCount {
    /// True if the subgraph must not get pings of the subprotocol.
    pub(super) fn forbids_pings(self) -> bool {
        self.0 >= LOSSES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The end of a connection for a reason that says nothing about pings.
    const END: ConnectionEnd = ConnectionEnd::AckTimeout(Duration::from_secs(1));

    #[test]
    fn pings_are_refused_after_two_losses_in_a_row_that_follow_one() {
        let losses = PingLosses::default();
        for follows_ping in [true, false, true] {
            losses.note_loss(losses.count(), &END, follows_ping);
            assert!(!losses.count().forbids_pings());
        }
        losses.note_loss(losses.count(), &END, true);
        assert!(losses.count().forbids_pings());
        // Without pings no loss shows that they are supported.
        losses.note_loss(losses.count(), &END, false);
        assert!(losses.count().forbids_pings());
    }

    #[test]
    fn connections_that_are_lost_together_count_once() {
        let losses = PingLosses::default();
        let opened = losses.count();
        for _ in 0..3 {
            losses.note_loss(opened, &END, true);
        }
        assert!(!losses.count().forbids_pings());
        // An older connection does not end the row either.
        losses.note_loss(opened, &END, false);
        losses.note_loss(losses.count(), &END, true);
        assert!(losses.count().forbids_pings());
    }

    #[test]
    fn a_refusal_counts_at_once() {
        let losses = PingLosses::default();
        losses.note_loss(losses.count(), &ConnectionEnd::PingRefused("".into()), true);
        assert!(losses.count().forbids_pings());
    }
}

//! What the router knows about its processors. A running router measures once a second whether they have time to spare,
//! and tells the control, which then keeps the limit at its initial value at least and lets it grow fast.

/// The processors of a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Processors {
    /// The system does not tell whether they are busy, so the control takes them for busy.
    Unknown,
    /// They are the bottleneck.
    Bottleneck,
    /// They idle: the bottleneck is a subgraph.
    Idle,
}

impl Processors {
    pub(crate) const ALL: &[Self] = &[Self::Unknown, Self::Bottleneck, Self::Idle];
}

/// The rule of `ProcessorWatch` in `crates/server/src/load_watch.rs`, with its constants. That one is private, and this
/// crate must not depend on `server`. Threads never wait for a processor here: there are as many of both, and the
/// router runs alone.
#[derive(Default, Debug)]
pub(crate) struct ProcessorWatch {
    had_work: bool,
    /// The number of measurements since the processors were busy.
    spare_for: u32,
    was_busy: bool,
}

const SPARE_BELOW: f64 = 0.6;
const SPARE_AFTER: u32 = 5;

impl ProcessorWatch {
    /// Notes a measurement: whether work is in flight, and the part of the time since the last one for which the
    /// processors were busy. Returns true if they have time to spare.
    pub(crate) fn has_spare(&mut self, has_work: bool, busy_part: f64) -> bool {
        let had_work = std::mem::replace(&mut self.had_work, has_work);
        match has_work {
            true if had_work && busy_part >= SPARE_BELOW => {
                (self.spare_for, self.was_busy) = (0, true);
            }
            // The first measurement with work has none before it.
            true if !had_work => {}
            _ => self.spare_for = self.spare_for.saturating_add(1),
        }
        self.spare_for >= SPARE_AFTER || (self.spare_for > 0 && !self.was_busy)
    }
}

#[test]
fn processors_are_busy_at_once_and_have_time_to_spare_after_a_while() {
    let mut watch = ProcessorWatch::default();
    assert!(!watch.has_spare(true, 0.1), "nothing is known yet");
    assert!(watch.has_spare(true, 0.1));
    assert!(!watch.has_spare(true, 0.8));
    let after = [0; 6].map(|_| watch.has_spare(true, 0.5));
    assert_eq!(after, [false, false, false, false, true, true]);
    assert!(!watch.has_spare(true, 1.0));
    let idle = [0; 5].map(|_| watch.has_spare(false, 0.0));
    assert_eq!(idle, [false, false, false, false, true]);
}

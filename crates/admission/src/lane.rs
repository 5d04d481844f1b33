//! The lanes of requests: those of each class, and beside them the requests that open a stream.
//!
//! A stream (a subscription, a live query, or a WebSocket for them) is more work for as long as it is open, and its
//! client can open it a moment later. So new streams fill only a part of what other requests of their class may fill,
//! and wait in a queue of their own, longer than others, which is served after that of the others. Where the others
//! leave no room, one stream is opened for each [`OPERATIONS_BEFORE_STREAM`] of them, so that streams never starve.
//! Those are requests of its class if such wait, and of any class otherwise.

use crate::UNITS;
use crate::class::{Class, SHEDDABLE_SHARE, part};
use crate::waiting_queue::QueueSettings;

/// The part of what other requests of the class may fill up to which streams are opened.
const STREAM_SHARE: f64 = 0.85;

/// The multiple of the waits of other requests for which streams may wait. A stream lasts, so its client can wait for
/// some seconds, and one that is refused costs more when it returns.
const STREAM_PATIENCE: u32 = 100;

/// The number of further ones of its class after which a stream that waits has the next room, even if it is heavier
/// than they are.
pub(crate) const OPERATIONS_BESIDE_STREAM: u32 = 8;

/// The number of other requests after which one stream may use as much as they may.
pub(crate) const OPERATIONS_BEFORE_STREAM: u32 = 10;

/// The lane of a request. Critical requests that open streams are not kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lane {
    Critical,
    Normal,
    NormalStream,
    Sheddable,
    SheddableStream,
}

impl Lane {
    /// The number of lanes.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// All lanes, by [`Lane::index`].
    pub(crate) const ALL: [Self; 5] =
        [Self::Critical, Self::Normal, Self::NormalStream, Self::Sheddable, Self::SheddableStream];

    /// Returns the lane of a request.
    pub(crate) const fn of(class: Class, opens_stream: bool) -> Self {
        match (class, opens_stream) {
            (Class::Critical, _) => Self::Critical,
            (Class::Normal, false) => Self::Normal,
            (Class::Normal, true) => Self::NormalStream,
            (Class::Sheddable, false) => Self::Sheddable,
            (Class::Sheddable, true) => Self::SheddableStream,
        }
    }

    /// The position of the lane in [`Lane::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the class of the requests.
    pub(crate) const fn class(self) -> Class {
        match self {
            Self::Critical => Class::Critical,
            Self::Normal | Self::NormalStream => Class::Normal,
            Self::Sheddable | Self::SheddableStream => Class::Sheddable,
        }
    }

    /// True if the requests open streams.
    pub(crate) const fn has_streams(self) -> bool {
        matches!(self, Self::NormalStream | Self::SheddableStream)
    }

    /// Returns the settings of the lane's queue from those of other requests.
    pub(crate) fn queue(self, settings: QueueSettings) -> QueueSettings {
        match self.has_streams() {
            true => QueueSettings {
                target: settings.target * STREAM_PATIENCE,
                interval: settings.interval * STREAM_PATIENCE,
                ..settings
            },
            false => settings,
        }
    }

    /// True if the requests may fill the whole limit.
    pub(crate) const fn has_whole_limit(self) -> bool {
        matches!(self, Self::Critical | Self::Normal)
    }
}

/// Returns the units of work in flight up to which streams of a class are opened. `spare` is the part of the limit that
/// sheddable requests may fill. Where nothing else is in flight, one average operation fits at any limit.
pub(crate) fn stream_bound(class: Class, limit: u64, spare: u64) -> u64 {
    let of_class = match class {
        Class::Critical | Class::Normal => limit,
        Class::Sheddable => part(limit, SHEDDABLE_SHARE).min(spare),
    };
    part(of_class, STREAM_SHARE).max(UNITS.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_lane_belongs_to_a_class_and_has_its_place() {
        for (index, lane) in Lane::ALL.into_iter().enumerate() {
            assert_eq!(lane.index(), index);
            assert_eq!(Lane::of(lane.class(), lane.has_streams()), lane);
        }
        assert_eq!(Lane::of(Class::Critical, true), Lane::Critical);
    }

    #[test]
    fn streams_wait_for_seconds() {
        let settings = QueueSettings::default();
        for lane in Lane::ALL {
            let QueueSettings { waiting_max, target, interval } = lane.queue(settings);
            assert_eq!(waiting_max, settings.waiting_max);
            let expected = match lane.has_streams() {
                // As docs/overload.md says: five seconds, or one while the queue never empties.
                true => (Duration::from_secs(5), Duration::from_secs(1)),
                false => (Duration::from_millis(50), Duration::from_millis(10)),
            };
            assert_eq!((interval, target), expected, "{lane:?}");
        }
    }

    #[test]
    fn streams_leave_a_part_of_the_limit_to_other_requests() {
        assert_eq!(stream_bound(Class::Normal, 100_000, 50_000), 85_000);
        assert_eq!(stream_bound(Class::Sheddable, 100_000, 85_000), 63_750);
        assert_eq!(stream_bound(Class::Sheddable, 100_000, 50_000), 42_500);
        assert_eq!(stream_bound(Class::Normal, 1000, 1000), 1000, "one fits at any limit");
    }
}

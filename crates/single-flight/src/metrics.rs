//! The metrics of flights.

use telemetry::{Metric, read};

use crate::single_flight::SingleFlightStats;

/// The metrics of the flights of one level. The label that names the level is added by the caller.
pub const SINGLE_FLIGHT_METRICS: &[Metric<SingleFlightStats>] = &[
    Metric::counter(
        "starling_sharing_leaders",
        "Queries that were started and could be joined while in flight, by level",
        |it| read(&it.leaders),
    ),
    Metric::counter(
        "starling_sharing_followers",
        "Queries that joined an equal one in flight, by level",
        |it| read(&it.followers),
    ),
    Metric::counter(
        "starling_sharing_alone",
        "Queries that could not be joined because too many were in flight, by level",
        |it| read(&it.alone),
    ),
    Metric::counter(
        "starling_sharing_cancelled",
        "Queries cancelled because all waiting clients had disconnected, by level",
        |it| read(&it.cancelled),
    ),
];

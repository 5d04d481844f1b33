//! The periods in which routers have counted the use of fields, and the gaps between them.

use std::ops::Range;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// The longest time between two reports that is no gap, in seconds. A restart takes less, and so does the time from the
/// last report that a job saves every hour to the end of the router.
const RESTART_SECONDS_MAX: u64 = 60 * 60;

/// The periods of all reports. Times are seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct UsagePeriods {
    /// Ascending, with gaps between them.
    periods: Vec<Range<u64>>,
}

impl UsagePeriods {
    /// Adds the period of a report.
    pub(super) fn add(&mut self, since: u64, until: u64) {
        let mut all = std::mem::take(&mut self.periods);
        all.push(since..until.max(since));
        all.sort_unstable_by_key(|it| it.start);
        for period in all {
            match self.periods.last_mut() {
                Some(last) if period.start <= last.end.saturating_add(RESTART_SECONDS_MAX) => {
                    last.end = last.end.max(period.end);
                }
                _ => self.periods.push(period),
            }
        }
    }

    /// The start of the first period; zero without any.
    pub(super) fn since(&self) -> u64 {
        self.periods.first().map_or(0, |it| it.start)
    }

    /// The end of the last period; zero without any.
    pub(super) fn until(&self) -> u64 {
        self.periods.last().map_or(0, |it| it.end)
    }

    /// The times between the periods, in which no router has counted.
    pub(super) fn gaps(&self) -> Vec<Range<u64>> {
        self.periods.windows(2).map(|pair| pair[0].end..pair[1].start).collect()
    }

    /// The number of the last `days` days before the end of the last period that are in a period. A part of a day that
    /// is missing counts as a day.
    pub(super) fn covered_days(&self, days: u64) -> u64 {
        let from = self.until().saturating_sub(days.saturating_mul(SECONDS_PER_DAY));
        let within = |period: &Range<u64>| period.end.saturating_sub(period.start.max(from));
        self.periods.iter().map(within).sum::<u64>() / SECONDS_PER_DAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = SECONDS_PER_DAY;

    fn periods(of_reports: &[(u64, u64)]) -> UsagePeriods {
        let mut periods = UsagePeriods::default();
        of_reports.iter().for_each(|&(since, until)| periods.add(since, until));
        periods
    }

    #[test]
    fn reports_that_follow_each_other_or_overlap_are_one_period() {
        // A restart, another router, and an older report of the first one.
        let periods = periods(&[(0, 2 * DAY), (2 * DAY + 600, 5 * DAY), (DAY, 3 * DAY), (0, DAY)]);
        assert_eq!((periods.since(), periods.until(), periods.gaps()), (0, 5 * DAY, vec![]));
        assert_eq!([3, 5, 30].map(|days| periods.covered_days(days)), [3, 5, 5]);
    }

    #[test]
    fn a_time_without_reports_is_a_gap_and_covers_no_days() {
        // The order does not matter.
        let periods = periods(&[(20 * DAY, 30 * DAY), (0, 10 * DAY), (12 * DAY, 18 * DAY)]);
        assert_eq!(periods.gaps(), [10 * DAY..12 * DAY, 18 * DAY..20 * DAY]);
        assert_eq!([10, 12, 20, 30].map(|days| periods.covered_days(days)), [10, 10, 16, 26]);
    }

    #[test]
    fn a_gap_of_an_hour_and_more_is_a_day_less() {
        let with_pause = |pause| periods(&[(0, 5 * DAY - pause), (5 * DAY, 10 * DAY)]);
        assert_eq!(with_pause(3_600).covered_days(10), 10);
        assert_eq!(with_pause(3_601).covered_days(10), 9);
    }

    #[test]
    fn a_later_report_joins_two_periods() {
        let mut periods = periods(&[(0, DAY), (4 * DAY, 5 * DAY)]);
        assert_eq!(periods.gaps().len(), 1);
        periods.add(DAY - 5, 4 * DAY);
        assert_eq!((periods.gaps().len(), periods.covered_days(5)), (0, 5));
    }

    #[test]
    fn no_report_covers_nothing() {
        let none = UsagePeriods::default();
        assert_eq!(
            (none.since(), none.until(), none.covered_days(3), none.gaps().len()),
            (0, 0, 0, 0)
        );
    }
}

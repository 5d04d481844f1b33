//! Ids of stream entries, `<ms>-<sequence>`, and their conversion to offsets.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::PartitionOffset;

/// The id of an entry in its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct EntryId {
    pub(super) ms: u64,
    pub(super) sequence: u64,
}

impl EntryId {
    /// The id before all entries. No entry has it.
    pub(super) const ZERO: Self = Self { ms: 0, sequence: 0 };

    /// Returns the first id of a millisecond.
    pub(super) fn of_ms(ms: u64) -> Self {
        Self { ms, sequence: 0 }
    }

    /// Parses `<ms>-<sequence>`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (ms, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, sequence: sequence.parse().ok()? })
    }

    /// Returns the id right before this one.
    pub(super) fn before(self) -> Self {
        match (self.ms, self.sequence) {
            (0, 0) => Self::ZERO,
            (ms, 0) => Self { ms: ms - 1, sequence: u64::MAX },
            (ms, sequence) => Self { ms, sequence: sequence - 1 },
        }
    }

    /// Returns the offset of the entry in a partition with that number.
    pub(super) fn partition_offset(self, partition: u32) -> PartitionOffset {
        PartitionOffset { partition, offset: self.ms, part: self.sequence }
    }

    /// Returns the id from an offset.
    pub(super) fn of_partition_offset(partition_offset: PartitionOffset) -> Self {
        Self { ms: partition_offset.offset, sequence: partition_offset.part }
    }

    /// Returns the time at which the server stored the entry. It is meaningless if the publisher chose the id itself.
    pub(super) fn time(self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.ms))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_printed_and_ordered() {
        let id = EntryId::parse(b"1526919030474-55").unwrap();
        assert_eq!(id, EntryId { ms: 1_526_919_030_474, sequence: 55 });
        assert_eq!(id.to_string(), "1526919030474-55");
        assert_eq!(EntryId::of_partition_offset(id.partition_offset(3)), id);
        assert!(EntryId::parse(b"7-9").unwrap() < EntryId::parse(b"7-10").unwrap());
        assert!(EntryId::parse(b"7-10").unwrap() < EntryId::parse(b"8-0").unwrap());
        for bad in ["", "7", "-", "7-", "a-1", "7-1-1", "18446744073709551616-0"] {
            assert_eq!(EntryId::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn no_id_is_between_an_id_and_the_one_before() {
        for (id, before) in [("7-3", "7-2"), ("7-0", "6-18446744073709551615"), ("0-0", "0-0")] {
            assert_eq!(EntryId::parse(id.as_bytes()).unwrap().before().to_string(), before);
        }
    }
}

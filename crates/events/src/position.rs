//! Offsets of events, and the position of a stream: the offsets up to which it was read.

/// An offset in one partition of a stream.
///
/// A partition is an ordered sequence of events: a topic of the memory provider, a JetStream stream, a partition of
/// Kafka, or a key of Redis Streams. A stream consists of one or more partitions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PartitionOffset {
    /// The provider's number of the partition. Every router uses the same number for the same topics.
    pub partition: u32,
    /// The offset of the event. It grows along the partition.
    pub offset: u64,
    /// The second part of the offset. Redis Streams number entries within a millisecond by it. The memory provider and
    /// JetStream identify the numbering by it: it changes when offsets begin again. Kafka has only 0.
    pub part: u64,
}

/// The position up to which a stream was read: at most one offset for each partition, in the order of the partitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position(Vec<PartitionOffset>);

impl Position {
    /// Returns the offsets in the order of their partitions.
    pub fn partition_offsets(&self) -> &[PartitionOffset] {
        &self.0
    }

    /// Returns the offset up to which a partition was read, or `None` if nothing of it was read.
    pub fn partition(&self, partition: u32) -> Option<PartitionOffset> {
        let at = self
            .0
            .binary_search_by_key(&partition, |partition_offset| partition_offset.partition)
            .ok()?;
        self.0.get(at).copied()
    }

    /// Advances the position of one partition to `partition_offset`, and never moves it back. Returns false if the
    /// partition was already read up to that offset or further.
    pub fn advance(&mut self, partition_offset: PartitionOffset) -> bool {
        match self.0.binary_search_by_key(&partition_offset.partition, |known| known.partition) {
            Ok(at) if self.0[at] >= partition_offset => false,
            Ok(at) => {
                self.0[at] = partition_offset;
                true
            }
            Err(at) => {
                self.0.insert(at, partition_offset);
                true
            }
        }
    }
}

impl FromIterator<PartitionOffset> for Position {
    fn from_iter<I: IntoIterator<Item = PartitionOffset>>(partition_offsets: I) -> Self {
        let mut position = Self::default();
        for partition_offset in partition_offsets {
            position.advance(partition_offset);
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
        PartitionOffset { partition, offset, part: 0 }
    }

    #[test]
    fn a_position_advances_in_each_partition_and_never_moves_back() {
        let mut position: Position = [
            partition_offset(7, 1),
            partition_offset(2, 9),
            partition_offset(7, 3),
            partition_offset(2, 4),
        ]
        .into_iter()
        .collect();
        assert_eq!(position.partition_offsets(), [partition_offset(2, 9), partition_offset(7, 3)]);
        assert!(!position.advance(partition_offset(7, 3)));
        assert!(position.advance(partition_offset(7, 4)));
        assert!(position.advance(partition_offset(5, 0)));
        assert_eq!(
            position.partition_offsets(),
            [partition_offset(2, 9), partition_offset(5, 0), partition_offset(7, 4)]
        );
        assert_eq!(
            [position.partition(7), position.partition(6)],
            [Some(partition_offset(7, 4)), None]
        );
    }
}

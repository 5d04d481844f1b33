//! Offsets of events, and the position of a stream: the offsets up to which it was read.

/// An offset in one partition of a stream.
///
/// A partition is an ordered sequence of events: a topic of the memory provider, a JetStream stream, a partition of
/// Kafka, or a key of Redis Streams. A stream consists of one or more partitions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark {
    /// The provider's number of the partition. Every router uses the same number for the same topics.
    pub lane: u32,
    /// The offset of the event. It grows along the partition.
    pub offset: u64,
    /// The second part of the offset. Redis Streams number entries within a millisecond by it. The memory provider and
    /// JetStream identify the numbering by it: it changes when offsets begin again. Kafka has only 0.
    pub part: u64,
}

/// The position up to which a stream was read: at most one offset for each partition, in the order of the partitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position(Vec<Mark>);

impl Position {
    /// Returns the offsets in the order of their partitions.
    pub fn marks(&self) -> &[Mark] {
        &self.0
    }

    /// Returns the offset up to which a partition was read, or `None` if nothing of it was read.
    pub fn lane(&self, lane: u32) -> Option<Mark> {
        let at = self.0.binary_search_by_key(&lane, |mark| mark.lane).ok()?;
        self.0.get(at).copied()
    }

    /// Advances the position of one partition to `mark`, and never moves it back. Returns false if the partition was
    /// already read up to that offset or further.
    pub fn advance(&mut self, mark: Mark) -> bool {
        match self.0.binary_search_by_key(&mark.lane, |known| known.lane) {
            Ok(at) if self.0[at] >= mark => false,
            Ok(at) => {
                self.0[at] = mark;
                true
            }
            Err(at) => {
                self.0.insert(at, mark);
                true
            }
        }
    }
}

impl FromIterator<Mark> for Position {
    fn from_iter<I: IntoIterator<Item = Mark>>(marks: I) -> Self {
        let mut position = Self::default();
        for mark in marks {
            position.advance(mark);
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lane: u32, offset: u64) -> Mark {
        Mark { lane, offset, part: 0 }
    }

    #[test]
    fn a_position_advances_in_each_partition_and_never_moves_back() {
        let mut position: Position =
            [mark(7, 1), mark(2, 9), mark(7, 3), mark(2, 4)].into_iter().collect();
        assert_eq!(position.marks(), [mark(2, 9), mark(7, 3)]);
        assert!(!position.advance(mark(7, 3)));
        assert!(position.advance(mark(7, 4)));
        assert!(position.advance(mark(5, 0)));
        assert_eq!(position.marks(), [mark(2, 9), mark(5, 0), mark(7, 4)]);
        assert_eq!([position.lane(7), position.lane(6)], [Some(mark(7, 4)), None]);
    }
}

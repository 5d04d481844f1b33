//! The state of a stream as a whole (`XINFO STREAM`), and the conclusions for a reader: where it begins, and whether
//! the entries behind its position still exist.

use redis::Value;

use super::entry::{StreamEntry, text};
use super::entry_id::EntryId;
use crate::Start;

/// The state of a stream. A stream that does not exist is empty and never had an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamInfo {
    /// The highest id that was ever assigned.
    pub(super) latest: EntryId,
    length: u64,
    /// The number of entries that were ever added. Servers before Redis 7 do not count them.
    added: Option<u64>,
    /// The oldest entry that exists.
    pub(super) first: Option<EntryId>,
    /// The newest entry that exists.
    pub(super) last: Option<StreamEntry>,
}

impl StreamInfo {
    /// Reads the response to `XINFO STREAM`.
    pub(super) fn read(value: Value) -> Option<Self> {
        let pairs: Vec<(Value, Value)> = match value {
            Value::Map(pairs) => pairs,
            _ => return None,
        };
        let mut state = Self::default();
        for (name, value) in pairs {
            match &*text(name)? {
                b"length" => state.length = read_number(value)?,
                b"entries-added" => state.added = Some(read_number(value)?),
                b"last-generated-id" => state.latest = EntryId::parse(&text(value)?)?,
                b"first-entry" => state.first = StreamEntry::read(value).map(|entry| entry.id),
                b"last-entry" => state.last = StreamEntry::read(value),
                _ => {}
            }
        }
        Some(state)
    }

    /// True if every entry that was ever added after `read` still exists. Streams are trimmed at their beginning, so
    /// while an entry at or before `read` exists, nothing after it was trimmed. False if this is unknown.
    pub(super) fn is_whole_after(&self, read: EntryId) -> bool {
        match self.first {
            _ if read > self.latest => false,
            Some(first) if first <= read || first.before() == read => true,
            // The stream was empty when it was read, so every entry that was ever added must still exist.
            _ if read == EntryId::ZERO => self.added.is_none_or(|added| added == self.length),
            Some(_) => false,
            None => read == self.latest,
        }
    }

    /// Returns the id right before all existing entries.
    pub(super) fn id_before_first(&self) -> EntryId {
        self.first.map_or(self.latest, EntryId::before)
    }

    /// Returns the id after which a stream with that start begins. `next_from` is the first entry at the time or id
    /// that `start` names. Returns `None` if entries behind the position are gone.
    pub(super) fn start_after(
        &self,
        start: &Start,
        partition: u32,
        next_from: Option<EntryId>,
    ) -> Option<EntryId> {
        let before = |id: Option<EntryId>| id.map_or(self.latest, EntryId::before);
        Some(match start {
            Start::New => self.latest,
            Start::All => self.id_before_first(),
            Start::Last | Start::LastPerTopic => before(self.last.as_ref().map(|entry| entry.id)),
            Start::Since(_) | Start::At(_) => before(next_from),
            Start::After(position) => {
                let read = position
                    .partition(partition)
                    .map_or(EntryId::ZERO, EntryId::of_partition_offset);
                return self.is_whole_after(read).then_some(read);
            }
        })
    }
}

fn read_number(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(number).ok(),
        value => std::str::from_utf8(&text(value)?).ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str) -> Value {
        Value::Array(vec![bulk(id), Value::Array(vec![bulk("data"), bulk("{}")])])
    }

    /// Returns a stream with `length` of `added` entries, of which these are the first and the last.
    fn stream(first: &str, last: &str, length: i64, added: Option<i64>) -> StreamInfo {
        let or_nil = |id: &str| if id.is_empty() { Value::Nil } else { entry(id) };
        let mut pairs = vec![
            (bulk("length"), Value::Int(length)),
            (bulk("last-generated-id"), bulk("9-0")),
            (bulk("first-entry"), or_nil(first)),
            (bulk("last-entry"), or_nil(last)),
            (bulk("groups"), Value::Int(0)),
        ];
        pairs.extend(added.map(|added| (bulk("entries-added"), Value::Int(added))));
        StreamInfo::read(Value::Map(pairs)).unwrap()
    }

    fn id(text: &str) -> EntryId {
        EntryId::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn nothing_is_missing_while_an_entry_at_or_before_the_position_exists() {
        let trimmed = stream("5-1", "9-0", 3, Some(10));
        for (read, is_whole) in [
            ("5-1", true),
            ("7-0", true),
            ("9-0", true),
            ("5-0", true),
            ("4-9", false),
            ("1-0", false),
            ("0-0", false),
            ("9-1", false),
        ] {
            assert_eq!(trimmed.is_whole_after(id(read)), is_whole, "{read}");
        }
    }

    #[test]
    fn a_stream_without_removed_entries_is_whole_from_its_beginning() {
        assert!(stream("5-1", "9-0", 3, Some(3)).is_whole_after(EntryId::ZERO));
        assert!(
            stream("5-1", "9-0", 3, None).is_whole_after(EntryId::ZERO),
            "Redis 6 does not report it"
        );
        assert!(StreamInfo::default().is_whole_after(EntryId::ZERO));
        assert!(!StreamInfo::default().is_whole_after(id("1-0")), "it was deleted");
        let emptied = stream("", "", 0, Some(4));
        assert!(emptied.is_whole_after(id("9-0")));
        assert!(!emptied.is_whole_after(id("8-0")));
        assert!(!emptied.is_whole_after(EntryId::ZERO));
    }

    #[test]
    fn a_start_becomes_an_id() {
        let state = stream("5-1", "9-0", 3, Some(10));
        let begin = |start: Start, next_from: Option<&str>| {
            state.start_after(&start, 2, next_from.map(id)).map(|id| id.to_string())
        };
        let after = |partition, text| {
            Start::After(
                std::iter::once(id(text).partition_offset(partition)).collect::<Position>(),
            )
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(begin(Start::New, None), is("9-0"));
        assert_eq!(begin(Start::All, None), is("5-0"));
        assert_eq!(begin(Start::LastPerTopic, None), is("8-18446744073709551615"));
        assert_eq!(begin(Start::At(6), Some("7-3")), is("7-2"));
        assert_eq!(begin(Start::At(10), None), is("9-0"));
        assert_eq!(begin(after(2, "7-3"), None), is("7-3"));
        assert_eq!(begin(after(2, "4-0"), None), None);
        assert_eq!(begin(after(1, "7-3"), None), None, "nothing of this partition was read");
    }
}

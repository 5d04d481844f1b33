//! Cursors: the position of a subscriber in its source, as an opaque text that the subscriber sends when it resumes, to
//! any router with the same keys.
//!
//! A cursor contains the subscription for which it is valid (a hash of graph, field, provider and topics) and the
//! position up to which events were delivered. It is authenticated: the router reads no cursor that a router with its
//! keys has not written. A cursor grants no access; each subscription is authorized anew. It may be bound to claims of
//! the client that got it. They are then part of the hash, and cannot be read from it.
//!
//! ```text
//! form 1 | scope 10 | body ≤ 165 | tag 16, the beginning of HMAC-SHA256 over all before it;  all of it as base64url
//! ```
//!
//! In the form of a position the body has one offset for each partition, as differences. If there are too many
//! partitions, or they do not fit, it has the event's own offset and the time at which it was published: a subscriber
//! that resumes by it gets some events again.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bindings::Source;
use events::{PartitionOffset, Position};
use sha2::{Digest, Sha256};

/// The maximum size of a cursor in bytes: one header line and one WebSocket frame hold it easily, and a browser stores
/// one for each stream.
pub const CURSOR_BYTES_MAX: usize = 256;

/// The maximum number of partitions with offsets in a cursor. With more partitions each event would carry a kilobyte.
const PARTITIONS_MAX: usize = 32;

/// The maximum number of keys that verify: a rotation needs two, and some more allow for mistakes; each costs half a
/// microsecond for a forged cursor.
pub const CURSOR_KEYS_MAX: usize = 8;

/// The time before its own event at which a cursor without a position resumes: events of other partitions that were not
/// delivered yet when it was published. Brokers stamp with clocks of several machines, and partitions lag behind each
/// other by their queues.
const OTHER_PARTITIONS_LAG_MAX: Duration = Duration::from_secs(30);

/// The size of a scope. A collision of two scopes gives an attacker nothing; 80 bits make an accidental one improbable.
const SCOPE_BYTES: usize = 10;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + SCOPE_BYTES;

/// The first byte, which is version and form in one: another format begins with another number. This one is a position:
/// one offset for each partition.
const FORM_POSITION: u8 = 1;
/// The form with one offset and a time.
const FORM_SINCE: u8 = 2;

/// The flag for partitions with consecutive numbers.
const ADJACENT: u8 = 1;
/// The flag for offsets with equal second parts.
const EQUAL_PARTS: u8 = 2;

/// The name of the graph in cursors, unless [`Cursors::for_graph`] sets another one.
const DEFAULT_GRAPH: &str = "default";

/// Signs and verifies the cursors of one graph. The graphs of a process have the same keys.
#[derive(Clone)]
pub struct Cursors {
    /// The keys. The first one signs.
    keys: Vec<hmac::Key>,
    with_memory_providers: bool,
    /// The name of the graph, which is a part of each scope.
    graph: Arc<str>,
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// A hash that identifies the subscription for which a cursor is valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Scope([u8; SCOPE_BYTES]);

impl Scope {
    /// Hashes everything that stays the same over reloads and in all routers of a graph: its name, the coordinate of
    /// the field, the provider's name and the rendered topics. The generation is not included, and arguments count only
    /// through topics. `bound_to` contains the claims that the cursor is bound to.
    fn new(graph: &str, field: &str, source: &Source, bound_to: &[u8]) -> Self {
        let mut hash = Sha256::new();
        let stream = source.wanted().and_then(|it| it.durable.as_ref()?.stream.as_deref());
        let fixed = [graph, field, source.name(), stream.unwrap_or_default()];
        for text in fixed.into_iter().chain(source.topics().iter().map(|it| &**it)) {
            // The length before each text makes the hash of different lists different.
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        if !bound_to.is_empty() {
            // No text has this length, so no list of topics has the same hash.
            hash.update(u64::MAX.to_be_bytes());
            hash.update(bound_to);
        }
        let mut scope = [0; SCOPE_BYTES];
        scope.copy_from_slice(&hash.finalize()[..SCOPE_BYTES]);
        Self(scope)
    }
}

/// The point from which a subscriber resumes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Resume {
    /// After that position.
    After(Position),
    /// At the time, without the events of the partition up to `partition_offset`.
    Since { partition_offset: PartitionOffset, time: SystemTime },
}

/// The reason why a cursor is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CursorError {
    /// It is malformed, or no key verifies it.
    Invalid,
    /// It belongs to another subscription.
    Foreign,
}

/// The position of one event, and its cursor once it is printed.
#[derive(Debug)]
pub(crate) struct EventCursor {
    /// The number of the event among those of the trigger.
    pub(crate) number: u64,
    /// The version of the trigger's position; 0 if it is not a position of the trigger.
    pub(crate) version: u64,
    pub(crate) partition_offset: PartitionOffset,
    /// The position up to which the stream was read, including the event.
    pub(crate) position: Position,
    pub(crate) published: Option<SystemTime>,
    printed: OnceLock<(Scope, Option<Box<str>>)>,
}

impl EventCursor {
    pub(crate) fn new(
        number: u64,
        partition_offset: PartitionOffset,
        position: Position,
        published: Option<SystemTime>,
    ) -> Self {
        Self { number, version: 0, partition_offset, position, published, printed: OnceLock::new() }
    }

    /// Returns it with the version of the trigger's position.
    #[must_use]
    pub(crate) fn of_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Passes the cursor as JSON text to `use_text`. It is printed once for all groups of a scope. `None` if it would
    /// be too long.
    pub(crate) fn with_cursor<T>(
        &self,
        cursors: &Cursors,
        scope: Scope,
        use_text: impl FnOnce(Option<&str>) -> T,
    ) -> T {
        let print = || {
            let text = cursors.encode(scope, &self.position, self.partition_offset, self.published);
            text.map(|text| format!("\"{text}\"").into())
        };
        let (of, text) = self.printed.get_or_init(|| (scope, print()));
        // Nearly all groups of a trigger have the same scope; for others it is printed each time.
        if *of == scope { use_text(text.as_deref()) } else { use_text(print().as_deref()) }
    }

    /// Returns the number of bytes that it occupies.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.position.partition_offsets()) + CURSOR_BYTES_MAX
    }
}

impl Cursors {
    /// Creates cursors with these keys. The first key signs, and all verify; at most [`CURSOR_KEYS_MAX`] are used.
    /// Without keys a random one is made, and cursors are valid in this process only.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn new<'a>(
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let key = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
        let mut keys: Vec<_> = keys.into_iter().take(CURSOR_KEYS_MAX).map(key).collect();
        if keys.is_empty() {
            let mut random = [0; 32];
            aws_lc_rs::rand::fill(&mut random)?;
            keys.push(key(&random));
        }
        Ok(Self { keys, with_memory_providers: false, graph: DEFAULT_GRAPH.into() })
    }

    /// Enables cursors for providers of the kind `memory`, which only this process can resume.
    #[must_use]
    pub fn with_memory_providers(self, with_memory_providers: bool) -> Self {
        Self { with_memory_providers, ..self }
    }

    /// Returns cursors with the same keys for the graph with this name. A cursor of one graph is foreign to all others,
    /// where the same field and topic may have other events.
    #[must_use]
    pub fn for_graph(self, name: &str) -> Self {
        Self { graph: name.into(), ..self }
    }

    /// Returns the scope of the cursors of a subscription, see [`Scope::new`].
    pub(crate) fn scope(&self, field: &str, source: &Source, bound_to: &[u8]) -> Scope {
        Scope::new(&self.graph, field, source, bound_to)
    }

    /// True if payloads of that source carry cursors.
    pub(crate) fn are_for(&self, source: &Source) -> bool {
        source.is_stored_by_broker() || (self.with_memory_providers && source.replays())
    }

    /// Encodes a cursor. `None` if the position does not fit and the time of the event is unknown.
    pub(crate) fn encode(
        &self,
        scope: Scope,
        position: &Position,
        partition_offset: PartitionOffset,
        published: Option<SystemTime>,
    ) -> Option<String> {
        let mut bytes = Vec::with_capacity(CURSOR_BYTES_MAX);
        bytes.push(FORM_POSITION);
        bytes.extend_from_slice(&scope.0);
        write_position(position, &mut bytes);
        if position.partition_offsets().len() > PARTITIONS_MAX
            || text_length(bytes.len() + TAG_BYTES) > CURSOR_BYTES_MAX
        {
            let since = published?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            bytes.truncate(HEAD_BYTES);
            bytes[0] = FORM_SINCE;
            for number in [
                u64::from(partition_offset.partition),
                partition_offset.offset,
                partition_offset.part,
            ] {
                write_number(number, &mut bytes);
            }
            write_number(u64::try_from(since.as_millis()).ok()?, &mut bytes);
        }
        let tag = hmac::sign(&self.keys[0], &bytes);
        bytes.extend_from_slice(&tag.as_ref()[..TAG_BYTES]);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(crate) fn decode(&self, text: &str, scope: Scope) -> Result<Resume, CursorError> {
        let (of, resume) = self.open(text).ok_or(CursorError::Invalid)?;
        if of == scope { Ok(resume) } else { Err(CursorError::Foreign) }
    }

    fn open(&self, text: &str) -> Option<(Scope, Resume)> {
        if text.len() > CURSOR_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (signed, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_BYTES)?)?;
        let is_ours = |key: &hmac::Key| {
            let expected = hmac::sign(key, signed);
            constant_time::verify_slices_are_equal(&expected.as_ref()[..TAG_BYTES], tag).is_ok()
        };
        if !self.keys.iter().any(is_ours) {
            return None;
        }
        let (head, mut body) = signed.split_at_checked(HEAD_BYTES)?;
        let (&form, scope) = head.split_first()?;
        let scope = Scope(scope.try_into().ok()?);
        let resume = match form {
            FORM_POSITION => Resume::After(read_position(&mut body)?),
            FORM_SINCE => {
                let partition = u32::try_from(read_number(&mut body)?).ok()?;
                let (offset, part) = (read_number(&mut body)?, read_number(&mut body)?);
                let published = Duration::from_millis(read_number(&mut body)?);
                let time = SystemTime::UNIX_EPOCH
                    .checked_add(published.saturating_sub(OTHER_PARTITIONS_LAG_MAX))?;
                Resume::Since {
                    partition_offset: PartitionOffset { partition, offset, part },
                    time,
                }
            }
            _ => return None,
        };
        body.is_empty().then_some((scope, resume))
    }
}

/// Returns the length of `bytes` bytes as base64 without padding.
fn text_length(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

fn write_position(position: &Position, out: &mut Vec<u8>) {
    let partition_offsets = position.partition_offsets();
    write_number(partition_offsets.len() as u64, out);
    let Some(first) = partition_offsets.first() else { return };
    let is_adjacent =
        partition_offsets.windows(2).all(|pair| pair[1].partition - pair[0].partition == 1);
    let has_equal_parts =
        partition_offsets.iter().all(|partition_offset| partition_offset.part == first.part);
    out.push(u8::from(is_adjacent) * ADJACENT + u8::from(has_equal_parts) * EQUAL_PARTS);
    write_number(u64::from(first.partition), out);
    write_number(first.part, out);
    let mut before = PartitionOffset { offset: 0, ..*first };
    for partition_offset in partition_offsets {
        if !is_adjacent {
            write_number(u64::from(partition_offset.partition - before.partition), out);
        }
        write_difference(partition_offset.offset, before.offset, out);
        if !has_equal_parts {
            write_difference(partition_offset.part, before.part, out);
        }
        before = *partition_offset;
    }
}

fn read_position(body: &mut &[u8]) -> Option<Position> {
    let count = read_number(body)?;
    if count == 0 {
        return Some(Position::default());
    }
    let (&flags, rest) = body.split_first()?;
    *body = rest;
    let partition = u32::try_from(read_number(body)?).ok()?;
    let mut partition_offset = PartitionOffset { partition, offset: 0, part: read_number(body)? };
    let mut position = Position::default();
    for index in 0..count.min(PARTITIONS_MAX as u64 + 1) {
        if flags & ADJACENT == 0 {
            let step = u32::try_from(read_number(body)?).ok()?;
            partition_offset.partition = partition_offset.partition.checked_add(step)?;
        } else if index > 0 {
            partition_offset.partition = partition_offset.partition.checked_add(1)?;
        }
        partition_offset.offset = read_difference(partition_offset.offset, body)?;
        if flags & EQUAL_PARTS == 0 {
            partition_offset.part = read_difference(partition_offset.part, body)?;
        }
        position.advance(partition_offset);
    }
    (position.partition_offsets().len() as u64 == count).then_some(position)
}

/// Writes a difference of either sign; small ones are short (zigzag).
fn write_difference(number: u64, before: u64, out: &mut Vec<u8>) {
    let difference = number.wrapping_sub(before).cast_signed();
    write_number(((difference << 1) ^ (difference >> 63)).cast_unsigned(), out);
}

fn read_difference(before: u64, body: &mut &[u8]) -> Option<u64> {
    let number = read_number(body)?;
    let difference = (number >> 1) ^ (number & 1).wrapping_neg();
    Some(before.wrapping_add(difference))
}

/// Writes seven bits per byte, the lowest first; the highest bit is set if more follow.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        // The cast keeps the lower bits on purpose.
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(body: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = body.split_first()?;
        *body = rest;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Runs one case of the fuzzer: reads a cursor as a client sends it, writes a position and reads it again.
#[doc(hidden)]
pub fn fuzz(
    cursors: &Cursors,
    text: &str,
    partition_offsets: impl Iterator<Item = PartitionOffset>,
) {
    let scope = Scope([7; SCOPE_BYTES]);
    assert_eq!(cursors.decode(text, scope), Err(CursorError::Invalid), "it is not signed");
    let position: Position = partition_offsets.take(PARTITIONS_MAX).collect();
    let mut body = Vec::new();
    write_position(&position, &mut body);
    let mut written = &body[..];
    assert_eq!(read_position(&mut written).as_ref(), Some(&position));
    assert!(written.is_empty());
    // Only signed texts reach this function, but it must accept any bytes without a panic.
    let _ = read_position(&mut text.as_bytes());
    if let Some(cursor) = cursors.encode(scope, &position, PartitionOffset::default(), None) {
        assert!(cursor.len() <= CURSOR_BYTES_MAX);
        assert_eq!(cursors.decode(&cursor, scope), Ok(Resume::After(position)));
    }
}

#[cfg(test)]
mod tests {
    use events::{Memory, MemorySettings};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn cursors(keys: &[&'static [u8]]) -> Cursors {
        Cursors::new(keys.iter().copied()).unwrap()
    }

    #[test]
    fn a_bound_cursor_is_foreign_to_other_clients() {
        let cursors = cursors(&[b"a key of some length"]);
        let of = |bound_to: &[u8]| bound("Subscription.a", &["t"], bound_to);
        let mut position = Position::default();
        position.advance(PartitionOffset { partition: 0, offset: 7, part: 0 });
        let partition_offset = PartitionOffset { partition: 0, offset: 7, part: 0 };
        let encode =
            |scope| cursors.encode(scope, &position, partition_offset, None).expect("it fits");
        let ann = encode(of(b"ann"));
        assert_eq!(cursors.decode(&ann, of(b"ann")), Ok(Resume::After(position.clone())));
        for other in [&b"ben"[..], b"", b"t"] {
            assert_eq!(cursors.decode(&ann, of(other)), Err(CursorError::Foreign));
        }
        // A topic with the text of a claim has another scope.
        let of_topics = encode(bound("Subscription.a", &["t", "ann"], &[]));
        assert_eq!(cursors.decode(&of_topics, of(b"ann")), Err(CursorError::Foreign));
    }

    fn scope(field: &str, topics: &[&str]) -> Scope {
        bound(field, topics, &[])
    }

    fn bound(field: &str, topics: &[&str], bound_to: &[u8]) -> Scope {
        Scope::new("main", field, &source(topics), bound_to)
    }

    fn source(topics: &[&str]) -> Source {
        let provider = Arc::new(Memory::new("default", MemorySettings::default()));
        Source::new(provider, topics.iter().map(|&it| it.into()).collect())
    }

    fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
        PartitionOffset { partition, offset, part: 0 }
    }

    fn any_partition_offsets(most: usize) -> impl Strategy<Value = Vec<PartitionOffset>> {
        let partition_offset = (0..40u32, any::<u64>(), prop_oneof![Just(0), any::<u64>()]);
        vec(
            partition_offset.prop_map(|(partition, offset, part)| PartitionOffset {
                partition,
                offset,
                part,
            }),
            0..=most,
        )
    }

    proptest! {
        #[test]
        fn written_cursors_are_read_back(partition_offsets in any_partition_offsets(PARTITIONS_MAX), millis in 0..u64::MAX >> 24) {
            let (ours, scope) = (cursors(&[b"a key of some length"]), scope("S.f", &["t"]));
            let position: Position = partition_offsets.iter().copied().collect();
            let own = partition_offsets.last().copied().unwrap_or_default();
            let published = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let text = ours.encode(scope, &position, own, Some(published)).unwrap();
            prop_assert!(text.len() <= CURSOR_BYTES_MAX);
            match ours.decode(&text, scope).unwrap() {
                Resume::After(read) => prop_assert_eq!(read, position),
                Resume::Since { partition_offset, time } => {
                    prop_assert_eq!(partition_offset, own);
                    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    let margin = Duration::from_millis(millis).saturating_sub(since);
                    prop_assert!(margin <= OTHER_PARTITIONS_LAG_MAX);
                }
            }
        }

        #[test]
        fn changed_or_truncated_cursors_are_refused(
            partition_offsets in any_partition_offsets(8), at in any::<prop::sample::Index>(), bit in 0..8u32,
        ) {
            let (ours, scope) = (cursors(&[b"a key of some length"]), scope("S.f", &["t"]));
            let position: Position = partition_offsets.into_iter().collect();
            let Some(text) = ours.encode(scope, &position, partition_offset(0, 1), None) else {
                return Ok(());
            };
            let at = at.index(text.len());
            prop_assert_eq!(ours.decode(&text[..at], scope), Err(CursorError::Invalid));
            let mut flipped = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let byte = at * 3 / 4;
            flipped[byte] ^= 1 << bit;
            let flipped = URL_SAFE_NO_PAD.encode(flipped);
            prop_assert_eq!(ours.decode(&flipped, scope), Err(CursorError::Invalid));
        }

        #[test]
        fn unsigned_texts_are_refused(text in ".{0,300}", bytes in vec(any::<u8>(), 0..192)) {
            let (ours, scope) = (cursors(&[b"a key of some length"]), scope("S.f", &["t"]));
            for text in [text, URL_SAFE_NO_PAD.encode(&bytes)] {
                prop_assert_eq!(ours.decode(&text, scope), Err(CursorError::Invalid));
            }
            let _ = read_position(&mut &bytes[..]);
        }
    }

    #[test]
    fn keys_are_rotated_by_putting_the_new_one_first() {
        let scope = scope("S.f", &["t"]);
        let position: Position = [partition_offset(3, 4)].into_iter().collect();
        let old = cursors(&[b"the old key, 16 bytes"]);
        let text = old.encode(scope, &position, partition_offset(3, 4), None).unwrap();
        let both = cursors(&[b"the new key, 16 bytes", b"the old key, 16 bytes"]);
        assert_eq!(both.decode(&text, scope), Ok(Resume::After(position.clone())));
        let new = cursors(&[b"the new key, 16 bytes"]);
        assert_eq!(new.decode(&text, scope), Err(CursorError::Invalid));
        let text = both.encode(scope, &position, partition_offset(3, 4), None).unwrap();
        assert!(new.decode(&text, scope).is_ok() && old.decode(&text, scope).is_err());
        let [one, other] = [cursors(&[]), cursors(&[])];
        let text = one.encode(scope, &position, partition_offset(3, 4), None).unwrap();
        assert!(one.decode(&text, scope).is_ok() && other.decode(&text, scope).is_err());
    }

    #[test]
    fn a_cursor_is_valid_for_one_field_and_its_topics() {
        let ours = cursors(&[b"a key of some length"]);
        let written = ours.encode(
            scope("S.f", &["a", "b"]),
            &Position::default(),
            partition_offset(0, 1),
            None,
        );
        let written = written.unwrap();
        assert!(ours.decode(&written, scope("S.f", &["b", "a"])).is_ok(), "topics are a set");
        for (field, topics) in [("S.g", &["a", "b"][..]), ("S.f", &["a"]), ("S.f", &["ab"])] {
            assert_eq!(ours.decode(&written, scope(field, topics)), Err(CursorError::Foreign));
        }
    }

    #[test]
    fn a_cursor_is_valid_in_one_graph() {
        let first = cursors(&[b"a key of some length"]);
        let (beta, gamma) = (first.clone().for_graph("beta"), first.clone().for_graph("gamma"));
        let scope = |cursors: &Cursors| cursors.scope("S.f", &source(&["t"]), &[]);
        let position: Position = [partition_offset(0, 4)].into_iter().collect();
        for (ours, others) in [(&first, [&beta, &gamma]), (&beta, [&first, &gamma])] {
            let text = ours.encode(scope(ours), &position, partition_offset(0, 4), None).unwrap();
            assert_eq!(ours.decode(&text, scope(ours)), Ok(Resume::After(position.clone())));
            for other in others {
                assert_eq!(other.decode(&text, scope(other)), Err(CursorError::Foreign));
            }
        }
        // Cursors of earlier routers stay valid.
        assert_eq!(scope(&first), Scope::new("default", "S.f", &source(&["t"]), &[]));
    }

    #[test]
    fn thirty_two_partitions_fit_and_more_resume_by_time() {
        let (ours, scope) = (cursors(&[b"a key of some length"]), scope("S.f", &["t"]));
        let offset =
            |partition: u32| u64::from(partition).wrapping_mul(2_654_435_761) % 10_000_000_000;
        let partitions =
            |count| -> Position { (0..count).map(|it| partition_offset(it, offset(it))).collect() };
        let text =
            ours.encode(scope, &partitions(32), partition_offset(5, offset(5)), None).unwrap();
        assert!(text.len() <= CURSOR_BYTES_MAX, "{}", text.len());
        assert_eq!(ours.decode(&text, scope), Ok(Resume::After(partitions(32))));
        assert_eq!(ours.encode(scope, &partitions(33), partition_offset(5, 1), None), None);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let text = ours.encode(scope, &partitions(33), partition_offset(5, 1), Some(now)).unwrap();
        let since = Resume::Since {
            partition_offset: partition_offset(5, 1),
            time: now - OTHER_PARTITIONS_LAG_MAX,
        };
        assert_eq!(ours.decode(&text, scope), Ok(since));
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", cursors(&[b"hunter2hunter2hu"])), "Cursors { keys: 1, .. }");
    }
}

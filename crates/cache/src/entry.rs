//! A stored entry: one allocation with a head of fixed size, the tags, the caller's extra bytes and the body; behind it
//! the copies of the body in other codings, if there are any, each of them with its coding and size at the end.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use triomphe::ThinArc;

use crate::entry_classes::{CLASSES_MAX, ClassId};
use crate::invalidation_table::Sequence;
use crate::policy::CachePolicy;
use crate::scope::Scope;
use crate::tags::{Tag, Tags};
use crate::time::{Timestamp, millis};
use crate::time_to_live::ResponseContent;

/// The memory of an entry beside its tags, extra bytes and body, as `benches/eviction.rs` measures it. It counts as
/// part of the entry, so that `bytes_max` bounds the memory of many small entries too.
pub const ENTRY_OVERHEAD_BYTES: usize = 112;

/// The maximum size of the bytes that a caller stores beside the body.
pub const EXTRA_BYTES_MAX: usize = u16::MAX as usize;

const TAG_BYTES: usize = size_of::<u64>();

/// The size of the coding and the size of one copy, behind all copies.
const COPY_HEAD_BYTES: usize = size_of::<u8>() + size_of::<u32>();

/// The fixed part of an entry. A million entries exist, so each field is as small as its range allows.
#[derive(Clone, Copy, Debug)]
struct EntryHead {
    sequence: U48,
    began: U48,
    /// The tag of the entity, as [`Tag::to_40_bits`] makes it; 0 if there is none.
    entity: [u8; 5],
    fetch_took: RoughTime,
    /// A time in milliseconds, cut to 49 days.
    fresh_for: [u16; 2],
    stale_for: RoundedTime,
    stale_if_error: RoundedTime,
    tags: u16,
    extra: u16,
    /// The class above the flags.
    class_and_flags: u16,
}

const _: () = assert!(size_of::<EntryHead>() == 32);

/// A time in 2 bytes: a number of 14 bits and its unit. Times above 16 seconds are cut to whole seconds, above 4 hours
/// to minutes, and above 11 days to hours, which is exact for the times that people write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RoundedTime(u16);

impl RoundedTime {
    const UNITS_MILLIS: [u64; 4] = [1, 1_000, 60_000, 3_600_000];
    const NUMBER_BITS: u32 = 14;
    const NUMBER_MAX: u64 = (1 << Self::NUMBER_BITS) - 1;

    fn new(time: Duration) -> Self {
        let millis = millis(time);
        let numbers = Self::UNITS_MILLIS.map(|unit| millis / unit);
        let unit = numbers.iter().position(|number| *number <= Self::NUMBER_MAX);
        let unit = unit.unwrap_or(numbers.len() - 1);
        Self((unit << Self::NUMBER_BITS) as u16 | numbers[unit].min(Self::NUMBER_MAX) as u16)
    }

    fn get(self) -> Duration {
        let unit = Self::UNITS_MILLIS[usize::from(self.0 >> Self::NUMBER_BITS)];
        Duration::from_millis((u64::from(self.0) & Self::NUMBER_MAX) * unit)
    }
}

/// A time in one byte, for which an eighth is precise enough: 4 bits that are shifted by the other 4. Times above 8
/// minutes are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RoughTime(u8);

impl RoughTime {
    const DIGITS: u32 = 4;

    fn new(time: Duration) -> Self {
        let millis = millis(time);
        let shift = (u64::BITS - millis.leading_zeros()).saturating_sub(Self::DIGITS);
        if shift >= 1 << (u8::BITS - Self::DIGITS) {
            return Self(u8::MAX);
        }
        Self((shift << Self::DIGITS) as u8 | (millis >> shift) as u8)
    }

    fn get(self) -> Duration {
        let digits = u64::from(self.0) & ((1 << Self::DIGITS) - 1);
        Duration::from_millis(digits << (self.0 >> Self::DIGITS))
    }
}

/// 48 bits without the alignment of a word: milliseconds for 8,900 years, or all sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct U48([u16; 3]);

impl U48 {
    fn new(value: u64) -> Self {
        let value = value.min((1 << 48) - 1);
        Self([(value >> 32) as u16, (value >> 16) as u16, value as u16])
    }

    fn get(self) -> u64 {
        self.0.iter().fold(0, |value, part| value << 16 | u64::from(*part))
    }
}

const IS_PRIVATE: u16 = 1;
const IS_NOT_FOUND: u16 = 2;
const IS_UNBOUNDED: u16 = 4;
const HAS_COPIES: u16 = 8;

/// The number of bits of the flags.
const FLAG_BITS: u32 = 5;

const _: () = assert!(CLASSES_MAX << FLAG_BITS <= 1 << u16::BITS);

/// A stored entry. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntry(ThinArc<EntryHead, u8>);

/// The parts of a new entry.
pub(crate) struct EntryParts<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) began: Timestamp,
    pub(crate) fetch_took: Duration,
    pub(crate) policy: &'a CachePolicy,
    /// The class.
    pub(crate) class: ClassId,
    /// Tags that the class has, and that are not stored.
    pub(crate) implied: &'a [Tag],
    /// The tag of the entity, which is not stored either.
    pub(crate) entity: Option<Tag>,
    /// Other tags of the address.
    pub(crate) own: &'a [Tag],
    pub(crate) content: ResponseContent,
    pub(crate) extra: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl StoredEntry {
    /// Creates an entry. `extra` has at most [`EXTRA_BYTES_MAX`] bytes.
    pub(crate) fn new(parts: &EntryParts<'_>) -> Self {
        let EntryParts { policy, extra, body, .. } = parts;
        let is_known = |tag: &Tag| {
            parts.implied.contains(tag) || parts.entity == Some(*tag) || parts.own.contains(tag)
        };
        let of_policy = policy.tags.iter().filter(|tag| !is_known(tag));
        let stored = parts.own.iter().copied().chain(of_policy);
        let tags = parts.own.len() + policy.tags.iter().len();
        let mut bytes = Vec::with_capacity(tags * TAG_BYTES + extra.len() + body.len());
        stored.for_each(|tag| bytes.extend_from_slice(&tag.0.to_le_bytes()));
        // `Tags` are bounded below 2^16, and the store checks the size of `extra`.
        let tags = (bytes.len() / TAG_BYTES) as u16;
        bytes.extend_from_slice(extra);
        bytes.extend_from_slice(body);
        let fresh_for = u32::try_from(millis(policy.fresh_for)).unwrap_or(u32::MAX);
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let head = EntryHead {
            sequence: U48::new(parts.sequence.0),
            began: U48::new(parts.began.0),
            entity: parts.entity.map_or([0; 5], Tag::to_40_bits),
            fetch_took: RoughTime::new(parts.fetch_took),
            fresh_for: [(fresh_for >> 16) as u16, fresh_for as u16],
            stale_for: RoundedTime::new(policy.stale_for),
            stale_if_error: RoundedTime::new(policy.stale_if_error),
            tags,
            extra: extra.len() as u16,
            class_and_flags: parts.class.0 << FLAG_BITS
                | flag(policy.scope == Scope::Private, IS_PRIVATE)
                | flag(parts.content == ResponseContent::NotFound, IS_NOT_FOUND)
                | flag(policy.tags.is_unbounded(), IS_UNBOUNDED),
        };
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    fn head(&self) -> &EntryHead {
        &self.0.header.header
    }

    fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// The number of bytes of tags, extra and body.
    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(crate) fn sequence(&self) -> Sequence {
        Sequence(self.head().sequence.get())
    }

    pub(crate) fn began(&self) -> Timestamp {
        Timestamp(self.head().began.get())
    }

    pub(crate) fn fresh_for(&self) -> Duration {
        let [high, low] = self.head().fresh_for.map(u64::from);
        Duration::from_millis(high << 16 | low)
    }

    pub(crate) fn stale_for(&self) -> Duration {
        self.head().stale_for.get()
    }

    pub(crate) fn stale_if_error(&self) -> Duration {
        self.head().stale_if_error.get()
    }

    pub(crate) fn fetch_took(&self) -> Duration {
        self.head().fetch_took.get()
    }

    pub(crate) fn is_unbounded(&self) -> bool {
        self.head().class_and_flags & IS_UNBOUNDED != 0
    }

    pub(crate) fn is_private(&self) -> bool {
        self.head().class_and_flags & IS_PRIVATE != 0
    }

    pub(crate) fn class(&self) -> ClassId {
        ClassId(self.head().class_and_flags >> FLAG_BITS)
    }

    pub(crate) fn content(&self) -> ResponseContent {
        match self.head().class_and_flags & IS_NOT_FOUND != 0 {
            true => ResponseContent::NotFound,
            false => ResponseContent::Data,
        }
    }

    /// The tag of the entity as [`Tag::from_40_bits`] restores it; `None` if the entry is not for one.
    pub(crate) fn entity(&self) -> Option<Tag> {
        Some(self.head().entity).filter(|bits| *bits != [0; 5]).map(Tag::from_40_bits)
    }

    /// The tags that are stored in the entry.
    pub(crate) fn stored_tags(&self) -> impl Iterator<Item = Tag> + '_ {
        let length = usize::from(self.head().tags) * TAG_BYTES;
        let (words, _) = self.bytes()[..length].as_chunks::<TAG_BYTES>();
        words.iter().map(|word| Tag(u64::from_le_bytes(*word)))
    }

    /// The policy as it was stored, with the implied tags.
    #[cfg(test)]
    pub(crate) fn policy(&self, implied: &[Tag]) -> CachePolicy {
        let tags = match self.is_unbounded() {
            true => Tags::unbounded(),
            false => self.stored_tags().chain(implied.iter().copied()).collect(),
        };
        CachePolicy { tags, ..self.times() }
    }

    /// The policy as it was stored, without tags.
    pub(crate) fn times(&self) -> CachePolicy {
        CachePolicy {
            fresh_for: self.fresh_for(),
            stale_for: self.stale_for(),
            stale_if_error: self.stale_if_error(),
            scope: match self.is_private() {
                true => Scope::Private,
                false => Scope::Public,
            },
            tags: Tags::default(),
        }
    }

    fn extra_start(&self) -> usize {
        usize::from(self.head().tags) * TAG_BYTES
    }

    fn body_start(&self) -> usize {
        self.extra_start() + usize::from(self.head().extra)
    }

    pub(crate) fn extra(&self) -> &[u8] {
        &self.bytes()[self.extra_start()..self.body_start()]
    }

    fn body_end(&self) -> usize {
        let sizes = self.copy_heads().map(|(_, size)| size);
        let (count, all) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
        // The number of copies is behind their heads.
        let heads = if count > 0 { count * COPY_HEAD_BYTES + 1 } else { 0 };
        self.bytes().len() - heads - all
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes()[self.body_start()..self.body_end()]
    }

    /// Returns the body as shared bytes that keep the entry alive. Allocates some 40 bytes and copies nothing.
    pub(crate) fn shared_body(&self) -> Bytes {
        Bytes::from_owner(EntryPart(self.clone(), self.body_start()..self.body_end()))
    }

    /// The coding and the size of each copy.
    fn copy_heads(&self) -> impl Iterator<Item = (u8, usize)> + '_ {
        let has_copies = self.head().class_and_flags & HAS_COPIES != 0;
        let bytes = if has_copies { self.bytes() } else { &[] };
        let (count, rest) = bytes.split_last().map_or((0, bytes), |(count, rest)| (*count, rest));
        let heads = &rest[rest.len() - usize::from(count) * COPY_HEAD_BYTES..];
        let (heads, _) = heads.as_chunks::<COPY_HEAD_BYTES>();
        heads
            .iter()
            .map(|[coding, a, b, c, d]| (*coding, u32::from_le_bytes([*a, *b, *c, *d]) as usize))
    }

    /// Returns the copy of the body in a coding, as shared bytes that keep the entry alive.
    pub(crate) fn copy_in(&self, coding: u8) -> Option<Bytes> {
        let mut start = self.body_end();
        for (known, size) in self.copy_heads() {
            if known == coding {
                return Some(Bytes::from_owner(EntryPart(self.clone(), start..start + size)));
            }
            start += size;
        }
        None
    }

    /// The number of bytes that a further copy of this size adds.
    pub(crate) fn copy_bytes(&self, size: usize) -> usize {
        let is_first = self.head().class_and_flags & HAS_COPIES == 0;
        size + COPY_HEAD_BYTES + usize::from(is_first)
    }

    /// Returns the entry with a further copy of its body. `copy` has less than 4 GiB, as all entries, and there are at
    /// most 255 copies.
    pub(crate) fn with_copy(&self, coding: u8, copy: &[u8]) -> Self {
        let heads: Vec<(u8, usize)> = self.copy_heads().chain([(coding, copy.len())]).collect();
        let old = self.bytes();
        let copies_end = self.body_end() + heads.iter().rev().skip(1).map(|it| it.1).sum::<usize>();
        let mut bytes = Vec::with_capacity(old.len() + self.copy_bytes(copy.len()));
        bytes.extend_from_slice(&old[..copies_end]);
        bytes.extend_from_slice(copy);
        for (coding, size) in &heads {
            bytes.push(*coding);
            bytes.extend_from_slice(&(*size as u32).to_le_bytes());
        }
        bytes.push(heads.len() as u8);
        let mut head = *self.head();
        head.class_and_flags |= HAS_COPIES;
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.head(), other.head())
    }

    /// True if both are the same response, with other copies at most.
    pub(crate) fn is_same_response(&self, other: &Self) -> bool {
        self.is_same(other)
            || self.sequence() == other.sequence()
                && self.began() == other.began()
                && self.bytes()[..self.body_end()] == other.bytes()[..other.body_end()]
    }
}

/// A part of an entry as the owner of shared bytes.
struct EntryPart(StoredEntry, Range<usize>);

impl AsRef<[u8]> for EntryPart {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes()[self.1.clone()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_entry_has_what_was_stored(
            sequence in 0u64..1 << 44,
            began in 0u64..1 << 48,
            fresh_for in 0u32..,
            stale_times in [0u64..16_384, 0u64..16_384],
            entity in proptest::option::of(1u64..),
            tags in proptest::collection::btree_set(3u64.., 0..6),
            class in 0..CLASSES_MAX as u16,
            is_private: bool,
            is_not_found: bool,
            extra: Vec<u8>,
            body: Vec<u8>,
            copies in proptest::collection::vec(any::<Vec<u8>>(), 0..4),
        ) {
            let fresh_for = Duration::from_millis(fresh_for.into());
            let [stale_for, stale_if_error] = stale_times.map(Duration::from_millis);
            let scope = if is_private { Scope::Private } else { Scope::Public };
            let all: Tags = tags.iter().copied().map(Tag).collect();
            let policy = CachePolicy { fresh_for, stale_for, stale_if_error, scope, tags: all.clone() };
            let content = if is_not_found { ResponseContent::NotFound } else { ResponseContent::Data };
            let implied: Vec<Tag> = all.iter().take(2).collect();
            let entry = StoredEntry::new(&EntryParts {
                sequence: Sequence(sequence),
                began: Timestamp(began),
                fetch_took: Duration::from_millis(7),
                policy: &policy,
                class: ClassId(class),
                implied: &implied,
                entity: entity.map(Tag),
                own: &[Tag(1), Tag(2)],
                content,
                extra: &extra,
                body: &body,
            });
            prop_assert_eq!(entry.sequence(), Sequence(sequence));
            prop_assert_eq!(entry.began(), Timestamp(began));
            prop_assert_eq!(entry.fetch_took(), Duration::from_millis(7));
            let mut with_own = policy;
            with_own.tags.extend([Tag(1), Tag(2)]);
            prop_assert_eq!(entry.policy(&implied), with_own);
            let stored: Vec<Tag> = [Tag(1), Tag(2)].into_iter().chain(all.iter().skip(2)).collect();
            prop_assert_eq!(&entry.stored_tags().collect::<Vec<_>>(), &stored);
            prop_assert_eq!(entry.class(), ClassId(class));
            let bits = |tag: Tag| tag.to_40_bits();
            let expected = entity.map(Tag).map(bits).filter(|it| *it != [0; 5]);
            prop_assert_eq!(entry.entity().map(bits), expected);
            prop_assert_eq!(entry.is_private(), is_private);
            prop_assert_eq!(entry.content(), content);
            prop_assert_eq!((entry.extra(), entry.body()), (&extra[..], &body[..]));
            prop_assert_eq!(&entry.shared_body(), &body);
            let mut with_copies = entry.clone();
            for (number, copy) in copies.iter().enumerate() {
                prop_assert_eq!(with_copies.copy_in(number as u8), None);
                let larger = with_copies.with_copy(number as u8, copy);
                let added = with_copies.copy_bytes(copy.len());
                prop_assert_eq!(larger.len(), with_copies.len() + added);
                prop_assert!(larger.is_same_response(&entry) && !larger.is_same(&entry));
                with_copies = larger;
            }
            for (number, copy) in copies.iter().enumerate() {
                let found = with_copies.copy_in(number as u8);
                prop_assert_eq!(found.as_deref(), Some(&copy[..]));
            }
            prop_assert_eq!((with_copies.extra(), with_copies.body()), (&extra[..], &body[..]));
            prop_assert_eq!(with_copies.shared_body(), body);
            prop_assert_eq!(with_copies.times(), entry.times());
            prop_assert_eq!(with_copies.class(), ClassId(class));
            let tags: Vec<Tag> = with_copies.stored_tags().collect();
            prop_assert_eq!(tags, stored);
        }
    }

    #[test]
    fn an_entry_with_too_many_tags_remembers_that() {
        let policy = CachePolicy { tags: Tags::unbounded(), ..CachePolicy::default() };
        let entry = StoredEntry::new(&EntryParts {
            sequence: Sequence(0),
            began: Timestamp(0),
            fetch_took: Duration::MAX,
            policy: &policy,
            class: ClassId(0),
            implied: &[],
            entity: None,
            own: &[],
            content: ResponseContent::Data,
            extra: b"",
            body: b"",
        });
        assert_eq!(entry.policy(&[]), policy);
        assert_eq!(entry.fetch_took(), Duration::from_millis(15 << 15));
    }

    #[test]
    fn times_that_people_write_are_exact_and_no_time_becomes_longer() {
        let round = |time| RoundedTime::new(time).get();
        let seconds = [1, 16, 17, 90, 3_600, 4 * 3_600, 5 * 3_600, 86_400, 7 * 86_400, 30 * 86_400];
        for time in seconds.map(Duration::from_secs) {
            assert_eq!(round(time), time);
        }
        for millis in (0..40_000_000_000_u64).step_by(7_777_777) {
            let (time, rounded) =
                (Duration::from_millis(millis), round(Duration::from_millis(millis)));
            assert!(
                rounded <= time && time - rounded < time / 16 + Duration::from_millis(1),
                "{time:?}"
            );
        }
        assert_eq!(round(Duration::MAX), Duration::from_secs(16_383 * 3_600));
    }
}

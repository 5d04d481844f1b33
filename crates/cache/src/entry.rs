//! A stored entry: one allocation with a head of fixed size, the tags, the caller's extra bytes and the body.

use std::time::Duration;

use bytes::Bytes;
use triomphe::ThinArc;

use crate::invalidation_table::Sequence;
use crate::policy::{CachePolicy, Scope};
use crate::tags::{Tag, Tags};
use crate::time::{Timestamp, millis};
use crate::time_to_live::ResponseContent;

/// The maximum size of the bytes that a caller stores beside the body.
pub const EXTRA_BYTES_MAX: usize = u16::MAX as usize;

const TAG_BYTES: usize = size_of::<u64>();

/// The fixed part of an entry. A million entries exist, so each field is as small as its range allows.
#[derive(Clone, Copy, Debug)]
struct EntryHead {
    sequence: U48,
    began: U48,
    /// Times in milliseconds, cut to 49 days.
    fresh_for: u32,
    stale_for: u32,
    stale_if_error: u32,
    /// The duration of the fetch in milliseconds, cut to a minute: longer fetches are not refreshed earlier.
    fetch_took: u16,
    tags: u16,
    extra: u16,
    flags: u8,
}

const _: () = assert!(size_of::<EntryHead>() == 32);

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

const IS_PRIVATE: u8 = 1;
const IS_NOT_FOUND: u8 = 2;
const IS_UNBOUNDED: u8 = 4;

/// A stored entry. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntry(ThinArc<EntryHead, u8>);

/// The parts of a new entry.
pub(crate) struct EntryParts<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) began: Timestamp,
    pub(crate) fetch_took: Duration,
    pub(crate) policy: &'a CachePolicy,
    /// Tags of the policy that lookups pass in, and that are not stored.
    pub(crate) implied: &'a [Tag],
    pub(crate) content: ResponseContent,
    pub(crate) extra: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl StoredEntry {
    /// Creates an entry. `extra` has at most [`EXTRA_BYTES_MAX`] bytes.
    pub(crate) fn new(parts: &EntryParts<'_>) -> Self {
        let EntryParts { policy, extra, body, .. } = parts;
        let stored = policy.tags.iter().filter(|tag| !parts.implied.contains(tag));
        let room = policy.tags.iter().len() * TAG_BYTES + extra.len() + body.len();
        let mut bytes = Vec::with_capacity(room);
        stored.for_each(|tag| bytes.extend_from_slice(&tag.0.to_le_bytes()));
        // `Tags` are bounded below 2^16, and the store checks the size of `extra`.
        let tags = (bytes.len() / TAG_BYTES) as u16;
        bytes.extend_from_slice(extra);
        bytes.extend_from_slice(body);
        let short = |time: Duration| u32::try_from(millis(time)).unwrap_or(u32::MAX);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let head = EntryHead {
            sequence: U48::new(parts.sequence.0),
            began: U48::new(parts.began.0),
            fresh_for: short(policy.fresh_for),
            stale_for: short(policy.stale_for),
            stale_if_error: short(policy.stale_if_error),
            fetch_took: u16::try_from(millis(parts.fetch_took)).unwrap_or(u16::MAX),
            tags,
            extra: extra.len() as u16,
            flags: flag(policy.scope == Scope::Private, IS_PRIVATE)
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
        Duration::from_millis(self.head().fresh_for.into())
    }

    pub(crate) fn stale_for(&self) -> Duration {
        Duration::from_millis(self.head().stale_for.into())
    }

    pub(crate) fn stale_if_error(&self) -> Duration {
        Duration::from_millis(self.head().stale_if_error.into())
    }

    pub(crate) fn fetch_took(&self) -> Duration {
        Duration::from_millis(self.head().fetch_took.into())
    }

    pub(crate) fn is_unbounded(&self) -> bool {
        self.head().flags & IS_UNBOUNDED != 0
    }

    pub(crate) fn content(&self) -> ResponseContent {
        match self.head().flags & IS_NOT_FOUND != 0 {
            true => ResponseContent::NotFound,
            false => ResponseContent::Data,
        }
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
            scope: match self.head().flags & IS_PRIVATE != 0 {
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

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes()[self.body_start()..]
    }

    /// Returns the body as shared bytes that keep the entry alive. Allocates some 40 bytes and copies nothing.
    pub(crate) fn shared_body(&self) -> Bytes {
        Bytes::from_owner(EntryBody(self.clone()))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.head(), other.head())
    }
}

/// The body of an entry as the owner of shared bytes.
struct EntryBody(StoredEntry);

impl AsRef<[u8]> for EntryBody {
    fn as_ref(&self) -> &[u8] {
        self.0.body()
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
            times in [0u32.., 0u32.., 0u32..],
            tags in proptest::collection::btree_set(any::<u64>(), 0..6),
            is_private: bool,
            is_not_found: bool,
            extra: Vec<u8>,
            body: Vec<u8>,
        ) {
            let [fresh_for, stale_for, stale_if_error] = times.map(|it| Duration::from_millis(it.into()));
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
                implied: &implied,
                content,
                extra: &extra,
                body: &body,
            });
            prop_assert_eq!(entry.sequence(), Sequence(sequence));
            prop_assert_eq!(entry.began(), Timestamp(began));
            prop_assert_eq!(entry.fetch_took(), Duration::from_millis(7));
            prop_assert_eq!(entry.policy(&implied), policy);
            prop_assert_eq!(entry.stored_tags().collect::<Vec<_>>(), all.iter().skip(2).collect::<Vec<_>>());
            prop_assert_eq!(entry.content(), content);
            prop_assert_eq!((entry.extra(), entry.body()), (&extra[..], &body[..]));
            prop_assert_eq!(entry.shared_body(), body);
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
            implied: &[],
            content: ResponseContent::Data,
            extra: b"",
            body: b"",
        });
        assert_eq!(entry.policy(&[]), policy);
        assert_eq!(entry.fetch_took(), Duration::from_millis(65_535));
    }
}

//! The form of an entry in a store that several routers share.
//!
//! Any bytes may be under a key: those of another program, of another version of the router, or only the beginning of
//! an entry. So an entry has a checksum, which also covers its key, and a length. Bytes that are not exactly one entry
//! of this key are [`NotAnEntry`], which counts as a miss. The checksum protects against accidents. A program that can
//! write to the store can write valid entries too.
//!
//! All numbers are little endian:
//!
//! | bytes | |
//! |---|---|
//! | 4 | `SCE` and the version of the form |
//! | 8 | XXH3 of the key and of everything that follows |
//! | 16 + 8 | the epoch of the log of invalidations, and the sequence at which the fetch began |
//! | 8 | the time at which the fetch began, in milliseconds since the UNIX epoch |
//! | 4 + 4 + 4 | the times of the policy in milliseconds: fresh, stale, stale if the fetch fails |
//! | 2 | the duration of the fetch in milliseconds |
//! | 1 | flags: private, not found, unbounded tags |
//! | 2 | the number of tags |
//! | 4 | the size of the body |
//! | 8 each | the tags |
//! | | the body |

use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3Default;

use crate::invalidation_table::Sequence;
use crate::keys::SharedKey;
use crate::policy::CachePolicy;
use crate::scope::Scope;
use crate::shared_log::{LogEpoch, SharedStart};
use crate::tags::{TAGS_MAX, Tag, Tags};
use crate::time::{Timestamp, millis};
use crate::time_to_live::ResponseContent;

/// The beginning of every entry. Its last byte is the version of the form.
const MAGIC: [u8; 4] = *b"SCE\x01";

/// The size of an entry without tags and body.
const HEAD_BYTES: usize = 65;

/// The beginning of what the checksum covers.
const CHECKED_FROM: usize = 12;

const IS_PRIVATE: u8 = 1;
const IS_NOT_FOUND: u8 = 2;
const IS_UNBOUNDED: u8 = 4;

/// The maximum size of the body of a shared entry: 2 ms at a gigabit per second, a fifth of the time limit of a store
/// by default. A larger one would delay the other commands of its connection.
pub const SHARED_BODY_BYTES_MAX: usize = 256 << 10;

/// The maximum size of a shared entry. Readers read no more than one byte above it.
pub const SHARED_ENTRY_BYTES_MAX: usize =
    HEAD_BYTES + TAGS_MAX * size_of::<u64>() + SHARED_BODY_BYTES_MAX;

/// An entry of a store that several routers share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedEntry {
    /// The point in the order of shared invalidations at which the fetch began.
    pub start: SharedStart,
    /// The time at which the fetch began.
    pub began: Timestamp,
    /// The duration of the fetch, cut to 65 seconds.
    pub fetch_took: Duration,
    /// The policy, with the tags that do not follow from the address. Times are cut to 49 days.
    pub policy: CachePolicy,
    /// Whether the body has data.
    pub content: ResponseContent,
    /// The body.
    pub body: Bytes,
}

/// Bytes that are not an entry of their key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the value is not an entry of the cache")]
pub struct NotAnEntry;

impl SharedEntry {
    /// Returns the bytes of the entry. `None` if its body is larger than [`SHARED_BODY_BYTES_MAX`].
    pub fn encode(&self, key: &SharedKey) -> Option<Vec<u8>> {
        if self.body.len() > SHARED_BODY_BYTES_MAX {
            return None;
        }
        let policy = &self.policy;
        let tags = policy.tags.iter();
        let size = HEAD_BYTES + tags.len() * size_of::<u64>() + self.body.len();
        let short = |time: Duration| u32::try_from(millis(time)).unwrap_or(u32::MAX);
        let took = u16::try_from(millis(self.fetch_took)).unwrap_or(u16::MAX);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(policy.scope == Scope::Private, IS_PRIVATE)
            | flag(self.content == ResponseContent::NotFound, IS_NOT_FOUND)
            | flag(policy.tags.is_unbounded(), IS_UNBOUNDED);
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.start.epoch.0);
        out.extend_from_slice(&self.start.sequence.0.to_le_bytes());
        out.extend_from_slice(&self.began.0.to_le_bytes());
        for time in [policy.fresh_for, policy.stale_for, policy.stale_if_error] {
            out.extend_from_slice(&short(time).to_le_bytes());
        }
        out.extend_from_slice(&took.to_le_bytes());
        out.push(flags);
        // `Tags` are bounded below 2^16, and the body above.
        out.extend_from_slice(&(tags.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        tags.for_each(|tag| out.extend_from_slice(&tag.0.to_le_bytes()));
        out.extend_from_slice(&self.body);
        Self::set_checksum(key, &mut out);
        Some(out)
    }

    /// Sets the checksum in the bytes of an entry. Public for the fuzzer, which cannot guess it. Shorter bytes stay as
    /// they are.
    pub fn set_checksum(key: &SharedKey, entry: &mut [u8]) {
        let sum = checksum(key, entry);
        if let Some(place) = entry.get_mut(MAGIC.len()..CHECKED_FROM) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Reads an entry that was found under `key`.
    ///
    /// # Errors
    /// The bytes are anything but one entry of this key in this version of the form.
    pub fn decode(key: &SharedKey, bytes: Bytes) -> Result<Self, NotAnEntry> {
        let mut head = Fields(bytes.get(..HEAD_BYTES).ok_or(NotAnEntry)?);
        let (magic, sum) = (head.take()?, u64::from_le_bytes(head.take()?));
        if magic != MAGIC || sum != checksum(key, &bytes) {
            return Err(NotAnEntry);
        }
        let epoch = LogEpoch(head.take()?);
        let sequence = Sequence(u64::from_le_bytes(head.take()?));
        let began = Timestamp(u64::from_le_bytes(head.take()?));
        let mut time =
            || head.take().map(|it| Duration::from_millis(u32::from_le_bytes(it).into()));
        let (fresh_for, stale_for, stale_if_error) = (time()?, time()?, time()?);
        let fetch_took = Duration::from_millis(u16::from_le_bytes(head.take()?).into());
        let [flags] = head.take()?;
        let tags = usize::from(u16::from_le_bytes(head.take()?));
        let body = u32::from_le_bytes(head.take()?) as usize;
        let body_start = HEAD_BYTES + tags * size_of::<u64>();
        if tags > TAGS_MAX || body > SHARED_BODY_BYTES_MAX || bytes.len() != body_start + body {
            return Err(NotAnEntry);
        }
        let (words, _) = bytes[HEAD_BYTES..body_start].as_chunks::<{ size_of::<u64>() }>();
        let tags = words.iter().map(|word| Tag(u64::from_le_bytes(*word))).collect();
        let tags = Tags::of_list(tags, flags & IS_UNBOUNDED != 0);
        let scope = if flags & IS_PRIVATE != 0 { Scope::Private } else { Scope::Public };
        Ok(Self {
            start: SharedStart { epoch, sequence },
            began,
            fetch_took,
            policy: CachePolicy { fresh_for, stale_for, stale_if_error, scope, tags },
            content: match flags & IS_NOT_FOUND != 0 {
                true => ResponseContent::NotFound,
                false => ResponseContent::Data,
            },
            body: bytes.slice(body_start..),
        })
    }
}

/// Reads fields of fixed sizes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NotAnEntry> {
        let (field, rest) = self.0.split_first_chunk().ok_or(NotAnEntry)?;
        self.0 = rest;
        Ok(*field)
    }
}

fn checksum(key: &SharedKey, entry: &[u8]) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(&key.0);
    hasher.update(entry.get(CHECKED_FROM..).unwrap_or_default());
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: SharedKey = SharedKey([7; 32]);

    fn entries() -> impl Strategy<Value = SharedEntry> {
        let start = (any::<[u8; 16]>(), any::<u64>(), any::<u64>());
        let tags = (proptest::collection::vec(any::<u64>(), 0..9), any::<bool>());
        let flags = any::<[bool; 2]>();
        let body = proptest::collection::vec(any::<u8>(), 0..200);
        (start, any::<[u32; 3]>(), any::<u16>(), tags, flags, body).prop_map(
            |((epoch, sequence, began), times, took, (tags, is_unbounded), flags, body)| {
                let [fresh_for, stale_for, stale_if_error] =
                    times.map(|it| Duration::from_millis(it.into()));
                let tags = Tags::of_list(tags.into_iter().map(Tag).collect(), is_unbounded);
                let scope = if flags[0] { Scope::Private } else { Scope::Public };
                SharedEntry {
                    start: SharedStart { epoch: LogEpoch(epoch), sequence: Sequence(sequence) },
                    began: Timestamp(began),
                    fetch_took: Duration::from_millis(took.into()),
                    policy: CachePolicy { fresh_for, stale_for, stale_if_error, scope, tags },
                    content: match flags[1] {
                        true => ResponseContent::NotFound,
                        false => ResponseContent::Data,
                    },
                    body: body.into(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_was_written(entry in entries()) {
            let bytes = entry.encode(&KEY).expect("a small body");
            prop_assert!(bytes.len() <= SHARED_ENTRY_BYTES_MAX);
            prop_assert_eq!(SharedEntry::decode(&KEY, bytes.into()), Ok(entry));
        }

        #[test]
        fn a_changed_cut_or_extended_entry_is_none(
            entry in entries(),
            place: prop::sample::Index,
            change in 1u8..,
            cut: prop::sample::Index,
        ) {
            let bytes = entry.encode(&KEY).expect("a small body");
            let mut changed = bytes.clone();
            changed[place.index(bytes.len())] ^= change;
            let cut = bytes[..cut.index(bytes.len())].to_vec();
            let extended = [&bytes[..], &[change]].concat();
            for wrong in [changed, cut, extended] {
                prop_assert_eq!(SharedEntry::decode(&KEY, wrong.into()), Err(NotAnEntry));
            }
        }

        #[test]
        fn foreign_bytes_are_no_entry(bytes: Vec<u8>) {
            let with_magic = [&MAGIC[..], &bytes].concat();
            prop_assert_eq!(SharedEntry::decode(&KEY, bytes.into()), Err(NotAnEntry));
            prop_assert_eq!(SharedEntry::decode(&KEY, with_magic.into()), Err(NotAnEntry));
        }
    }

    #[test]
    fn an_entry_under_another_key_is_none() {
        let entry = SharedEntry {
            start: SharedStart { epoch: LogEpoch([1; 16]), sequence: Sequence(3) },
            began: Timestamp(5),
            fetch_took: Duration::MAX,
            policy: CachePolicy { fresh_for: Duration::MAX, ..CachePolicy::default() },
            content: ResponseContent::Data,
            body: Bytes::from_static(b"{}"),
        };
        let bytes = Bytes::from(entry.encode(&KEY).expect("a small body"));
        let read = SharedEntry::decode(&KEY, bytes.clone()).expect("an entry");
        assert_eq!(read.policy.fresh_for, Duration::from_millis(u32::MAX.into()));
        assert_eq!(read.fetch_took, Duration::from_millis(u16::MAX.into()));
        assert_eq!(SharedEntry::decode(&SharedKey([8; 32]), bytes), Err(NotAnEntry));
    }

    #[test]
    fn a_body_that_is_too_large_is_not_shared() {
        let mut entry = SharedEntry {
            start: SharedStart { epoch: LogEpoch([1; 16]), sequence: Sequence(3) },
            began: Timestamp(5),
            fetch_took: Duration::ZERO,
            policy: CachePolicy::default(),
            content: ResponseContent::Data,
            body: vec![b' '; SHARED_BODY_BYTES_MAX].into(),
        };
        assert!(entry.encode(&KEY).is_some());
        entry.body = vec![b' '; SHARED_BODY_BYTES_MAX + 1].into();
        assert_eq!(entry.encode(&KEY), None);
    }
}

//! The texts that clients have sent with their hashes (automatic persisted queries): bounded in bytes and in number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use config::Apq;
use persisted_documents::TextHash;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

/// The number of parts of the store with a lock each. A text larger than a part is not stored.
const STORE_PARTS: usize = 4;

/// The memory for one entry besides its text: key, reference counter, links.
const ENTRY_BYTES: u64 = 128;

/// Texts by their hashes. Texts that were requested only once are removed first, so that a client that stores many
/// texts does not displace those in use.
#[derive(Debug)]
pub(super) struct StoredTexts {
    texts: Cache<TextHash, Bytes, TextWeight, DefaultHashBuilder, EvictionCounter>,
    evicted: Arc<AtomicU64>,
}

/// The weight of a text: its size, and at least the part of the store that one of `max_entries` texts has.
#[derive(Clone, Debug)]
struct TextWeight {
    min: u64,
}

impl Weighter<TextHash, Bytes> for TextWeight {
    fn weight(&self, _: &TextHash, text: &Bytes) -> u64 {
        (text.len() as u64 + ENTRY_BYTES).max(self.min)
    }
}

#[derive(Clone, Debug)]
struct EvictionCounter(Arc<AtomicU64>);

impl Lifecycle<TextHash, Bytes> for EvictionCounter {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: TextHash, _: Bytes) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl StoredTexts {
    pub(super) fn new(settings: &Apq) -> Self {
        let evicted = Arc::<AtomicU64>::default();
        let bytes_max = settings.max_size as u64;
        let entries_max = settings.max_entries as usize;
        let weight = TextWeight { min: bytes_max / settings.max_entries.max(1) as u64 };
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries_max)
            .weight_capacity(bytes_max)
            .shards(STORE_PARTS)
            .build();
        let texts = match options {
            Ok(options) => Cache::with_options(
                options,
                weight,
                DefaultHashBuilder::default(),
                EvictionCounter(Arc::clone(&evicted)),
            ),
            // All required options are set above; without options the store has one part for each processor.
            Err(_) => Cache::with(
                entries_max,
                bytes_max,
                weight,
                DefaultHashBuilder::default(),
                EvictionCounter(Arc::clone(&evicted)),
            ),
        };
        Self { texts, evicted }
    }

    /// Returns the text with this hash.
    pub(super) fn find(&self, hash: TextHash) -> Option<Bytes> {
        self.texts.get(&hash)
    }

    /// Stores a text in memory of its own. Returns true if it was not stored before.
    pub(super) fn store(&self, hash: TextHash, text: &[u8]) -> bool {
        if self.texts.peek(&hash).is_some() {
            return false;
        }
        self.texts.insert(hash, Bytes::copy_from_slice(text));
        true
    }

    /// Removes all texts.
    pub(super) fn clear(&self) {
        self.texts.clear();
    }

    /// The number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The number of texts that made room for others.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(max_size: usize, max_entries: u32) -> StoredTexts {
        StoredTexts::new(&Apq { max_size, max_entries, ..Apq::default() })
    }

    #[test]
    fn a_text_is_stored_once_in_memory_of_its_own() {
        let texts = stored(64 << 10, 16);
        let hash = TextHash::of(b"{ a }");
        assert_eq!(texts.find(hash), None);
        assert!(texts.store(hash, b"{ a }"));
        assert!(!texts.store(hash, b"{ a }"));
        assert_eq!(texts.find(hash).as_deref(), Some(&b"{ a }"[..]));
        texts.clear();
        assert_eq!(texts.find(hash), None);
    }

    #[test]
    fn the_number_and_the_size_of_texts_are_bounded() {
        for (max_size, max_entries, length) in [(1 << 20, 100, 10), (64 << 10, 100_000, 1_000)] {
            let texts = stored(max_size, max_entries);
            for number in 0..5_000_u32 {
                let text = format!("{number:0length$}");
                texts.store(TextHash::of(text.as_bytes()), text.as_bytes());
            }
            let entries = texts.len();
            assert!(entries > 0 && entries <= max_entries as usize, "{entries}");
            assert!(entries * (length + ENTRY_BYTES as usize) <= max_size, "{entries}");
            assert_eq!(texts.evicted(), 5_000 - entries as u64);
        }
    }

    #[test]
    fn texts_in_use_outlive_any_number_of_texts_that_are_sent_once() {
        let texts = stored(1 << 20, 100);
        let used: Vec<_> = (0..20_u32).map(|it| TextHash::of(&it.to_be_bytes())).collect();
        for hash in &used {
            texts.store(*hash, b"{ used }");
            texts.find(*hash);
        }
        for number in 1_000..6_000_u32 {
            texts.store(TextHash::of(&number.to_be_bytes()), b"{ flood }");
            texts.find(used[number as usize % used.len()]);
        }
        let kept = used.iter().filter(|it| texts.find(**it).is_some()).count();
        assert!(kept >= 18, "{kept} of 20 texts in use were kept");
    }
}

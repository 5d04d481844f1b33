//! The key of facts about a text: the whole text, so that two texts never share facts by accident or by intent. A
//! look-up hashes it for a table and compares it, which takes a tenth of the time of a cryptographic hash.

use std::hash::Hash;

use bytes::Bytes;
use quick_cache::{Equivalent, Weighter};

use crate::prepared::OperationRequest;

/// A text with the name of the selected operation, in memory of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TextKey {
    query: Bytes,
    operation_name: Option<Box<str>>,
}

/// The text of a request, for a look-up without a copy. Its hash equals that of its [`TextKey`].
#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct TextRef<'a> {
    query: &'a [u8],
    operation_name: Option<&'a str>,
}

impl<'a> TextRef<'a> {
    pub(crate) fn of(request: &'a OperationRequest) -> Self {
        Self { query: &request.query, operation_name: request.operation_name.as_deref() }
    }

    /// Copies the text: the key outlives the buffer of the request.
    pub(crate) fn to_key(self) -> TextKey {
        TextKey {
            query: Bytes::copy_from_slice(self.query),
            operation_name: self.operation_name.map(Into::into),
        }
    }
}

impl Equivalent<TextKey> for TextRef<'_> {
    fn equivalent(&self, key: &TextKey) -> bool {
        self.query == key.query && self.operation_name == key.operation_name.as_deref()
    }
}

/// Weighs an entry by its memory.
#[derive(Clone, Debug)]
pub(crate) struct TextWeight;

/// The memory of an entry beside its text: facts, places in the tables of the cache.
const ENTRY_BYTES: usize = 256;

impl<V> Weighter<TextKey, V> for TextWeight {
    fn weight(&self, key: &TextKey, _: &V) -> u64 {
        let name = key.operation_name.as_ref().map_or(0, |name| name.len());
        (ENTRY_BYTES + key.query.len() + name) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn a_reference_finds_the_key_of_its_text_and_no_other() {
        let request = |query: &'static str, name: Option<&str>| OperationRequest {
            query: Bytes::from_static(query.as_bytes()),
            operation_name: name.map(Into::into),
            ..OperationRequest::default()
        };
        let requests =
            [request("{ a }", None), request("{ a }", Some("A")), request("{ a }A", None)];
        let hasher = RandomState::new();
        for (at, one) in requests.iter().enumerate() {
            let key = TextRef::of(one).to_key();
            assert_eq!(hasher.hash_one(TextRef::of(one)), hasher.hash_one(&key));
            for (other_at, other) in requests.iter().enumerate() {
                assert_eq!(TextRef::of(other).equivalent(&key), at == other_at);
            }
        }
    }
}

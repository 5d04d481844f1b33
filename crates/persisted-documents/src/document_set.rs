//! The index of all persisted documents. It never changes; a new manifest makes a new set.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::normal_form::normal_form;
use crate::text_hash::TextHash;

/// The maximum length of an id in bytes. Tools use hashes (32 to 64 bytes) and names.
pub const ID_BYTES_MAX: usize = 256;

/// The prefix of an id that is the SHA-256 of the text (GraphQL over HTTP, appendix A).
const HASH_PREFIX: &str = "sha256:";

/// A document that clients may request by its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PersistedDocument {
    /// The id, an opaque text.
    pub id: Box<str>,
    /// The name of its operation, if the manifest has it.
    pub name: Option<Box<str>>,
    /// The client that may use it; `None`: every client.
    pub client: Option<Box<str>>,
    /// The text, which requests share.
    pub text: Bytes,
}

/// Two documents with one id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two documents with different texts have the id `{id}`")]
pub struct DocumentConflict {
    /// The id.
    pub id: Box<str>,
}

/// The documents with one key: one for each client, and one for all others. Their number is the index of the document.
type Candidates = SmallVec<[u32; 2]>;

/// Documents by id, by the hash of the text, and by the text.
#[derive(Debug, Default)]
pub struct DocumentSet {
    documents: Vec<PersistedDocument>,
    /// True if some document belongs to one client.
    has_clients: bool,
    /// Documents by their id, and by their hash where no other document has it as its id.
    by_id: HashMap<Box<str>, Candidates, RandomState>,
    by_text: HashMap<Bytes, Candidates, RandomState>,
    by_normal_form: HashMap<TextHash, Candidates, RandomState>,
}

impl DocumentSet {
    /// Creates the index. With `finds_texts`, documents are also found by their texts, which takes some more memory.
    ///
    /// # Errors
    /// Two documents with different texts have one id and one client.
    pub fn new(
        documents: Vec<PersistedDocument>,
        finds_texts: bool,
    ) -> Result<Self, DocumentConflict> {
        let mut set = Self::default();
        for document in documents {
            let known = set.by_id.get(&document.id).into_iter().flatten();
            let mut known = known.map(|&index| &set.documents[index as usize]);
            if let Some(known) = known.find(|it| it.client == document.client) {
                if known.text != document.text {
                    return Err(DocumentConflict { id: document.id });
                }
                continue;
            }
            // The number of documents is limited to far less.
            let Ok(index) = u32::try_from(set.documents.len()) else { break };
            set.by_id.entry(document.id.clone()).or_default().push(index);
            set.has_clients |= document.client.is_some();
            set.documents.push(document);
            if finds_texts {
                let Self { documents, by_text, by_normal_form, .. } = &mut set;
                let text = &documents[index as usize].text;
                add(by_text.entry(text.clone()).or_default(), documents, index);
                let normal = TextHash::of(&normal_form(text));
                add(by_normal_form.entry(normal).or_default(), documents, index);
            }
        }
        set.add_hashes();
        Ok(set)
    }

    /// Adds the hashes of texts as further ids. An id in a manifest has priority over the hash of another document.
    fn add_hashes(&mut self) {
        let hashes: Vec<Box<str>> =
            self.documents.iter().map(|it| TextHash::of(&it.text).to_string().into()).collect();
        for (index, hash) in (0_u32..).zip(hashes) {
            let Self { documents, by_id, .. } = self;
            let text = &documents[index as usize].text;
            let candidates = by_id.entry(hash).or_default();
            let is_same_text = |&it: &u32| documents[it as usize].text == *text;
            if candidates.iter().all(is_same_text) {
                add(candidates, documents, index);
            }
        }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// True if there are no documents.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// True if no document belongs to one client.
    pub fn are_for_all_clients(&self) -> bool {
        !self.has_clients
    }

    /// All documents, in the order of their manifests.
    pub fn documents(&self) -> &[PersistedDocument] {
        &self.documents
    }

    /// Returns the document with this id for a client. The SHA-256 of a text is an id, too, with or without the prefix
    /// `sha256:`.
    pub fn find(&self, id: &str, client: Option<&str>) -> Option<&PersistedDocument> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let candidates =
            self.by_id.get(id).or_else(|| self.by_id.get(id.strip_prefix(HASH_PREFIX)?));
        self.choose(candidates?, client)
    }

    /// Returns the document with exactly this text for a client.
    pub fn find_text(&self, text: &[u8], client: Option<&str>) -> Option<&PersistedDocument> {
        self.choose(self.by_text.get(text)?, client)
    }

    /// Returns the document with this text, apart from white space, commas and comments, for a client. Takes time in
    /// proportion to the text.
    pub fn find_similar_text(
        &self,
        text: &[u8],
        client: Option<&str>,
    ) -> Option<&PersistedDocument> {
        if self.by_normal_form.is_empty() {
            return None;
        }
        self.choose(self.by_normal_form.get(&TextHash::of(&normal_form(text)))?, client)
    }

    /// Returns the document for this client, or the one for all clients.
    fn choose(&self, candidates: &Candidates, client: Option<&str>) -> Option<&PersistedDocument> {
        let documents = || candidates.iter().map(|&index| &self.documents[index as usize]);
        let own =
            client.and_then(|client| documents().find(|it| it.client.as_deref() == Some(client)));
        own.or_else(|| documents().find(|it| it.client.is_none()))
    }
}

/// Adds a document to those with one key, unless one for the same client is there: many documents may have one text.
fn add(candidates: &mut Candidates, documents: &[PersistedDocument], index: u32) {
    let client = &documents[index as usize].client;
    if !candidates.iter().any(|&it| documents[it as usize].client == *client) {
        candidates.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(id: &str, client: Option<&str>, text: &'static str) -> PersistedDocument {
        let text = Bytes::from_static(text.as_bytes());
        PersistedDocument { id: id.into(), name: None, client: client.map(Into::into), text }
    }

    fn text(found: Option<&PersistedDocument>) -> Option<&str> {
        found.map(|it| std::str::from_utf8(&it.text).expect("a text"))
    }

    #[test]
    fn a_document_is_found_by_its_id_and_by_its_hash() {
        let set = DocumentSet::new(vec![document("a", None, "{ a }")], false).expect("no conflict");
        let hash = TextHash::of(b"{ a }").to_string();
        for id in ["a", &hash, &format!("sha256:{hash}")] {
            assert_eq!(text(set.find(id, Some("any"))), Some("{ a }"), "{id}");
        }
        for id in ["", "b", "../a", "sha256:", &hash[1..], &"a".repeat(1_000_000)] {
            assert_eq!(text(set.find(id, None)), None, "{}", id.len());
        }
        // Without `finds_texts`.
        assert_eq!(set.find_text(b"{ a }", None), None);
        assert_eq!(set.find_similar_text(b"{a}", None), None);
    }

    #[test]
    fn a_document_of_a_client_is_for_that_client_only() {
        let documents =
            vec![document("a", Some("web"), "{ w }"), document("a", Some("ios"), "{ i }")];
        let set = DocumentSet::new(documents, true).expect("no conflict");
        assert_eq!(text(set.find("a", Some("web"))), Some("{ w }"));
        assert_eq!(text(set.find("a", Some("ios"))), Some("{ i }"));
        assert_eq!(text(set.find("a", Some("other"))), None);
        assert_eq!(text(set.find("a", None)), None);
        assert_eq!(text(set.find_text(b"{ w }", Some("ios"))), None);
        assert_eq!(text(set.find_text(b"{ w }", Some("web"))), Some("{ w }"));
        let documents = vec![document("a", Some("web"), "{ w }"), document("a", None, "{ all }")];
        let set = DocumentSet::new(documents, true).expect("no conflict");
        assert_eq!(text(set.find("a", Some("web"))), Some("{ w }"));
        assert_eq!(text(set.find("a", Some("other"))), Some("{ all }"));
        assert_eq!(text(set.find("a", None)), Some("{ all }"));
    }

    #[test]
    fn a_text_with_other_spaces_is_found_as_the_text_of_the_manifest() {
        let set =
            DocumentSet::new(vec![document("a", None, "{ a(x: 1) }")], true).expect("no conflict");
        assert_eq!(text(set.find_text(b"{ a(x: 1) }", None)), Some("{ a(x: 1) }"));
        assert_eq!(text(set.find_text(b"{a(x:1)}", None)), None);
        assert_eq!(text(set.find_similar_text(b"{a(x:1,)}# b", None)), Some("{ a(x: 1) }"));
        assert_eq!(text(set.find_similar_text(b"{a(x:2)}", None)), None);
    }

    #[test]
    fn any_number_of_documents_may_have_one_text() {
        // With a quadratic effort this would take minutes.
        let ids = (0..50_000).map(|it| it.to_string());
        let documents = ids.map(|id| document(&id, None, "{ a }")).collect();
        let set = DocumentSet::new(documents, true).expect("no conflict");
        assert_eq!(text(set.find("49999", Some("web"))), Some("{ a }"));
        assert_eq!(text(set.find_text(b"{ a }", Some("web"))), Some("{ a }"));
        let hash = TextHash::of(b"{ a }").to_string();
        assert_eq!(text(set.find(&hash, Some("web"))), Some("{ a }"));
    }

    #[test]
    fn one_id_has_one_text() {
        let same = vec![document("a", None, "{ a }"), document("a", None, "{ a }")];
        assert_eq!(DocumentSet::new(same, true).map(|it| it.len()), Ok(1));
        let different = vec![document("a", None, "{ a }"), document("a", None, "{ b }")];
        let conflict = DocumentSet::new(different, true).expect_err("a conflict");
        assert_eq!(conflict.to_string(), "two documents with different texts have the id `a`");
    }

    #[test]
    fn an_id_has_priority_over_the_hash_of_another_document() {
        let hash = TextHash::of(b"{ a }").to_string();
        let documents = vec![document("a", None, "{ a }"), document(&hash, None, "{ b }")];
        let set = DocumentSet::new(documents, false).expect("no conflict");
        assert_eq!(text(set.find(&hash, None)), Some("{ b }"));
        assert_eq!(text(set.find("a", None)), Some("{ a }"));
    }
}

//! Reads any manifest: reading never panics, a mistake has a place in the text, and each document that was read is
//! found by its id and its text, also with other white space.

#![no_main]

use libfuzzer_sys::fuzz_target;
use persisted_documents::{
    DocumentSet, ID_BYTES_MAX, ManifestFormat, PersistedDocument, parse_manifest,
};

/// The maximum number of documents: enough for conflicts.
const DOCUMENTS_MAX: usize = 8;

fuzz_target!(|data: &[u8]| {
    // Any bytes are the text of a request, too.
    let known = DocumentSet::new(Vec::new(), true).expect("no conflict without documents");
    assert!(known.find_similar_text(data, None).is_none());
    for format in [ManifestFormat::Auto, ManifestFormat::Apollo, ManifestFormat::Relay] {
        match parse_manifest(data, format, DOCUMENTS_MAX) {
            Ok(documents) => {
                assert!(documents.len() <= DOCUMENTS_MAX, "{format:?}");
                check_documents(documents);
            }
            Err(error) => {
                let lines = data.split(|byte| *byte == b'\n').count();
                assert!(error.line <= lines && !error.message.is_empty(), "{error:?}");
            }
        }
    }
});

fn check_documents(documents: Vec<PersistedDocument>) {
    let Ok(set) = DocumentSet::new(documents, true) else { return };
    for document in set.documents() {
        assert!(!document.id.is_empty() && document.id.len() <= ID_BYTES_MAX);
        let client = document.client.as_deref();
        assert_eq!(set.find(&document.id, client), Some(document));
        let found = |found: Option<&PersistedDocument>| {
            found.map(|it| it.text.clone())
        };
        assert_eq!(found(set.find_text(&document.text, client)), Some(document.text.clone()));
        let mut spaced = b" , # comment\n".to_vec();
        spaced.extend_from_slice(&document.text);
        assert!(set.find_similar_text(&spaced, client).is_some());
    }
}

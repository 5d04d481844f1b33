//! The lookup of one operation. It reads nothing but the request and the name of its client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clients::request_extensions::{
    PERSISTED_QUERY_NOT_FOUND, PERSISTED_QUERY_NOT_SUPPORTED, persisted_query_hash,
};
use config::PersistedDocumentsMode;
use execute::{ErrorCode, GraphqlError};
use persisted_documents::{PersistedDocument, TextHash};
use prepare::OperationRequest;

use super::stored_texts::StoredTexts;
use super::table::KnownOperations;

/// The operation that a request names.
#[derive(Debug)]
pub(crate) enum NamedOperation {
    /// The operation is the text of the request.
    Unchanged,
    /// The operation has this text.
    Found {
        text: Bytes,
        /// The hash under which the text is to be stored.
        store_as: Option<TextHash>,
    },
    /// The operation is not in memory, and may be in the store of all routers.
    Elsewhere { hash: TextHash },
    /// `persisted_documents.mode` does not allow the operation.
    Refused {
        error: GraphqlError,
        /// The outcome for a request with an exception: it runs as it is, or gets another error.
        if_excepted: Result<(), GraphqlError>,
    },
}

impl NamedOperation {
    fn found(text: Bytes) -> Self {
        Self::Found { text, store_as: None }
    }

    /// Refuses a text. With an exception it runs, and is not stored: others could then run it by its hash.
    fn refused_text(message: &'static str) -> Self {
        Self::Refused { error: required(message), if_excepted: Ok(()) }
    }
}

impl KnownOperations {
    /// Looks up the operation of a request from a client with this name.
    ///
    /// # Errors
    /// The request is not well-formed, or no operation is known by its id or hash.
    pub(crate) fn look_up(
        &self,
        request: &OperationRequest,
        client: Option<&str>,
    ) -> Result<NamedOperation, GraphqlError> {
        if let Some(id) = &request.document_id {
            if request.query.is_empty() {
                return self.look_up_id(id, client);
            }
            // Without documents the id has no meaning, as any other unknown member of a request.
            if self.has_documents {
                let message = "send either `documentId` or `query`, not both";
                return Err(GraphqlError::new(ErrorCode::BadRequest, message));
            }
        }
        match request.query.is_empty() {
            true => self.look_up_hash(request, client),
            false => self.check_text(request, client),
        }
    }

    fn look_up_id(&self, id: &str, client: Option<&str>) -> Result<NamedOperation, GraphqlError> {
        match self.documents.load().find(id, client) {
            Some(document) => Ok(self.document(document)),
            None => {
                count(&self.stats.documents_not_found);
                Err(document_not_found())
            }
        }
    }

    /// Looks up a request without a text.
    fn look_up_hash(
        &self,
        request: &OperationRequest,
        client: Option<&str>,
    ) -> Result<NamedOperation, GraphqlError> {
        // An empty document is reported when it is prepared.
        let Some(hash) = hash_of(request)? else { return Ok(NamedOperation::Unchanged) };
        if let Some(document) = self.documents.load().find(&hash, client) {
            return Ok(self.document(document));
        }
        if self.mode == PersistedDocumentsMode::RequireId {
            count(&self.stats.documents_not_found);
            // A client that may send texts sends this one when it hears that its hash is not known.
            let if_excepted = Err(not_found());
            return Ok(NamedOperation::Refused { error: document_not_found(), if_excepted });
        }
        let Some(texts) = &self.stored_texts else {
            return Err(match self.has_documents {
                // The client sends the text of this operation, and further hashes of others.
                true => not_found(),
                false => {
                    let code = ErrorCode::PersistedQueryNotSupported;
                    GraphqlError::new(code, PERSISTED_QUERY_NOT_SUPPORTED)
                }
            });
        };
        let hash = TextHash::parse(&hash);
        match (hash.and_then(|hash| texts.find(hash)), hash) {
            (Some(text), _) => {
                count(&self.stats.texts_found);
                Ok(NamedOperation::found(text))
            }
            (None, Some(hash)) if self.shared_texts.is_some() => {
                Ok(NamedOperation::Elsewhere { hash })
            }
            (None, _) => {
                count(&self.stats.texts_not_found);
                Err(not_found())
            }
        }
    }

    /// Looks up a text in the store of all routers. It runs only if the client may send it.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn look_up_shared(
        &self,
        request: &OperationRequest,
        hash: TextHash,
        client: Option<&str>,
    ) -> Result<NamedOperation, GraphqlError> {
        let found = match &self.shared_texts {
            Some(texts) => texts.find(hash).await,
            None => None,
        };
        let Some(text) = found else {
            count(&self.stats.texts_not_found);
            return Err(not_found());
        };
        count(&self.stats.texts_found);
        let sent = OperationRequest { query: text.clone(), ..request.clone() };
        Ok(match self.check_text(&sent, client)? {
            NamedOperation::Unchanged => NamedOperation::found(text),
            // The request has no text that could run. Texts that run by an exception are not stored, so they are
            // unknown.
            NamedOperation::Refused { error, .. } => {
                NamedOperation::Refused { error, if_excepted: Err(not_found()) }
            }
            named => named,
        })
    }

    /// Checks a request with a text, and its hash if there is one.
    fn check_text(
        &self,
        request: &OperationRequest,
        client: Option<&str>,
    ) -> Result<NamedOperation, GraphqlError> {
        let hash = match &self.stored_texts {
            Some(texts) => verified_hash(texts, request)?,
            None => None,
        };
        let run = |text: &Bytes, store_as: Option<TextHash>| match store_as {
            None => NamedOperation::Unchanged,
            Some(_) => NamedOperation::Found { text: text.clone(), store_as },
        };
        match self.mode {
            PersistedDocumentsMode::Off => Ok(run(&request.query, hash)),
            PersistedDocumentsMode::LogUnknown => {
                let documents = self.documents.load();
                let is_known = documents.find_text(&request.query, client).is_some()
                    || documents.find_similar_text(&request.query, client).is_some();
                if !is_known {
                    self.report_unknown(request, client, "was run");
                }
                Ok(run(&request.query, hash))
            }
            PersistedDocumentsMode::RequireKnown => {
                let documents = self.documents.load();
                // A text that others may not send is not stored for them.
                let store_as =
                    |document: &PersistedDocument| hash.filter(|_| document.client.is_none());
                if let Some(document) = documents.find_text(&request.query, client) {
                    return Ok(run(&request.query, store_as(document)));
                }
                if let Some(document) = documents.find_similar_text(&request.query, client) {
                    // The known text is run, and not one that is only read as similar.
                    let (text, store_as) = (document.text.clone(), store_as(document));
                    return Ok(NamedOperation::Found { text, store_as });
                }
                Ok(NamedOperation::refused_text(
                    "the operation is not a persisted document, and this router runs no others",
                ))
            }
            PersistedDocumentsMode::RequireId => Ok(NamedOperation::refused_text(
                "send the id of a persisted document (`documentId`) in place of a text",
            )),
        }
    }

    fn document(&self, document: &PersistedDocument) -> NamedOperation {
        count(&self.stats.documents_found);
        NamedOperation::found(document.text.clone())
    }

    /// Counts and logs a text that was refused because it is not a document. Ids and hashes are counted by the lookup.
    pub(crate) fn report_refused(&self, request: &OperationRequest, client: Option<&str>) {
        if !request.query.is_empty() {
            self.report_unknown(request, client, "was refused");
        }
    }

    /// Counts and logs an operation that is no document. The text is not logged, because its literals may be secrets.
    fn report_unknown(&self, request: &OperationRequest, client: Option<&str>, outcome: &str) {
        count(&self.stats.unknown);
        let Some(suppressed) = self.unknown_log.admit(Instant::now()) else { return };
        /// The maximum number of bytes of a name that a client has chosen.
        const NAME_BYTES_MAX: usize = 100;
        let shown = |name: &str| name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned();
        tracing::warn!(
            operation = request.operation_name.as_deref().map(shown),
            client = client.map(shown),
            sha256 = %TextHash::of(&request.query),
            suppressed,
            "an operation that is not a persisted document {outcome}"
        );
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns the hash that a request has beside its text; `None` if there is none, or if the text is stored already.
fn verified_hash(
    texts: &StoredTexts,
    request: &OperationRequest,
) -> Result<Option<TextHash>, GraphqlError> {
    let Some(hash) = hash_of(request)? else { return Ok(None) };
    let Some(hash) = TextHash::parse(&hash) else {
        let message = "`extensions.persistedQuery.sha256Hash` must be 64 hexadecimal digits";
        return Err(GraphqlError::new(ErrorCode::BadRequest, message));
    };
    // Comparing is cheaper than hashing.
    if texts.find(hash).is_some_and(|text| text == request.query) {
        return Ok(None);
    }
    if TextHash::of(&request.query) != hash {
        let message = "`extensions.persistedQuery.sha256Hash` is not the SHA-256 of `query`";
        return Err(GraphqlError::new(ErrorCode::PersistedQueryHashMismatch, message));
    }
    Ok(Some(hash))
}

/// Returns the hash in the extensions of a request.
fn hash_of(request: &OperationRequest) -> Result<Option<String>, GraphqlError> {
    persisted_query_hash(&request.extensions)
        .map_err(|error| GraphqlError::new(ErrorCode::BadRequest, error.to_string()))
}

/// Returns the error for a hash without a text, whereupon clients send both.
pub(crate) fn not_found() -> GraphqlError {
    GraphqlError::new(ErrorCode::PersistedQueryNotFound, PERSISTED_QUERY_NOT_FOUND)
}

fn document_not_found() -> GraphqlError {
    let message = "no persisted document has this id, or it is for other clients";
    GraphqlError::new(ErrorCode::PersistedDocumentNotFound, message)
}

fn required(message: &'static str) -> GraphqlError {
    GraphqlError::new(ErrorCode::PersistedDocumentRequired, message)
}

#[cfg(test)]
mod tests {
    use config::{Apq, Config, DocumentManifest, PersistedDocuments};
    use persisted_documents::DocumentSet;
    use redis_store::Stores;

    use super::*;

    const DOCUMENT: &str = "query A { a }";

    /// Returns known operations with the document `id`, and `web-id`, which is for the client `web`.
    fn known(mode: PersistedDocumentsMode, has_apq: bool) -> KnownOperations {
        let document = |id: &str, client: Option<&str>, text: &'static str| PersistedDocument {
            id: id.into(),
            name: None,
            client: client.map(Into::into),
            text: Bytes::from_static(text.as_bytes()),
        };
        let documents =
            vec![document("id", None, DOCUMENT), document("web-id", Some("web"), "{ web }")];
        let documents = DocumentSet::new(documents, true).expect("no conflict");
        operations(mode, has_apq, vec![DocumentManifest::default()], documents)
    }

    fn without_documents(has_apq: bool) -> KnownOperations {
        operations(PersistedDocumentsMode::Off, has_apq, Vec::new(), DocumentSet::default())
    }

    fn operations(
        mode: PersistedDocumentsMode,
        has_apq: bool,
        manifests: Vec<DocumentManifest>,
        documents: DocumentSet,
    ) -> KnownOperations {
        let config = Config {
            persisted_documents: PersistedDocuments { mode, manifests, ..Default::default() },
            apq: Apq { enabled: has_apq, ..Apq::default() },
            ..Config::default()
        };
        KnownOperations::new(&config, documents, &Stores::default())
    }

    fn text(query: &str) -> OperationRequest {
        let query = Bytes::copy_from_slice(query.as_bytes());
        OperationRequest { query, ..OperationRequest::default() }
    }

    fn id(id: &str) -> OperationRequest {
        OperationRequest { document_id: Some(id.into()), ..OperationRequest::default() }
    }

    /// A request with this hash beside the text.
    fn hashed(hash: &str, query: &str) -> OperationRequest {
        let extensions =
            format!(r#"{{"persistedQuery":{{"version":1,"sha256Hash":"{hash}"}}}}"#).into();
        OperationRequest { extensions, ..text(query) }
    }

    fn hash(query: &str) -> String {
        TextHash::of(query.as_bytes()).to_string()
    }

    /// Looks up a request of the client `web`, and stores its text, as if it had been prepared. Returns the text that
    /// runs, or the code of the error.
    fn run(known: &KnownOperations, request: &OperationRequest) -> String {
        run_for(known, request, Some("web"))
    }

    fn run_for(
        known: &KnownOperations,
        request: &OperationRequest,
        client: Option<&str>,
    ) -> String {
        let text = match known.look_up(request, client) {
            Err(error) => return error.code.as_str().to_owned(),
            Ok(NamedOperation::Refused { error, .. }) => {
                known.report_refused(request, client);
                return error.code.as_str().to_owned();
            }
            Ok(NamedOperation::Unchanged) => request.query.clone(),
            Ok(NamedOperation::Elsewhere { .. }) => unreachable!("there is no store"),
            Ok(NamedOperation::Found { text, store_as }) => {
                known.store(store_as, &text);
                text
            }
        };
        String::from_utf8(text.to_vec()).expect("a text")
    }

    #[test]
    fn a_text_is_stored_with_its_hash_and_found_by_it() {
        let known = without_documents(true);
        let query = "{ b }";
        assert_eq!(run(&known, &hashed(&hash(query), "")), "PERSISTED_QUERY_NOT_FOUND");
        assert_eq!(run(&known, &hashed(&hash("{ c }"), query)), "PERSISTED_QUERY_HASH_MISMATCH");
        assert_eq!(run(&known, &hashed("ab", query)), "BAD_REQUEST");
        assert_eq!(run(&known, &hashed(&hash(query), "")), "PERSISTED_QUERY_NOT_FOUND");
        assert_eq!(run(&known, &hashed(&hash(query), query)), query);
        assert_eq!(run(&known, &hashed(&hash(query), query)), query);
        assert_eq!(run(&known, &hashed(&hash(query), "")), query);
        assert_eq!(run(&known, &hashed(&hash(query).to_uppercase(), "")), query);
        assert_eq!(run(&known, &hashed("ab", "")), "PERSISTED_QUERY_NOT_FOUND");
        assert_eq!(telemetry::read(&known.stats().texts_found), 2);
        assert_eq!(telemetry::read(&known.stats().texts_not_found), 3);
    }

    #[test]
    fn without_a_store_clients_are_asked_for_texts_and_hashes_beside_texts_are_ignored() {
        let known = without_documents(false);
        let query = "{ b }";
        assert_eq!(run(&known, &hashed(&hash(query), "")), "PERSISTED_QUERY_NOT_SUPPORTED");
        assert_eq!(run(&known, &hashed("wrong", query)), query);
        let malformed =
            OperationRequest { extensions: "{\"persistedQuery\":7}".into(), ..text("") };
        assert_eq!(run(&known, &malformed), "BAD_REQUEST");
        // Other clients of the same router may use ids of documents in their hashes.
        let known = self::known(PersistedDocumentsMode::Off, false);
        assert_eq!(run(&known, &hashed(&hash(query), "")), "PERSISTED_QUERY_NOT_FOUND");
        assert_eq!(run(&known, &hashed(&hash(DOCUMENT), "")), DOCUMENT);
    }

    #[test]
    fn a_document_is_found_by_id_and_hash_in_every_mode() {
        use PersistedDocumentsMode::{LogUnknown, Off, RequireId, RequireKnown};
        for mode in [Off, LogUnknown, RequireKnown, RequireId] {
            for has_apq in [true, false] {
                let known = known(mode, has_apq);
                let prefixed = format!("sha256:{}", hash(DOCUMENT));
                for request in
                    [id("id"), id(&prefixed), hashed("id", ""), hashed(&hash(DOCUMENT), "")]
                {
                    assert_eq!(run(&known, &request), DOCUMENT, "{mode:?} {request:?}");
                }
                let unknown = "PERSISTED_DOCUMENT_NOT_FOUND";
                for name in ["none", "../id", "id/", "ID", ""] {
                    assert_eq!(run(&known, &id(name)), unknown, "{mode:?} {name}");
                }
                let both = OperationRequest { query: "{ b }".into(), ..id("id") };
                assert_eq!(run(&known, &both), "BAD_REQUEST");
            }
        }
        let known = without_documents(true);
        assert_eq!(run(&known, &id("id")), "PERSISTED_DOCUMENT_NOT_FOUND");
        let both = OperationRequest { query: "{ b }".into(), ..id("id") };
        assert_eq!(run(&known, &both), "{ b }");
    }

    #[test]
    fn a_document_of_a_client_is_unknown_to_others() {
        let known = known(PersistedDocumentsMode::RequireKnown, true);
        let query = "{ web }";
        for request in [id("web-id"), text(query), hashed(&hash(query), query)] {
            assert_eq!(run(&known, &request), query);
            let others = run_for(&known, &request, Some("other"));
            assert!(others.starts_with("PERSISTED_DOCUMENT_"), "{others}");
        }
        // The text of the client `web` was not stored for others.
        let hash_alone = run_for(&known, &hashed(&hash(query), ""), Some("other"));
        assert_eq!(hash_alone, "PERSISTED_QUERY_NOT_FOUND");
    }

    #[test]
    fn known_texts_run_as_the_manifest_has_them_and_others_do_not() {
        let known = known(PersistedDocumentsMode::RequireKnown, true);
        let spaced = "query A {\n  a # comment\n}";
        assert_eq!(run(&known, &text(DOCUMENT)), DOCUMENT);
        assert_eq!(run(&known, &text(spaced)), DOCUMENT);
        for unknown in ["query A { b }", "query B { a }", "{ a }"] {
            assert_eq!(run(&known, &text(unknown)), "PERSISTED_DOCUMENT_REQUIRED", "{unknown}");
            let with_hash = hashed(&hash(unknown), unknown);
            assert_eq!(run(&known, &with_hash), "PERSISTED_DOCUMENT_REQUIRED", "{unknown}");
            let hash_alone = run(&known, &hashed(&hash(unknown), ""));
            assert_eq!(hash_alone, "PERSISTED_QUERY_NOT_FOUND", "{unknown}");
        }
        assert_eq!(telemetry::read(&known.stats().unknown), 6);
        assert_eq!(run(&known, &hashed(&hash(spaced), spaced)), DOCUMENT);
        assert_eq!(run(&known, &hashed(&hash(spaced), "")), DOCUMENT);
        // A new manifest without the document.
        known.replace_documents(DocumentSet::default());
        for request in [id("id"), text(DOCUMENT), hashed(&hash(spaced), "")] {
            assert!(run(&known, &request).starts_with("PERSISTED_"), "{request:?}");
        }
    }

    #[test]
    fn texts_are_refused_where_ids_are_required() {
        let known = known(PersistedDocumentsMode::RequireId, true);
        for request in [text(DOCUMENT), text("{ b }"), hashed(&hash(DOCUMENT), DOCUMENT)] {
            assert_eq!(run(&known, &request), "PERSISTED_DOCUMENT_REQUIRED");
        }
        let hash_alone = run(&known, &hashed(&hash("{ b }"), ""));
        assert_eq!(hash_alone, "PERSISTED_DOCUMENT_NOT_FOUND");
    }

    #[test]
    fn a_request_with_an_exception_runs_its_text_or_is_asked_for_it() {
        use PersistedDocumentsMode::{RequireId, RequireKnown};
        let if_excepted = |known: &KnownOperations, request: &OperationRequest| {
            let named = known.look_up(request, Some("web"));
            let Ok(NamedOperation::Refused { if_excepted, .. }) = named else {
                panic!("not refused: {named:?}");
            };
            if_excepted.map_err(|error| error.code)
        };
        let query = "{ b }";
        for mode in [RequireKnown, RequireId] {
            let known = known(mode, true);
            assert_eq!(if_excepted(&known, &text(query)), Ok(()));
            assert_eq!(if_excepted(&known, &hashed(&hash(query), query)), Ok(()));
            // It was not stored: requests without an exception could name it.
            let alone = run(&known, &hashed(&hash(query), ""));
            assert!(alone.ends_with("_NOT_FOUND"), "{mode:?} {alone}");
            assert_eq!(telemetry::read(&known.stats().unknown), 0);
        }
        let known = known(RequireId, true);
        let hash_alone = if_excepted(&known, &hashed(&hash(query), ""));
        assert_eq!(hash_alone, Err(ErrorCode::PersistedQueryNotFound));
    }

    #[test]
    fn unknown_texts_are_counted_and_run_if_they_are_only_logged() {
        let known = known(PersistedDocumentsMode::LogUnknown, true);
        for query in [DOCUMENT, "query A{a}", "{ b }", "{ c }"] {
            assert_eq!(run(&known, &text(query)), query);
        }
        assert_eq!(telemetry::read(&known.stats().unknown), 2);
    }
}

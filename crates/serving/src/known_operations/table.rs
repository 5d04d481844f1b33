//! The known operations of a router: its persisted documents, and the texts that clients have sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use bytes::Bytes;
use clients::client_info::ClientInfo;
use config::{ClientInfoHeaders, Config, PersistedDocumentsMode};
use http::HeaderMap;
use persisted_documents::{DocumentSet, TextHash};
use prepare::OperationRequest;
use redis_store::Stores;
use telemetry::LogLimit;

use super::shared_texts::{SharedTextStats, SharedTexts};
use super::stats::KnownOperationStats;
use super::stored_texts::StoredTexts;

/// The known operations of a router. They do not depend on the graph.
#[derive(Debug)]
pub struct KnownOperations {
    pub(super) documents: ArcSwap<DocumentSet>,
    /// True if manifests are configured.
    pub(super) has_documents: bool,
    /// The headers with the names of applications, for documents that belong to one application.
    client_info: ClientInfoHeaders,
    pub(super) mode: PersistedDocumentsMode,
    /// The texts of automatic persisted queries; `None` if they are turned off.
    pub(super) stored_texts: Option<StoredTexts>,
    /// The texts that all routers share, if a store is configured.
    pub(super) shared_texts: Option<SharedTexts>,
    pub(super) stats: KnownOperationStats,
    pub(super) unknown_log: LogLimit,
}

impl KnownOperations {
    /// Creates the known operations with the documents of the manifests. With `apq.store`, it must be called inside a
    /// Tokio runtime, which then writes texts to that store.
    pub fn new(config: &Config, documents: DocumentSet, stores: &Stores) -> Self {
        let mode = config.persisted_documents.mode;
        // Where only ids are accepted, no client can send a text to be stored.
        let has_stored_texts = config.apq.enabled && mode != PersistedDocumentsMode::RequireId;
        // The configuration was checked, so that the store exists.
        let store = config.apq.store.as_ref().and_then(|id| stores.find(id));
        let store = store.filter(|_| has_stored_texts);
        Self {
            shared_texts: store.map(|store| SharedTexts::start(store, config.apq.ttl)),
            documents: ArcSwap::from_pointee(documents),
            has_documents: !config.persisted_documents.manifests.is_empty(),
            client_info: config.client_info.clone(),
            mode,
            stored_texts: has_stored_texts.then(|| StoredTexts::new(&config.apq)),
            stats: KnownOperationStats::default(),
            unknown_log: LogLimit::new(),
        }
    }

    /// The counters.
    pub fn stats(&self) -> &KnownOperationStats {
        &self.stats
    }

    /// The counters of the texts that all routers share, if a store is configured.
    pub fn shared_text_stats(&self) -> Option<&SharedTextStats> {
        self.shared_texts.as_ref().map(SharedTexts::stats)
    }

    /// Returns the persisted documents.
    pub fn documents(&self) -> Arc<DocumentSet> {
        self.documents.load_full()
    }

    /// Replaces the persisted documents.
    pub fn replace_documents(&self, documents: DocumentSet) {
        self.documents.store(Arc::new(documents));
        if let Some(texts) = self.stored_texts.as_ref().filter(|_| self.mode.is_restrictive()) {
            // A text that is no longer a document must not run.
            texts.clear();
        }
    }

    /// True if a request must be looked up. hot path: a request with a text costs two comparisons if nothing is
    /// configured.
    pub(crate) fn is_concerned(&self, request: &OperationRequest) -> bool {
        self.mode != PersistedDocumentsMode::Off
            || request.document_id.is_some()
            || !request.extensions.is_empty()
    }

    /// Returns the request with the text of a document that it names by id, if the document is for all clients. Any
    /// other request is looked up.
    ///
    /// hot path: a request with an id must not cost more than one with a text, so it has no future of its own.
    pub(crate) fn find_document(&self, request: &OperationRequest) -> Option<ResolvedRequest> {
        let id = request.document_id.as_deref().filter(|_| request.query.is_empty())?;
        let documents = self.documents.load();
        if !documents.are_for_all_clients() {
            return None;
        }
        let text = documents.find(id, None)?.text.clone();
        self.stats.documents_found.fetch_add(1, Ordering::Relaxed);
        Some(ResolvedRequest::new(request, text, None))
    }

    /// Returns the name of the client of a request with these headers, if it is sent and names of clients decide about
    /// operations, or are reported.
    pub(crate) fn client_name<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        // hot path: the name is read only if it matters.
        let info = self.reads_names().then(|| ClientInfo::of(&self.client_info, headers));
        info.map(|it| it.name).filter(|name| !name.is_empty())
    }

    fn reads_names(&self) -> bool {
        let is_off = self.mode == PersistedDocumentsMode::Off;
        self.has_documents && !(is_off && self.documents.load().are_for_all_clients())
    }

    /// Stores the text of an operation that was prepared, if its client has sent the hash.
    pub(super) fn store(&self, hash: Option<TextHash>, text: &[u8]) {
        if let (Some(texts), Some(hash)) = (&self.stored_texts, hash)
            && texts.store(hash, text)
        {
            self.stats.texts_stored.fetch_add(1, Ordering::Relaxed);
            if let Some(shared) = &self.shared_texts {
                // Also a text that came from there: it is kept for another `apq.ttl`.
                shared.write(hash, text);
            }
        }
    }
}

/// A request after the lookup of its operation.
#[derive(Debug)]
pub(crate) struct ResolvedRequest {
    /// The request with the text of its operation.
    pub(crate) request: OperationRequest,
    /// The hash under which the text is stored once it is prepared.
    store_as: Option<TextHash>,
}

impl ResolvedRequest {
    /// Creates a request with a text in place of an id or a hash. It is stored as `store_as`.
    pub(crate) fn new(request: &OperationRequest, text: Bytes, store_as: Option<TextHash>) -> Self {
        let request = OperationRequest {
            query: text,
            document_id: None,
            operation_name: request.operation_name.clone(),
            variables: request.variables.clone(),
            extensions: request.extensions.clone(),
        };
        Self { request, store_as }
    }

    /// Stores the text for requests with its hash, if the client has sent both. The operation must have been prepared:
    /// otherwise clients could fill the store with any text.
    pub(crate) fn store(&self, operations: &KnownOperations) {
        operations.store(self.store_as, &self.request.query);
    }
}

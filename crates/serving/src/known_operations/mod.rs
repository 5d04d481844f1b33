//! Operations that clients name by an id or a hash, and the rule about operations that are not known. All transports
//! meet here, before an operation is prepared.
//!
//! A request names its operation in one of three ways: by its text, by the id of a persisted document (`documentId`),
//! or by the SHA-256 of a text (`extensions.persistedQuery`), which is looked up among the persisted documents first
//! and then among the texts that clients have sent with their hashes, to this router (`stored_texts`) or to any other
//! (`shared_texts`). The result is a request with a text. `persisted_documents.mode` decides which texts run, and
//! `exceptions` for which requests others do.

mod exceptions;
mod lookup;
mod metrics;
mod shared_texts;
mod stored_texts;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arc_swap::ArcSwap;
use clients::authentication::Identity;
use clients::client_info::ClientInfo;
use clients::offload::INLINE_BYTES_MAX;
use clients::request_source::RequestSource;
use config::{ClientInfoHeaders, Config, PersistedDocumentsMode};
use execute::{ClientKey, GraphqlError};
use http::HeaderMap;
use persisted_documents::{DocumentSet, TextHash};
use prepare::OperationRequest;
use telemetry::LogLimit;

use crate::serving::Serving;
use lookup::NamedOperation;
use redis_store::Stores;
use shared_texts::SharedTexts;
use stored_texts::StoredTexts;

pub use exceptions::DocumentExceptions;
pub use metrics::{KNOWN_OPERATION_COUNTERS, KNOWN_OPERATION_METRICS, KnownOperationStats};
pub use shared_texts::{SHARED_TEXT_COUNTERS, SharedTextStats};

/// The known operations of a router. They do not depend on the graph.
#[derive(Debug)]
pub struct KnownOperations {
    documents: ArcSwap<DocumentSet>,
    /// True if manifests are configured.
    has_documents: bool,
    /// The headers with the names of applications, for documents that belong to one application.
    client_info: ClientInfoHeaders,
    mode: PersistedDocumentsMode,
    /// The texts of automatic persisted queries; `None` if they are turned off.
    stored_texts: Option<StoredTexts>,
    /// The texts that all routers share, if a store is configured.
    shared_texts: Option<SharedTexts>,
    stats: KnownOperationStats,
    unknown_log: LogLimit,
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

    /// True if the names of clients decide about an operation, or are reported.
    fn reads_names(&self) -> bool {
        let is_off = self.mode == PersistedDocumentsMode::Off;
        self.has_documents && !(is_off && self.documents.load().are_for_all_clients())
    }

    /// Stores the text of an operation that was prepared, if its client has sent the hash.
    fn store(&self, hash: Option<TextHash>, text: &[u8]) {
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
    /// Stores the text for requests with its hash, if the client has sent both. The operation must have been prepared:
    /// otherwise clients could fill the store with any text.
    pub(crate) fn store(&self, operations: &KnownOperations) {
        operations.store(self.store_as, &self.request.query);
    }
}

/// Looks up the operation of a request for which [`KnownOperations::is_concerned`] is true; `None` if the request runs
/// as it is.
///
/// # Errors
/// The operation is unknown, or may not run.
pub(crate) async fn resolve(
    serving: &Serving,
    request: &OperationRequest,
    headers: &HeaderMap,
    identity: &Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<Option<ResolvedRequest>, Vec<GraphqlError>> {
    let operations = &serving.known_operations;
    // hot path: the name is read only if it matters.
    let info = operations.reads_names().then(|| ClientInfo::of(&operations.client_info, headers));
    let client_name = info.map(|it| it.name).filter(|name| !name.is_empty());
    let size = request.query.len() + request.extensions.len();
    let named = if size <= INLINE_BYTES_MAX {
        operations.look_up(request, client_name)
    } else {
        let client = identity.client_key().unwrap_or(address);
        let deadline = Instant::now() + serving.time_max;
        let (known, request) = (Arc::clone(operations), request.clone());
        let client_name: Option<Box<str>> = client_name.map(Into::into);
        let look_up = move || known.look_up(&request, client_name.as_deref());
        match serving.limits.offload.run(client, size, deadline, look_up).await {
            Ok(named) => named,
            Err(not_done) => Err(not_done.error()),
        }
    };
    let named = match named {
        Ok(NamedOperation::Elsewhere { hash }) => {
            operations.look_up_shared(request, hash, client_name).await
        }
        named => named,
    };
    let refuse = |error: GraphqlError| {
        serving.metrics.count_refusal(error.code);
        vec![error]
    };
    match named.map_err(refuse)? {
        NamedOperation::Unchanged => Ok(None),
        NamedOperation::Found { text, store_as } => {
            let request = OperationRequest {
                query: text,
                document_id: None,
                operation_name: request.operation_name.clone(),
                variables: request.variables.clone(),
                extensions: request.extensions.clone(),
            };
            Ok(Some(ResolvedRequest { request, store_as }))
        }
        NamedOperation::Refused { error, if_excepted } => {
            let graph = serving.current();
            let (claims, stats) = (identity.claims(), &graph.expressions);
            if graph.document_exceptions.apply_to(source, headers, claims, stats) {
                operations.stats.excepted.fetch_add(1, Ordering::Relaxed);
                return if_excepted.map(|()| None).map_err(refuse);
            }
            operations.report_refused(request, client_name);
            Err(refuse(error))
        }
        // Resolved above.
        NamedOperation::Elsewhere { .. } => Err(refuse(lookup::not_found())),
    }
}

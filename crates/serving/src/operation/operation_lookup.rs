//! The lookup of the operation that a request names by an id or a hash, and of the exceptions for those not known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clients::authentication::Identity;
use clients::offload::INLINE_BYTES_MAX;
use clients::request_source::RequestSource;
use execute::{ClientKey, GraphqlError};
use http::HeaderMap;
use prepare::OperationRequest;

use crate::known_operations::{NamedOperation, ResolvedRequest, not_found};
use crate::serving::Serving;

/// Looks up the operation of a request that is concerned (`KnownOperations::is_concerned`); `None` if the request runs
/// as it is.
///
/// # Errors
/// The operation is unknown, or may not run.
pub(super) async fn resolve(
    serving: &Serving,
    request: &OperationRequest,
    headers: &HeaderMap,
    identity: &Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<Option<ResolvedRequest>, Vec<GraphqlError>> {
    let operations = &serving.known_operations;
    let client_name = operations.client_name(headers);
    let size = request.query.len() + request.extensions.len();
    let named = if size <= INLINE_BYTES_MAX {
        operations.look_up(request, client_name)
    } else {
        let client = identity.client_key().unwrap_or(address);
        let deadline = source.deadline_within(Instant::now(), serving.time_max);
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
            Ok(Some(ResolvedRequest::new(request, text, store_as)))
        }
        NamedOperation::Refused { error, if_excepted } => {
            let graph = serving.current();
            let (claims, stats) = (identity.claims(), &graph.expressions);
            if graph.document_exceptions.apply_to(source, headers, claims, stats) {
                operations.stats().excepted.fetch_add(1, Ordering::Relaxed);
                return if_excepted.map(|()| None).map_err(refuse);
            }
            operations.report_refused(request, client_name);
            Err(refuse(error))
        }
        // Resolved above.
        NamedOperation::Elsewhere { .. } => Err(refuse(not_found())),
    }
}

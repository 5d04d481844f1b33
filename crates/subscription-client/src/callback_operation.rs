//! Operations by the HTTP callback protocol 1.0: a request begins each, and its results come as requests to the
//! router.

use std::sync::Arc;

use events::SubgraphSubscription;
use wire::upstream::callback::ACCEPT;

use crate::callback_endpoint::{CallbackEndpoint, RegisteredCallback};
use crate::endpoint::SubscriptionEndpoint;
use crate::http_exchange::{self, AttemptFailure, is_transient_status};
use crate::http_request::OperationRequest;
use crate::http_stream::check_coding;
use crate::operation_outcome::{Begun, OperationOutcome};
use crate::operation_output::OperationOutput;
use crate::refusal::{is_json, read_refusal};
use crate::request_extensions::add_extensions;

/// The reason for refusing a response that is not JSON.
pub(crate) const NOT_JSON: &str =
    "the subgraph did not respond with JSON, so it does not support the callback protocol";

/// An operation in progress. Dropping it ends it.
pub(crate) struct CallbackOperation {
    registered: RegisteredCallback,
}

impl CallbackOperation {
    /// Registers an operation, and sends the request that begins it. Results may arrive before this returns.
    pub(crate) async fn begin(
        callbacks: &Arc<CallbackEndpoint>,
        wanted: &SubgraphSubscription,
        output: &Arc<OperationOutput>,
    ) -> Result<Begun<Self>, AttemptFailure> {
        let endpoint = output.endpoint();
        let registered = callbacks.register(output).map_err(AttemptFailure::transient)?;
        let request = begin_request(endpoint, wanted, &registered.extension)?;
        let mut response = http_exchange::send(endpoint, request).await?;
        let status = response.head.status;
        if is_transient_status(status) {
            return Err(AttemptFailure::of_status(status));
        }
        check_coding(&response)?;
        if !is_json(&response) {
            return Err(match status.is_success() {
                true => AttemptFailure::permanent(NOT_JSON),
                false => AttemptFailure::of_status(status),
            });
        }
        match read_refusal(endpoint, &mut response).await? {
            Some(errors) => Ok(Begun::Refused(errors)),
            None if status.is_success() => Ok(Begun::Open(Self { registered })),
            None => Err(AttemptFailure::of_status(status)),
        }
    }

    /// Waits until the subgraph ends the operation, or is silent for too long.
    pub(crate) async fn wait_for_end(mut self) -> OperationOutcome {
        match (&mut self.registered.end).await {
            Ok(Ok(())) => OperationOutcome::Ended(Ok(())),
            Ok(Err(error)) => OperationOutcome::of_error(error),
            // The endpoint keeps the other half until it sends or this value is dropped.
            Err(_) => OperationOutcome::Lost("the endpoint for callbacks was closed".to_owned()),
        }
    }
}

/// Makes the request that begins an operation, with this value of `extensions.subscription`.
pub(crate) fn begin_request(
    endpoint: &SubscriptionEndpoint,
    wanted: &SubgraphSubscription,
    extension: &[u8],
) -> Result<OperationRequest, AttemptFailure> {
    let subscription = ("subscription", extension.to_vec());
    let body = add_extensions(&wanted.request, &[subscription])
        .ok_or_else(|| AttemptFailure::permanent("the operation is nested too deep"))?;
    let request = OperationRequest::post(&endpoint.target, wanted, ACCEPT, body);
    request.map_err(AttemptFailure::permanent)
}

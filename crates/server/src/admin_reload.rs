//! `POST /admin/reload` and `POST /admin/rollback`: an operator reads the graph again, or returns to the one before.

use std::time::Duration;

use frontend::response::{self, Response};
use http::StatusCode;
use serde_json::{Value, json};

use crate::reload_requests::{NoOutcome, ReloadOutcome, ReloadRequest, ReloadRequests};

/// The maximum time for a result: servers of a supergraph that hang, one after the other, and a large graph.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(120);

/// Serves a request, and responds with its result as JSON.
pub(crate) async fn respond(requests: &ReloadRequests, request: ReloadRequest) -> Response {
    match tokio::time::timeout(RESPONSE_TIME_MAX, requests.send(request)).await {
        Ok(Ok(outcome)) => {
            let (status, body) = describe(request, &outcome);
            let text = serde_json::to_vec(&body).unwrap_or_default();
            response::with_type(status, "application/json", text.into())
        }
        Ok(Err(NoOutcome::Busy)) => response::text(
            StatusCode::TOO_MANY_REQUESTS,
            "several reloads wait already; try again when they have ended\n",
        ),
        Ok(Err(NoOutcome::Stopped)) => {
            response::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
        }
        Err(_) => response::text(
            StatusCode::GATEWAY_TIMEOUT,
            "the graph is still being read; the log will have the result\n",
        ),
    }
}

/// Returns the status and the body for a result.
fn describe(request: ReloadRequest, outcome: &ReloadOutcome) -> (StatusCode, Value) {
    match outcome {
        ReloadOutcome::Loaded { generation, before } => {
            let result = match request {
                ReloadRequest::Reload => "loaded",
                ReloadRequest::Rollback => "rolled_back",
            };
            let body = json!({"result": result, "generation": generation, "before": before});
            (StatusCode::OK, body)
        }
        ReloadOutcome::Unchanged { generation } => {
            (StatusCode::OK, json!({"result": "unchanged", "generation": generation}))
        }
        ReloadOutcome::Refused { generation, problems } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"result": "refused", "generation": generation, "problems": problems}),
        ),
        ReloadOutcome::NothingBefore { generation } => (
            StatusCode::CONFLICT,
            json!({
                "result": "nothing_before",
                "generation": generation,
                "problems": ["this process has no earlier graph to return to"],
            }),
        ),
    }
}

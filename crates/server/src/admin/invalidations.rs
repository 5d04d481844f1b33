//! Invalidations of cached data by operators.

use std::time::Instant;

use bytes::Bytes;
use cache::read_invalidations;
use frontend::body;
use frontend::response::{self, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use serving::shared_cache::Confirmation;

use super::requests::{BODY_TIME_MAX, refuse};
use super::state::Admin;
use crate::cache_page;

/// The maximum size of a request with invalidations.
const INVALIDATION_BYTES_MAX: usize = 4 << 20;

/// Handles `POST /admin/invalidate`: makes stale what the body names. When the response is sent, no later request gets
/// anything that was fetched before.
pub(crate) async fn invalidate(admin: &Admin, request: Request<Incoming>) -> Response {
    let serving = admin.serving.current();
    let Some(caching) = &serving.caching else { return cache_page::not_cached() };
    let body = match read_invalidation_body(request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let (received, source) = (Instant::now(), &caching.process.invalidation_stats.admin);
    match read_invalidations(body) {
        Ok(all) => {
            let confirmation = caching.process.invalidate_everywhere(&all, received).await;
            invalidated(all.len(), confirmation)
        }
        Err(problem) => {
            source.count_malformed();
            refuse(StatusCode::BAD_REQUEST, problem.to_string())
        }
    }
}

/// Returns the response to invalidations: 200 if no router has anything older any more, 202 if some have not confirmed
/// that.
fn invalidated(invalidations: usize, confirmation: Option<Confirmation>) -> Response {
    let Some(confirmation) = confirmation else {
        return response::text(StatusCode::OK, format!("{{\"invalidations\":{invalidations}}}\n"));
    };
    let status = match confirmation.is_complete() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let Confirmation { routers, unconfirmed, is_pending } = confirmation;
    let text = format!(
        "{{\"invalidations\":{invalidations},\"routers\":{routers},\"unconfirmed\":{unconfirmed},\
         \"pending\":{is_pending}}}\n"
    );
    response::text(status, text)
}

/// Handles `POST /admin/cache/preview`: counts what `POST /admin/invalidate` would make stale, and changes nothing.
pub(crate) async fn preview_invalidation(admin: &Admin, request: Request<Incoming>) -> Response {
    let serving = admin.serving.current();
    let Some(caching) = &serving.caching else { return cache_page::not_cached() };
    let body = match read_invalidation_body(request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    match read_invalidations(body) {
        Ok(all) => admin.cache_page.preview(caching, all).await,
        Err(problem) => refuse(StatusCode::BAD_REQUEST, problem.to_string()),
    }
}

/// Reads a body with invalidations.
///
/// # Errors
/// Returns a response that says why the body cannot be read.
async fn read_invalidation_body(request: Request<Incoming>) -> Result<Bytes, Box<Response>> {
    let body = body::read(request.into_body(), INVALIDATION_BYTES_MAX, BODY_TIME_MAX).await;
    body.map_err(|error| {
        Box::new(match error {
            body::BodyError::TooLarge => {
                let text = format!("invalidations may have at most {INVALIDATION_BYTES_MAX} bytes");
                refuse(StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            _ => refuse(StatusCode::BAD_REQUEST, "the body is incomplete".to_owned()),
        })
    })
}

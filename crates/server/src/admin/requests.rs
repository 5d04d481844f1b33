//! The parameters of requests to the admin listener, the time limit for their bodies, and refusals of them.

use std::time::Duration;

use frontend::response::{self, Response};
use http::{Request, StatusCode};

/// The time limit for the body of a request.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Returns the value of a parameter of the URL.
pub(crate) fn parameter<B>(request: &Request<B>, wanted: &str) -> Option<String> {
    let parameters = request.uri().query().unwrap_or_default();
    url::form_urlencoded::parse(parameters.as_bytes())
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| value.into_owned())
}

/// Responds with a status and a line of text.
pub(super) fn refuse(status: StatusCode, text: String) -> Response {
    response::text(status, format!("{text}\n"))
}

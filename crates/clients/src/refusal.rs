//! Refusals of requests with an HTTP status of their own, as data: every transport over HTTP can make one, and the HTTP
//! layer turns it into a response.

use execute::{ErrorCode, GraphqlError, spread_seconds};
use http::StatusCode;
use http::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER};

use crate::error_mapping;

/// Returns the value of `retry-after` for the refusal of an overloaded router: the time of the first error, or a random
/// one of some seconds.
pub fn retry_after(errors: &[GraphqlError]) -> HeaderValue {
    match errors.first().and_then(|error| error.retry_after_seconds) {
        Some(seconds) => HeaderValue::from(seconds.get()),
        None => HeaderValue::from(spread_seconds()),
    }
}

/// The refusal of a request. Nothing was executed.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// A header that says more, such as the time to wait.
    pub header: Option<(HeaderName, HeaderValue)>,
    /// The errors in the body.
    pub errors: Vec<GraphqlError>,
}

impl Refusal {
    /// Creates a refusal with this status.
    pub fn new(status: StatusCode, error: GraphqlError) -> Self {
        Self { status, header: None, errors: vec![error] }
    }

    /// Creates a refusal with the status of the first error's code. If the router is overloaded, clients are asked to
    /// wait.
    pub fn of_errors(errors: Vec<GraphqlError>) -> Self {
        let code = errors.first().map_or(ErrorCode::BadRequest, |error| error.code);
        let refusal = Self { status: error_mapping::status(code), header: None, errors };
        if code == ErrorCode::Overloaded { refusal.retry_later() } else { refusal }
    }

    /// Refuses a mutation that was not sent by POST.
    pub fn mutation_by_get() -> Self {
        let message = "a mutation must be sent by POST: proxies may repeat GET requests";
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        Self {
            header: Some((ALLOW, HeaderValue::from_static("POST"))),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, error)
        }
    }

    /// Asks the client to try again in a moment, or after the time of the first error.
    pub fn retry_later(self) -> Self {
        let after = retry_after(&self.errors);
        Self { header: Some((RETRY_AFTER, after)), ..self }
    }
}

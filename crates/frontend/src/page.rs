//! The page at the endpoint's path and its files, and 404 for all other paths.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
    UPGRADE,
};
use http::{HeaderMap, Method, Request, StatusCode};
use ide::Page;

use super::response::{self, Response};

/// The path of the GraphQL endpoint, and the page there.
#[derive(Debug)]
pub struct EndpointPage {
    /// The path.
    pub path: String,
    /// True if the paths below are those of persisted documents.
    pub has_documents: bool,
    /// The page, unless it is turned off.
    pub page: Option<Page>,
}

/// True if a browser asks for the page, and not a GraphQL client for the endpoint.
pub(crate) fn is_requested(method: &Method, uri: &http::Uri, headers: &HeaderMap) -> bool {
    method == Method::GET
        && uri.query().is_none()
        && !headers.contains_key(UPGRADE)
        && headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|accept| accept.split(',').any(|range| range.trim().starts_with("text/html")))
}

/// Returns the page itself.
pub fn index(page: &EndpointPage, headers: &HeaderMap) -> Response {
    serve(page, "/", headers).unwrap_or_else(|| not_found(page))
}

/// Returns a file of the page, or 404.
pub(crate) fn asset<B>(page: &EndpointPage, request: &Request<B>) -> Response {
    let served = (request.method() == Method::GET || request.method() == Method::HEAD)
        .then(|| serve(page, request.uri().path(), request.headers()))
        .flatten();
    served.unwrap_or_else(|| not_found(page))
}

fn serve(page: &EndpointPage, path: &str, headers: &HeaderMap) -> Option<Response> {
    let asset = page.page.as_ref()?.asset(path)?;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let mut response = if text(IF_NONE_MATCH).is_some_and(|known| asset.is_known_to(known)) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        let encoded = asset.encoded(text(ACCEPT_ENCODING));
        let mut response = response::with_type(StatusCode::OK, asset.content_type(), encoded.bytes);
        if let Some(encoding) = encoded.content_encoding {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        response
    };
    for (name, value) in ide::HEADERS {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().insert(name, value);
    }
    if let Ok(etag) = HeaderValue::from_str(asset.etag()) {
        response.headers_mut().insert(ETAG, etag);
    }
    Some(response)
}

fn not_found(page: &EndpointPage) -> Response {
    let text = format!("There is nothing here. The GraphQL endpoint is {}\n", page.path);
    response::text(StatusCode::NOT_FOUND, text)
}

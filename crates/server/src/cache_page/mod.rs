//! The page of the caches: hit ratios of the last minutes, the stores, the entries that are found most often, the
//! largest ones, invalidations, and a form that shows what an invalidation would make stale before it is sent. As JSON,
//! or as a page for browsers.
//!
//! The page is a file that reads the JSON again and again. Everything that it needs is in the binary.

mod description;
mod history;

use std::sync::Arc;

use bytes::Bytes;
use cache::Invalidation;
use frontend::response::{self, Response};
use http::header::{ACCEPT, CACHE_CONTROL, HOST, HeaderName, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use serving::caching::GenerationCaches;
use tokio::sync::Semaphore;

pub(crate) use history::{CacheHistory, follow};

/// The number of entries of each level that a preview looks at, so that its time is bounded.
const PREVIEWED_ENTRIES_MAX: u64 = 4_000_000;

/// The headers of the page, its script and its style. Scripts come from this listener only, and nothing is loaded from
/// or sent to another origin; no other page may show this one in a frame.
const PAGE_HEADERS: [(HeaderName, &str); 4] = [
    (
        HeaderName::from_static("content-security-policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (CACHE_CONTROL, "no-store"),
];

/// The state of the page.
#[derive(Debug)]
pub(crate) struct CachePage {
    /// The counters of the last minutes.
    pub(crate) history: Arc<CacheHistory>,
    /// One preview runs at a time.
    previews: Arc<Semaphore>,
}

impl CachePage {
    /// Creates the page with an empty history.
    pub(crate) fn new() -> Self {
        let previews = Arc::new(Semaphore::new(1));
        Self { history: Arc::new(CacheHistory::new()), previews }
    }

    /// Returns the page to browsers, and JSON to all other clients. `caching` is `None` if nothing is cached. Entries
    /// are shown with the values of their keys if `shows_values` is true.
    pub(crate) fn overview(
        &self,
        caching: Option<&GenerationCaches>,
        headers: &HeaderMap,
        shows_values: bool,
    ) -> Response {
        let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut response = match (accepted.any(|it| it.contains("text/html")), caching) {
            (true, _) => page_part("text/html; charset=utf-8", include_str!("page.html")),
            (false, None) => not_cached(),
            (false, Some(caching)) => {
                json(&description::describe(caching, &self.history, shows_values))
            }
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Returns the script of the page.
    pub(crate) fn script() -> Response {
        page_part("text/javascript; charset=utf-8", include_str!("page.js"))
    }

    /// Returns the style of the page.
    pub(crate) fn style() -> Response {
        page_part("text/css; charset=utf-8", include_str!("page.css"))
    }

    /// Returns what the invalidations would make stale. Walks over all entries, on the blocking pool.
    pub(crate) async fn preview(
        &self,
        caching: &GenerationCaches,
        invalidations: Vec<Invalidation>,
    ) -> Response {
        let Ok(permit) = Arc::clone(&self.previews).try_acquire_owned() else {
            let text = "another preview is running; try again in a moment\n";
            return response::text(StatusCode::TOO_MANY_REQUESTS, text);
        };
        let process = Arc::clone(&caching.process);
        let preview = tokio::task::spawn_blocking(move || {
            // Held until the end also if the client leaves.
            let _permit = permit;
            process.preview(&invalidations, PREVIEWED_ENTRIES_MAX)
        });
        match preview.await {
            Ok(preview) => json(&description::describe_preview(&preview)),
            Err(_) => {
                let text = "the preview failed because of a defect of the router\n";
                response::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// The response to requests about caches that are turned off.
pub(crate) fn not_cached() -> Response {
    response::text(StatusCode::NOT_FOUND, "nothing is cached: `cache.enabled` is not set\n")
}

fn json(value: &serde_json::Value) -> Response {
    let text = serde_json::to_vec(value).unwrap_or_default();
    response::with_type(StatusCode::OK, "application/json", text.into())
}

fn page_part(content_type: &'static str, text: &'static str) -> Response {
    let body = Bytes::from_static(text.as_bytes());
    let mut response = response::with_type(StatusCode::OK, content_type, body);
    for (name, value) in PAGE_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// True if a web page of another origin sent the request. The page of this listener has the origin that the request is
/// sent to, which no other page can have: the host of a request is checked before.
pub(crate) fn is_from_foreign_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|it| it != "same-origin") {
        return true;
    }
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    let authority = origin.to_str().ok().and_then(|it| Some(it.split_once("://")?.1));
    match (host, authority) {
        (Some(host), Some(authority)) => !host.eq_ignore_ascii_case(authority),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_foreign(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().header(HOST, "127.0.0.1:8088");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_from_foreign_page(&request.body(()).expect("a request"))
    }

    #[test]
    fn only_the_page_of_the_listener_may_send_requests_from_a_browser() {
        let own = ("origin", "http://127.0.0.1:8088");
        assert!(!is_foreign(&[]), "no browser");
        // Browsers leave out `sec-fetch-site` for addresses that are not local and have no TLS.
        assert!(!is_foreign(&[own]));
        assert!(!is_foreign(&[own, ("sec-fetch-site", "same-origin")]));
        for origin in ["http://127.0.0.1:8080", "https://evil.example", "null", "http://127.0.0.1"]
        {
            assert!(is_foreign(&[("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(is_foreign(&[own, ("sec-fetch-site", site)]), "{site}");
            assert!(is_foreign(&[("sec-fetch-site", site)]), "{site}");
        }
    }
}

//! Protection against cross-site request forgery: requests that browsers send without a preflight (Fetch standard,
//! section 2.2.2) have to prove that no foreign page has made them.
//!
//! `cors::refusal` has refused the requests that name a foreign page before. These rules are about requests that name
//! none: those of programs, and of old browsers, which look the same.

use config::Csrf;
use execute::{ErrorCode, GraphqlError};
use http::header::{CONTENT_TYPE, HeaderName, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::media::ResponseFormat;
use super::response::{self, Response};

/// The rules of `csrf`.
#[derive(Debug)]
pub struct CsrfRules {
    is_enabled: bool,
    required_headers: Box<[HeaderName]>,
}

impl CsrfRules {
    /// Prepares the rules of a configuration.
    pub fn new(csrf: &Csrf) -> Self {
        Self { is_enabled: csrf.enabled, required_headers: csrf.required_headers.clone().into() }
    }

    /// Returns the response to a GET that may be forged; `None` if it is allowed. Only for requests that
    /// `cors::refusal` has let pass, so an `origin` is that of an allowed page.
    pub(crate) fn refuse_get(&self, headers: &HeaderMap) -> Option<Response> {
        let is_safe = !self.is_enabled
            || self.has_required_header(headers)
            || headers.contains_key(ORIGIN)
            || is_named_by_browser(headers)
            || needs_preflight(headers);
        if is_safe {
            return None;
        }
        let alternatives = "or `content-type: application/json`";
        Some(self.refuse(&format!("a GET must carry {} {alternatives}", self.header_names())))
    }

    /// Returns the response to a form with files that may be forged; `None` if it is allowed.
    pub(crate) fn refuse_form(&self, headers: &HeaderMap) -> Option<Response> {
        let is_safe = self.has_required_header(headers);
        let rule = || format!("a request with files must carry {}", self.header_names());
        (!is_safe).then(|| self.refuse(&rule()))
    }

    /// True if the request has one of `csrf.required_headers`.
    fn has_required_header(&self, headers: &HeaderMap) -> bool {
        self.required_headers.iter().any(|name| headers.contains_key(name))
    }

    /// Returns the required headers as words of a sentence.
    fn header_names(&self) -> String {
        let names: Vec<_> = self.required_headers.iter().map(|name| format!("`{name}`")).collect();
        names.join(" or ")
    }

    fn refuse(&self, rule: &str) -> Response {
        let message = format!(
            "the request may be forged by a web page (`csrf`): {rule}, which pages of other origins cannot send without \
             permission"
        );
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        response::refused(StatusCode::FORBIDDEN, &[error], ResponseFormat::Json)
    }
}

/// True if the browser states that a page of this origin, or the user, has made the request (Fetch Metadata). Pages
/// cannot set headers that begin with `sec-`.
fn is_named_by_browser(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin" || site == "none")
}

/// True if a page of another origin needs a preflight to send this `content-type`. Values that are not one media type
/// do not count, because browsers differ in what they send without a preflight.
fn needs_preflight(headers: &HeaderMap) -> bool {
    const SIMPLE: [&str; 3] =
        ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(value) = value.to_str() else { return false };
    let media = value.split(';').next().unwrap_or_default().trim();
    let is_token = |text: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(is_letter)
    };
    let is_type =
        media.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name));
    is_type && !SIMPLE.iter().any(|simple| media.eq_ignore_ascii_case(simple))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn is_refused(is_enabled: bool, pairs: &[(&'static str, &'static str)]) -> bool {
        let rules = CsrfRules::new(&Csrf { enabled: is_enabled, ..Csrf::default() });
        let headers = pairs
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        rules.refuse_get(&headers.collect()).is_some()
    }

    #[test]
    fn a_get_is_refused_unless_it_proves_its_origin() {
        assert!(is_refused(true, &[]));
        assert!(is_refused(true, &[("accept", "application/json")]));
        assert!(is_refused(true, &[("sec-fetch-site", "cross-site")]));
        for proof in [
            ("apollo-require-preflight", ""),
            ("x-apollo-operation-name", "A"),
            ("graphql-require-preflight", "1"),
            ("content-type", "application/json"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
            ("origin", "https://app.example"),
        ] {
            assert!(!is_refused(true, &[proof]), "{proof:?}");
        }
        assert!(!is_refused(false, &[]));
    }

    #[test]
    fn a_form_needs_a_required_header_in_any_case() {
        let rules = CsrfRules::new(&Csrf::default());
        let with = |name: &'static str| {
            let value = HeaderValue::from_static("https://app.example");
            HeaderMap::from_iter([(HeaderName::from_static(name), value)])
        };
        assert!(rules.refuse_form(&with("origin")).is_some());
        assert!(rules.refuse_form(&with("apollo-require-preflight")).is_none());
    }

    #[test]
    fn only_one_whole_media_type_that_is_not_simple_proves_something() {
        for simple in [
            "text/plain",
            "TEXT/PLAIN;charset=utf-8",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "text/plain, application/json",
            "text/plain/application/json",
            "json",
            "/",
            "",
            " ; application/json",
        ] {
            assert!(is_refused(true, &[("content-type", simple)]), "{simple}");
        }
        let mut twice = HeaderMap::new();
        twice.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        twice.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert!(!needs_preflight(&twice));
    }
}

//! Media types: what the client accepts, what it sent
//! (GraphQL over HTTP, sections 4 and 6.3; RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerType {
    /// `application/graphql-response+json`: the HTTP status tells whether the request was fine.
    GraphqlResponse,
    /// `application/json`: 200 for every well-formed request, for clients of old.
    Json,
    /// `text/event-stream`: GraphQL over SSE, distinct connections mode.
    EventStream,
}

impl AnswerType {
    /// The `content-type` to send.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::GraphqlResponse => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
            Self::EventStream => "text/event-stream; charset=utf-8",
        }
    }
}

/// The best answer type by the client's `accept` headers; `None`: nothing we have is acceptable.
///
/// No header at all means `application/json`, which every client of the old days understands. So do
/// wildcards: a browser or `curl` sends them without a thought about GraphQL. Streams are for those who ask.
pub(crate) fn negotiate(headers: &HeaderMap) -> Option<AnswerType> {
    let mut values = headers.get_all(ACCEPT).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        // What most clients send is not worth taking apart.
        (None | Some(b"application/json" | b"*/*"), None) => return Some(AnswerType::Json),
        (Some(b"application/graphql-response+json"), None) => {
            return Some(AnswerType::GraphqlResponse);
        }
        _ => {}
    }
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<Range<'_>> =
        ranges.flat_map(|value| value.split(',')).take(RANGES_MAX).map(Range::parse).collect();
    let candidates = [
        (AnswerType::Json, &["application/json", "application/*", "*/*"][..]),
        (
            AnswerType::GraphqlResponse,
            &["application/graphql-response+json", "application/*", "*/*"],
        ),
        (AnswerType::EventStream, &["text/event-stream"]),
    ];
    let mut best: Option<(u16, usize, AnswerType)> = None;
    for (answer, names) in candidates {
        // The most specific range that matches decides, also when it says no.
        let Some((at, range)) = names.iter().find_map(|name| {
            ranges.iter().enumerate().find(|(_, range)| range.media.eq_ignore_ascii_case(name))
        }) else {
            continue;
        };
        // The first of equals wins: that is the order of the client's preference.
        let is_better = best.is_none_or(|(quality, before, _)| {
            range.quality > quality || range.quality == quality && at < before
        });
        if range.quality > 0 && is_better {
            best = Some((range.quality, at, answer));
        }
    }
    best.map(|(_, _, answer)| answer)
}

/// More media ranges than any client has; what follows is ignored.
const RANGES_MAX: usize = 64;

/// One element of `accept`.
struct Range<'a> {
    media: &'a str,
    /// In thousandths. 0: not acceptable, such as another charset than ours.
    quality: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { media: parts.next().unwrap_or_default(), quality: 1000 };
        let mut charset_known = true;
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("q") {
                range.quality = thousandths(value);
            } else if name.eq_ignore_ascii_case("charset") {
                charset_known = is_utf8(value);
            }
        }
        if !charset_known {
            range.quality = 0;
        }
        range
    }
}

/// Does the body claim to be JSON in UTF-8?
pub(crate) fn is_json_body(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    media.eq_ignore_ascii_case("application/json")
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                is_utf8(value.trim().trim_matches('"'))
            }
            _ => true,
        })
}

fn is_utf8(charset: &str) -> bool {
    charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
}

/// A quality value of RFC 9110, section 12.4.2, in thousandths; malformed ones count as 1.
fn thousandths(value: &str) -> u16 {
    match value.parse::<f32>() {
        Ok(quality) if (0.0..=1.0).contains(&quality) => (quality * 1000.0) as u16,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &'static str) -> Option<AnswerType> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(value));
        negotiate(&headers)
    }

    #[test]
    fn the_best_acceptable_type_is_chosen() {
        use AnswerType::{EventStream, GraphqlResponse, Json};
        for (accept, expected) in [
            ("application/graphql-response+json", Some(GraphqlResponse)),
            (
                "application/graphql-response+json; charset=utf-8, application/json; q=0.9",
                Some(GraphqlResponse),
            ),
            ("application/json, application/graphql-response+json", Some(Json)),
            (
                "application/json;q=0.5, application/graphql-response+json;q=0.7",
                Some(GraphqlResponse),
            ),
            ("*/*", Some(Json)),
            ("application/*", Some(Json)),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(Json)),
            ("text/event-stream", Some(EventStream)),
            ("application/json; charset=iso-8859-1", None),
            ("application/json; q=0", None),
            ("application/json; q=0, */*", Some(GraphqlResponse)),
            ("*/*;q=0.5, application/graphql-response+json;q=0.5", Some(Json)),
            ("*/*, text/event-stream;q=0.9", Some(Json)),
            ("text/*", None),
            ("", None),
            ("image/png", None),
        ] {
            assert_eq!(accepts(accept), expected, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new()), Some(Json));
    }

    #[test]
    fn only_json_in_utf8_is_a_request_body() {
        for (content_type, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("text/plain", false),
            ("application/graphql", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(is_json_body(&headers), expected, "{content_type}");
        }
        assert!(!is_json_body(&HeaderMap::new()));
    }
}

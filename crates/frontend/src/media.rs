//! Media types: the response formats that a client accepts, and the type of a request body (GraphQL over HTTP,
//! sections 4 and 6.3; RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use wire::multipart::MultipartForm;
use wire::result_stream::StreamFormat;

/// The format of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseFormat {
    /// `application/graphql-response+json`: the HTTP status reports whether the request was valid.
    GraphqlResponse,
    /// `application/json`: status 200 for every well-formed request, for older clients.
    Json,
    /// `text/event-stream`: GraphQL over SSE, distinct connections mode.
    EventStream,
    /// `multipart/mixed`: each result is a part.
    Multipart(MultipartForm),
}

impl ResponseFormat {
    /// Returns the value of `content-type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::GraphqlResponse => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
            Self::EventStream => "text/event-stream; charset=utf-8",
            Self::Multipart(form) => form.content_type(),
        }
    }

    /// Returns the format of a stream.
    pub fn of(kind: StreamFormat) -> Self {
        match kind {
            StreamFormat::EventStream => Self::EventStream,
            StreamFormat::Multipart(form) => Self::Multipart(form),
        }
    }

    /// Returns the stream of results that this format is, if it is one.
    pub fn stream(self) -> Option<StreamFormat> {
        match self {
            Self::GraphqlResponse | Self::Json => None,
            Self::EventStream => Some(StreamFormat::EventStream),
            Self::Multipart(form) => Some(StreamFormat::Multipart(form)),
        }
    }

    /// Returns the format for a single document, such as an error before a stream begins.
    pub fn whole(self) -> Self {
        if self.stream().is_some() { Self::Json } else { self }
    }
}

/// The formats that a client prefers, for each kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedFormats {
    /// The format for a query or mutation. It is a stream only if the client prefers server-sent events, or accepts
    /// nothing else.
    pub result: ResponseFormat,
    /// The stream for a subscription, which other formats cannot carry; `None` if the client accepts no stream.
    pub stream: Option<StreamFormat>,
}

/// Returns the best formats according to the client's `accept` headers; `None` if the client accepts none of the
/// router's.
///
/// Without the header the format is `application/json`, which every older client understands. The same holds for
/// wildcards, which browsers and `curl` send without GraphQL in mind. Streams are only for clients that request them.
pub(crate) fn negotiate(headers: &HeaderMap) -> Option<AcceptedFormats> {
    let mut values = headers.get_all(ACCEPT).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        // The headers that most clients send need no parsing.
        (None | Some(b"application/json" | b"*/*"), None) => {
            return Some(AcceptedFormats { result: ResponseFormat::Json, stream: None });
        }
        (Some(b"application/graphql-response+json"), None) => {
            return Some(AcceptedFormats { result: ResponseFormat::GraphqlResponse, stream: None });
        }
        _ => {}
    }
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<MediaRange<'_>> =
        ranges.flat_map(|value| value.split(',')).take(RANGES_MAX).map(MediaRange::parse).collect();
    let candidates = [
        (ResponseFormat::Json, &["application/json", "application/*", "*/*"][..]),
        (
            ResponseFormat::GraphqlResponse,
            &["application/graphql-response+json", "application/*", "*/*"],
        ),
    ];
    // The first of equal ranges wins, because it states the client's preference.
    let is_better = |best: Option<(u16, usize)>, quality, at| {
        quality > 0
            && best.is_none_or(|(most, before)| quality > most || quality == most && at < before)
    };
    let mut best = None;
    let mut result = None;
    for (format, names) in candidates {
        // The most specific matching range decides, also when it excludes the type.
        let Some((at, range)) = names.iter().find_map(|name| {
            ranges.iter().enumerate().find(|(_, range)| range.media.eq_ignore_ascii_case(name))
        }) else {
            continue;
        };
        if is_better(best, range.quality, at) {
            best = Some((range.quality, at));
            result = Some(format);
        }
    }
    let mut best_stream = None;
    let mut stream = None;
    for (at, range) in ranges.iter().enumerate() {
        let Some(kind) = range.stream else { continue };
        if is_better(best_stream, range.quality, at) {
            best_stream = Some((range.quality, at));
            stream = Some(kind);
        }
        // A client that lists `multipart/mixed` first wants it for streams only. An event stream can carry the result
        // of any operation.
        if kind == StreamFormat::EventStream && is_better(best, range.quality, at) {
            best = Some((range.quality, at));
            result = Some(ResponseFormat::EventStream);
        }
    }
    let result = result.or(stream.map(ResponseFormat::of))?;
    Some(AcceptedFormats { result, stream })
}

/// The maximum number of media ranges that are read, more than any client sends; further ones are ignored.
const RANGES_MAX: usize = 64;

/// One element of `accept`.
struct MediaRange<'a> {
    media: &'a str,
    /// The quality in thousandths. 0 means not acceptable, such as a charset other than UTF-8.
    quality: u16,
    /// The stream that the range requests.
    stream: Option<StreamFormat>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is_multipart = media.eq_ignore_ascii_case("multipart/mixed");
        let is_event_stream = media.eq_ignore_ascii_case("text/event-stream");
        let mut stream = is_event_stream.then_some(StreamFormat::EventStream);
        if is_multipart {
            stream = Some(StreamFormat::Multipart(MultipartForm::Incremental));
        }
        let mut range = Self { media, quality: 1000, stream };
        let mut charset_known = true;
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("q") {
                range.quality = thousandths(value);
            } else if name.eq_ignore_ascii_case("charset") {
                charset_known = is_utf8(value);
            } else if is_multipart && name.eq_ignore_ascii_case("subscriptionSpec") {
                // There is no other version yet.
                let is_known = matches!(value, "1.0" | "1");
                range.stream =
                    is_known.then_some(StreamFormat::Multipart(MultipartForm::Subscription));
            }
        }
        if !charset_known {
            range.quality = 0;
        }
        range
    }
}

/// True if the headers declare the body as JSON in UTF-8.
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

/// Returns a quality value of RFC 9110, section 12.4.2 in thousandths; a malformed one counts as 1.
fn thousandths(value: &str) -> u16 {
    match value.parse::<f32>() {
        Ok(quality) if (0.0..=1.0).contains(&quality) => (quality * 1000.0) as u16,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(value: &'static str) -> Option<AcceptedFormats> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(value));
        negotiate(&headers)
    }

    fn accepts(value: &'static str) -> Option<ResponseFormat> {
        accepted(value).map(|it| it.result)
    }

    #[test]
    fn a_subscription_gets_the_best_stream_and_a_query_no_parts_unless_there_is_nothing_else() {
        use ResponseFormat::{EventStream, GraphqlResponse, Json, Multipart};
        let events = Some(StreamFormat::EventStream);
        let parts = Some(StreamFormat::Multipart(MultipartForm::Incremental));
        let apollo = Some(StreamFormat::Multipart(MultipartForm::Subscription));
        for (accept, result, stream) in [
            // The values that @apollo/client, urql, Relay and graphql-sse send.
            (
                "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json",
                Json,
                apollo,
            ),
            ("multipart/mixed;deferSpec=20220824,application/json", Json, parts),
            ("text/event-stream, multipart/mixed", EventStream, events),
            (
                "application/graphql-response+json, application/graphql+json, application/json, \
                 text/event-stream, multipart/mixed",
                GraphqlResponse,
                events,
            ),
            ("text/event-stream", EventStream, events),
            (
                "multipart/mixed; subscriptionSpec=\"1.0\"",
                Multipart(MultipartForm::Subscription),
                apollo,
            ),
            ("multipart/mixed", Multipart(MultipartForm::Incremental), parts),
            (
                "multipart/mixed, text/event-stream;q=0.5, application/json;q=0.1",
                EventStream,
                parts,
            ),
            ("application/json, multipart/mixed;q=0", Json, None),
            ("multipart/mixed;subscriptionSpec=2.0, application/json", Json, None),
            ("*/*", Json, None),
        ] {
            assert_eq!(accepted(accept), Some(AcceptedFormats { result, stream }), "{accept}");
        }
        assert_eq!(accepted("multipart/mixed;subscriptionSpec=2.0"), None);
    }

    #[test]
    fn the_best_acceptable_type_is_chosen() {
        use ResponseFormat::{EventStream, GraphqlResponse, Json};
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
        assert_eq!(negotiate(&HeaderMap::new()).map(|it| it.result), Some(Json));
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

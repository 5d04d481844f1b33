//! Media types: what the client accepts, what it sent
//! (GraphQL over HTTP, sections 4 and 6.3; RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use wire::multipart::MultipartForm;
use wire::result_stream::StreamFormat;

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseFormat {
    /// `application/graphql-response+json`: the HTTP status tells whether the request was fine.
    GraphqlResponse,
    /// `application/json`: 200 for every well-formed request, for clients of old.
    Json,
    /// `text/event-stream`: GraphQL over SSE, distinct connections mode.
    EventStream,
    /// `multipart/mixed`: each result a part.
    Multipart(MultipartForm),
}

// Alias for callers that still use the old name.
pub(crate) use ResponseFormat as AnswerType;

impl ResponseFormat {
    /// The `content-type` to send.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::GraphqlResponse => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
            Self::EventStream => "text/event-stream; charset=utf-8",
            Self::Multipart(form) => form.content_type(),
        }
    }

    /// The type of a stream.
    pub(crate) fn of(kind: StreamFormat) -> Self {
        match kind {
            StreamFormat::EventStream => Self::EventStream,
            StreamFormat::Multipart(form) => Self::Multipart(form),
        }
    }

    /// How results are streamed, if this is a stream.
    pub(crate) fn stream(self) -> Option<StreamFormat> {
        match self {
            Self::GraphqlResponse | Self::Json => None,
            Self::EventStream => Some(StreamFormat::EventStream),
            Self::Multipart(form) => Some(StreamFormat::Multipart(form)),
        }
    }

    /// For what is a plain document in any case, such as an error before a stream begins.
    pub(crate) fn whole(self) -> Self {
        if self.stream().is_some() { Self::Json } else { self }
    }
}

/// What a client accepts, best first, for each of the two things that an operation can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcceptedFormats {
    /// For a query or mutation. A stream only where the client prefers server-sent events, or takes nothing else.
    pub(crate) result: ResponseFormat,
    /// For a subscription, which other types cannot answer. `None`: nothing acceptable is a stream.
    pub(crate) stream: Option<StreamFormat>,
}

/// The best answer type by the client's `accept` headers; `None`: nothing we have is acceptable.
///
/// No header at all means `application/json`, which every client of the old days understands. So do
/// wildcards: a browser or `curl` sends them without a thought about GraphQL. Streams are for those who ask.
pub(crate) fn negotiate(headers: &HeaderMap) -> Option<AcceptedFormats> {
    let mut values = headers.get_all(ACCEPT).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        // What most clients send is not worth taking apart.
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
    // The first of equals wins: that is the order of the client's preference.
    let is_better = |best: Option<(u16, usize)>, quality, at| {
        quality > 0
            && best.is_none_or(|(most, before)| quality > most || quality == most && at < before)
    };
    let mut best = None;
    let mut result = None;
    for (format, names) in candidates {
        // The most specific range that matches decides, also when it says no.
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
        // Whoever puts parts first means streams by it. An event stream is an answer to anything.
        if kind == StreamFormat::EventStream && is_better(best, range.quality, at) {
            best = Some((range.quality, at));
            result = Some(ResponseFormat::EventStream);
        }
    }
    let result = result.or(stream.map(ResponseFormat::of))?;
    Some(AcceptedFormats { result, stream })
}

/// More media ranges than any client has; what follows is ignored.
const RANGES_MAX: usize = 64;

/// One element of `accept`.
struct MediaRange<'a> {
    media: &'a str,
    /// In thousandths. 0: not acceptable, such as another charset than ours.
    quality: u16,
    /// The stream that it asks for.
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
            // What @apollo/client, urql, Relay and graphql-sse send.
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

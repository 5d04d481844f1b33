//! The client's side of a streamed HTTP response with the results of one operation: server-sent events in distinct
//! connections mode, and both forms of multipart. The request, the status and the transport belong to the caller.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use astjson::{Kind, outline_members};
use bytes::Bytes;

use super::error::OperationError;
use super::part_decoder::{PartDecoder, PartError};
use crate::lazy_state::pop_or_release;
use crate::multipart::MultipartForm;
use crate::server_message::is_filled_list;
use crate::sse::{Decoder, DecoderConfig, SseEvent};

/// The maximum length of a boundary in characters (RFC 2046, section 5.1.1).
const BOUNDARY_CHARS_MAX: usize = 70;

/// Bounds of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultDecoderSettings {
    /// The maximum size of an event or of a part in bytes.
    pub result_bytes_max: usize,
    /// The maximum size of the headers of a part in bytes.
    pub part_head_bytes_max: usize,
    /// The time without a byte after which the operation fails; `None` waits for ever.
    pub idle_timeout: Option<Duration>,
}

impl Default for ResultDecoderSettings {
    /// Returns defaults with these reasons:
    /// - 64 MiB a result: the default limit of a response from a subgraph.
    /// - 16 KiB of headers: HTTP servers commonly have the same limit for those of a request.
    /// - No idle timeout: heartbeats are not mandatory in these formats, and a subscription may be quiet for days.
    fn default() -> ResultDecoderSettings {
        ResultDecoderSettings {
            result_bytes_max: 64 * 1024 * 1024,
            part_head_bytes_max: 16 * 1024,
            idle_timeout: None,
        }
    }
}

/// The format of a streamed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `text/event-stream`.
    EventStream,
    /// `multipart/mixed`.
    Multipart {
        /// The contents of the parts.
        form: MultipartForm,
        /// The text that separates the parts.
        boundary: Box<str>,
    },
}

/// The reason that a response is not a stream of results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The body is one GraphQL response, often with the errors for which the server refused the operation.
    #[error("the subgraph responded with one JSON result instead of a stream")]
    SingleResult,
    /// The content type is of no format that is known here.
    #[error("the subgraph responded with content type `{0}` instead of a stream of results")]
    UnknownType(Box<str>),
    /// A multipart response does not state its boundary, or states one that RFC 2046 does not allow.
    #[error("the subgraph's multipart response has no valid boundary")]
    InvalidBoundary,
}

impl BodyFormat {
    /// Returns the value of an `Accept` header for all formats.
    pub const fn accept() -> &'static str {
        "text/event-stream, multipart/mixed;subscriptionSpec=1.0, multipart/mixed, application/json;q=0.1"
    }

    /// Reads the value of a `Content-Type` header.
    pub fn of_content_type(value: &str) -> Result<BodyFormat, FormatError> {
        let mut parts = value.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        match &*essence {
            "text/event-stream" => return Ok(BodyFormat::EventStream),
            "multipart/mixed" => {}
            "application/json" | "application/graphql-response+json" => {
                return Err(FormatError::SingleResult);
            }
            _ => {
                let shown = &value[..value.floor_char_boundary(100)];
                return Err(FormatError::UnknownType(shown.into()));
            }
        }
        let (mut form, mut boundary) = (MultipartForm::Incremental, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("boundary") {
                boundary = Some(value);
            } else if name.trim().eq_ignore_ascii_case("subscriptionSpec") {
                form = MultipartForm::Subscription;
            }
        }
        let is_valid = |text: &&str| {
            (1..=BOUNDARY_CHARS_MAX).contains(&text.len())
                && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        let boundary = boundary.filter(is_valid).ok_or(FormatError::InvalidBoundary)?;
        Ok(BodyFormat::Multipart { form, boundary: boundary.into() })
    }
}

/// A result, or the end of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultEvent {
    /// A result: a JSON object, the GraphQL response. In the incremental form it may contain `hasNext`.
    Next(Bytes),
    /// The last event: the operation has ended after its last result.
    Complete,
    /// The last event: the operation has failed.
    Failed(OperationError),
}

/// A reader of one response body, in pieces of any size.
pub struct ResultDecoder {
    settings: ResultDecoderSettings,
    source: ResultSource,
    events: VecDeque<ResultEvent>,
    last_input: Instant,
    has_ended: bool,
}

enum ResultSource {
    EventStream {
        decoder: Decoder,
        /// True if the last result did not have the event name that GraphQL over SSE gives it. Servers without that
        /// name do not send `complete` either.
        is_unnamed: bool,
    },
    Multipart {
        decoder: PartDecoder,
        form: MultipartForm,
    },
}

impl ResultDecoder {
    /// Begins a response body.
    pub fn new(format: &BodyFormat, settings: ResultDecoderSettings, now: Instant) -> Self {
        let ResultDecoderSettings { result_bytes_max, part_head_bytes_max, .. } = settings;
        let source = match format {
            BodyFormat::EventStream => ResultSource::EventStream {
                decoder: Decoder::new(DecoderConfig { event_bytes_max: result_bytes_max }),
                is_unnamed: false,
            },
            BodyFormat::Multipart { form, boundary } => ResultSource::Multipart {
                decoder: PartDecoder::new(boundary, result_bytes_max, part_head_bytes_max),
                form: *form,
            },
        };
        let events = VecDeque::new();
        ResultDecoder { settings, source, events, last_input: now, has_ended: false }
    }

    /// Takes bytes of the body, without the framing of HTTP. Bytes after the end of the operation are discarded.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        if self.has_ended {
            return;
        }
        if !bytes.is_empty() {
            self.last_input = now;
        }
        match &mut self.source {
            ResultSource::EventStream { decoder, .. } => {
                let result = decoder.receive(bytes);
                self.read_events();
                if result.is_err() {
                    let limit = self.settings.result_bytes_max;
                    self.fail(OperationError::ResultTooBig { limit });
                }
            }
            ResultSource::Multipart { decoder, .. } => {
                let result = decoder.receive(bytes);
                let is_finished = decoder.is_finished();
                self.read_parts();
                match result {
                    Ok(()) if is_finished => self.end(ResultEvent::Complete),
                    Ok(()) => {}
                    Err(PartError::TooBig) => {
                        let limit = self.settings.result_bytes_max;
                        self.fail(OperationError::ResultTooBig { limit });
                    }
                    Err(PartError::Malformed(defect)) => self.fail_invalid(defect),
                }
            }
        }
    }

    /// Notes that the body has ended. If its transport failed, drop the decoder instead.
    pub fn receive_eof(&mut self) {
        match self.source {
            ResultSource::EventStream { is_unnamed: true, .. } => self.end(ResultEvent::Complete),
            _ => self.fail(OperationError::EndedEarly),
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ResultEvent> {
        pop_or_release(&mut self.events)
    }

    /// Returns the time at which [`ResultDecoder::handle_timeout`] must be called. It moves back whenever bytes arrive;
    /// a caller may keep its timer and call early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.has_ended {
            true => None,
            false => self.last_input.checked_add(self.settings.idle_timeout?),
        }
    }

    /// Fails the operation if the server was silent for too long. An early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(idle_timeout) = self.settings.idle_timeout
            && self.poll_timeout().is_some_and(|deadline| deadline <= now)
        {
            self.fail(OperationError::Silent(idle_timeout));
        }
    }

    /// True if the last event was queued: the response can be dropped.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn read_events(&mut self) {
        while !self.has_ended
            && let ResultSource::EventStream { decoder, is_unnamed } = &mut self.source
        {
            let Some(SseEvent { kind, data, .. }) = decoder.poll_event() else { return };
            match &*kind {
                "next" => *is_unnamed = false,
                "complete" => return self.end(ResultEvent::Complete),
                // The default name of an event in the HTML standard.
                "" | "message" if !data.is_empty() => *is_unnamed = true,
                _ => continue,
            }
            match PartMembers::read(&data) {
                Ok(_) => self.events.push_back(ResultEvent::Next(data)),
                Err(defect) => self.fail_invalid(defect),
            }
        }
    }

    fn read_parts(&mut self) {
        while !self.has_ended
            && let ResultSource::Multipart { decoder, form } = &mut self.source
        {
            let Some(part) = decoder.poll_part() else { return };
            let form = *form;
            match PartMembers::read(&part) {
                Err(defect) => self.fail_invalid(defect),
                Ok(members) if form == MultipartForm::Subscription => self.read_envelope(members),
                Ok(members) => self.read_increment(part, &members),
            }
        }
    }

    /// Reads a part of the form [`MultipartForm::Subscription`].
    fn read_envelope(&mut self, members: PartMembers) {
        let PartMembers { payload, errors, is_empty, .. } = members;
        match (payload, errors) {
            (Some(payload), errors) if payload.starts_with(b"{") => {
                self.events.push_back(ResultEvent::Next(payload));
                // Errors beside the payload are those of the transport: the operation is over.
                if let Some(errors) = errors {
                    self.fail(OperationError::Errors(errors));
                }
            }
            (_, Some(errors)) => self.fail(OperationError::Errors(errors)),
            // A heartbeat.
            (None, None) if is_empty => {}
            (Some(payload), None) if payload == "null" => {}
            _ => self.fail_invalid("a part has no object as `payload`"),
        }
    }

    /// Reads a part of the form [`MultipartForm::Incremental`].
    fn read_increment(&mut self, part: Bytes, members: &PartMembers) {
        if members.is_incremental {
            return self.fail_invalid("a result was split with `@defer` or `@stream`");
        }
        if members.has_result {
            self.events.push_back(ResultEvent::Next(part));
        }
        if members.is_last {
            self.end(ResultEvent::Complete);
        }
    }

    fn fail(&mut self, error: OperationError) {
        self.end(ResultEvent::Failed(error));
    }

    fn fail_invalid(&mut self, defect: &str) {
        self.fail(OperationError::InvalidResult(defect.into()));
    }

    fn end(&mut self, event: ResultEvent) {
        if !self.has_ended {
            self.has_ended = true;
            self.events.push_back(event);
        }
    }
}

/// The members of an event or a part that have a meaning for the transport.
#[derive(Default)]
struct PartMembers {
    /// The payload of the form [`MultipartForm::Subscription`]; null is kept.
    payload: Option<Bytes>,
    /// A list of errors that is not empty.
    errors: Option<Bytes>,
    is_empty: bool,
    /// True if there is `data` or `errors`.
    has_result: bool,
    is_incremental: bool,
    /// True if `hasNext` is false.
    is_last: bool,
}

impl PartMembers {
    // hot path: once a result; the text is read and nothing is allocated.
    fn read(text: &Bytes) -> Result<PartMembers, &'static str> {
        let mut members = PartMembers { is_empty: true, ..PartMembers::default() };
        let kind = outline_members(text, |key, value| {
            members.is_empty = false;
            match &*key {
                "payload" => members.payload = Some(value),
                "data" => members.has_result = true,
                "errors" => {
                    members.has_result = true;
                    members.errors = Some(value).filter(|value| is_filled_list(value));
                }
                "incremental" => members.is_incremental = true,
                "hasNext" => members.is_last = value == "false",
                _ => {}
            }
        });
        match kind {
            Ok(Kind::Object) => Ok(members),
            Ok(_) => Err("a result is not a JSON object"),
            Err(_) => Err("a result is not JSON"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSCRIPTION: &str = r#"multipart/mixed;boundary="graphql";subscriptionSpec="1.0""#;
    const INCREMENTAL: &str = "multipart/mixed; boundary=\"-\"; deferSpec=20220824";

    /// Returns the events of a response, the same for pieces of every size.
    fn read(content_type: &str, body: &str) -> Vec<ResultEvent> {
        let now = Instant::now();
        let format = BodyFormat::of_content_type(content_type).unwrap();
        let settings =
            ResultDecoderSettings { result_bytes_max: 200, ..ResultDecoderSettings::default() };
        let read = |size: usize| {
            let mut decoder = ResultDecoder::new(&format, settings, now);
            body.as_bytes().chunks(size).for_each(|piece| decoder.receive(now, piece));
            decoder.receive_eof();
            assert!(decoder.has_ended());
            std::iter::from_fn(|| decoder.poll_event()).collect::<Vec<_>>()
        };
        let whole = read(body.len().max(1));
        for size in 1..body.len() {
            assert_eq!(read(size), whole, "pieces of {size} bytes");
        }
        whole
    }

    fn next(payload: &str) -> ResultEvent {
        ResultEvent::Next(Bytes::copy_from_slice(payload.as_bytes()))
    }

    fn invalid(defect: &str) -> ResultEvent {
        ResultEvent::Failed(OperationError::InvalidResult(defect.into()))
    }

    fn errors(list: &'static str) -> ResultEvent {
        ResultEvent::Failed(OperationError::Errors(list.into()))
    }

    const EARLY: ResultEvent = ResultEvent::Failed(OperationError::EndedEarly);

    #[test]
    fn a_content_type_tells_the_format_or_why_there_is_none() {
        let multipart =
            |form, boundary: &str| Ok(BodyFormat::Multipart { form, boundary: boundary.into() });
        let cases = [
            ("text/event-stream; charset=utf-8", Ok(BodyFormat::EventStream)),
            (SUBSCRIPTION, multipart(MultipartForm::Subscription, "graphql")),
            (INCREMENTAL, multipart(MultipartForm::Incremental, "-")),
            (
                "Multipart/Mixed;Boundary=x;SUBSCRIPTIONSPEC=1.0",
                multipart(MultipartForm::Subscription, "x"),
            ),
            ("multipart/mixed", Err(FormatError::InvalidBoundary)),
            ("multipart/mixed; boundary=\"\"", Err(FormatError::InvalidBoundary)),
            ("application/json; charset=utf-8", Err(FormatError::SingleResult)),
            ("text/html", Err(FormatError::UnknownType("text/html".into()))),
        ];
        for (value, expected) in cases {
            assert_eq!(BodyFormat::of_content_type(value), expected, "{value}");
        }
    }

    #[test]
    fn an_event_stream_has_results_and_one_end() {
        let body = ":\n\nevent: next\ndata: {\"data\":1}\n\nevent: other\ndata: x\n\n\
                    event: next\ndata: {\ndata: }\n\nevent: complete\ndata:\n\n\
                    event: next\ndata: {}\n\n";
        let expected = [next(r#"{"data":1}"#), next("{\n}"), ResultEvent::Complete];
        assert_eq!(read("text/event-stream", body), expected);
        let cut = "event: next\ndata: {}\n\nevent: next\ndata: {}";
        assert_eq!(read("text/event-stream", cut), [next("{}"), EARLY]);
        assert_eq!(read("text/event-stream", ":\n\n"), [EARLY]);
    }

    #[test]
    fn a_server_without_event_names_ends_an_operation_with_its_response() {
        let body = "data: {\"data\":1}\n\n: ping\n\nevent: message\ndata: {}\n\n";
        let expected = [next(r#"{"data":1}"#), next("{}"), ResultEvent::Complete];
        assert_eq!(read("text/event-stream", body), expected);
    }

    #[test]
    fn an_event_that_is_no_result_ends_its_operation() {
        let check = |data: &str, expected| {
            let body = format!("event: next\ndata: {data}\n\nevent: next\ndata: {{}}\n\n");
            assert_eq!(read("text/event-stream", &body), [expected], "{data}");
        };
        check("[]", invalid("a result is not a JSON object"));
        check("{", invalid("a result is not JSON"));
        check("", invalid("a result is not JSON"));
        let limit = OperationError::ResultTooBig { limit: 200 };
        check(&"x".repeat(201), ResultEvent::Failed(limit));
        let not_utf8 = b"event: next\ndata: {\"a\":\"\xff\"}\n\n";
        let now = Instant::now();
        let mut decoder =
            ResultDecoder::new(&BodyFormat::EventStream, ResultDecoderSettings::default(), now);
        decoder.receive(now, not_utf8);
        assert_eq!(decoder.poll_event(), Some(invalid("a result is not JSON")));
    }

    #[test]
    fn a_multipart_subscription_has_results_heartbeats_and_errors() {
        let part = "\r\ncontent-type: application/json\r\n\r\n";
        let body = format!(
            "\r\n--graphql{part}{{}}\r\n--graphql{part}{{\"payload\":{{\"data\":1}}}}\r\n--graphql\
             {part}{{\"payload\":null,\"errors\":[ ]}}\r\n--graphql"
        );
        let results = [next(r#"{"data":1}"#)];
        let ends = [
            ("", EARLY),
            ("--\r\n", ResultEvent::Complete),
            (r#"{"payload":null,"errors":[{"message":"no"}]}"#, errors(r#"[{"message":"no"}]"#)),
            (r#"{"data":1}"#, invalid("a part has no object as `payload`")),
            (r#"{"payload":[]}"#, invalid("a part has no object as `payload`")),
            ("[]", invalid("a result is not a JSON object")),
        ];
        for (end, expected) in ends {
            let end = if end.starts_with(['{', '[']) {
                format!("{part}{end}\r\n--graphql--\r\n")
            } else {
                end.to_owned()
            };
            let events = [&results[..], &[expected]].concat();
            assert_eq!(read(SUBSCRIPTION, &format!("{body}{end}")), events, "{end}");
        }
    }

    #[test]
    fn an_incremental_response_ends_with_the_result_that_says_so() {
        let body = "---\r\n\r\n{\"data\":1,\"hasNext\":true}\r\n---\r\n\r\n{}\r\n---\r\n\r\n";
        let first = next(r#"{"data":1,"hasNext":true}"#);
        let cases = [
            (r#"{"hasNext":false}"#, vec![ResultEvent::Complete]),
            (
                r#"{"data":2,"hasNext":false}"#,
                vec![next(r#"{"data":2,"hasNext":false}"#), ResultEvent::Complete],
            ),
            (r#"{"data":2}"#, vec![next(r#"{"data":2}"#), ResultEvent::Complete]),
            (
                r#"{"incremental":[],"hasNext":true}"#,
                vec![invalid("a result was split with `@defer` or `@stream`")],
            ),
        ];
        for (last, expected) in cases {
            let events = [vec![first.clone()], expected].concat();
            assert_eq!(read(INCREMENTAL, &format!("{body}{last}\r\n-----\r\n")), events, "{last}");
        }
    }

    #[test]
    fn a_silent_server_fails_the_operation_if_the_settings_say_so() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let idle_timeout = Some(Duration::from_secs(20));
        let settings = ResultDecoderSettings { idle_timeout, ..ResultDecoderSettings::default() };
        let mut decoder = ResultDecoder::new(&BodyFormat::EventStream, settings, start);
        decoder.receive(at(15), b":\n\n");
        decoder.handle_timeout(at(20));
        assert_eq!((decoder.poll_event(), decoder.poll_timeout()), (None, Some(at(35))));
        decoder.handle_timeout(at(35));
        let silent = OperationError::Silent(Duration::from_secs(20));
        assert_eq!(decoder.poll_event(), Some(ResultEvent::Failed(silent)));
        assert_eq!(decoder.poll_timeout(), None);
    }
}

//! Properties of the readers of streamed responses: however the network cuts a body, the events are the same, and
//! every result of the server's machines arrives.

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::BodyMachine;
use wire::multipart::{Multipart, MultipartForm};
use wire::sse::{Sse, SseConfig};
use wire::upstream::{
    BodyFormat, OperationError, ResultDecoder, ResultDecoderSettings, ResultEvent,
};

const SETTINGS: ResultDecoderSettings =
    ResultDecoderSettings { result_bytes_max: 300, part_head_bytes_max: 100, idle_timeout: None };

/// Returns the events of a body that is cut at `cuts`, taken modulo the length.
fn read(format: &BodyFormat, body: &[u8], cuts: &[usize]) -> Vec<ResultEvent> {
    let now = Instant::now();
    let mut decoder = ResultDecoder::new(format, SETTINGS, now);
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    for ends in cuts.windows(2) {
        decoder.receive(now, &body[ends[0]..ends[1]]);
    }
    decoder.receive_eof();
    std::iter::from_fn(|| decoder.poll_event()).collect()
}

fn drain(body: &mut impl BodyMachine, now: Instant, out: &mut Vec<u8>) {
    while let Some(chunks) = body.poll_transmit(now) {
        chunks.append_to(out);
    }
}

/// A server's machine of either format.
enum Server {
    EventStream(Sse),
    Multipart(Multipart),
}

/// Returns the body with these results that a server's machine writes, with a heartbeat after each result. It ends
/// with an error if `fails`, otherwise with the end of the operation.
fn body(form: Option<MultipartForm>, payloads: &[String], fails: bool) -> Vec<u8> {
    let (mut now, mut out) = (Instant::now(), Vec::new());
    let heartbeat = Some(Duration::from_secs(10));
    let mut server = match form {
        None => Server::EventStream(Sse::new(&SseConfig { heartbeat }, now)),
        Some(form) => Server::Multipart(Multipart::new(form, heartbeat, now)),
    };
    for payload in payloads {
        let payload = Bytes::from(payload.clone());
        match &mut server {
            Server::EventStream(sse) => {
                sse.next(payload, None);
                drain(sse, now, &mut out);
                now += Duration::from_secs(10);
                sse.handle_timeout(now);
                drain(sse, now, &mut out);
            }
            Server::Multipart(multipart) => {
                multipart.next(payload);
                drain(multipart, now, &mut out);
                now += Duration::from_secs(10);
                multipart.handle_timeout(now);
                drain(multipart, now, &mut out);
            }
        }
    }
    match &mut server {
        Server::EventStream(sse) => {
            sse.complete();
            drain(sse, now, &mut out);
        }
        Server::Multipart(multipart) if fails => {
            multipart.fail(br#"{"errors":[{"message":"no"}]}"#);
            drain(multipart, now, &mut out);
        }
        Server::Multipart(multipart) => {
            multipart.complete();
            drain(multipart, now, &mut out);
        }
    }
    out
}

fn format(form: Option<MultipartForm>) -> BodyFormat {
    let content_type = form.map_or("text/event-stream", MultipartForm::content_type);
    BodyFormat::of_content_type(content_type).expect("the format of a stream")
}

fn forms() -> impl Strategy<Value = Option<MultipartForm>> {
    prop_oneof![
        Just(None),
        Just(Some(MultipartForm::Subscription)),
        Just(Some(MultipartForm::Incremental)),
    ]
}

proptest! {
    #[test]
    fn results_of_the_servers_machines_arrive(
        form in forms(), fails in any::<bool>(), cuts in vec(any::<usize>(), 0..20),
        payloads in vec("[a-z€ -]{0,40}".prop_map(|text| format!(r#"{{"data":"{text}"}}"#)), 0..6),
    ) {
        let body = body(form, &payloads, fails);
        let mut expected: Vec<_> = payloads.into_iter().map(|payload| ResultEvent::Next(match form {
            Some(MultipartForm::Incremental) => payload.replacen('{', r#"{"hasNext":true,"#, 1).into(),
            _ => payload.into(),
        })).collect();
        let errors = Bytes::from_static(br#"[{"message":"no"}]"#);
        match form {
            Some(MultipartForm::Subscription) if fails => {
                expected.push(ResultEvent::Failed(OperationError::Errors(errors)));
            }
            Some(MultipartForm::Incremental) if fails => expected.extend([
                ResultEvent::Next(r#"{"hasNext":false,"errors":[{"message":"no"}]}"#.into()),
                ResultEvent::Complete,
            ]),
            _ => expected.push(ResultEvent::Complete),
        }
        prop_assert_eq!(read(&format(form), &body, &cuts), expected);
    }

    #[test]
    fn cuts_do_not_change_the_events_of_any_body(
        form in forms(), cuts in vec(any::<usize>(), 0..20),
        pieces in vec(prop_oneof![
            Just("\r\n--graphql"), Just("--graphql"), Just("--"), Just("\r\n\r\n"), Just("\r\n"), Just("\n"),
            Just(" "), Just("content-type: x"), Just(r#"{"payload":{"data":1}}"#), Just("{}"), Just("x"),
            Just("data: {}"), Just("event: next\n"), Just("event: complete\n\n"), Just("data:"), Just("€"),
            Just(r#"{"data":1,"hasNext":false}"#), Just(r#"{"payload":null,"errors":[1]}"#),
        ], 0..30),
    ) {
        let (format, body) = (format(form), pieces.concat());
        let whole = read(&format, body.as_bytes(), &[]);
        prop_assert_eq!(&read(&format, body.as_bytes(), &cuts), &whole);
        let is_end = |event: &ResultEvent| !matches!(event, ResultEvent::Next(_));
        prop_assert_eq!(whole.iter().position(is_end), Some(whole.len() - 1));
    }
}

//! Any bytes as a subgraph that serves subscriptions, over each protocol: the client's machines never panic, stay
//! within their limits, end once, and give the same events however the bytes are cut.
//!
//! The first byte chooses the protocol, the second is the size of the pieces, and the rest is what the subgraph sends:
//! frames behind a right handshake, messages one a line, a response body, or callbacks one a line.

#![no_main]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::Machine;
use wire::connection::{Output, Protocol};
use wire::multipart::MultipartForm;
use wire::upstream::callback::{CallbackEntropy, CallbackRequest};
use wire::upstream::{
    BodyFormat, CallbackEvent, CallbackSettings, CallbackTable, OperationId, ResultDecoder,
    ResultDecoderSettings, ResultEvent, SubprotocolChoice, UpgradeRequest, UpstreamClient,
    UpstreamEvent, UpstreamSettings, UpstreamSocket,
};
use wire::websocket::WebSocketConfig;

const RESULT_BYTES_MAX: usize = 500;
const REQUEST: Bytes = Bytes::from_static(br#"{"query":"{a}"}"#);
/// The response to an upgrade request whose key is sixteen zeros.
const UPGRADE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
    sec-websocket-accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\nsec-websocket-protocol: graphql-transport-ws\r\n\r\n";

/// Checks that results belong to operations in progress and that the end is last.
fn check_events(events: &[UpstreamEvent], operations: &[OperationId]) {
    let mut active: HashSet<_> = operations.iter().copied().collect();
    for (at, event) in events.iter().enumerate() {
        match event {
            UpstreamEvent::Next { id, payload } => {
                assert!(
                    active.contains(id)
                        && payload.starts_with(b"{")
                        && payload.len() <= RESULT_BYTES_MAX
                );
            }
            UpstreamEvent::Complete { id } | UpstreamEvent::Failed { id, .. } => {
                assert!(active.remove(id))
            }
            UpstreamEvent::Ready { .. } | UpstreamEvent::Ignored(_) => {}
            UpstreamEvent::Ended(_) => assert_eq!(at, events.len() - 1),
        }
    }
}

fn read_socket(
    settings: &Arc<UpstreamSettings>,
    now: Instant,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Vec<UpstreamEvent> {
    let request = UpgradeRequest {
        authority: "h",
        target: "/",
        subprotocols: SubprotocolChoice::Auto,
        headers: &[],
        init_payload: None,
        key_entropy: [0; 16],
        mask_seed: 7,
    };
    let Ok(mut socket) = UpstreamSocket::new(settings.clone(), request, now) else {
        unreachable!("the request is valid")
    };
    let operations: Vec<_> = (0..3).filter_map(|_| socket.subscribe(REQUEST).ok()).collect();
    let mut events = Vec::new();
    for piece in pieces {
        socket.receive(now, piece);
        while let Some(chunks) = socket.poll_transmit(now) {
            assert!(!chunks.is_empty());
        }
        events.extend(std::iter::from_fn(|| socket.poll_event()));
    }
    socket.receive_eof(now);
    events.extend(std::iter::from_fn(|| socket.poll_event()));
    check_events(&events, &operations);
    assert!(matches!(events.last(), Some(UpstreamEvent::Ended(_))));
    events
}

fn read_messages(settings: &Arc<UpstreamSettings>, subprotocol: &str, text: &str, now: Instant) {
    let Some(mut client) = UpstreamClient::new(settings.clone(), subprotocol, None, now) else {
        unreachable!("the subprotocol is known")
    };
    let operations: Vec<_> = (0..3).filter_map(|_| client.subscribe(REQUEST).ok()).collect();
    for line in text.lines().filter(|line| line.len() <= RESULT_BYTES_MAX) {
        client.receive_text(Bytes::copy_from_slice(line.as_bytes()));
        while let Some(output) = client.poll_output() {
            if let Output::Text(text) = output {
                assert!(std::str::from_utf8(&text.to_vec()).is_ok());
            }
        }
    }
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
    check_events(&events, &operations);
    let ended = events
        .iter()
        .filter(|it| matches!(it, UpstreamEvent::Complete { .. } | UpstreamEvent::Failed { .. }));
    let in_progress = if client.has_ended() { 0 } else { operations.len() - ended.count() };
    assert_eq!(client.in_progress(), in_progress);
}

fn read_body(
    format: &BodyFormat,
    now: Instant,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Vec<ResultEvent> {
    let settings = ResultDecoderSettings {
        result_bytes_max: RESULT_BYTES_MAX,
        part_head_bytes_max: 100,
        idle_timeout: None,
    };
    let mut decoder = ResultDecoder::new(format, settings, now);
    pieces.for_each(|piece| decoder.receive(now, piece));
    decoder.receive_eof();
    std::iter::from_fn(|| decoder.poll_event()).collect()
}

fn read_callbacks(data: &[u8], now: Instant) {
    let mut table = CallbackTable::new(CallbackSettings::default());
    let entropy = CallbackEntropy { id: [0; 16], verifier: [0; 32] };
    let Ok(registration) = table.register(now, entropy) else { unreachable!("the table is empty") };
    let path_id = registration.id.to_string();
    let mut has_ended = false;
    for line in data.split(|byte| *byte == b'\n') {
        let body = Bytes::copy_from_slice(line);
        let result =
            table.receive(now, CallbackRequest { path_id: &path_id, protocol: None, body });
        let status = result.map_or_else(|rejection| rejection.status(), |action| action.status());
        assert!(!has_ended || status >= 400);
        while let Some(event) = table.poll_event() {
            assert!(!has_ended);
            has_ended = !matches!(event, CallbackEvent::Next { .. });
        }
        assert_eq!(table.in_progress(), usize::from(!has_ended));
        assert_eq!(table.poll_timeout().is_some(), !has_ended);
    }
}

fuzz_target!(|data: &[u8]| {
    let [protocol, size, data @ ..] = data else { return };
    let (size, now) = (usize::from(*size).max(1), Instant::now());
    let websocket = WebSocketConfig {
        message_bytes_max: RESULT_BYTES_MAX,
        oversized_head_bytes_max: 100,
        ..WebSocketConfig::default()
    };
    let settings =
        UpstreamSettings { websocket: Arc::new(websocket), ..UpstreamSettings::default() };
    let settings = Arc::new(settings);
    let format = match protocol % 7 {
        0 => {
            let bytes = [UPGRADE, data].concat();
            let whole = read_socket(&settings, now, &mut [&bytes[..]].into_iter());
            return assert_eq!(read_socket(&settings, now, &mut bytes.chunks(size)), whole);
        }
        subprotocol @ 1..3 => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            let name = ["graphql-transport-ws", "graphql-ws"][usize::from(subprotocol) - 1];
            return read_messages(&settings, name, text, now);
        }
        3 => BodyFormat::EventStream,
        4 => BodyFormat::Multipart { form: MultipartForm::Subscription, boundary: "-".into() },
        5 => BodyFormat::Multipart { form: MultipartForm::Incremental, boundary: "-".into() },
        _ => return read_callbacks(data, now),
    };
    let whole = read_body(&format, now, &mut [data].into_iter());
    assert_eq!(read_body(&format, now, &mut data.chunks(size)), whole);
    let is_end = |event: &ResultEvent| !matches!(event, ResultEvent::Next(_));
    assert_eq!(whole.iter().position(is_end), Some(whole.len() - 1));
});

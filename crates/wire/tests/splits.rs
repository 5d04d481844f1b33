//! Properties: however the network cuts a stream, and whatever it contains, the output of the machines is the same and
//! they never panic.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::Chunks;
use wire::graphql_transport_ws::{
    Client, ClientEvent, GraphqlTransportWs, ProtocolConfig, ServerEvent,
};
use wire::pair::{Pair, Split};
use wire::sse::{self, Decoder, EventId};
use wire::websocket::{self, WebSocket};

/// Returns `bytes`, cut at `cuts`, taken modulo the length.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn websocket_events(pieces: &[&[u8]]) -> Vec<websocket::WebSocketEvent> {
    let now = Instant::now();
    let config = websocket::WebSocketConfig { message_bytes_max: 2000, ..Default::default() };
    let mut server = WebSocket::server(Arc::new(config), now);
    for piece in pieces {
        server.receive(now, piece);
    }
    std::iter::from_fn(|| server.poll_event()).collect()
}

#[derive(Clone, Debug)]
enum Send {
    Text(String),
    Binary(Vec<u8>),
}

fn sends() -> impl Strategy<Value = Vec<Send>> {
    let send = prop_oneof![
        ".{0,300}".prop_map(Send::Text),
        vec(any::<u8>(), 0..400).prop_map(Send::Binary),
    ];
    vec(send, 0..6)
}

/// Generates bytes that are almost frames: valid headers more often than chance would give them.
fn almost_frames() -> impl Strategy<Value = Vec<u8>> {
    let frame = (any::<u8>(), 0u8..131, any::<[u8; 4]>(), vec(any::<u8>(), 0..140)).prop_map(
        |(first, len, mask, payload)| {
            let first = if first < 200 {
                [0x81, 0x01, 0x80, 0x00, 0x82, 0x89][first as usize % 6]
            } else {
                first
            };
            [&[first, 0x80 | len.min(127)], &mask[..], &payload].concat()
        },
    );
    vec(frame, 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn messages_of_a_websocket_client_arrive(
        sends in sends(), seed in any::<u64>(), cuts in vec(any::<usize>(), 0..20),
    ) {
        let mut client = WebSocket::client(Arc::default(), Instant::now(), seed);
        for send in &sends {
            match send {
                Send::Text(text) => client.send_text(Chunks::whole(text.clone())),
                Send::Binary(bytes) => client.send_binary(Chunks::whole(bytes.clone())),
            }
        }
        let mut bytes = Vec::new();
        while let Some(chunks) = client.poll_transmit() {
            chunks.append_to(&mut bytes);
        }
        let expected: Vec<_> = sends.into_iter().map(|send| match send {
            Send::Text(text) => websocket::WebSocketEvent::Text(text.into()),
            Send::Binary(bytes) => websocket::WebSocketEvent::Binary(bytes.into()),
        }).collect();
        prop_assert_eq!(websocket_events(&pieces(&bytes, &cuts)), expected);
    }

    #[test]
    fn cuts_do_not_change_the_events_of_a_websocket_server(
        bytes in almost_frames(), cuts in vec(any::<usize>(), 0..20),
    ) {
        prop_assert_eq!(websocket_events(&pieces(&bytes, &cuts)), websocket_events(&[&bytes]));
    }

    #[test]
    fn cuts_do_not_change_a_conversation(
        seed in any::<u64>(),
        ids in vec(".{1,40}", 1..6),
        payloads in vec(0u32.., 0..10),
    ) {
        let talk = |split| {
            let mut pair: Pair<Client, GraphqlTransportWs> =
                Pair::graphql_transport_ws(Default::default(), ProtocolConfig::default(), split);
            let mut server = Vec::new();
            pair.deliver();
            pair.server.protocol.accept_init(None);
            pair.deliver();
            for id in &ids {
                pair.client.protocol.subscribe(id, Bytes::from_static(b"{\"query\":\"{a}\"}"));
            }
            pair.deliver();
            server.extend(pair.server_events());
            for (i, payload) in payloads.iter().enumerate() {
                let payload = format!("{{\"data\":{payload}}}");
                pair.server.protocol.next(&ids[i % ids.len()], payload.into());
            }
            pair.deliver();
            server.extend(pair.server_events());
            (server, pair.client_events())
        };
        let expected: (Vec<ServerEvent>, Vec<ClientEvent>) = talk(Split::Whole);
        prop_assert_eq!(&talk(Split::Bytewise), &expected);
        prop_assert_eq!(&talk(Split::Seeded(seed)), &expected);
    }

    #[test]
    fn cuts_do_not_change_the_events_of_an_sse_client(
        stream in "(data|event|id|[a-z]{0,3})?:? ?[a-z€\u{feff}]{0,5}[\r\n]{1,3}".prop_map(String::from)
            .prop_flat_map(|line| vec(Just(line), 0..3).prop_map(|lines| lines.concat())),
        more in "([a-z:é]{0,6}|data: x|event: next|id: 1|[\r\n]){0,30}",
        cuts in vec(any::<usize>(), 0..20),
    ) {
        let stream = stream + &more;
        let read = |pieces: &[&[u8]]| {
            let mut decoder = Decoder::new(Default::default());
            for piece in pieces {
                decoder.receive(piece).unwrap();
            }
            std::iter::from_fn(move || decoder.poll_event()).collect::<Vec<_>>()
        };
        prop_assert_eq!(read(&pieces(stream.as_bytes(), &cuts)), read(&[stream.as_bytes()]));
    }

    #[test]
    fn events_of_an_sse_server_arrive(
        payloads in vec("[a-z{}\":€\r\n ]{1,40}", 0..6), id in "[ -~]{1,20}",
        cuts in vec(any::<usize>(), 0..20),
    ) {
        let mut stream = b":\n\n".to_vec();
        for payload in &payloads {
            let event = sse::next_event(payload.clone().into(), EventId::new(&id));
            event.append_to(&mut stream);
        }
        sse::complete_event().append_to(&mut stream);
        let mut decoder = Decoder::new(Default::default());
        for piece in pieces(&stream, &cuts) {
            decoder.receive(piece).unwrap();
        }
        let events: Vec<_> = std::iter::from_fn(|| decoder.poll_event()).collect();
        for event in &events {
            prop_assert_eq!(event.last_id.as_deref(), (!payloads.is_empty()).then_some(&*id));
        }
        let messages: Vec<_> = events.into_iter().filter_map(sse::SseEvent::message).collect();
        let mut expected: Vec<_> = payloads.iter().map(|payload| {
            let payload = payload.replace("\r\n", "\n").replace('\r', "\n");
            sse::SseMessage::Next(payload.into())
        }).collect();
        expected.push(sse::SseMessage::Complete);
        prop_assert_eq!(messages, expected);
    }
}

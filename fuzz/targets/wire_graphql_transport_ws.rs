//! Any messages of graphql-transport-ws, one a line, in both roles: the machine never panics, ends
//! once, and its operations begin and end in order. A client understands everything that a server
//! writes.

#![no_main]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::connection::{Output, Protocol};
use wire::graphql_transport_ws::{
    Client, ClientEvent, ProtocolConfig, ServerEvent, GraphqlTransportWs, SUBPROTOCOL,
};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    serve(text);
    listen(text);
});

fn serve(text: &str) {
    let config = Arc::new(ProtocolConfig { subscriptions_max: 3, ..ProtocolConfig::default() });
    let mut server = GraphqlTransportWs::new(config, Some(SUBPROTOCOL), Instant::now());
    let mut client = Client::new(None);
    let mut active = HashSet::new();
    let mut has_ended = false;
    for line in text.lines() {
        server.receive_text(Bytes::copy_from_slice(line.as_bytes()));
        while let Some(event) = server.poll_event() {
            assert!(!has_ended);
            match event {
                ServerEvent::Init { .. } => server.accept_init(None),
                ServerEvent::Ping { payload } => assert!(!payload.is_empty()),
                ServerEvent::Subscribe { id, .. } => {
                    assert!(active.insert(id.clone()) && active.len() <= 3);
                    if line.len() % 3 == 0 && server.next(&id, Bytes::from_static(b"{}")) {
                        server.complete(&id);
                        active.remove(&id);
                    }
                }
                ServerEvent::Complete { id, .. } => assert!(active.remove(&id)),
                ServerEvent::Large(_) => unreachable!("only a connection reads large messages"),
                ServerEvent::Ended(_) => {
                    has_ended = true;
                    active.clear();
                }
            }
        }
        assert!(has_ended || server.in_progress() == active.len());
        while let Some(output) = server.poll_output() {
            if let Output::Text(text) = output {
                client.receive_text(text.to_vec().into());
            }
        }
    }
    while let Some(event) = client.poll_event() {
        assert!(!matches!(event, ClientEvent::Ended(_)), "{event:?}");
    }
}

fn listen(text: &str) {
    let mut client = Client::new(None);
    for line in text.lines() {
        client.receive_text(Bytes::copy_from_slice(line.as_bytes()));
    }
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
    let ended = events.iter().position(|event| matches!(event, ClientEvent::Ended(_)));
    assert!(ended.is_none_or(|position| position == events.len() - 1));
}

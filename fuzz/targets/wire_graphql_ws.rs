//! Any messages of graphql-ws, one a line: the machine never panics, ends once, its operations
//! begin and end in order, and none begins before the connection is acknowledged.
//!
//! The first byte decides when the connection is acknowledged, or that it is refused.

#![no_main]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::connection::{Output, Protocol};
use wire::graphql_transport_ws::{ProtocolConfig, ServerEvent};
use wire::graphql_ws::{GraphqlWs, SUBPROTOCOL};

fuzz_target!(|data: &[u8]| {
    let Some((when, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = Arc::new(ProtocolConfig { subscriptions_max: 3, ..ProtocolConfig::default() });
    let mut server = GraphqlWs::new(config, Some(SUBPROTOCOL), Instant::now());
    let mut active = HashSet::new();
    let (mut has_begun, mut is_ready, mut has_ended) = (false, false, false);
    for (at, line) in text.lines().enumerate() {
        server.receive_text(Bytes::copy_from_slice(line.as_bytes()));
        if has_begun && !is_ready && at >= usize::from(*when) {
            if when % 5 == 4 {
                server.forbid();
            } else {
                server.accept_init(None);
                is_ready = true;
            }
        }
        while let Some(event) = server.poll_event() {
            assert!(!has_ended);
            match event {
                ServerEvent::Init { .. } => {
                    assert!(!has_begun);
                    has_begun = true;
                }
                ServerEvent::Subscribe { number, .. } => {
                    assert!(is_ready && active.insert(number) && active.len() <= 4);
                    if line.len() % 3 == 0
                        && let Some(id) = server.id_of(number).map(str::to_owned)
                    {
                        assert!(server.next(&id, Bytes::from_static(b"{}")));
                        assert!(server.error(&id, Bytes::copy_from_slice(line.as_bytes())));
                        active.remove(&number);
                    }
                }
                ServerEvent::Complete { number, .. } => assert!(active.remove(&number)),
                ServerEvent::Ping { .. } => unreachable!("the protocol has no pings of clients"),
                ServerEvent::Large(_) => unreachable!("only a connection reads large messages"),
                ServerEvent::Ended(_) => {
                    has_ended = true;
                    active.clear();
                }
            }
        }
        assert!(!is_ready || has_ended || server.in_progress() == active.len());
        while let Some(output) = server.poll_output() {
            if let Output::Text(text) = output {
                assert!(std::str::from_utf8(&text.to_vec()).is_ok());
            }
        }
    }
});

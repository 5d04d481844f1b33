//! The cost of one recipient of a broadcast, and of one message from a client.
//!
//! `cargo bench -p wire`

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use divan::{Bencher, black_box};
use wire::Chunks;
use wire::connection::Connection;
use wire::graphql_transport_ws::{
    Client, GraphqlTransportWs, SUBPROTOCOL, ServerEvent, append_next_head, next_frame,
};
use wire::websocket::WebSocket;

const ID: &str = "4ee5a5a2-8b2c-4a5c-9e5f-0d6f0a1b2c3d";

fn main() {
    divan::main();
}

/// Budget: 100 ns, a fiftieth of the `send` that follows. A reactor does this for each member of a
/// group.
#[divan::bench]
fn head_of_a_next_message(bencher: Bencher) {
    let mut out = Vec::with_capacity(256);
    bencher.bench_local(|| {
        out.clear();
        append_next_head(black_box(ID), black_box(295), &mut out);
        out.len()
    });
}

#[divan::bench]
fn frame_of_a_next_message(bencher: Bencher) {
    let payload = Bytes::from(vec![b'7'; 295]);
    bencher.bench_local(|| next_frame(black_box(ID), payload.clone()));
}

#[divan::bench(args = [100, 1000, 100_000])]
fn receive_a_message(bencher: Bencher, len: usize) {
    let now = Instant::now();
    let mut client = WebSocket::client(Arc::default(), now, 7);
    client.send_text(Chunks::whole("x".repeat(len)));
    let frame = client.poll_transmit().map(|chunks| chunks.to_vec()).unwrap_or_default();
    let mut server = WebSocket::server(Arc::default(), now);
    bencher.counter(divan::counter::BytesCount::new(len)).bench_local(|| {
        server.receive(now, black_box(&frame));
        server.poll_event()
    });
}

#[divan::bench]
fn subscribe_and_complete(bencher: Bencher) {
    let now = Instant::now();
    let mut client = Connection::client(Arc::default(), Client::new(None), now, 7);
    let server = GraphqlTransportWs::new(Arc::default(), Some(SUBPROTOCOL), now);
    let mut server = Connection::server(Arc::default(), server, now);
    let mut write = |command: &dyn Fn(&mut Client)| -> Vec<u8> {
        command(&mut client.protocol);
        std::iter::from_fn(|| client.poll_transmit(now))
            .flat_map(|chunks| chunks.to_vec())
            .collect()
    };
    let init = write(&|_| {});
    let request =
        r#"{"query":"subscription($id: ID!) { tick(id: $id) { at } }","variables":{"id":"7"}}"#;
    let both = write(&|client| {
        client.subscribe(ID, request.into());
        client.complete(ID);
    });
    server.receive(now, &init);
    server.protocol.accept_init(None);
    bencher.bench_local(|| {
        server.receive(now, black_box(&both));
        let events: usize = std::iter::from_fn(|| server.poll_event())
            .filter(|event| !matches!(event, ServerEvent::Init { .. }))
            .count();
        while server.poll_transmit(now).is_some() {}
        events
    });
}

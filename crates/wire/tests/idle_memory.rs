//! The memory of an idle connection: its machines, the ids of its operations, and nothing else.

// Counting allocations requires a custom allocator, and an allocator is unsafe by its trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::connection::Connection;
use wire::graphql_transport_ws::{Client, GraphqlTransportWs};
use wire::pair::{Pair, Split};

/// Counts live bytes per thread, so that tests do not see each other.
struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that is ending has no counter and no test that reads it.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + change));
}

// SAFETY: passes every call to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> isize {
    LIVE_BYTES.with(Cell::get)
}

const ID: &str = "4ee5a5a2-8b2c-4a5c-9e5f-0d6f0a1b2c3d";

/// Returns the bytes that a client writes for one command.
fn written(
    client: &mut Connection<Client>,
    now: Instant,
    command: impl FnOnce(&mut Client),
) -> Vec<u8> {
    command(&mut client.protocol);
    std::iter::from_fn(|| client.poll_transmit(now)).flat_map(|chunks| chunks.to_vec()).collect()
}

#[test]
fn an_idle_server_connection_holds_no_heap_but_its_ids() {
    let now = Instant::now();
    let mut client = Connection::client(Arc::default(), Client::new(None), now, 7);
    let init = written(&mut client, now, |_| {});
    let request = Bytes::from_static(b"{\"query\":\"{a}\"}");
    let subscribe = written(&mut client, now, |client| client.subscribe(ID, request));
    let ping = written(&mut client, now, |client| client.ping(None));
    let complete = written(&mut client, now, |client| client.complete(ID));

    let (websocket, protocol) = (Arc::default(), Arc::default());
    let before = live_bytes();
    let machine = GraphqlTransportWs::new(protocol, Some("graphql-transport-ws"), now);
    let mut server = Connection::server(websocket, machine, now);
    let drain = |server: &mut Connection<GraphqlTransportWs>| {
        let events = std::iter::from_fn(|| server.poll_event()).count();
        events + std::iter::from_fn(|| server.poll_transmit(now)).count()
    };
    assert_eq!(live_bytes(), before, "a fresh connection");

    server.receive(now, &init);
    server.protocol.accept_init(None);
    assert_eq!(drain(&mut server), 2);
    assert_eq!(live_bytes(), before, "after connection_init");

    server.receive(now, &subscribe);
    assert_eq!(drain(&mut server), 1);
    // The text of the id; its pointer is part of the machine.
    let subscription = ID.len() as isize;
    assert_eq!(live_bytes() - before, subscription, "with a subscription");

    server.protocol.next(ID, Bytes::from_static(b"{\"data\":1}"));
    server.receive(now, &ping);
    assert_eq!(drain(&mut server), 2);
    assert_eq!(live_bytes() - before, subscription, "after events and pings");

    server.receive(now, &complete);
    assert_eq!(drain(&mut server), 1);
    assert_eq!(live_bytes(), before, "after its last subscription");
}

#[test]
fn a_partial_message_holds_about_its_own_bytes() {
    let now = Instant::now();
    let mut client = wire::websocket::WebSocket::client(Arc::default(), now, 7);
    client.send_text(wire::Chunks::whole("x".repeat(1_000_000)));
    let frame = client.poll_transmit().map(|chunks| chunks.to_vec()).unwrap_or_default();
    let mut server = wire::websocket::WebSocket::server(Arc::default(), now);
    let before = live_bytes();
    let mut received = 0;
    for piece in frame[..frame.len() - 1].chunks(4096) {
        server.receive(now, piece);
        received += piece.len();
        let held = (live_bytes() - before) as usize;
        assert!(held <= 2 * received + 200, "{held} bytes held for {received} received");
    }
    server.receive(now, &frame[frame.len() - 1..]);
    assert!(server.poll_event().is_some());
    assert_eq!(live_bytes(), before);
}

#[test]
fn a_pair_that_idles_for_a_day_holds_no_more_than_before() {
    let mut pair = Pair::graphql_transport_ws(Default::default(), Default::default(), Split::Whole);
    pair.deliver();
    pair.server_events();
    pair.server.protocol.accept_init(None);
    pair.deliver();
    pair.client_events();
    let before = live_bytes();
    pair.advance(Duration::from_secs(24 * 3600));
    assert!(pair.server.is_open());
    assert_eq!(live_bytes(), before);
}

//! WebSockets: sharing, limits and healing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::{EventStream, Retry, SubscriptionClient};
use execute::FetchError;
use futures_util::future::join_all;
use subscription_client::{
    ReconnectSettings, SubgraphSubscriptions, SubscriptionProtocol, SubscriptionSettings,
};
use tokio::join;

use crate::scripted_server::ScriptedServer;
use crate::scripted_socket::{ScriptedSocket, id_of};
use crate::subscriber::{
    QUERY, client, collect, in_trace, next, patient, read, resubscribe_in, settings, subscribe,
    subscribe_in, subscribe_with, subscription_in, wait_until,
};

const RESULT: &str = r#"{"data":{"n":1}}"#;
const COMPLETE: &str = "(the source is complete)";

fn websocket() -> SubscriptionSettings {
    settings(SubscriptionProtocol::Auto)
}

#[tokio::test]
async fn fifty_subscriptions_at_once_share_a_connection_that_is_closed_when_it_is_unused() {
    let server = ScriptedServer::start().await;
    let close_after = Duration::from_millis(20);
    let client = client(&server.url(), SubscriptionSettings { close_after, ..websocket() });
    let queries: Vec<_> =
        (0..50).map(|n| format!(r#"{{"query":"subscription{{n{n}}}"}}"#)).collect();
    let serve = async {
        let (mut socket, _) = ScriptedSocket::accept(&server).await;
        for _ in 0..50 {
            let message = socket.next_message().await;
            let query = message.split("subscription{n").nth(1).expect("the query");
            let number = query.split('}').next().unwrap();
            socket.send_result(&id_of(&message), &format!(r#"{{"data":{number}}}"#)).await;
        }
        socket
    };
    let subscribed = join_all(queries.iter().map(|query| subscribe_with(&client, query, "")));
    let (streams, mut socket) = join!(subscribed, serve);
    let mut streams: Vec<_> = streams.into_iter().map(Result::unwrap).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_eq!(next(stream).await, format!(r#"{{"data":{number}}}"#));
    }
    let stats = client.stats();
    let counts = [&stats.connections_opened, &stats.connections, &stats.operations];
    assert_eq!(counts.map(read), [1, 1, 50]);
    drop(streams);
    let mut ended = HashSet::new();
    for _ in 0..50 {
        let message = socket.next_message().await;
        assert!(message.contains(r#""type":"complete""#), "{message}");
        ended.insert(id_of(&message));
    }
    assert_eq!(ended.len(), 50);
    assert_eq!(socket.next_message().await, "close 1000");
    assert_eq!(socket.next_message().await, "end");
    wait_until("the connection is counted as closed", || read(&stats.connections) == 0).await;
    assert_eq!([&stats.connections_lost, &stats.failed, &stats.operations].map(read), [0, 0, 0]);
}

#[tokio::test]
async fn each_operation_of_a_connection_has_the_headers_of_its_trace_as_extensions() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let wanted =
        |query, traceparent| Arc::new(in_trace(subscription_in("", query, "secret"), traceparent));
    let serve = async {
        let (mut socket, init) = ScriptedSocket::accept(&server).await;
        let messages = [socket.next_message().await, socket.next_message().await];
        (socket, init, messages)
    };
    let first = client.subscribe(wanted(r#"{"query":"subscription{n}"}"#, "00-1-2-01"));
    let second = client.subscribe(wanted(r#"{"query":"subscription{m}"}"#, "00-3-4-00"));
    let (first, second, (socket, init, messages)) = join!(first, second, serve);
    for (message, query, traceparent) in
        [(&messages[0], "n", "00-1-2-01"), (&messages[1], "m", "00-3-4-00")]
    {
        let payload = format!(
            r#""payload":{{"query":"subscription{{{query}}}","extensions":{{"traceparent":"{traceparent}"}}}}"#
        );
        assert!(message.contains(&payload), "{payload} in {message}");
    }
    for shared in [socket.head(), init.as_str()] {
        assert!(!shared.contains("traceparent"), "{shared}");
    }
    drop((first, second));
}

#[tokio::test]
async fn connections_count_as_open_while_they_are_acknowledged() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let open = || read(&client.stats().connections);
    let serve = async {
        let mut socket = ScriptedSocket::upgrade(&server).await;
        socket.next_message().await;
        assert_eq!(open(), 0);
        socket.send(r#"{"type":"connection_ack"}"#).await;
        socket
    };
    let (stream, socket) = join!(subscribe(&client), serve);
    assert_eq!(open(), 1);
    drop(socket);
    let mut socket = ScriptedSocket::upgrade(&server).await;
    socket.next_message().await;
    assert_eq!(open(), 0);
    drop(stream);
}

#[tokio::test]
async fn each_partition_has_a_connection_up_to_the_limit() {
    let server = ScriptedServer::start().await;
    let settings = SubscriptionSettings { connections_max: 2, operations_max: 1, ..websocket() };
    let client = client(&server.url(), settings);
    let mut sockets = Vec::new();
    let mut streams = Vec::new();
    for token in ["a", "b"] {
        let accepted = ScriptedSocket::accept(&server);
        let (stream, (socket, init)) = join!(subscribe_with(&client, "{}", token), accepted);
        assert!(socket.head().contains(&format!("\r\nx-token: {token}\r\n")), "{}", socket.head());
        assert!(init.contains(&format!(r#""payload":{{"x-token":"{token}"}}"#)), "{init}");
        sockets.push(socket);
        streams.push(stream.unwrap());
    }
    // A third partition, and an operation that does not fit on the connection of its partition.
    for token in ["c", "a"] {
        let refused = subscribe_with(&client, r#"{"query":"x"}"#, token).await.unwrap_err();
        let reason = "subgraph/reviews: there are 2 connections, the most that are allowed";
        assert_eq!(refused.to_string(), reason);
    }
    assert_eq!([&client.stats().overloaded, &client.stats().connections].map(read), [2, 2]);
    let id = sockets[1].next_subscribe().await;
    sockets[1].send_result(&id, RESULT).await;
    assert_eq!(next(&mut streams[1]).await, RESULT);
}

#[tokio::test]
async fn a_renewed_token_is_sent_on_the_live_connection() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let first = subscribe_in(&client, "shared", r#"{"query":"a"}"#, "old");
    let (first, (mut socket, _)) = join!(first, ScriptedSocket::accept(&server));
    socket.next_subscribe().await;
    let same = subscribe_in(&client, "shared", r#"{"query":"b"}"#, "old").await;
    assert!(socket.next_message().await.contains(r#""type":"subscribe""#));
    let renewed = subscribe_in(&client, "shared", r#"{"query":"c"}"#, "new").await;
    let messages = [socket.next_message().await, socket.next_message().await];
    let ping = r#"{"type":"ping","payload":{"x-token":"new"}}"#;
    assert!(messages.iter().any(|it| it == ping), "{messages:?}");
    assert!(messages.iter().any(|it| it.contains(r#""query":"c""#)), "{messages:?}");
    drop((first, same, renewed));
}

#[tokio::test]
async fn a_lost_connection_is_opened_again_with_the_latest_token_and_gaps() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let first = subscribe_in(&client, "shared", r#"{"query":"a"}"#, "old");
    let (first, (mut socket, _)) = join!(first, ScriptedSocket::accept(&server));
    let second = subscribe_in(&client, "shared", r#"{"query":"b"}"#, "new").await;
    let mut streams = [first.unwrap(), second.unwrap()];
    for _ in 0..2 {
        socket.next_subscribe().await;
    }
    drop(socket);
    let (mut socket, init) = ScriptedSocket::accept(&server).await;
    assert!(init.contains(r#""x-token":"new""#), "{init}");
    for _ in 0..2 {
        let id = socket.next_subscribe().await;
        socket.send_result(&id, RESULT).await;
    }
    for stream in &mut streams {
        assert_eq!([next(stream).await, next(stream).await], ["gap", RESULT]);
    }
    let stats = client.stats();
    let counts = [&stats.connections_opened, &stats.connections_lost, &stats.resumed];
    assert_eq!(counts.map(read), [2, 1, 2]);
}

/// Begins a subscription in the partition `shared` with the token `old`.
async fn subscribe_with_old_token(
    client: &SubgraphSubscriptions,
    server: &ScriptedServer,
) -> (EventStream, ScriptedSocket) {
    let subscribed = subscribe_in(client, "shared", QUERY, "old");
    let (stream, (mut socket, _)) = join!(subscribed, ScriptedSocket::accept(server));
    socket.next_subscribe().await;
    (stream.expect("a stream"), socket)
}

#[tokio::test]
async fn the_token_of_a_client_that_joined_replaces_one_that_has_expired() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let (mut stream, mut socket) = subscribe_with_old_token(&client, &server).await;
    client.note_headers(&subscription_in("shared", QUERY, "new"));
    socket.close(4403, "Forbidden").await;
    let next_message = socket.next_message().await;
    assert!(!next_message.contains("ping"), "a client that joins costs no message");
    let (mut socket, init) = ScriptedSocket::accept(&server).await;
    assert!(socket.head().contains("\r\nx-token: new\r\n"), "{}", socket.head());
    assert!(init.contains(r#""x-token":"new""#), "{init}");
    let id = socket.next_subscribe().await;
    socket.send_result(&id, RESULT).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
}

#[tokio::test]
async fn a_renewed_token_is_tried_once_where_the_server_has_ignored_its_ping() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let (stream, mut socket) = subscribe_with_old_token(&client, &server).await;
    client.renew_headers(&subscription_in("shared", QUERY, "new"));
    assert_eq!(socket.next_message().await, r#"{"type":"ping","payload":{"x-token":"new"}}"#);
    socket.close(4403, "Forbidden").await;
    let (mut socket, init) = ScriptedSocket::accept(&server).await;
    assert!(init.contains(r#""x-token":"new""#), "{init}");
    socket.next_subscribe().await;
    socket.close(4403, "Forbidden").await;
    let reason = "(the subgraph closed the connection with code 4403: Forbidden)";
    assert_eq!(collect(stream).await, ["gap", reason]);
}

#[tokio::test]
async fn a_client_that_joins_with_a_bad_token_does_not_end_what_it_shares() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let (mut stream, socket) = subscribe_with_old_token(&client, &server).await;
    client.note_headers(&subscription_in("shared", QUERY, "bad"));
    drop(socket);
    let mut socket = ScriptedSocket::upgrade(&server).await;
    assert!(socket.head().contains("\r\nx-token: bad\r\n"), "{}", socket.head());
    socket.close(4403, "Forbidden").await;
    // The refused token is not tried again after the next loss.
    for _ in 0..2 {
        let (mut socket, init) = ScriptedSocket::accept(&server).await;
        assert!(init.contains(r#""x-token":"old""#), "{init}");
        let id = socket.next_subscribe().await;
        socket.send_result(&id, RESULT).await;
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
        client.renew_headers(&subscription_in("shared", QUERY, "bad"));
    }
    client.note_headers(&subscription_in("shared", QUERY, "new"));
    let (_socket, init) = ScriptedSocket::accept(&server).await;
    assert!(init.contains(r#""x-token":"new""#), "{init}");
}

#[tokio::test]
async fn a_reload_does_not_bring_back_an_older_token() {
    let (server, next_server) = (ScriptedServer::start().await, ScriptedServer::start().await);
    let former = client(&server.url(), websocket());
    let (_stream, mut socket) = subscribe_with_old_token(&former, &server).await;
    former.note_headers(&subscription_in("shared", QUERY, "new"));
    // Another request on the same connection.
    let moved = resubscribe_in(&former, "shared", r#"{"query":"b"}"#, "old").await;
    let messages = [socket.next_message().await, socket.next_message().await];
    assert!(messages.iter().all(|it| !it.contains("old")), "{messages:?}");
    assert!(messages.iter().any(|it| it.contains(r#""query":"b""#)), "{messages:?}");
    // Another URL.
    let latter = client(&next_server.url(), websocket()).continuing(&former);
    let moved_again = resubscribe_in(&latter, "shared", QUERY, "old");
    let (moved_again, (_, init)) = join!(moved_again, ScriptedSocket::accept(&next_server));
    assert!(init.contains(r#""x-token":"new""#), "{init}");
    assert!(moved.is_ok() && moved_again.is_ok());
}

#[tokio::test]
async fn a_subscription_that_moves_begins_when_its_server_has_started() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), patient(websocket()));
    let address = server.stop();
    let mut stream = resubscribe_in(&client, "", QUERY, "").await.unwrap();
    let server = ScriptedServer::start_at(address).await;
    let (mut socket, _) = ScriptedSocket::accept(&server).await;
    let id = socket.next_subscribe().await;
    socket.send_result(&id, RESULT).await;
    socket.send_result(&id, RESULT).await;
    let received = [next(&mut stream).await, next(&mut stream).await, next(&mut stream).await];
    assert_eq!(received, ["gap", RESULT, RESULT]);
    drop(stream);
    assert!(socket.next_message().await.contains(r#""type":"complete""#));
}

#[tokio::test]
async fn a_subscription_that_moves_ends_with_the_reason_if_its_server_does_not_start() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    server.stop();
    let messages = collect(resubscribe_in(&client, "", QUERY, "").await.unwrap()).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[1].contains("connection failed"), "{messages:?}");
    let stats = client.stats();
    // One that is reported, one for the subscription that is in progress, and three after it.
    assert_eq!([&stats.connect_failures, &stats.operations].map(read), [5, 0]);
}

#[tokio::test]
async fn a_subscription_that_moves_ends_at_once_if_its_token_is_refused() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let refuse = async {
        let mut socket = ScriptedSocket::upgrade(&server).await;
        socket.close(4403, "Forbidden").await;
        socket
    };
    let (refused, _socket) = join!(resubscribe_in(&client, "", QUERY, ""), refuse);
    let reason = "subgraph/reviews: the subgraph closed the connection with code 4403: Forbidden";
    assert_eq!(refused.unwrap_err().to_string(), reason);
    assert_eq!(read(&client.stats().connections_opened), 1);
}

#[tokio::test]
async fn when_the_attempts_run_out_each_subscription_gets_the_reason() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let (stream, (mut socket, _)) = join!(subscribe(&client), ScriptedSocket::accept(&server));
    socket.close(1012, "restart").await;
    for _ in 0..3 {
        let request = server.next_request().await;
        request.respond("503 Service Unavailable", "text/plain", "").await;
    }
    let reason = "(the server refused the upgrade with status 503)";
    assert_eq!(collect(stream.unwrap()).await, [reason]);
    // The next subscription begins with a new connection.
    let (stream, (mut socket, _)) = join!(subscribe(&client), ScriptedSocket::accept(&server));
    let id = socket.next_subscribe().await;
    socket.send_result(&id, RESULT).await;
    assert_eq!(next(&mut stream.unwrap()).await, RESULT);
}

#[tokio::test]
async fn a_new_operation_causes_an_attempt_at_once_that_uses_up_none() {
    let server = ScriptedServer::start().await;
    // After twelve attempts the pause is at least two seconds. No connection of this test lasts long enough to count as
    // stable.
    let delays = Retry { initial: Duration::from_millis(1), max: Duration::from_secs(600) };
    let reconnect = ReconnectSettings { delays, attempts: 13 };
    let client = client(&server.url(), SubscriptionSettings { reconnect, ..websocket() });
    let (stream, (socket, _)) = join!(subscribe(&client), ScriptedSocket::accept(&server));
    let mut stream = stream.unwrap();
    let refuse = async || {
        let request = server.next_request().await;
        request.respond("503 Service Unavailable", "text/plain", "").await;
    };
    drop(socket);
    for _ in 0..12 {
        refuse().await;
    }
    let lost = &client.stats().connections_lost;
    wait_until("the last attempt has failed", || read(lost) == 13).await;
    let began = Instant::now();
    let new = subscribe_with(&client, r#"{"query":"new"}"#, "");
    let (refused, ()) = join!(new, refuse());
    assert!(refused.is_err());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let (mut socket, _) = ScriptedSocket::accept(&server).await;
    let id = socket.next_subscribe().await;
    socket.send_result(&id, RESULT).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
}

#[tokio::test]
async fn a_refusal_that_blames_the_client_is_final() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let reason = "the subgraph closed the connection with code 4403: Forbidden";
    let refuse = async {
        let mut socket = ScriptedSocket::upgrade(&server).await;
        socket.close(4403, "Forbidden").await;
        socket
    };
    let (refused, socket) = join!(subscribe(&client), refuse);
    assert_eq!(refused.unwrap_err().to_string(), format!("subgraph/reviews: {reason}"));
    drop(socket);
    let (stream, (mut socket, _)) = join!(subscribe(&client), ScriptedSocket::accept(&server));
    socket.close(4403, "Forbidden").await;
    assert_eq!(collect(stream.unwrap()).await, [format!("({reason})")]);
    assert_eq!(read(&client.stats().resumed), 0);
}

#[tokio::test]
async fn a_query_whose_connection_is_refused_does_not_count_for_the_circuit_breaker() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let fetch = async || client.fetch(subscription_in("bad", QUERY, "bad")).await.unwrap_err();
    let close = async {
        let mut socket = ScriptedSocket::upgrade(&server).await;
        socket.close(4403, "Forbidden").await;
        socket
    };
    let (refused, _socket) = join!(fetch(), close);
    let reason = "the subgraph closed the connection with code 4403: Forbidden";
    assert_eq!(refused, FetchError::Closed(reason.into()));
    let respond = async |status| {
        let request = server.next_request().await;
        request.respond(status, "text/plain", "").await;
    };
    let (refused, ()) = join!(fetch(), respond("401 Unauthorized"));
    let reason = "the server refused the upgrade with status 401";
    assert_eq!(refused, FetchError::Closed(reason.into()));
    // A proxy without a server behind it does count.
    let (failed, ()) = join!(fetch(), respond("503 Service Unavailable"));
    assert!(matches!(failed, FetchError::Connect(_)), "{failed:?}");
}

#[tokio::test]
async fn messages_end_only_the_operations_that_they_name() {
    let server = ScriptedServer::start().await;
    let client = client(&server.url(), websocket());
    let accepted = ScriptedSocket::accept(&server);
    let (first, (mut socket, _)) = join!(subscribe_with(&client, r#"{"query":"a"}"#, ""), accepted);
    let failing = socket.next_subscribe().await;
    let second = subscribe_with(&client, r#"{"query":"b"}"#, "").await;
    let ending = socket.next_subscribe().await;
    let third = subscribe_with(&client, r#"{"query":"c"}"#, "").await;
    let staying = socket.next_subscribe().await;
    socket.send_result("99", RESULT).await;
    let errors = r#"[{"message":"no"}]"#;
    socket.send(&format!(r#"{{"id":"{failing}","type":"error","payload":{errors}}}"#)).await;
    socket.send_result(&failing, RESULT).await;
    socket.send(&format!(r#"{{"id":"{ending}","type":"complete"}}"#)).await;
    socket.send_result(&staying, RESULT).await;
    let expected = [format!(r#"{{"errors":{errors}}}"#), COMPLETE.to_owned()];
    assert_eq!(collect(first.unwrap()).await, expected);
    assert_eq!(collect(second.unwrap()).await, [COMPLETE]);
    assert_eq!(next(&mut third.unwrap()).await, RESULT);
    let stats = client.stats();
    assert_eq!([&stats.ignored, &stats.results, &stats.connections_opened].map(read), [2, 1, 1]);
}

/// Begins two operations on one connection. Returns their streams, the socket and their ids.
async fn two_operations(
    server: &ScriptedServer,
    client: &SubgraphSubscriptions,
) -> ([EventStream; 2], ScriptedSocket, [String; 2]) {
    let accepted = ScriptedSocket::accept(server);
    let (first, (mut socket, _)) = join!(subscribe_with(client, r#"{"query":"a"}"#, ""), accepted);
    let first_id = socket.next_subscribe().await;
    let second = subscribe_with(client, r#"{"query":"b"}"#, "").await;
    let second_id = socket.next_subscribe().await;
    ([first.expect("a stream"), second.expect("a stream")], socket, [first_id, second_id])
}

#[tokio::test]
async fn an_invalid_or_oversized_result_ends_only_its_own_operation() {
    let large = format!(r#"{{"data":"{}"}}"#, "x".repeat(100_000));
    for (payload, reason) in [
        (large.as_str(), "(the subgraph sent a result of more than 1000 bytes)"),
        ("{\"data\":NaN}", "(the subgraph sent an invalid result: not JSON)"),
    ] {
        let server = ScriptedServer::start().await;
        let settings = SubscriptionSettings { message_bytes_max: 1000, ..websocket() };
        let client = client(&server.url(), settings);
        let ([bad, mut good], mut socket, [bad_id, good_id]) =
            two_operations(&server, &client).await;
        socket.send_result(&good_id, RESULT).await;
        socket.send_result(&bad_id, payload).await;
        socket.send_result(&good_id, RESULT).await;
        assert_eq!(collect(bad).await, [reason]);
        assert_eq!([next(&mut good).await, next(&mut good).await], [RESULT; 2]);
        let stop = socket.next_message().await;
        assert!(stop.contains(r#""type":"complete""#) && id_of(&stop) == bad_id, "{stop}");
        let stats = client.stats();
        let counts = [&stats.connections_opened, &stats.connections_lost, &stats.failed];
        assert_eq!(counts.map(read), [1, 0, 1]);
    }
}

#[tokio::test]
async fn the_attempts_run_out_if_a_message_ends_each_connection_whatever_other_operations_get() {
    let server = ScriptedServer::start().await;
    // No connection of this test lasts long enough to count as stable.
    let delays = Retry { initial: Duration::from_millis(1), max: Duration::from_secs(600) };
    let reconnect = ReconnectSettings { delays, attempts: 3 };
    let client = client(&server.url(), SubscriptionSettings { reconnect, ..websocket() });
    let (mut streams, mut socket, [_, good_id]) = two_operations(&server, &client).await;
    socket.send_result(&good_id, RESULT).await;
    socket.send("?").await;
    for _ in 0..3 {
        let (mut socket, _) = ScriptedSocket::accept(&server).await;
        for _ in 0..2 {
            let id = socket.next_subscribe().await;
            socket.send_result(&id, RESULT).await;
        }
        socket.send("?").await;
        assert_eq!(socket.next_message().await, "close 4004");
    }
    let reason = "(the subgraph sent an invalid message: not JSON)";
    for stream in &mut streams {
        let mut last = next(stream).await;
        while !last.starts_with('(') {
            last = next(stream).await;
        }
        assert_eq!(last, reason);
    }
}

/// Far more than a response takes, and short enough to wait for.
const PING_INTERVAL: Duration = Duration::from_millis(500);
const PING: &str = r#"{"type":"ping"}"#;

/// Subscribes with a client that sends pings, and waits until the operation has begun at the server.
async fn operation_with_pings(
    server: &ScriptedServer,
) -> (SubgraphSubscriptions, EventStream, ScriptedSocket) {
    let settings = SubscriptionSettings { ping_interval: Some(PING_INTERVAL), ..websocket() };
    let client = client(&server.url(), settings);
    let (stream, (mut socket, _)) = join!(subscribe(&client), ScriptedSocket::accept(server));
    socket.next_subscribe().await;
    (client, stream.expect("a stream"), socket)
}

#[tokio::test]
async fn a_server_that_has_responded_to_a_ping_message_must_respond_to_the_next() {
    let server = ScriptedServer::start().await;
    let (client, mut stream, mut socket) = operation_with_pings(&server).await;
    socket.next_ping_frame().await;
    assert_eq!(socket.next_message().await, PING);
    socket.send(r#"{"type":"pong"}"#).await;
    // From now on the server is silent, as if only a proxy were left of it.
    assert_eq!(socket.next_message().await, PING);
    let (mut next_socket, _) = ScriptedSocket::accept(&server).await;
    let id = next_socket.next_subscribe().await;
    next_socket.send_result(&id, RESULT).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
    assert_eq!(read(&client.stats().connections_lost), 1);
}

#[tokio::test]
async fn a_server_that_refuses_ping_messages_gets_frames_on_its_next_connection() {
    let server = ScriptedServer::start().await;
    let (client, mut stream, mut socket) = operation_with_pings(&server).await;
    assert_eq!(socket.next_message().await, PING);
    socket.close(4400, "Invalid message").await;
    let (mut socket, _) = ScriptedSocket::accept(&server).await;
    let id = socket.next_subscribe().await;
    for _ in 0..2 {
        socket.next_ping_frame().await;
        socket.send_pong_frame().await;
    }
    socket.send_result(&id, RESULT).await;
    assert_eq!([next(&mut stream).await, next(&mut stream).await], ["gap", RESULT]);
    assert_eq!(read(&client.stats().connections_lost), 1);
}

#[tokio::test]
async fn a_server_that_fails_after_two_ping_messages_in_a_row_gets_frames_from_then_on() {
    let server = ScriptedServer::start().await;
    let (client, mut stream, mut socket) = operation_with_pings(&server).await;
    let mut id = String::new();
    for _ in 0..2 {
        assert_eq!(socket.next_message().await, PING);
        socket.close(4500, "Internal server error").await;
        (socket, _) = ScriptedSocket::accept(&server).await;
        id = socket.next_subscribe().await;
    }
    for _ in 0..2 {
        socket.next_ping_frame().await;
        socket.send_pong_frame().await;
    }
    socket.send_result(&id, RESULT).await;
    let mut last = next(&mut stream).await;
    while last == "gap" {
        last = next(&mut stream).await;
    }
    assert_eq!((&*last, read(&client.stats().connections_lost)), (RESULT, 2));
}

#[tokio::test]
async fn a_connection_without_acknowledgement_is_given_up_in_time() {
    let server = ScriptedServer::start().await;
    let ack_timeout = Duration::from_millis(50);
    let client = client(&server.url(), SubscriptionSettings { ack_timeout, ..websocket() });
    let (refused, socket) = join!(subscribe(&client), ScriptedSocket::upgrade(&server));
    let reason = "subgraph/reviews: the subgraph did not acknowledge the connection within 0.05 s";
    assert_eq!(refused.unwrap_err().to_string(), reason);
    drop(socket);
}

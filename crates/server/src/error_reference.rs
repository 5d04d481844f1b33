//! `docs/errors.md`: every error code, HTTP status and close code, written from the code itself.

use std::fmt::Write as _;

use execute::ErrorCode;
use wire::graphql_transport_ws::CLOSE_CODES;

use crate::live::SLOW_SUBSCRIBER;
use crate::refusal;

/// The text of `docs/errors.md`.
pub fn error_reference() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         <!-- Written from the code: `cargo xtask docs --write` -->\n\n\
         ## Codes\n\n\
         Every error in an answer has a code in `extensions.code`. A *request error* means that nothing was\n\
         executed: the answer has no `data`. Under `application/graphql-response+json` it has the HTTP status of the\n\
         table; under `application/json` it has 200, unless the request was no GraphQL request at all, its sender may\n\
         not ask (401, 403), or the router has too much to do (503 with `retry-after`, for `OVERLOADED`). An error\n\
         beside `data` is the error of a field; the status is 200.\n\n\
         Errors that a subgraph reports keep their own code and have the subgraph's name in\n\
         `extensions.serviceName`.\n\n\
         | code | status | meaning | what to do |\n|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        let (meaning, advice) = explain(code);
        let status = refusal::status(code).as_u16();
        let _ = writeln!(text, "| `{}` | {status} | {meaning} | {advice} |", code.as_str());
    }
    text.push_str(
        "\n## HTTP statuses of the endpoint\n\n| status | when |\n|---|---|\n\
         | 200 | the operation ran, with or without errors of fields |\n\
         | 201, 202 | single connection mode of server-sent events: the stream is reserved; the operation has \
         started, its results come over the stream |\n\
         | 400 | the request is not well-formed, or (graphql-response+json) the operation cannot run |\n\
         | 401 | no token where one is needed, or a wrong one |\n\
         | 403 | all that was asked for is forbidden to this client; or a WebSocket or a GET from a web page whose origin `cors.origins` does not allow |\n\
         | 404 | neither the endpoint nor a file of the page; or no stream has the token of the request |\n\
         | 405 | a method that the endpoint does not have; or a mutation by GET |\n\
         | 406 | nothing in `accept` can be served; or a subscription without a stream |\n\
         | 408 | the body did not arrive in time |\n\
         | 409 | the stream of this token is open already, or has an operation with this id |\n\
         | 413 | the body is over `limits.body` |\n\
         | 414 | the URL is too long: send the operation by POST |\n\
         | 415 | the body is not JSON in UTF-8, or compressed |\n\
         | 426 | a WebSocket handshake of another version |\n\
         | 429 | the stream of this token has as many operations as it may have |\n\
         | 431 | the head is too large |\n\
         | 503 | a limit of this router is reached, or it is shutting down |\n\
         | 504 | the operation, or the first event of `?once`, took longer than `limits.time` |\n\n\
         ## Close codes of WebSockets\n\n| code | when |\n|---|---|\n",
    );
    for (code, meaning) in CLOSE_CODES {
        let _ = writeln!(text, "| {} | {meaning} |", code.0);
    }
    let _ = writeln!(
        text,
        "| {} | the client read too slowly and `subscriptions.policy` is `disconnect`, or it left more responses unread than any other |\n\
         | 1001 | the router is shutting down |\n\
         | 1002, 1003, 1007 | the frames break RFC 6455 |\n\
         | 1008 | a message took longer than a minute from its first byte to its last, or too much was sent before `connection_ack` |\n\
         | 1009 | a message is over `websocket.max_message_size`, or `websocket.max_init_message_size` before `connection_ack`, or expands more than a hundredfold |\n\
         | 1013 | too many large messages of all clients wait to be read; try again later |",
        SLOW_SUBSCRIBER.0
    );
    text.push_str(
        "\nWith the subprotocol `graphql-ws` a message that is wrong is answered by `connection_error` and does not end \
         the connection, a second `connection_init` is answered in the same way, and an id in use takes the place of \
         its operation: 4400 is left for binary messages and ids over 1 KiB.\n",
    );
    text.push_str(
        "\nOne more error is sent for a single operation: `TOO_MANY_SUBSCRIPTIONS`, when a connection has \
         `websocket.max_subscriptions_per_connection` already.\n",
    );
    text
}

/// Meaning and advice. Both end without a full stop.
fn explain(code: ErrorCode) -> (&'static str, &'static str) {
    match code {
        ErrorCode::BadRequest => (
            "not a well-formed GraphQL request",
            "the message names the header, parameter or member",
        ),
        ErrorCode::GraphqlParseFailed => {
            ("the document is not GraphQL", "see the message and its location")
        }
        ErrorCode::GraphqlValidationFailed => {
            ("the document does not fit the schema", "see the message and its location")
        }
        ErrorCode::OperationNotFound => (
            "the document has no operation of that name, or several and none was named",
            "set `operationName`",
        ),
        ErrorCode::PersistedQueryNotSupported => (
            "the request has the hash of an operation (`extensions.persistedQuery`) and no `query`: the router keeps no operations by hash",
            "send the text; clients with automatic persisted queries do so by themselves",
        ),
        ErrorCode::BadUserInput => (
            "a variable or argument does not fit its type or use",
            "the message names it and the place in it",
        ),
        ErrorCode::Unauthenticated => (
            "there is no token where one is needed, or it is wrong or has expired; `www-authenticate` says which",
            "get a new token; see [authentication](authentication.md)",
        ),
        ErrorCode::Forbidden => (
            "the claims of the token do not allow this field, with these arguments",
            "ask for something that the token allows, or sign in as somebody else",
        ),
        ErrorCode::OperationLimitExceeded => (
            "the operation is larger than a limit of this router",
            "ask for less at once, or raise the limit that the message names",
        ),
        ErrorCode::PlanningFailed => (
            "no plan answers the operation: the supergraph cannot reach a field; `data` is null",
            "check the composition of the supergraph",
        ),
        ErrorCode::NotSupported => {
            ("valid, but this version cannot do it", "see the changelog for what is supported")
        }
        ErrorCode::SubgraphRequestFailed => (
            "a subgraph could not be reached, or its answer is no GraphQL answer",
            "look at that subgraph; the log and metrics have the reason",
        ),
        ErrorCode::SubgraphUnavailable => (
            "a subgraph is left alone for some seconds because most requests to it have failed",
            "look at that subgraph; it is tried again by itself (`traffic.all.circuit_breaker`)",
        ),
        ErrorCode::DownstreamServiceError => {
            ("a subgraph reported this error without a code of its own", "look at that subgraph")
        }
        ErrorCode::InvalidSubgraphValue => (
            "a subgraph's value does not fit the schema, such as null where none may be",
            "look at the subgraph that resolves the field at `path`",
        ),
        ErrorCode::Timeout => {
            ("the operation took longer than `limits.time`", "look at the slowest subgraph")
        }
        ErrorCode::ProviderUnavailable => (
            "the provider of events is not connected",
            "subscribe again later; it reconnects by itself",
        ),
        ErrorCode::NoResponder => (
            "nobody listens at the topic that answers this field",
            "look at the service that answers there; a request is not repeated by itself",
        ),
        ErrorCode::SourceGone => (
            "the topic, stream or bucket that the subscription listened to was deleted",
            "subscribe again once it is back",
        ),
        ErrorCode::CursorInvalid => (
            "the cursor was not made by a router of this graph, or was changed on the way",
            "send cursors as they came, or subscribe without one; all routers need the same `cursor.keys`",
        ),
        ErrorCode::CursorForeign => (
            "the cursor belongs to another field, other arguments or another user",
            "send it with the subscription that it came from, or subscribe without one",
        ),
        ErrorCode::CursorExpired => (
            "the broker has no more of what follows the cursor",
            "subscribe without a cursor, and fetch the current state",
        ),
        ErrorCode::InvalidEvent => (
            "an event, or the answer to a request over a broker, is not what the schema says: JSON with `__typename` and the key fields, or larger than `events.max_event_size`",
            "look at whoever published it; subscriptions go on",
        ),
        ErrorCode::GraphReloaded => (
            "the graph was replaced, and the subscription is not valid on the new one",
            "look at the reason in the message, and subscribe to what the new graph has",
        ),
        ErrorCode::SlowSubscriber => (
            "events came faster than the client read them",
            "read faster, select less, or configure another `subscriptions.policy`",
        ),
        ErrorCode::ShuttingDown => ("the router is shutting down", "connect again"),
        ErrorCode::Overloaded => (
            "a limit of this router is reached, or too many requests wait for a subgraph; with `retry-after` over HTTP, unless other fields have values",
            "try again later",
        ),
        ErrorCode::InternalServerError => ("a defect of the router", "please report it"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn docs_errors_md_is_up_to_date() {
        expect_test::expect_file!["../../../docs/errors.md"].assert_eq(&super::error_reference());
    }
}

//! Generator of `docs/errors.md`: every error code, HTTP status and close code, from the code itself.

use std::fmt::Write as _;

use clients::error_mapping;
use execute::ErrorCode;
use live::SLOW_SUBSCRIBER;
use wire::graphql_transport_ws::CLOSE_CODES;

/// Returns the text of `docs/errors.md`.
pub fn error_reference() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         <!-- Generated from the code: `cargo xtask docs --write` -->\n\n\
         ## Codes\n\n\
         Every error in a response has a code in `extensions.code`. A *request error* means that nothing was\n\
         executed: the response has no `data`. Under `application/graphql-response+json` it has the HTTP status of the\n\
         table; under `application/json` it has 200, unless the request was not a GraphQL request at all, its sender may\n\
         not send operations (401, 403), or the router is overloaded (503 with `retry-after`, for `OVERLOADED`). An error\n\
         beside `data` is the error of a field; the status is 200.\n\n\
         Errors that a subgraph reports keep their own code. Their messages reach clients where `include_subgraph_errors`\n\
         allows it, with the subgraph's name in `extensions.serviceName`; see\n\
         [subgraphs](subgraphs.md#what-clients-see-of-errors).\n\n\
         | code | status | meaning | what to do |\n|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        let (meaning, advice) = (meaning(code), advice(code));
        let status = error_mapping::status(code).as_u16();
        let _ = writeln!(text, "| `{}` | {status} | {meaning} | {advice} |", code.as_str());
    }
    text.push_str(
        "\n## HTTP statuses of the endpoint\n\n| status | when |\n|---|---|\n\
         | 200 | the operation ran, with or without errors of fields |\n\
         | 201, 202 | single connection mode of server-sent events: the stream is reserved; the operation has \
         started, its results come over the stream |\n\
         | 400 | the request is not well-formed, or (graphql-response+json) the operation cannot run |\n\
         | 401 | the token is missing, or it is invalid |\n\
         | 403 | every requested field is forbidden for this client; or a WebSocket or a GET from a web page whose origin `cors.origins` does not allow |\n\
         | 404 | the path is neither the endpoint nor a file of the page; or no stream has the token of the request |\n\
         | 405 | the endpoint does not support the method; or a mutation by GET |\n\
         | 406 | no media type in `accept` can be served; or a subscription without a stream |\n\
         | 408 | the body did not arrive in time |\n\
         | 409 | the stream of this token is open already, or has an operation with this id |\n\
         | 413 | the body is over `limits.body` |\n\
         | 414 | the URL is too long: send the operation by POST |\n\
         | 415 | the body is not JSON in UTF-8, or compressed |\n\
         | 426 | the WebSocket handshake has another version |\n\
         | 429 | the stream of this token has reached its maximum number of operations |\n\
         | 431 | the head is too large |\n\
         | 503 | a limit of this router is reached, or it is shutting down; or tokens cannot be verified at present |\n\
         | 504 | the operation, or the first event of `?once`, took longer than `limits.time` |\n\n\
         ## Close codes of WebSockets\n\n| code | when |\n|---|---|\n",
    );
    for (code, meaning) in CLOSE_CODES {
        let _ = writeln!(text, "| {} | {meaning} |", code.0);
    }
    let _ = writeln!(
        text,
        "| {} | the client read too slowly and `subscriptions.policy` is `disconnect`, or it left more response bytes unread than any other |\n\
         | 1001 | the router is shutting down |\n\
         | 1013 | the token of `connection_init` cannot be verified at present; reconnect with the same token |\n\
         | 1002, 1003, 1007 | the frames break RFC 6455 |\n\
         | 1008 | a message took longer than a minute from its first byte to its last, or the client sent too much before `connection_ack` |\n\
         | 1009 | a message is over `websocket.max_message_size`, or `websocket.max_init_message_size` before `connection_ack`, or expands more than a hundredfold |\n\
         | 1013 | too many large messages of all clients wait to be parsed; try again later |",
        SLOW_SUBSCRIBER.0
    );
    text.push_str(
        "\nWith the subprotocol `graphql-ws` the response to an invalid message is `connection_error`, which does not close \
         the connection. A second `connection_init` gets the same response, and an operation with an id in use replaces \
         the earlier one. 4400 remains for binary messages and ids over 1 KiB.\n",
    );
    text.push_str(
        "\nOne more code exists for a single operation: `TOO_MANY_SUBSCRIPTIONS`, if a connection has reached \
         `websocket.max_subscriptions_per_connection`.\n",
    );
    text
}

/// Returns what a code means, without a full stop.
const fn meaning(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadRequest => "not a well-formed GraphQL request",
        ErrorCode::GraphqlParseFailed => "the document is not GraphQL",
        ErrorCode::GraphqlValidationFailed => "the document is not valid for the schema",
        ErrorCode::OperationNotFound => {
            "the document has no operation of that name, or several, and the request names none"
        }
        ErrorCode::PersistedQueryNotSupported => {
            "the request has the hash of an operation (`extensions.persistedQuery`) and no `query`: the router stores no operations by hash"
        }
        ErrorCode::BadUserInput => "a variable or argument does not match its type or use",
        ErrorCode::Unauthenticated => {
            "the token is missing, invalid or expired; `www-authenticate` names the reason"
        }
        ErrorCode::AuthenticationUnavailable => {
            "the token cannot be verified at present, because the keys of its issuer could not be read or the identity provider cannot be asked about it"
        }
        ErrorCode::Forbidden => {
            "the claims of the token do not allow this field, with these arguments"
        }
        ErrorCode::OperationLimitExceeded => "the operation is larger than a limit of this router",
        ErrorCode::PlanningFailed => {
            "the operation has no plan, because the supergraph cannot reach a field; `data` is null"
        }
        ErrorCode::NotSupported => "valid, but not supported by this version",
        ErrorCode::SubgraphRequestFailed => {
            "a subgraph could not be reached, or its response is not a GraphQL response"
        }
        ErrorCode::SubgraphUnavailable => {
            "no requests are sent to a subgraph for some seconds, because most requests to it have failed"
        }
        ErrorCode::DownstreamServiceError => {
            "a subgraph reported this error without a code of its own"
        }
        ErrorCode::InvalidSubgraphValue => {
            "a subgraph's value does not match the schema, such as null for a non-null type"
        }
        ErrorCode::Timeout => "the operation took longer than `limits.time`",
        ErrorCode::ProviderUnavailable => "the provider of events is not connected",
        ErrorCode::NoResponder => "no service listens at the topic of this field",
        ErrorCode::SourceGone => {
            "the topic, stream or bucket that the subscription listened to was deleted"
        }
        ErrorCode::CursorInvalid => {
            "the cursor was not created by a router of this graph, or was changed"
        }
        ErrorCode::CursorForeign => {
            "the cursor belongs to another field, other arguments or another user"
        }
        ErrorCode::CursorExpired => "the broker no longer has the events that follow the cursor",
        ErrorCode::InvalidEvent => {
            "an event, or the response to a request over a broker, is not what the schema requires: JSON with `__typename` and the key fields, or larger than `events.max_event_size`"
        }
        ErrorCode::GraphReloaded => {
            "the graph was replaced, and the subscription is not valid on the new one"
        }
        ErrorCode::TokenRenewed => {
            "the client renewed the token of its WebSocket, and this subscription cannot continue with the new token without losing events"
        }
        ErrorCode::SlowSubscriber => "events came faster than the client read them",
        ErrorCode::ShuttingDown => "the router is shutting down",
        ErrorCode::Overloaded => {
            "a limit of this router is reached, or too many requests wait for a subgraph; with `retry-after` over HTTP, unless other fields have values"
        }
        ErrorCode::InternalServerError => "a defect of the router",
    }
}

/// Returns what a client or an operator does about a code, without a full stop.
const fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadRequest => "the message names the header, parameter or member",
        ErrorCode::GraphqlParseFailed => "see the message and its location",
        ErrorCode::GraphqlValidationFailed => "see the message and its location",
        ErrorCode::OperationNotFound => "set `operationName`",
        ErrorCode::PersistedQueryNotSupported => {
            "send the text; clients with automatic persisted queries do so automatically"
        }
        ErrorCode::BadUserInput => "the message names it and the invalid part",
        ErrorCode::Unauthenticated => "get a new token; see [authentication](authentication.md)",
        ErrorCode::AuthenticationUnavailable => {
            "try again with the same token; check the identity provider, `starling_authentication_keys` and `starling_authentication_introspections_total`"
        }
        ErrorCode::Forbidden => {
            "select only fields that the token allows, or sign in as another user"
        }
        ErrorCode::OperationLimitExceeded => {
            "select less at once, or raise the limit that the message names"
        }
        ErrorCode::PlanningFailed => "check the composition of the supergraph",
        ErrorCode::NotSupported => "see the changelog for what is supported",
        ErrorCode::SubgraphRequestFailed => {
            "check that subgraph; the log and metrics have the reason"
        }
        ErrorCode::SubgraphUnavailable => {
            "check that subgraph; the router tries it again automatically (`traffic.all.circuit_breaker`)"
        }
        ErrorCode::DownstreamServiceError => "check that subgraph",
        ErrorCode::InvalidSubgraphValue => "check the subgraph that resolves the field at `path`",
        ErrorCode::Timeout => "check the slowest subgraph",
        ErrorCode::ProviderUnavailable => "subscribe again later; it reconnects automatically",
        ErrorCode::NoResponder => {
            "check the service that listens there; the router does not repeat the request"
        }
        ErrorCode::SourceGone => "subscribe again once it is back",
        ErrorCode::CursorInvalid => {
            "send cursors unchanged, or subscribe without one; all routers need the same `cursor.keys`"
        }
        ErrorCode::CursorForeign => {
            "send it with the subscription that it belongs to, or subscribe without one"
        }
        ErrorCode::CursorExpired => "subscribe without a cursor, and fetch the current state",
        ErrorCode::InvalidEvent => "check the publisher; subscriptions continue",
        ErrorCode::GraphReloaded => {
            "read the reason in the message, and subscribe to fields of the new graph"
        }
        ErrorCode::TokenRenewed => "subscribe again, with the last cursor",
        ErrorCode::SlowSubscriber => {
            "read faster, select less, or configure another `subscriptions.policy`"
        }
        ErrorCode::ShuttingDown => "reconnect",
        ErrorCode::Overloaded => "try again later",
        ErrorCode::InternalServerError => "please report it",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn docs_errors_md_is_up_to_date() {
        expect_test::expect_file!["../../../docs/errors.md"].assert_eq(&super::error_reference());
    }
}

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
         not send operations (401, 403), a rate limit is reached (429 with `retry-after`), or the router is overloaded\n\
         (503 with `retry-after`, for `OVERLOADED`). An error\n\
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
         | 403 | every requested field is forbidden for this client, or its operation is blocked; or a WebSocket or a GET from a web page whose origin `cors` does not allow, or a GET that proves no origin where `csrf.enabled` is set |\n\
         | 404 | the path is neither the endpoint nor a file of the page; or no stream has the token of the request |\n\
         | 405 | the endpoint does not support the method; or a mutation by GET |\n\
         | 406 | no media type in `accept` can be served; or a subscription without a stream |\n\
         | 408 | the body did not arrive in time |\n\
         | 409 | the stream of this token is open already, or has an operation with this id |\n\
         | 413 | the body is over `limits.body`, or files are over a limit of `uploads` |\n\
         | 414 | the URL is too long: send the operation by POST |\n\
         | 415 | the body is not JSON in UTF-8, or compressed |\n\
         | 426 | the WebSocket handshake has another version |\n\
         | 429 | a rate limit is reached; or the stream of this token has reached its maximum number of operations |\n\
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
        "| {} | the client read too slowly and `subscriptions.policy` is `disconnect` or it gets patches of a live query, or it left more response bytes unread than any other |\n\
         | 4429 | a rate limit has refused more operations of the connection than its `close_after` |\n\
         | 1001 | the router is shutting down |\n\
         | 1013 | the token of `connection_init` cannot be verified at present; reconnect with the same token |\n\
         | 1012 | the graph was replaced and reads claims of the token that the connection has not kept; reconnect |\n\
         | 1002, 1003, 1007 | the frames break RFC 6455 |\n\
         | 1008 | a message took longer than a minute from its first byte to its last, or the client sent too much before `connection_ack` |\n\
         | 1009 | a message is over `websocket.max_message_size`, or `websocket.max_init_message_size` before `connection_ack`, or expands more than a hundredfold |\n\
         | 1013 | overload has refused 16 operations of the connection one after the other, and none is live; try again later |\n\
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
            "the request has the hash of an operation (`extensions.persistedQuery`) and no `query`, and this router stores no operations by hash for this client"
        }
        ErrorCode::PersistedQueryNotFound => {
            "the request has the hash of an operation and no `query`, and the router does not have that operation (any more)"
        }
        ErrorCode::PersistedQueryHashMismatch => {
            "the hash in `extensions.persistedQuery` is not the SHA-256 of `query`"
        }
        ErrorCode::PersistedDocumentNotFound => {
            "no persisted document has this id, or it is for other clients"
        }
        ErrorCode::PersistedDocumentRequired => {
            "the router runs persisted documents only (`persisted_documents.mode`), and the operation is none of them or was not sent by its id"
        }
        ErrorCode::BadUserInput => "a variable or argument does not match its type or use",
        ErrorCode::Unauthenticated => {
            "the token is missing, invalid or expired; `www-authenticate` names the reason"
        }
        ErrorCode::AuthenticationUnavailable => {
            "the token cannot be verified at present, because the keys of its issuer could not be read or the identity provider cannot be asked about it"
        }
        ErrorCode::OperationBlocked => {
            "a condition of the configuration refuses the operation (`block`)"
        }
        ErrorCode::RateLimited => "a rate limit of the configuration is reached (`rate_limits`)",
        ErrorCode::Forbidden => {
            "the claims of the token do not allow this field, with these arguments"
        }
        ErrorCode::UnauthorizedFieldOrType => {
            "the client may not use this field or type (`@authenticated`, `@requiresScopes` or `@policy`)"
        }
        ErrorCode::OperationLimitExceeded => "the operation is larger than a limit of this router",
        ErrorCode::CostEstimatedTooExpensive => {
            "the estimated cost of the operation is above the maximum; `extensions` has both as `estimated` and `maximum`"
        }
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
            "a limit of this router is reached, too many requests wait for a subgraph, or a slow subgraph holds its share of the work in flight; with `retry-after` over HTTP, unless other fields have values"
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
        ErrorCode::PersistedQueryNotFound => {
            "send hash and text; clients with automatic persisted queries do so automatically"
        }
        ErrorCode::PersistedQueryHashMismatch => {
            "compute the hash from exactly the text that is sent, in UTF-8"
        }
        ErrorCode::PersistedDocumentNotFound => {
            "deploy the manifest before the clients that use it; see [persisted documents](persisted-documents.md)"
        }
        ErrorCode::PersistedDocumentRequired => {
            "add the operation to a manifest, and send the id if the message requires it"
        }
        ErrorCode::BadUserInput => "the message names it and the invalid part",
        ErrorCode::Unauthenticated => "get a new token; see [authentication](authentication.md)",
        ErrorCode::AuthenticationUnavailable => {
            "try again with the same token; check the identity provider, `starling_authentication_keys` and `starling_authentication_introspections_total`"
        }
        ErrorCode::OperationBlocked => {
            "see the message; the operator of the router decides what is refused"
        }
        ErrorCode::RateLimited => {
            "wait for `retry-after` seconds, which `extensions.retryAfter` repeats"
        }
        ErrorCode::Forbidden => {
            "select only fields that the token allows, or sign in as another user"
        }
        ErrorCode::UnauthorizedFieldOrType => {
            "select only what the token allows; see [field authorization](field-authorization.md)"
        }
        ErrorCode::OperationLimitExceeded => {
            "select less at once, or raise the limit that the message names"
        }
        ErrorCode::CostEstimatedTooExpensive => {
            "ask for shorter lists or for less in them; see [cost](cost.md)"
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

//! The client of subscriptions that subgraphs serve: one [`SubgraphSubscriptions`] for each subgraph. It opens
//! connections, shares them, reconnects and subscribes again, and passes results to the hub as events.
//!
//! Invariant: the protocols themselves are machines without I/O in `wire::upstream`, and results are passed on as text.
//! Nothing here knows plans, groups and clients.
//!
//! | module | holds |
//! |---|---|
//! | `client` | the subgraph, and the choice of the transport |
//! | `endpoint` | the server, as all transports know it |
//! | `websocket` | connections with many operations, one for each partition |
//! | `operation_task` | the operations by HTTP: begun, lost, begun again |
//! | `http_stream` | server-sent events and multipart: one response for each operation |
//! | `callback_operation`, `callback_endpoint` | the callback protocol: its operations, and the process-wide table of ids |
//! | `http_request`, `http_exchange`, `refusal` | requests, connections for one request, refusals as JSON |
//! | `http_probe`, `probe_outcome` | the check of a subgraph without a subscription |
//! | `request_extensions` | the members of `extensions` that the router adds, such as the identity of a trace |
//! | `operation_output`, `operation_outcome` | the stream of an operation by HTTP, its beginning and its end |
//! | `latest_headers` | the newest token of each partition |
//! | `settings`, `stats` | the limits, the counters |

mod callback_endpoint;
mod callback_operation;
mod client;
mod endpoint;
mod error_response;
mod http_exchange;
mod http_probe;
mod http_request;
mod http_stream;
mod latest_headers;
mod operation_outcome;
mod operation_output;
mod operation_task;
mod probe_outcome;
mod refusal;
mod request_extensions;
mod result_queue;
mod settings;
mod stats;
mod websocket;

pub use callback_endpoint::{CALLBACK_COUNTERS, CallbackEndpoint, CallbackStats};
pub use client::SubgraphSubscriptions;
pub use probe_outcome::{ProbeError, ProbeErrorKind, ProbeOutcome};
pub use settings::{ReconnectSettings, SubscriptionProtocol, SubscriptionSettings};
pub use stats::{SUBSCRIPTION_COUNTERS, SubscriptionStats};
pub use upstream::TargetError;
pub use wire::upstream::callback::{
    CallbackAction, CallbackRejection, CallbackRequest, CallbackSettings, PROTOCOL_HEADER,
};

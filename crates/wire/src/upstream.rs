//! The client's side of the protocols by which subgraphs serve subscriptions. It is plain state, like the server's side
//! in the other modules: the caller owns sockets, HTTP requests and clocks.
//!
//! | module | protocol | machine |
//! |---|---|---|
//! | [`socket`] | WebSocket from the upgrade request on, many operations | [`UpstreamSocket`] |
//! | [`client`] | `graphql-transport-ws` and `graphql-ws` on an open WebSocket | [`UpstreamClient`] |
//! | [`result_decoder`] | server-sent events and multipart, one operation a response | [`ResultDecoder`] |
//! | [`callback`] | the HTTP callback protocol 1.0 | [`CallbackTable`] |
//!
//! The types of events and errors state what ends: [`IgnoredMessage`] ends nothing, [`OperationError`] one operation,
//! and [`ConnectionEnd`] a connection with all its operations. Nothing here reconnects, shares operations, or
//! interprets GraphQL. Results are slices of the received bytes: JSON objects that were checked, but not parsed into
//! trees.

pub mod callback;
mod callback_message;
pub mod client;
mod error;
mod operation_id;
mod part_decoder;
pub mod result_decoder;
pub mod socket;

pub use callback::{CallbackEvent, CallbackSettings, CallbackTable};
pub use client::{
    OVERSIZED_HEAD_BYTES, SubscribeError, UpstreamClient, UpstreamEvent, UpstreamSettings,
};
pub use error::{ConnectionEnd, IgnoredMessage, OperationError};
pub use operation_id::OperationId;
pub use result_decoder::{BodyFormat, ResultDecoder, ResultDecoderSettings, ResultEvent};
pub use socket::{SubprotocolChoice, UpgradeRequest, UpstreamSocket};

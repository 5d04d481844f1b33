//! GraphQL over server-sent events (PROTOCOL.md of the npm package graphql-sse): one HTTP response carries one
//! operation in distinct connections mode, and several in single connection mode.
//!
//! [`Sse`] is the server's side of a response body, [`Decoder`] the client's. Status, headers and the request belong to
//! the HTTP server; the content type is [`CONTENT_TYPE`].

mod decoder;
mod encoder;

pub use decoder::{DecodeError, Decoder, DecoderConfig, SseEvent, SseMessage};
pub use encoder::{
    EventId, NEXT_PREFIX, NEXT_SUFFIX, Sse, SseConfig, complete_event, next_event, position,
};

/// The content type of the response.
pub const CONTENT_TYPE: &str = "text/event-stream";

//! The protocol of the npm package graphql-ws (its PROTOCOL.md), subprotocol `graphql-transport-ws`, in both roles.
//!
//! [`GraphqlTransportWs`] is the server's machine: it turns messages into [`ServerEvent`]s and commands into messages.
//! [`Client`] is a counterpart for tests, which can also break the rules; the router's own client is in
//! [`crate::upstream`]. [`crate::connection::Connection`] joins a machine to a WebSocket. Documents, variables and
//! results stay text, which the layers above interpret.

mod client;
mod position;
mod protocol;
mod server;

pub use crate::messages::Request;
pub use crate::server_state::{ProtocolConfig, ServerEvent};
pub use client::{Client, ClientEvent};
pub(crate) use position::{POSITION_TAIL, append_position_head};
pub use protocol::{
    CLOSE_CODES, FORBIDDEN, INITIALISATION_TIMEOUT, INVALID_MESSAGE, SUBPROTOCOL,
    SUBPROTOCOL_NOT_ACCEPTABLE, SUBSCRIBER_ALREADY_EXISTS, TOO_MANY_INITIALISATION_REQUESTS,
    UNAUTHORIZED,
};
pub(crate) use server::append_result_head;
pub use server::{GraphqlTransportWs, append_next_head, next_frame};

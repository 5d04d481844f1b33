//! Messages of other threads to a reactor, and the parts of a connection that is handed to one.

use std::sync::Arc;

use bytes::Bytes;
use execute::{GraphqlError, Payload};
use hub::{OutletCommand, Subscription};
use reactor::{DiscardStats, Stream, Token};
use tokio::sync::oneshot;
use wire::subprotocol::ParsedMessage;
use wire::websocket::ReadMessage;

use super::machine::ClientMachine;
use crate::authentication::{InitOutcome, Refusal};
use crate::connections::ConnectionPermit;
use crate::live::caller::Caller;
use crate::live::kept_operations::KeptOperation;
use crate::live::single::Opened;
use crate::metrics::Open;
use crate::operation::Ready;
use crate::router::Router;

/// A message of another thread to a reactor.
pub(crate) enum Message {
    /// The router that the reactor serves.
    Begin(Arc<Router>),
    /// A new connection.
    Adopt(Box<Adoption>),
    /// A command of the hub.
    Hub(OutletCommand),
    /// The outcome of an operation that a connection has started.
    Operation(Token, u32, Outcome),
    /// Events that wait for the connection must make room for those of others.
    Shed(Token),
    /// Few of the connection's operations are left, so it may be read again.
    FewStarted(Token),
    /// There is something to write for a stream that many requests share.
    Filled(Token),
    /// Text of a client without a socket.
    Said(Token, Bytes),
    /// The identity of the client that sent `connection_init` on the connection.
    Introduced(Token, Result<InitOutcome, Refusal>),
    /// A large message of the connection, read by another thread.
    Read(Token, ReadMessage<ParsedMessage>),
    /// Asks for the count of what was sent to clients without sockets.
    DiscardStats(oneshot::Sender<DiscardStats>),
    /// Ends the connections of one portion, and each that comes later.
    ShutDown {
        /// One of [`crate::farewell::PORTIONS`].
        portion: u32,
    },
}

/// The parts of a connection that a reactor takes over.
pub(crate) struct Adoption {
    pub(super) stream: Stream,
    pub(super) machine: ClientMachine,
    pub(super) early: Vec<u8>,
    pub(super) caller: Caller,
    pub(super) permit: ConnectionPermit,
    pub(super) open: Open,
    pub(super) begin: Begin,
    /// The text that a client without a socket sends once it is acknowledged.
    pub(super) later: Option<Bytes>,
}

/// The first operation of a connection.
pub(crate) enum Begin {
    /// The client will send it.
    Later,
    /// The request held it.
    Operation(Box<Ready>),
    /// Requests on other connections start the operations, and may have started some.
    Stream(Box<Opened>),
}

/// The outcome of an operation.
pub(crate) enum Outcome {
    /// The response of a query or mutation.
    Answered(Payload),
    /// A live subscription.
    Subscribed(Subscription, Open, KeptOperation),
    /// The errors for which it could not run.
    Failed(Vec<GraphqlError>),
}

//! Messages of other threads to a reactor, and the parts of a connection that a reactor takes over.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clients::authentication::{Fingerprint, InitOutcome, TokenRefusal};
use clients::connections::ConnectionPermit;
use clients::kept_operations::KeptOperation;
use execute::{GraphqlError, Payload};
use hub::{GroupId, OutletCommand, Subscriber, Subscription};
use prepare::OperationRequest;
use reactor::{DiscardStats, Stream, Token};
use serving::prepared_request::PreparedRequest;
use tokio::sync::oneshot;
use wire::subprotocol::ParsedMessage;
use wire::websocket::ReadMessage;

use super::client_machine::ClientMachine;
use super::context::ReactorContext;
use super::subscription_opening::SubscriptionOpening;
use crate::access_records::WebSocketRecord;
use crate::client_context::ClientContext;
use crate::metrics::{OpenGauge, Transport};
use crate::sse_single_connection::open_stream::OpenStream;
use crate::watches::{SubscriberId, SubscriberView, WatchedSubscriber};

/// A message of another thread to a reactor.
pub(crate) enum Message {
    /// The parts of the router that the reactor uses.
    Serve(Arc<ReactorContext>),
    /// A new connection.
    Adopt(Box<Adoption>),
    /// A command of the hub.
    Hub(OutletCommand),
    /// The outcome of an operation that a connection has started.
    OperationDone(Token, u32, OperationOutcome),
    /// A request to drop waiting events of the connection, to make room for those of other connections.
    Shed(Token),
    /// Few operations of the connection are left, so it may be read again.
    ResumeReading(Token),
    /// A stream shared by many requests has output.
    OutputReady(Token),
    /// Input of a client without a socket.
    SimulatedInput(Token, Bytes),
    /// The identity of the client that sent `connection_init` on the connection.
    TokenVerified(Token, Result<InitOutcome, TokenRefusal>),
    /// The identity of the client that sent another token on its connection.
    TokenRenewed(Token, Result<InitOutcome, TokenRefusal>),
    /// What a renewed token, named by its fingerprint, means for a subscription of the connection.
    RenewalChecked(Token, u32, Option<Fingerprint>, RenewalStep),
    /// A large message of the connection, read by another thread.
    LargeMessageRead(Token, ReadMessage<ParsedMessage>),
    /// A request for the count of messages that were sent to clients without sockets.
    DiscardStats(oneshot::Sender<DiscardStats>),
    /// A request for some subscribers of a group.
    ListSubscribers(GroupId, oneshot::Sender<FoundMembers>),
    /// A request to watch a subscriber.
    Watch(SubscriberId, Subscriber, oneshot::Sender<Option<Arc<WatchedSubscriber>>>),
    /// Ends the connections of one portion, and each connection that is adopted later.
    ShutDown {
        /// The portion, less than [`clients::drain::DRAIN_BATCHES`].
        portion: u32,
    },
}

/// The parts of a connection that a reactor takes over.
pub(crate) struct Adoption {
    pub(super) stream: Stream,
    pub(super) machine: ClientMachine,
    /// Input that was read before the takeover.
    pub(super) early: Vec<u8>,
    pub(super) context: ClientContext,
    /// The record of a WebSocket for the access log, if that is written.
    pub(super) record: Option<Box<WebSocketRecord>>,
    pub(super) permit: ConnectionPermit,
    pub(super) open: OpenGauge,
    pub(super) first: FirstOperation,
    /// The text that a client without a socket sends once it is acknowledged.
    pub(super) later: Option<Bytes>,
}

/// The first operation of a connection.
pub(crate) enum FirstOperation {
    /// The client will send it.
    FromClient,
    /// The request contained it.
    Prepared(Box<PreparedRequest>),
    /// Requests on other connections start the operations, and may have started some already.
    SharedStream(Box<OpenStream>),
}

/// The request of an operation that starts.
pub(crate) enum StartRequest {
    /// The request of a client, not prepared yet.
    Unprepared(OperationRequest),
    /// A prepared operation.
    Prepared(Box<PreparedRequest>),
    /// A live subscription that moves to another group, prepared for its renewed token.
    Moved(Box<PreparedRequest>),
}

/// The outcome of an operation.
pub(crate) enum OperationOutcome {
    /// The response of a query or mutation.
    Response(Payload),
    /// A subscription that has joined its group.
    Subscribed(Box<JoinedSubscription>),
    /// The errors for which it could not run.
    Failed(Vec<GraphqlError>),
}

/// A subscription that has joined its group, and that its connection may still refuse.
pub(crate) struct JoinedSubscription {
    pub(super) subscription: Subscription,
    pub(super) open: OpenGauge,
    pub(super) kept: KeptOperation,
    pub(super) opening: SubscriptionOpening,
}

/// Some subscribers of a group on one reactor.
#[derive(Default)]
pub(crate) struct FoundMembers {
    pub(super) members: Vec<FoundMember>,
    /// The number of all of them.
    pub(super) count: usize,
}

/// A subscriber of a reactor.
pub(crate) struct FoundMember {
    pub(super) member: Subscriber,
    pub(super) transport: Transport,
    /// The time since its operation began.
    pub(super) age: Duration,
    /// The number of its results that wait for its socket.
    pub(super) waiting: usize,
}

impl FoundMember {
    /// Returns the subscriber as a list shows it. `reactor` is the number of its reactor.
    pub(super) fn view(self, reactor: u32) -> SubscriberView {
        let Self { member: Subscriber { connection, operation }, transport, age, waiting } = self;
        let id = SubscriberId::Reactor { reactor, connection, operation };
        SubscriberView { id, transport: transport.name(), age, waiting }
    }
}

/// The outcome of a renewed token for a live subscription.
pub(crate) enum RenewalStep {
    /// The new token leads to the same group.
    Stay,
    /// The subscription joins another group.
    Move(Box<PreparedRequest>),
    /// The subscription ends.
    End(GraphqlError),
}

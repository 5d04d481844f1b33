//! The table of the WebSocket connections of one subgraph, by partition.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use wire::upstream::{ConnectionEnd, SubprotocolChoice};

use super::command::{ConnectionCommand, NewOperation};
use super::ping_losses::PingLosses;
use crate::endpoint::SubscriptionEndpoint;
use crate::settings::SubscriptionProtocol;
use crate::stats::add;

/// The connections of one subgraph, and the operations on each.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    /// The subgraph.
    pub(super) endpoint: Arc<SubscriptionEndpoint>,
    connections: Mutex<OpenConnections>,
    /// True if the subgraph chose `graphql-transport-ws` and then refused it.
    prefers_old_subprotocol: AtomicBool,
    /// The connections that were lost because of a `ping` of the subprotocol.
    pub(super) ping_losses: PingLosses,
}

/// The connections by partition. A partition has several if one cannot have all of its operations.
#[derive(Debug, Default)]
struct OpenConnections {
    by_partition: HashMap<Box<[u8]>, Vec<ConnectionHandle>>,
    count: usize,
    next_id: u64,
}

/// A connection that is open or being opened.
#[derive(Debug)]
struct ConnectionHandle {
    id: u64,
    /// The number of operations, those on their way to the connection included.
    operations: usize,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
}

/// A connection that was added to the table, and is to be opened.
pub(super) struct AddedConnection {
    /// Its number in the table.
    pub(super) id: u64,
    /// Its first operation.
    pub(super) first: NewOperation,
    /// Its commands.
    pub(super) commands: mpsc::UnboundedReceiver<ConnectionCommand>,
}

impl ConnectionTable {
    pub(super) fn new(endpoint: Arc<SubscriptionEndpoint>) -> Self {
        Self {
            endpoint,
            connections: Mutex::default(),
            prefers_old_subprotocol: AtomicBool::new(false),
            ping_losses: PingLosses::default(),
        }
    }

    /// Returns the subprotocols that the next connection offers.
    pub(super) fn subprotocols(&self) -> SubprotocolChoice {
        match self.endpoint.settings.protocol {
            SubscriptionProtocol::GraphqlTransportWs => SubprotocolChoice::TransportWs,
            SubscriptionProtocol::GraphqlWs => SubprotocolChoice::Ws,
            _ if self.prefers_old_subprotocol.load(Ordering::Relaxed) => SubprotocolChoice::Ws,
            _ => SubprotocolChoice::Auto,
        }
    }

    /// Notes the end of a connection that was not acknowledged. Returns whether another one, which offers other
    /// subprotocols, may succeed at once.
    pub(super) fn note_refusal(&self, offer: SubprotocolChoice, end: &ConnectionEnd) -> bool {
        // Servers that know the older subprotocol only, such as the npm package subscriptions-transport-ws, leave the
        // choice to a library that takes the first offer, and then close the connection because of it.
        let is_refusal = match end {
            ConnectionEnd::ClosedByServer(closed) => matches!(closed.code.0, 1002 | 4406),
            _ => false,
        };
        let is_refused = is_refusal && offer == SubprotocolChoice::Auto;
        if self.endpoint.settings.protocol == SubscriptionProtocol::Auto {
            // If the older one fails too, later connections offer both again.
            self.prefers_old_subprotocol.store(is_refused, Ordering::Relaxed);
        }
        is_refused
    }

    /// Passes an operation to a connection of its partition, or adds one, which is returned. `Err` has the reason why
    /// there is none.
    pub(super) fn send(&self, new: NewOperation) -> Result<Option<AddedConnection>, String> {
        let settings = &self.endpoint.settings;
        let mut table = self.lock();
        let OpenConnections { by_partition, count, next_id } = &mut *table;
        let connections = by_partition.entry(new.wanted.partition.clone()).or_default();
        let with_room = connections.iter_mut().find(|it| it.operations < settings.operations_max);
        if let Some(connection) = with_room {
            connection.operations += 1;
            // A connection leaves the table before it stops reading, so this cannot fail.
            let _ = connection.commands.send(ConnectionCommand::Begin(new));
            return Ok(None);
        }
        if *count >= settings.connections_max {
            if connections.is_empty() {
                by_partition.remove(&new.wanted.partition);
            }
            add(&self.endpoint.stats.overloaded, 1);
            let limit = settings.connections_max;
            return Err(format!("there are {limit} connections, the most that are allowed"));
        }
        let id = *next_id;
        (*next_id, *count) = (id + 1, *count + 1);
        let (commands, receiver) = mpsc::unbounded_channel();
        connections.push(ConnectionHandle { id, operations: 1, commands });
        drop(table);
        Ok(Some(AddedConnection { id, first: new, commands: receiver }))
    }

    /// Makes the connections of a partition send its latest headers.
    pub(super) fn send_latest_headers(&self, partition: &[u8]) {
        let table = self.lock();
        for connection in table.by_partition.get(partition).into_iter().flatten() {
            // A connection leaves the table before it stops reading, so this cannot fail.
            let _ = connection.commands.send(ConnectionCommand::SendHeaders);
        }
    }

    /// Notes that a connection has an operation less.
    pub(super) fn release_operation(&self, id: u64, partition: &[u8]) {
        let mut table = self.lock();
        let connections = table.by_partition.get_mut(partition);
        if let Some(connection) = connections.and_then(|all| all.iter_mut().find(|it| it.id == id))
        {
            connection.operations -= 1;
        }
    }

    /// Removes a connection, if no subscription is on its way to it. Returns whether it was removed.
    pub(super) fn remove_unused(&self, id: u64, partition: &[u8]) -> bool {
        let mut table = self.lock();
        let Some(connections) = table.by_partition.get_mut(partition) else { return true };
        if connections.iter().any(|it| it.id == id && it.operations > 0) {
            return false;
        }
        connections.retain(|it| it.id != id);
        if connections.is_empty() {
            table.by_partition.remove(partition);
        }
        table.count -= 1;
        true
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // The table is consistent after each statement that could panic: none allocates between two changes that
        // belong together.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

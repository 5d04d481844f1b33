//! The WebSocket connections of one subgraph, by partition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use events::{EventStream, SourceError, SubgraphSubscription};
use tokio::sync::{mpsc, oneshot};

use super::connection::ConnectionTask;
use crate::client::SubscriptionEndpoint;
use crate::stats::{add, subtract};

/// A request to a connection: begin a subscription.
pub(super) struct NewSubscription {
    pub(super) wanted: Arc<SubgraphSubscription>,
    /// The channel for the stream, or the reason why there is none.
    pub(super) reply: oneshot::Sender<Result<EventStream, SourceError>>,
}

/// The connections of one subgraph.
#[derive(Debug)]
pub(crate) struct WebSocketPool {
    pub(super) endpoint: Arc<SubscriptionEndpoint>,
    connections: Mutex<ConnectionTable>,
}

/// The connections by partition. A partition has several if one cannot have all of its operations.
#[derive(Debug, Default)]
struct ConnectionTable {
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
    commands: mpsc::UnboundedSender<NewSubscription>,
}

impl WebSocketPool {
    pub(crate) fn new(endpoint: Arc<SubscriptionEndpoint>) -> Self {
        Self { endpoint, connections: Mutex::default() }
    }

    /// Begins a subscription on the connection of its partition, which is opened if there is none.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        wanted: Arc<SubgraphSubscription>,
    ) -> Result<EventStream, SourceError> {
        let (reply, response) = oneshot::channel();
        self.send(NewSubscription { wanted, reply })?;
        let broken = || Err(self.endpoint.error("its connection ended because of a defect"));
        response.await.unwrap_or_else(|_| broken())
    }

    fn send(self: &Arc<Self>, new: NewSubscription) -> Result<(), SourceError> {
        let settings = &self.endpoint.settings;
        let mut table = self.lock();
        let ConnectionTable { by_partition, count, next_id } = &mut *table;
        let connections = by_partition.entry(new.wanted.partition.clone()).or_default();
        let with_room = connections.iter_mut().find(|it| it.operations < settings.operations_max);
        if let Some(connection) = with_room {
            connection.operations += 1;
            // A connection leaves the table before it stops reading, so this cannot fail.
            let _ = connection.commands.send(new);
            return Ok(());
        }
        if *count >= settings.connections_max {
            if connections.is_empty() {
                by_partition.remove(&new.wanted.partition);
            }
            add(&self.endpoint.stats.overloaded, 1);
            let limit = settings.connections_max;
            let reason = format!("there are {limit} connections, the most that are allowed");
            return Err(self.endpoint.error(reason));
        }
        let id = *next_id;
        (*next_id, *count) = (id + 1, *count + 1);
        let (commands, receiver) = mpsc::unbounded_channel();
        connections.push(ConnectionHandle { id, operations: 1, commands });
        drop(table);
        let task = ConnectionTask::new(Arc::clone(self), id, new, receiver);
        add(&self.endpoint.stats.connections, 1);
        tokio::spawn(task.run());
        Ok(())
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
        subtract(&self.endpoint.stats.connections, 1);
        true
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        // The table is consistent after each statement that could panic: none allocates between two changes that
        // belong together.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

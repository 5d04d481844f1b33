//! The limits of clients that hold over every transport: open connections (and those that speak HTTP), unread
//! responses, large requests, and WebSocket handshakes.

use std::sync::Arc;

use admission::memory::MemoryAccount;
use config::{Admission, Http};
use execute::ClientKey;

use crate::byte_budget::{ByteAccount, ByteBudget};
use crate::connections::{ConnectionLimits, Connections};
use crate::handshake_pace::HandshakePace;
use crate::offload::Offload;
use crate::served_connections::ServedConnections;

/// The limits of clients over every transport. There is one for the whole process.
#[derive(Debug)]
pub struct ClientLimits {
    /// Open client connections.
    pub connections: Connections,
    /// The connections that speak HTTP, some of which are closed when the memory is short.
    pub served: Arc<ServedConnections>,
    /// The pace of WebSocket handshakes; `None` if there is no bound.
    pub handshakes: Option<HandshakePace>,
    /// The responses that clients have not read yet.
    pub response_bytes: Arc<ByteBudget>,
    /// The same limit for one connection (`http.response_queue_bytes`).
    response_bytes_per_connection: usize,
    /// Parses large requests.
    pub offload: Offload,
    /// The memory of the process.
    pub memory: Arc<MemoryAccount>,
}

impl ClientLimits {
    /// Creates the limits of a router with `workers` workers and at most `connections_max` connections (0: no limit).
    pub fn new(
        (http, admission): (&Http, &Admission),
        connections_max: usize,
        workers: usize,
        memory: &Arc<MemoryAccount>,
    ) -> Self {
        Self {
            connections: Connections::new(ConnectionLimits {
                all: connections_max,
                of_address: http.max_connections_per_ip as usize,
            }),
            served: ServedConnections::new(memory),
            handshakes: HandshakePace::new(admission, workers),
            response_bytes: ByteBudget::within(http.response_queue_bytes_total, memory),
            response_bytes_per_connection: http.response_queue_bytes,
            offload: Offload::new(workers),
            memory: Arc::clone(memory),
        }
    }

    /// Opens the account of the responses that a connection of `client` has not read.
    pub fn open_account(&self, client: ClientKey) -> Arc<ByteAccount> {
        self.response_bytes.open(client, self.response_bytes_per_connection)
    }
}

//! Count of the client connections, with limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use execute::{ClientKey, network_of};
use net::TlsSession;
use telemetry::Metric;

/// Counts the connections of the public listeners, over every protocol.
#[derive(Debug)]
pub struct Connections {
    shared: Arc<OpenConnections>,
    /// Counts connections without an address (of Unix domain sockets), and all connections if addresses are not
    /// limited.
    unlimited: Arc<PeerConnections>,
    refused: AtomicUsize,
    refused_of_address: AtomicUsize,
    limits: ConnectionLimits,
}

/// The metrics of the client connections.
pub const OPEN_CONNECTION_METRICS: &[Metric<Connections>] = &[
    Metric::gauge("starling_http_connections", "Open client connections", |it| it.open() as u64),
    Metric::counter(
        "starling_http_connections_refused",
        "Connections closed at once because of http.max_connections",
        |it| it.refused()[0] as u64,
    ),
    Metric::counter(
        "starling_http_connections_refused_per_ip",
        "Connections closed at once because of http.max_connections_per_ip",
        |it| it.refused()[1] as u64,
    ),
];

/// The maximum numbers of connections; 0: as many as the system has descriptors.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The maximum of all connections together.
    pub all: usize,
    /// The maximum of one address.
    pub of_address: usize,
}

/// The reason why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionRefused {
    /// `http.max_connections` is reached.
    All,
    /// `http.max_connections_per_ip` is reached.
    OfAddress,
    /// The process may open no further file.
    Descriptors,
    /// `limits.memory` is nearly used up; see [`crate::served_connections`].
    Memory,
}

/// One connection, counted until this is dropped. After a takeover from HTTP, the WebSocket or stream owns it.
// Two words, because every connection keeps one.
#[derive(Debug)]
pub struct ConnectionPermit {
    peer: Arc<PeerConnections>,
    client: ClientKey,
}

/// A connection that has left HTTP, for code that reads and writes without a runtime.
#[derive(Debug)]
pub struct TakenOver {
    /// The socket, on which the last HTTP head has been written.
    pub socket: OwnedFd,
    /// The TLS session on it.
    pub session: Option<TlsSession>,
    /// The bytes that the client sent behind its request.
    pub early: Vec<u8>,
    /// The permit, which still counts the connection.
    pub permit: ConnectionPermit,
}

#[derive(Debug, Default)]
struct OpenConnections {
    open: AtomicUsize,
    /// The addresses with open connections.
    peers: Mutex<HashMap<IpAddr, Arc<PeerConnections>>>,
}

/// The connections that count together: those of one address.
#[derive(Debug)]
struct PeerConnections {
    shared: Arc<OpenConnections>,
    address: Option<IpAddr>,
    /// Changes under the lock of `OpenConnections::peers` if the peer has an address.
    open: AtomicUsize,
}

impl Connections {
    /// Creates the count without connections.
    pub fn new(limits: ConnectionLimits) -> Self {
        let shared = Arc::<OpenConnections>::default();
        let peer = PeerConnections {
            shared: Arc::clone(&shared),
            address: None,
            open: AtomicUsize::new(0),
        };
        Self {
            shared,
            unlimited: Arc::new(peer),
            refused: AtomicUsize::new(0),
            refused_of_address: AtomicUsize::new(0),
            limits,
        }
    }

    /// Counts one more connection from `address`.
    ///
    /// # Errors
    /// Returns the limit that is reached.
    pub fn enter(&self, address: Option<IpAddr>) -> Result<ConnectionPermit, ConnectionRefused> {
        let of_address = self.limits.of_address;
        if self.is_full() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(ConnectionRefused::All);
        }
        let client = address.map_or(ClientKey::UNKNOWN, ClientKey::of_address);
        let Some(address) = address.filter(|_| of_address != 0).map(network_of) else {
            return Ok(ConnectionPermit::new(&self.unlimited, client));
        };
        let mut peers = self.shared.peers();
        let peer = peers.entry(address).or_insert_with(|| {
            let shared = Arc::clone(&self.shared);
            Arc::new(PeerConnections { shared, address: Some(address), open: AtomicUsize::new(0) })
        });
        if peer.open.load(Ordering::Relaxed) >= of_address {
            self.refused_of_address.fetch_add(1, Ordering::Relaxed);
            return Err(ConnectionRefused::OfAddress);
        }
        Ok(ConnectionPermit::new(peer, client))
    }

    /// True if no further connection may be opened.
    pub fn is_full(&self) -> bool {
        self.limits.all != 0 && self.open() >= self.limits.all
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The number of refused connections: because of all connections, and because of one address.
    pub fn refused(&self) -> [usize; 2] {
        [&self.refused, &self.refused_of_address].map(|it| it.load(Ordering::Relaxed))
    }
}

impl OpenConnections {
    /// Locks the map. No user code runs under this lock, so a poisoned lock holds valid numbers.
    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<PeerConnections>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    fn new(peer: &Arc<PeerConnections>, client: ClientKey) -> Self {
        peer.shared.open.fetch_add(1, Ordering::Relaxed);
        peer.open.fetch_add(1, Ordering::Relaxed);
        Self { peer: Arc::clone(peer), client }
    }

    /// Returns the key of the client by its address. Work for a client with a token counts for its identity instead,
    /// see `Identity::client_key`.
    pub fn client(&self) -> ClientKey {
        self.client
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let PeerConnections { shared, address, open } = &*self.peer;
        shared.open.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = address else {
            open.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut peers = shared.peers();
        if open.fetch_sub(1, Ordering::Relaxed) == 1 {
            peers.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn a_connection_over_the_limit_is_refused_until_one_ends() {
        let connections = Connections::new(ConnectionLimits { all: 1, of_address: 0 });
        let first = connections.enter(address("1.2.3.4")).expect("room for one");
        assert!(connections.is_full());
        assert_eq!(connections.enter(None).err(), Some(ConnectionRefused::All));
        assert_eq!((connections.open(), connections.refused()), (1, [1, 0]));
        drop(first);
        assert!(connections.enter(None).is_ok());
    }

    #[test]
    fn an_address_over_its_limit_is_refused_and_others_are_not() {
        let connections = Connections::new(ConnectionLimits { all: 0, of_address: 1 });
        let first = connections.enter(address("1.2.3.4")).expect("room for one");
        assert_eq!(
            connections.enter(address("::ffff:1.2.3.4")).err(),
            Some(ConnectionRefused::OfAddress)
        );
        let sixth = connections.enter(address("2001:db8::1")).expect("another address");
        assert_eq!(
            connections.enter(address("2001:db8::ffff:2")).err(),
            Some(ConnectionRefused::OfAddress)
        );
        let others = [address("1.2.3.5"), address("2001:db8:0:1::1"), None, None]
            .map(|it| connections.enter(it));
        assert!(others.iter().all(Result::is_ok));
        assert_eq!((connections.open(), connections.refused()), (6, [0, 2]));
        drop((first, sixth, others));
        assert_eq!((connections.open(), connections.shared.peers().len()), (0, 0));
        assert!(connections.enter(address("1.2.3.4")).is_ok());
    }
}

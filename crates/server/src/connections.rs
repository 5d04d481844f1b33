//! How many client connections there are, and how many there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts connections of the public listeners, whatever they speak.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Arc<AtomicUsize>,
    refused: AtomicUsize,
    /// 0: as many as the system has descriptors.
    max: usize,
}

/// One connection; counted until dropped. A WebSocket takes it over from HTTP.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl Connections {
    /// At most `max`; 0: no limit of ours.
    pub(crate) fn new(max: usize) -> Self {
        Self { open: Arc::default(), refused: AtomicUsize::new(0), max }
    }

    /// Room for one more, if there is.
    pub(crate) fn enter(&self) -> Option<ConnectionPermit> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let permit = ConnectionPermit(Arc::clone(&self.open));
        if self.max != 0 && before >= self.max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(permit)
    }

    /// For a connection that changes hands: counted once more before the first permit ends, whatever the limit.
    pub(crate) fn keep(&self) -> ConnectionPermit {
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit(Arc::clone(&self.open))
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many were turned away.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_over_the_limit_is_turned_away_until_one_ends() {
        let connections = Connections::new(1);
        let first = connections.enter().expect("room for one");
        assert!(connections.enter().is_none());
        assert_eq!((connections.open(), connections.refused()), (1, 1));
        drop(first);
        assert!(connections.enter().is_some());
    }
}

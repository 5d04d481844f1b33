//! What a provider counts about itself. The server exports it; labels are the provider's name only.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Is a provider usable?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProviderState {
    /// Never connected so far; it keeps trying.
    Connecting,
    /// Usable.
    Connected,
    /// It was connected and is trying again.
    Disconnected,
}

impl ProviderState {
    /// As metrics and the admin pages show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
        }
    }
}

/// Counters of one provider. All of them only grow, except `streams`.
#[derive(Debug, Default)]
pub struct ProviderStats {
    /// Events that came from the broker (memory: that were published while someone listened).
    pub received: AtomicU64,
    /// Events that the broker took from us.
    pub published: AtomicU64,
    /// Failed connection attempts, refused publications and complaints of the broker.
    pub errors: AtomicU64,
    /// Connections made after the first one.
    pub reconnects: AtomicU64,
    /// Events that did not fit a stream's queue, as far as they could be counted.
    pub dropped: AtomicU64,
    /// Gaps announced to streams.
    pub gaps: AtomicU64,
    /// Streams open now.
    pub streams: AtomicU64,
    state: AtomicU8,
}

impl ProviderStats {
    /// Is it usable?
    pub fn state(&self) -> ProviderState {
        match self.state.load(Relaxed) {
            1 => ProviderState::Connected,
            2 => ProviderState::Disconnected,
            _ => ProviderState::Connecting,
        }
    }

    pub(crate) fn set_state(&self, state: ProviderState) {
        let value = match state {
            ProviderState::Connecting => 0,
            ProviderState::Connected => 1,
            ProviderState::Disconnected => 2,
        };
        self.state.store(value, Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn subtract(counter: &AtomicU64, count: u64) {
        counter.fetch_sub(count, Relaxed);
    }
}

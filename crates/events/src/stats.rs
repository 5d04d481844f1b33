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

/// What an error of a provider has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A connection could not be made, or was lost.
    Connection,
    /// The broker refuses a subscription, or has ended it.
    Subscription,
    /// An event was not published.
    Publication,
    /// Whatever else the broker, or its client library, complains of.
    Other,
}

impl ErrorKind {
    /// Each of them.
    pub const ALL: [Self; 4] =
        [Self::Connection, Self::Subscription, Self::Publication, Self::Other];

    /// As metrics show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Subscription => "subscription",
            Self::Publication => "publication",
            Self::Other => "other",
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
    /// Connections made after the first one.
    pub reconnects: AtomicU64,
    /// Events that did not fit a stream's queue, as far as they could be counted.
    pub dropped: AtomicU64,
    /// Gaps announced to streams.
    pub gaps: AtomicU64,
    /// Streams open now.
    pub streams: AtomicU64,
    errors: [AtomicU64; ErrorKind::ALL.len()],
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

    /// How many errors there were of that kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize].load(Relaxed)
    }

    pub(crate) fn failed(&self, kind: ErrorKind) {
        self.errors[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts a publication.
    pub(crate) fn publication(&self, is_published: bool) {
        if is_published {
            Self::add(&self.published, 1);
        } else {
            self.failed(ErrorKind::Publication);
        }
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn subtract(counter: &AtomicU64, count: u64) {
        counter.fetch_sub(count, Relaxed);
    }
}

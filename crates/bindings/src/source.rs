//! The source of a trigger's events. Equal sources share one trigger.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::{Durable, Provider, Start, StreamRequest};

/// A provider and the topics that are read from it.
#[derive(Clone)]
pub struct Source {
    provider: Arc<dyn Provider>,
    wanted: Arc<StreamRequest>,
}

impl Source {
    /// Creates a source of all events of `topics` from now on. Order and repetitions of the topics make no difference.
    pub fn new(provider: Arc<dyn Provider>, topics: Vec<Box<str>>) -> Self {
        Self::with_wanted(provider, StreamRequest::new(topics))
    }

    /// Creates a source from a full description: another start, or a stored stream of the broker.
    pub fn with_wanted(provider: Arc<dyn Provider>, mut wanted: StreamRequest) -> Self {
        wanted.topics.sort_unstable();
        wanted.topics.dedup();
        Self { provider, wanted: Arc::new(wanted) }
    }

    /// Returns the provider of the topics.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// Returns the description that a stream is opened with.
    pub fn wanted(&self) -> &StreamRequest {
        &self.wanted
    }

    /// Returns the rendered topics, sorted.
    pub fn topics(&self) -> &[Box<str>] {
        &self.wanted.topics
    }

    /// True if it can be read from a position in the past.
    pub fn replays(&self) -> bool {
        self.provider.replays(self.wanted.durable.as_deref())
    }

    /// True if a broker stores its events, so that they outlive this process.
    pub fn is_stored_by_broker(&self) -> bool {
        self.replays() && !self.provider.name().starts_with("memory/")
    }

    /// Returns the description of a second stream that reads from `start`. The durable consumer that the broker keeps
    /// for this router is not moved.
    pub fn read_from(&self, start: Start) -> StreamRequest {
        let StreamRequest { topics, durable, .. } = self.wanted();
        let without_consumer = |durable: &Arc<Durable>| {
            Arc::new(Durable { consumer: None, ..Durable::clone(durable) })
        };
        let durable = durable.as_ref().map(without_consumer);
        StreamRequest { topics: topics.clone(), start, durable, bounded: false }
    }

    /// Returns the identity of the source. A reloaded configuration makes new providers under old names, so the name is
    /// not enough.
    fn identity(&self) -> (*const (), &StreamRequest) {
        (Arc::as_ptr(&self.provider).cast(), &self.wanted)
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StreamRequest { topics, start, durable, bounded } = self.wanted();
        write!(f, "{} {topics:?}", self.provider.name())?;
        if *start != Start::New {
            write!(f, " from {start:?}")?;
        }
        if *bounded {
            write!(f, " until now")?;
        }
        durable.as_ref().map_or(Ok(()), |durable| write!(f, " of {durable:?}"))
    }
}

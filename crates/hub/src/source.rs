//! What a trigger listens to. Equal sources share one trigger.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::{Durable, Provider, Start, Wanted};

/// What is wanted of a provider.
#[derive(Clone)]
pub struct Source {
    provider: Arc<dyn Provider>,
    wanted: Arc<Wanted>,
}

impl Source {
    /// Everything that `topics` bring from now on. Their order and repetitions make no difference.
    pub fn new(provider: Arc<dyn Provider>, topics: Vec<Box<str>>) -> Self {
        Self::wanting(provider, Wanted::new(topics))
    }

    /// The same from elsewhere, or from what the broker stores.
    pub fn wanting(provider: Arc<dyn Provider>, mut wanted: Wanted) -> Self {
        wanted.topics.sort_unstable();
        wanted.topics.dedup();
        Self { provider, wanted: Arc::new(wanted) }
    }

    /// Who has the topics.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// What a stream for it is opened with.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// As rendered, sorted.
    pub fn topics(&self) -> &[Box<str>] {
        &self.wanted.topics
    }

    /// Can it be read from a position in the past?
    pub fn replays(&self) -> bool {
        self.provider.replays(self.wanted.durable.as_deref())
    }

    /// True if a broker stores its events, so that they outlive this process.
    pub(crate) fn is_stored_by_broker(&self) -> bool {
        self.replays() && !self.provider.name().starts_with("memory/")
    }

    /// What to open beside it to read it from `start` on. What the broker keeps for this router stays where it is.
    pub(crate) fn read_from(&self, start: Start) -> Wanted {
        let Wanted { topics, durable, .. } = self.wanted();
        let without_consumer = |durable: &Arc<Durable>| {
            Arc::new(Durable { consumer: None, ..Durable::clone(durable) })
        };
        let durable = durable.as_ref().map(without_consumer);
        Wanted { topics: topics.clone(), start, durable, bounded: false }
    }

    /// A configuration that is loaded anew makes new providers under old names, so the name is not enough.
    fn identity(&self) -> (*const (), &Wanted) {
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
        let Wanted { topics, start, durable, bounded } = self.wanted();
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

//! What a trigger listens to. Equal sources share one trigger.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::{Provider, Wanted};

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
        let Wanted { topics, start, durable } = self.wanted();
        write!(f, "{} {topics:?}", self.provider.name())?;
        if *start != events::Start::New {
            write!(f, " from {start:?}")?;
        }
        durable.as_ref().map_or(Ok(()), |durable| write!(f, " of {durable:?}"))
    }
}

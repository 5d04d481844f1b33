//! What a trigger listens to. Equal sources share one trigger.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::{Provider, Start, Wanted};

/// Topics at a provider.
#[derive(Clone)]
pub struct Source {
    provider: Arc<dyn Provider>,
    topics: Arc<[Box<str>]>,
}

impl Source {
    /// The order of topics and repetitions make no difference.
    pub fn new(provider: Arc<dyn Provider>, mut topics: Vec<Box<str>>) -> Self {
        topics.sort_unstable();
        topics.dedup();
        Self { provider, topics: topics.into() }
    }

    /// Who has the topics.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// As rendered, sorted.
    pub fn topics(&self) -> &[Box<str>] {
        &self.topics
    }

    /// Can it be read from a position in the past?
    pub fn replays(&self) -> bool {
        self.provider.replays(None)
    }

    /// What to open, from `start` on.
    pub(crate) fn wanted(&self, start: Start) -> Wanted {
        Wanted::new(self.topics.to_vec()).starting(start)
    }

    /// A configuration that is loaded anew makes new providers under old names, so the name is not enough.
    fn identity(&self) -> (*const (), &[Box<str>]) {
        (Arc::as_ptr(&self.provider).cast(), &self.topics)
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
        write!(f, "{} {:?}", self.provider.name(), self.topics)
    }
}

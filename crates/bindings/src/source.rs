//! The source of a trigger's events: topics of a provider, a subscription of a subgraph, or the results of a live
//! query. Equal sources share one trigger.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use events::{
    Durable, EventFuture, EventStream, Provider, SourceError, Start, StreamRequest,
    SubgraphSubscription, SubscriptionClient,
};
use telemetry::LogLimit;

/// Topics of a provider, a subscription of a subgraph, or the results of a live query.
#[derive(Clone)]
pub struct Source(SourceKind);

/// A source of states: each event replaces all before it.
pub trait StateSource: Send + Sync {
    /// Returns the name of the source in logs and on the admin pages, such as `live`.
    fn name(&self) -> &str;

    /// Returns everything that the states depend on, in a canonical form. Equal sources have equal identities, and
    /// share one stream.
    fn identity(&self) -> &[u8];

    /// Returns the names that the admin pages show in place of topics.
    fn topics(&self) -> &[Box<str>];

    /// Opens a stream of events without content: each says that there is another state.
    fn open(self: Arc<Self>) -> EventFuture<'static, EventStream>;
}

#[derive(Clone)]
enum SourceKind {
    Topics { provider: Arc<dyn Provider>, wanted: Arc<StreamRequest> },
    Subgraph { client: Arc<dyn SubscriptionClient>, wanted: Arc<SubgraphSubscription> },
    States(Arc<dyn StateSource>),
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
        Self(SourceKind::Topics { provider, wanted: Arc::new(wanted) })
    }

    /// Creates a source of the results of a subgraph's subscription.
    pub fn of_subgraph(client: Arc<dyn SubscriptionClient>, wanted: SubgraphSubscription) -> Self {
        Self(SourceKind::Subgraph { client, wanted: Arc::new(wanted) })
    }

    /// Creates a source of states.
    pub fn of_states(source: Arc<dyn StateSource>) -> Self {
        Self(SourceKind::States(source))
    }

    /// Returns the name of the provider, such as `nats/default`, or of the subgraph, such as `subgraph/reviews`.
    pub fn name(&self) -> &str {
        match &self.0 {
            SourceKind::States(source) => source.name(),
            SourceKind::Topics { provider, .. } => provider.name(),
            SourceKind::Subgraph { client, .. } => client.name(),
        }
    }

    /// Returns the template with placeholders that a topic of a provider was rendered from, if there is one.
    pub fn topic_template(&self, topic: &str) -> Option<Box<str>> {
        match &self.0 {
            SourceKind::Topics { provider, .. } => provider.stats().topic_template(topic),
            SourceKind::Subgraph { .. } | SourceKind::States(_) => None,
        }
    }

    /// Returns the limit of warnings about streams that could not be opened. `None` for a subgraph, whose client warns
    /// of that itself, and for states, whose streams always open.
    pub fn refused_stream_log(&self) -> Option<&LogLimit> {
        match &self.0 {
            SourceKind::Topics { provider, .. } => Some(&provider.stats().refused_stream_log),
            SourceKind::Subgraph { .. } | SourceKind::States(_) => None,
        }
    }

    /// True if each event replaces all before it: an equal one is not delivered again, and a lost one is no loss.
    pub fn has_states(&self) -> bool {
        matches!(self.0, SourceKind::States(_))
    }

    /// True if a subgraph serves it.
    pub fn is_of_subgraph(&self) -> bool {
        matches!(self.0, SourceKind::Subgraph { .. })
    }

    /// Returns the description that a provider opens a stream with. `None` if no provider serves it.
    pub fn wanted(&self) -> Option<&StreamRequest> {
        match &self.0 {
            SourceKind::Topics { wanted, .. } => Some(wanted),
            SourceKind::Subgraph { .. } | SourceKind::States(_) => None,
        }
    }

    /// Returns the rendered topics, sorted; of a subgraph the coordinate of the field, of a live query its name.
    pub fn topics(&self) -> &[Box<str>] {
        match &self.0 {
            SourceKind::Topics { wanted, .. } => &wanted.topics,
            SourceKind::Subgraph { wanted, .. } => std::slice::from_ref(&wanted.field),
            SourceKind::States(source) => source.topics(),
        }
    }

    /// Returns the topics without values of clients, in the order of [`Source::topics`], for logs and the pages of
    /// operators: see [`events::ProviderStats::masked_topic`].
    pub fn masked_topics(&self) -> Vec<Box<str>> {
        let topics = self.topics().iter();
        match &self.0 {
            SourceKind::Topics { provider, .. } => {
                topics.map(|it| provider.stats().masked_topic(it).into()).collect()
            }
            // A coordinate of the schema, or the name of a field.
            SourceKind::Subgraph { .. } | SourceKind::States(_) => topics.cloned().collect(),
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// The provider or the subgraph cannot open it.
    pub async fn open(&self) -> Result<EventStream, SourceError> {
        match &self.0 {
            SourceKind::Topics { provider, wanted } => {
                provider.subscribe(StreamRequest::clone(wanted)).await
            }
            SourceKind::Subgraph { client, wanted } => client.subscribe(Arc::clone(wanted)).await,
            SourceKind::States(source) => Ok(Arc::clone(source).open().await),
        }
    }

    /// Opens a stream for subscribers that move here from another source. A subgraph that cannot be reached gets
    /// further attempts, as after a lost connection, and the stream is returned before they are made.
    ///
    /// # Errors
    /// As for [`Source::open`].
    pub async fn open_for_move(&self) -> Result<EventStream, SourceError> {
        match &self.0 {
            SourceKind::Subgraph { client, wanted } => client.resubscribe(Arc::clone(wanted)).await,
            SourceKind::Topics { .. } | SourceKind::States(_) => self.open().await,
        }
    }

    /// Opens a second stream; see [`Source::read_from`].
    ///
    /// # Errors
    /// The provider cannot open it, or no provider serves the source.
    pub async fn open_reader(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        match &self.0 {
            SourceKind::Topics { provider, .. } => provider.subscribe(wanted).await,
            SourceKind::Subgraph { .. } | SourceKind::States(_) => {
                Err(SourceError::Gone { provider: self.name().into() })
            }
        }
    }

    /// True if it can be read from a position in the past.
    pub fn replays(&self) -> bool {
        match &self.0 {
            SourceKind::Topics { provider, wanted } => provider.replays(wanted.durable.as_deref()),
            SourceKind::Subgraph { .. } | SourceKind::States(_) => false,
        }
    }

    /// True if a broker stores its events, so that they outlive this process.
    pub fn is_stored_by_broker(&self) -> bool {
        self.replays() && !self.name().starts_with("memory/")
    }

    /// Returns the description of a second stream that reads from `start`. The durable consumer that the broker keeps
    /// for this router is not moved.
    pub fn read_from(&self, start: Start) -> StreamRequest {
        let without_consumer = |durable: &Arc<Durable>| {
            Arc::new(Durable { consumer: None, ..Durable::clone(durable) })
        };
        let durable = self.wanted().and_then(|it| it.durable.as_ref()).map(without_consumer);
        StreamRequest { topics: self.topics().into(), start, durable, bounded: false }
    }

    /// Tells the client of its subgraph that the headers of this source are those of the client that came last.
    pub fn note_headers(&self) {
        if let SourceKind::Subgraph { client, wanted, .. } = &self.0 {
            client.note_headers(wanted);
        }
    }

    /// Passes headers with a renewed token on to the client of its subgraph, for an equal source that is open already.
    pub fn renew_headers(&self) {
        if let SourceKind::Subgraph { client, wanted, .. } = &self.0 {
            client.renew_headers(wanted);
        }
    }

    /// Returns the address of the client, which is part of the identity: a reloaded configuration makes new clients
    /// under old names, so the name is not enough.
    fn client_address(&self) -> *const () {
        match &self.0 {
            SourceKind::Topics { provider, .. } => Arc::as_ptr(provider).cast(),
            SourceKind::Subgraph { client, .. } => Arc::as_ptr(client).cast(),
            // The identity has everything.
            SourceKind::States(_) => std::ptr::null(),
        }
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        if self.client_address() != other.client_address() {
            return false;
        }
        match (&self.0, &other.0) {
            (SourceKind::Topics { wanted, .. }, SourceKind::Topics { wanted: other, .. }) => {
                wanted == other
            }
            (SourceKind::Subgraph { wanted, .. }, SourceKind::Subgraph { wanted: other, .. }) => {
                wanted == other
            }
            (SourceKind::States(source), SourceKind::States(other)) => {
                source.identity() == other.identity()
            }
            _ => false,
        }
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client_address().hash(state);
        match &self.0 {
            SourceKind::Topics { wanted, .. } => wanted.hash(state),
            SourceKind::Subgraph { wanted, .. } => wanted.hash(state),
            SourceKind::States(source) => source.identity().hash(state),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.name(), self.topics())?;
        let Some(StreamRequest { topics: _, start, durable, bounded }) = self.wanted() else {
            return Ok(());
        };
        if *start != Start::New {
            write!(f, " from {start:?}")?;
        }
        if *bounded {
            write!(f, " until now")?;
        }
        durable.as_ref().map_or(Ok(()), |durable| write!(f, " of {durable:?}"))
    }
}

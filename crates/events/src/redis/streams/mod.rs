//! Redis Streams: topics that the broker stores. A lane is a key, numbered in the order of the names; a mark is
//! the number of an entry. Who reads goes on after a number, so that a lost connection loses nothing, and a
//! subscription that is slow is waited for: what it has not read stays at the broker.
//!
//! Streams are trimmed by those who write to them. Whatever was trimmed before it was read is told as a gap, or
//! refused as [`SourceError::Gone`] where somebody asks for what follows a position; `state` has the rule.
//! A key that does not exist is an empty stream, and one that is deleted becomes one: subscriptions wait for it.

mod commands;
mod entry;
mod id;
mod reader;
mod state;
mod table;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

use super::session::Dialing;
use super::{COMMANDS_MAX, Link, soon};
use crate::{EventStream, SourceError, Wanted};
pub(super) use entry::add;
use reader::{NotOpened, Open, Reader};

/// The reader of one server, as those see it who want a stream.
#[derive(Debug)]
struct Handle {
    link: watch::Receiver<Link<()>>,
    opens: mpsc::Sender<Open>,
}

/// The streams of a provider. Nothing is connected before the first is wanted.
pub(super) struct Streams {
    dialing: Dialing,
    queue_events: usize,
    /// Carries the connections, whoever asks for the first stream.
    runtime: runtime::Handle,
    reader: OnceLock<Handle>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl Streams {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(dialing: Dialing, queue_events: usize) -> Self {
        let runtime = runtime::Handle::current();
        Self { dialing, queue_events, runtime, reader: OnceLock::new() }
    }

    pub(super) async fn open(
        &self,
        provider: &str,
        wanted: Wanted,
    ) -> Result<EventStream, SourceError> {
        let unavailable =
            |reason: String| SourceError::Unavailable { provider: provider.into(), reason };
        // Lanes are the keys in order: the same whoever asks for them.
        let keys: BTreeSet<Box<str>> = wanted.topics.into_iter().collect();
        let lanes = (0..).zip(keys).map(|(lane, key)| (lane, key.into())).collect();
        let reader = self.reader.get_or_init(|| self.start());
        soon(&reader.link).await.map_err(unavailable)?;
        let (reply, answer) = oneshot::channel();
        let closed = || unavailable("the provider was closed".into());
        let open = Open { lanes, start: wanted.start, reply };
        reader.opens.send(open).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(|error| match error {
            NotOpened::Unavailable(reason) => unavailable(reason),
            NotOpened::Refused(reason) => {
                SourceError::Refused { provider: provider.into(), reason }
            }
            NotOpened::Gone => SourceError::Gone { provider: provider.into() },
        })
    }

    fn start(&self) -> Handle {
        let (link_sender, link) = watch::channel(Link::Away("not connected yet".into()));
        let (opens, receiver) = mpsc::channel(COMMANDS_MAX);
        let reader = Reader::new(
            self.dialing.provider.clone(),
            self.dialing.dialer("streams"),
            self.queue_events,
            Arc::clone(&self.dialing.stats),
            link_sender,
            receiver,
        );
        self.runtime.spawn(reader.run());
        Handle { link, opens }
    }
}

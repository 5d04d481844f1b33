//! The live layer as the console uses it: the subscribers of a group, and the histories of those that are watched.

use std::sync::Arc;
use std::time::Instant;

use hub::GroupId;

use super::live_server::LiveServer;
use super::outlet::ConnectionOutlet;
use crate::open_outlets::OpenOutlets;
use crate::watches::{SubscriberId, SubscriberList, WatchReading, WatchRefused};

impl LiveServer {
    /// Returns subscribers of a group: first those that read too slowly, then the oldest ones.
    pub async fn subscribers_of(&self, group: GroupId) -> SubscriberList {
        let mut list = self.reactors.subscribers_of(group).await;
        let outlets = Arc::clone(self.outlets());
        // A hundred thousand streams take some milliseconds, in which no event waits here.
        let of_outlets = tokio::task::spawn_blocking(move || {
            let mut list = SubscriberList::default();
            outlets.visit(|outlet| outlet.list_subscribers(group, &mut list));
            list
        });
        list.append(of_outlets.await.unwrap_or_default());
        list.finish();
        list
    }

    /// Begins to watch a subscriber, and returns its history; that since the beginning if it is watched already.
    ///
    /// # Errors
    /// There is no such subscriber, or too many are watched.
    pub async fn watch(&self, id: SubscriberId) -> Result<WatchReading, WatchRefused> {
        if let Some(reading) = self.read_watched(id) {
            return Ok(reading);
        }
        if !self.board.make_room(Instant::now()) {
            self.runner().metrics.count_not_watched();
            return Err(WatchRefused::TooMany);
        }
        let watched = match id {
            SubscriberId::Reactor { .. } => self.reactors.watch(id).await,
            SubscriberId::Stream { stream, operation } => {
                self.outlets().get(stream).and_then(|outlet| outlet.watch(operation))
            }
        };
        let watched = watched.ok_or(WatchRefused::NotFound)?;
        // If another request was faster, its history counts.
        self.board.add(watched, Instant::now());
        self.read_watched(id).ok_or(WatchRefused::TooMany)
    }

    /// Returns the history of a watched subscriber; `None` if it is not watched. A history that is not read for
    /// [`crate::watches::UNREAD_TIME_MAX`] is dropped.
    pub fn read_watched(&self, id: SubscriberId) -> Option<WatchReading> {
        self.board.read(id, Instant::now())
    }

    /// Drops the histories that are not read, and returns the number of the others. To be called at intervals.
    pub fn sweep_watched(&self) -> usize {
        self.board.sweep(Instant::now())
    }

    fn outlets(&self) -> &Arc<OpenOutlets<ConnectionOutlet>> {
        &self.runner().limits.outlets
    }
}

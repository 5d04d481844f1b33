//! Finding the subscribers of reactors for operators, and beginning to watch one.

use std::sync::Arc;

use hub::{GroupId, Subscriber};
use tokio::sync::oneshot;

use super::ReactorHandles;
use super::message::Message;
use crate::watches::{SubscriberId, SubscriberList, WatchedSubscriber};

impl ReactorHandles {
    /// Returns subscribers of a group on all reactors, in arbitrary order.
    pub(crate) async fn subscribers_of(&self, group: GroupId) -> SubscriberList {
        let mut replies = Vec::with_capacity(self.mailboxes.len());
        for mailbox in &self.mailboxes {
            let (reply, response) = oneshot::channel();
            mailbox.send(Message::ListSubscribers(group, reply));
            replies.push(response);
        }
        let mut all = SubscriberList::default();
        for (reactor, response) in replies.into_iter().enumerate() {
            // The thread has ended if there is no reply.
            let found = response.await.unwrap_or_default();
            let mut list = SubscriberList { subscribers: Vec::new(), count: found.count };
            // There are as many reactors as threads.
            list.subscribers.extend(found.members.into_iter().map(|it| it.view(reactor as u32)));
            all.append(list);
        }
        all
    }

    /// Begins to watch a subscriber of a reactor; `None` if there is no such subscriber.
    pub(crate) async fn watch(&self, id: SubscriberId) -> Option<Arc<WatchedSubscriber>> {
        let SubscriberId::Reactor { reactor, connection, operation } = id else { return None };
        let mailbox = self.mailboxes.get(reactor as usize)?;
        let (reply, response) = oneshot::channel();
        let member = Subscriber { connection, operation };
        mailbox.send(Message::Watch(id, member, reply));
        response.await.ok()?
    }
}

//! Deliveries to the clients of a reactor: sent at once if the socket has room, queued in a backlog otherwise.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{ErrorCode, Missed, Payload};
use hub::{EndReason, GroupId, OutletCommand, Subscriber};
use reactor::{SendOutcome, Token};

use super::super::client_machine::{SharedPosition, SharedResult};
use super::super::message::Message;
use super::broadcast::GroupResult;
use super::watching::waiting_of;
use super::{ClientSockets, SubscriptionServer};
use crate::backlog::{Backlog, BacklogBounds, Delivery, NextDelivery};

/// The interval at which clients with unread responses are checked for eviction.
const EVICTION_INTERVAL: Duration = Duration::from_millis(250);

impl SubscriptionServer {
    /// Applies a command of the hub. Takes results from `following`, the messages behind it, that are sent together
    /// with the result of the command.
    pub(super) fn apply_command(
        &mut self,
        sockets: &mut ClientSockets,
        command: OutletCommand,
        following: &mut VecDeque<Message>,
    ) {
        match command {
            OutletCommand::Join { group, member } => {
                self.groups.entry(group).or_default().insert(member);
            }
            OutletCommand::Deliver { group, payload, spans, is_stored: _ } => {
                self.deliver(sockets, GroupResult { group, payload, spans }, following);
            }
            OutletCommand::Position { group, cursor } => {
                self.outlet.on_position_taken(group);
                self.send_position(sockets, group, cursor);
            }
            OutletCommand::Leave { group, member } => {
                if let Some(members) = self.groups.get_mut(&group) {
                    members.remove(member);
                    if members.is_empty() {
                        self.groups.remove(&group);
                        self.outlet.forget_group(group);
                    }
                }
                forget_losses(sockets, member);
                // Without this subscription the client may have caught up.
                self.drain_backlog(sockets, Token::from_u64(member.connection));
            }
            OutletCommand::Merge { from, into } => {
                let merged = self.groups.remove(&from).unwrap_or_default();
                let owed = self.outlet.take_missed(from);
                if owed != Missed::default() {
                    merged.iter().for_each(|member| self.record_loss(sockets, member, owed));
                }
                self.groups.entry(into).or_default().append(merged);
                self.outlet.forget_group(from);
            }
            OutletCommand::End { group, reason } => {
                let members = self.groups.remove(&group).unwrap_or_default();
                self.outlet.forget_group(group);
                for member in members.iter() {
                    self.on_subscription_ended(sockets, member, &reason);
                }
            }
        }
    }

    /// Sends a position to all members of a group, except those with something in their backlog: a position must not
    /// overtake an event, nor the announcement of a lost event. These members get the next position.
    fn send_position(&mut self, sockets: &mut ClientSockets, group: GroupId, cursor: Bytes) {
        let Some(members) = self.groups.get(&group) else { return };
        let shared = SharedPosition::new(cursor);
        for member in members.iter() {
            let head = &mut self.head;
            sockets.send_with(Token::from_u64(member.connection), |machine, client| {
                if client.backlog.as_ref().is_some_and(|it| it.has_news_of(member.operation)) {
                    return None;
                }
                head.clear();
                let (body, tail) = machine.position(member.operation, &shared, head)?;
                Some((&head[..], body, tail))
            });
        }
    }

    /// Records that nothing waits for a client any more.
    pub(super) fn mark_caught_up(&mut self, token: Token) {
        for group in self.behind.remove(&token).unwrap_or_default() {
            self.outlet.set_behind(group, false);
        }
        self.forget_deflated();
    }

    /// Frees the compressed results unless a client that is behind may need one of them.
    pub(super) fn forget_deflated(&mut self) {
        if self.behind.is_empty() {
            self.deflation.get_mut().forget();
        }
    }

    /// Queues a result in a client's backlog, since its socket is full.
    pub(super) fn enqueue(
        &mut self,
        sockets: &mut ClientSockets,
        member: Subscriber,
        payload: &Payload,
    ) {
        let token = Token::from_u64(member.connection);
        let Some((backlog, bounds)) = self.backlog_of_member(sockets, member) else { return };
        backlog.push_event(bounds, member.operation, payload.clone());
        if !self.watched.is_empty() {
            self.note_queued(sockets, member);
        }
        self.close_if_overflown(sockets, token);
    }

    /// Drops events of a client, because it has the most waiting events of all clients.
    pub(super) fn shed(&mut self, sockets: &mut ClientSockets, token: Token) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let Some(backlog) = &mut client.backlog else { return };
        backlog.shed(BacklogBounds::new(&reactor.runner.limits.settings));
        self.close_if_overflown(sockets, token);
    }

    fn close_if_overflown(&mut self, sockets: &mut ClientSockets, token: Token) {
        if !self.watched.is_empty() {
            self.note_waiting(sockets, token);
        }
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let Some(backlog) = &mut client.backlog else { return };
        reactor.runner.count_dropped(backlog.take_dropped());
        if backlog.is_overflown() {
            self.drop_operations(sockets, token, ErrorCode::SlowSubscriber.as_str());
            if let Some(machine) = sockets.machine_mut(token) {
                machine.close_slow_client();
            }
        }
    }

    /// Stops the operations of a connection that ends, and drops its deliveries.
    pub(super) fn drop_operations(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        reason: &'static str,
    ) {
        if let Some(client) = sockets.client(token) {
            client.backlog = None;
            client.stop_all();
        }
        self.end_all_records(token, reason);
        self.mark_caught_up(token);
    }

    /// Records events that a client lost in its former group. Its next result announces them.
    pub(super) fn record_loss(
        &self,
        sockets: &mut ClientSockets,
        member: Subscriber,
        missed: Missed,
    ) {
        if let Some((backlog, _)) = self.backlog_of_member(sockets, member) {
            backlog.record_loss(member.operation, missed);
        }
    }

    /// Returns the backlog of a member's client; `None` if the client has completed the operation.
    fn backlog_of_member<'s>(
        &self,
        sockets: &'s mut ClientSockets,
        member: Subscriber,
    ) -> Option<(&'s mut Backlog, BacklogBounds)> {
        let token = Token::from_u64(member.connection);
        let is_active = sockets.machine(token).is_some_and(|it| it.is_active(member.operation));
        if is_active { self.backlog(sockets, token) } else { None }
    }

    /// Returns the backlog of a client with its limits, after creating it if there is none.
    fn backlog<'s>(
        &self,
        sockets: &'s mut ClientSockets,
        token: Token,
    ) -> Option<(&'s mut Backlog, BacklogBounds)> {
        let reactor = self.reactor.as_ref()?;
        let client = sockets.client(token)?;
        let backlog = client.backlog.get_or_insert_with(|| {
            let backlog = Backlog::new(Arc::clone(&reactor.runner.limits.queue_total));
            let outlet = Arc::clone(&self.outlet);
            backlog.on_shed(Box::new(move || outlet.mailbox().send(Message::Shed(token))));
            Box::new(backlog)
        });
        Some((&mut **backlog, BacklogBounds::new(&reactor.runner.limits.settings)))
    }

    /// Handles the end of a subscription by the hub.
    fn on_subscription_ended(
        &mut self,
        sockets: &mut ClientSockets,
        member: Subscriber,
        reason: &EndReason,
    ) {
        let (token, operation) = (Token::from_u64(member.connection), member.operation);
        let Some(client) = sockets.client(token) else { return };
        client.forget(operation);
        self.send_end(sockets, token, Delivery::end(operation, reason));
    }

    /// Sends the end of an operation, after everything that waits for its client, and ends its records.
    pub(super) fn send_end(&mut self, sockets: &mut ClientSockets, token: Token, end: Delivery) {
        self.end_records(token, end.operation(), end.reason());
        let backlog = sockets.client(token).and_then(|client| client.backlog.as_mut());
        match backlog {
            Some(backlog) => {
                backlog.push_end(end);
                // If the backlog holds only announcements of lost events, the socket has room, and no event of the
                // socket would drain the backlog later.
                self.drain_backlog(sockets, token);
            }
            None => self.write_delivery(sockets, token, end),
        }
    }

    /// Sends the response of a query, after everything that waits for its client.
    pub(super) fn respond(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        operation: u32,
        payload: Payload,
    ) {
        sockets.flush_machine(token);
        let has_backlog = sockets.client(token).is_some_and(|client| client.backlog.is_some());
        if has_backlog || sockets.is_blocked(token) {
            let Some((backlog, _)) = self.backlog(sockets, token) else { return };
            backlog.push_response(operation, payload);
            backlog.push_end(Delivery::Complete { operation });
            self.drain_backlog(sockets, token);
        } else {
            let response = Delivery::Next { operation, payload, missed: Missed::default() };
            self.write_delivery(sockets, token, response);
            self.write_delivery(sockets, token, Delivery::Complete { operation });
        }
        self.watch_unread(sockets, token);
    }

    /// Watches a client that has not read a response, since it may have to be evicted.
    fn watch_unread(&mut self, sockets: &mut ClientSockets, token: Token) {
        let Some(client) = sockets.client(token) else { return };
        client.drop_idle_work();
        if client.work.is_some() && self.unread.insert(token) {
            let next = Instant::now() + EVICTION_INTERVAL;
            self.next_eviction.get_or_insert(next);
        }
    }

    /// Closes connections whose unread responses take the memory of other clients, and stops watching clients that have
    /// read theirs.
    pub(super) fn close_evicted(&mut self, sockets: &mut ClientSockets) {
        let mut evicted = Vec::new();
        self.unread.retain(|&token| {
            let Some(client) = sockets.client(token) else { return false };
            client.drop_idle_work();
            let Some(work) = &client.work else { return false };
            let is_evicted = work.account().is_evicted();
            if is_evicted {
                evicted.push(token);
            }
            !is_evicted
        });
        for token in evicted {
            self.drop_operations(sockets, token, ErrorCode::SlowSubscriber.as_str());
            if let Some(machine) = sockets.machine_mut(token) {
                machine.close_slow_client();
            }
        }
        let next = Instant::now() + EVICTION_INTERVAL;
        self.next_eviction = (!self.unread.is_empty()).then_some(next);
    }

    /// Sends the backlog of a client as long as the socket has room.
    pub(super) fn drain_backlog(&mut self, sockets: &mut ClientSockets, token: Token) {
        loop {
            // The end of the previous operation may fill the socket, and a delivery taken then would be lost.
            sockets.flush_machine(token);
            if sockets.is_blocked(token) {
                return;
            }
            let Some(client) = sockets.client(token) else { return };
            let Some(backlog) = &mut client.backlog else { return };
            match backlog.pop() {
                NextDelivery::Delivery(delivery) => self.write_delivery(sockets, token, delivery),
                NextDelivery::Nothing | NextDelivery::Overflown => {
                    // Nothing is left but announcements of lost events: the client has caught up.
                    if backlog.is_idle() {
                        client.backlog = None;
                    }
                    self.mark_caught_up(token);
                    return;
                }
            }
        }
    }

    /// Sends a delivery over a socket that has room. Results of an operation that the client has completed are dropped.
    fn write_delivery(&mut self, sockets: &mut ClientSockets, token: Token, delivery: Delivery) {
        match delivery {
            Delivery::Next { operation, payload, missed } => {
                let payload = payload.with_missed(missed);
                // A query is removed before its response is sent.
                let is_event = sockets
                    .client(token)
                    .is_some_and(|client| client.operations.get_mut(operation).is_some());
                let shared = SharedResult::new(payload.clone(), &self.deflation, is_event);
                let head = &mut self.head;
                let sent = sockets.send_with(token, |machine, _| {
                    head.clear();
                    let (body, tail) = machine.next(operation, &shared, head)?;
                    Some((&head[..], body, tail))
                });
                debug_assert_ne!(sent, Some(SendOutcome::Blocked), "the callers check for room");
                if sent == Some(SendOutcome::Taken) {
                    self.records.count_event(token, operation);
                }
                if !self.watched.is_empty() {
                    let member = Subscriber { connection: token.to_u64(), operation };
                    let waiting = waiting_of(sockets, member);
                    let (bytes, missed) = (payload.bytes.len(), payload.missed());
                    self.watched.note(member, |history, now| match sent {
                        Some(SendOutcome::Taken) => {
                            history.note_taken(now, bytes, missed, waiting);
                        }
                        _ => history.note_waiting(now, waiting),
                    });
                }
            }
            // Positions do not wait in these backlogs.
            Delivery::Position { .. } => {}
            Delivery::Complete { operation } => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.complete(operation);
                }
            }
            Delivery::Failed { operation, errors } => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.fail(operation, &errors);
                }
            }
        }
    }
}

/// Forgets the unannounced losses of a subscription that has left its group, unless it has left it for another one.
fn forget_losses(sockets: &mut ClientSockets, member: Subscriber) {
    let Some(client) = sockets.client(Token::from_u64(member.connection)) else { return };
    if client.has_operation(member.operation) {
        return;
    }
    if let Some(backlog) = &mut client.backlog {
        backlog.clear_missed(member.operation);
    }
}

//! Renewal of a client's token on its connection: a `ping` of graphql-transport-ws whose payload has a token in one of
//! the places of `connection_init`.
//!
//! Operations that start later have the new token. A live subscription stays in its group if the new token leads to the
//! same group. Otherwise it moves to the new group and announces a gap, or ends with `TOKEN_RENEWED` if its client has
//! cursors: only the client knows which event it has handled. Moving it without its cursor could lose events. A live
//! query with patches ends as well.

use std::sync::Arc;

use bytes::Bytes;
use clients::authentication::{
    Fingerprint, Identity, InitIdentification, InitOutcome, TokenRefusal,
};
use clients::request_source::RequestSource;
use execute::{ErrorCode, GraphqlError, Missed};
use hub::{GroupId, Subscriber};
use reactor::Token;
use serving::forwarding::ClientHeaders::Kept;
use serving::operation::{self, OperationClient};
use serving::subscription_migration;
use wire::graphql_transport_ws::FORBIDDEN;

use super::super::client_machine::ClientMachine;
use super::super::message::{Message, RenewalStep, StartRequest};
use super::renewal::Renewal;
use super::{ClientSockets, SubscriptionServer};
use crate::backlog::Delivery;
use crate::client_context::{ClientContext, KeptContext};
use crate::init_payload;
use crate::operation_runner::OperationRunner;

/// The most characters of the reason of a close: a control frame has 125 bytes, two of them for the code (RFC 6455,
/// section 5.5).
const CLOSE_REASON_MAX: usize = 123;

impl SubscriptionServer {
    /// Handles the payload of a `ping`, which may have a token.
    pub(super) fn on_ping(&mut self, sockets: &mut ClientSockets, token: Token, payload: Bytes) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let Some(tokens) = reactor.runner.authentication.token_sources() else { return };
        let allowed = &reactor.websocket.init_payload_headers;
        let read = init_payload::read_token(allowed, tokens, payload, &client.context.headers);
        match read {
            // The payload is the client's own affair.
            Ok(None) => {}
            Ok(Some(_)) if client.token.is_none() => {
                let reason =
                    "only a connection with a token can renew it: send it with connection_init";
                close(sockets, token, reason);
            }
            Ok(Some(presented)) => {
                let renewal = self.renewals.entry(token).or_default();
                renewal.next = Some(presented);
                self.verify_next(sockets, token);
            }
            Err(refusal) => self.on_token_renewed(sockets, token, Err(refusal)),
        }
    }

    /// Verifies the token that waits, unless another one of the connection is being verified.
    fn verify_next(&mut self, sockets: &mut ClientSockets, token: Token) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let Some(renewal) = self.renewals.get_mut(&token) else { return };
        if renewal.is_verifying {
            return;
        }
        let Some(presented) = renewal.next.take() else { return };
        let authentication = &reactor.runner.authentication;
        match authentication.on_connection_init(Ok(Some(presented)), &client.identity()) {
            InitIdentification::Known(renewed) => self.on_token_renewed(sockets, token, renewed),
            InitIdentification::Unverified(presented) => {
                renewal.is_verifying = true;
                let authentication = Arc::clone(authentication);
                let outlet = Arc::clone(&self.outlet);
                reactor.workers.run(Box::new(move || {
                    Box::pin(async move {
                        let renewed = authentication.verify_init_token(&presented).await;
                        outlet.mailbox().send(Message::TokenRenewed(token, renewed));
                    })
                }));
            }
        }
    }

    /// Handles a token that was verified for a renewal.
    pub(super) fn on_verification_done(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        renewed: Result<InitOutcome, TokenRefusal>,
    ) {
        // Without an entry the connection has ended.
        let Some(renewal) = self.renewals.get_mut(&token) else { return };
        renewal.is_verifying = false;
        self.on_token_renewed(sockets, token, renewed);
        self.verify_next(sockets, token);
        self.forget_finished_renewal(token);
    }

    fn on_token_renewed(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        renewed: Result<InitOutcome, TokenRefusal>,
    ) {
        let Some(client) = sockets.client(token) else { return };
        match renewed {
            // The present token is still valid. The client may send the new one again.
            Err(refusal) if refusal.is_temporary() => {
                tracing::debug!("a renewed token cannot be verified at present");
            }
            Err(refusal) => close(sockets, token, &refusal.to_string()),
            Ok(outcome) => {
                let before = client.identity();
                if outcome.identity.fingerprint() == before.fingerprint() {
                    return;
                }
                if !outcome.identity.is_same_subject(&before) {
                    let reason =
                        "the renewed token is of another subject: open a connection for it";
                    return close(sockets, token, reason);
                }
                self.take_over_identity(sockets, token, &outcome);
            }
        }
    }

    /// Gives the connection its new identity, and checks what that means for its subscriptions.
    fn take_over_identity(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        outcome: &InitOutcome,
    ) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let mut headers = client.context.headers.clone();
        if outcome.sets_header() {
            outcome.set_header(&mut headers);
            headers = reactor.needed_headers.select(&headers);
        }
        let identity = outcome.identity.clone();
        let origin = client.context.origin;
        let (live, starting) = client.operations.live_and_starting();
        self.replace_context(sockets, token, ClientContext { headers, identity, origin });
        self.renewals.entry(token).or_default().starting = starting;
        self.check_subscriptions(sockets, token, live);
    }

    /// Checks a subscription that has become live, if it was started with an older token.
    pub(super) fn check_started(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        number: u32,
        group: Option<GroupId>,
    ) {
        let Some(renewal) = self.renewals.get_mut(&token) else { return };
        let Some(at) = renewal.starting.iter().position(|it| *it == number) else { return };
        renewal.starting.swap_remove(at);
        self.forget_finished_renewal(token);
        if let Some(group) = group {
            self.check_subscriptions(sockets, token, vec![(number, group)]);
        }
    }

    fn forget_finished_renewal(&mut self, token: Token) {
        let is_finished =
            |it: &Renewal| !it.is_verifying && it.next.is_none() && it.starting.is_empty();
        if self.renewals.get(&token).is_some_and(is_finished) {
            self.renewals.remove(&token);
        }
    }

    /// Lets a worker find out to which groups the new token leads.
    fn check_subscriptions(
        &self,
        sockets: &mut ClientSockets,
        token: Token,
        live: Vec<(u32, GroupId)>,
    ) {
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        if live.is_empty() {
            return;
        }
        let (runner, outlet) = (Arc::clone(&reactor.runner), Arc::clone(&self.outlet));
        let (context, identity) = (Arc::clone(&client.context), client.identity());
        let (address, fingerprint) = (client.permit.client(), client.fingerprint());
        reactor.workers.run(Box::new(move || {
            Box::pin(async move {
                for (number, group) in live {
                    let step = renewal_step(&runner, &context, &identity, address, group).await;
                    let message = Message::RenewalChecked(token, number, fingerprint, step);
                    outlet.mailbox().send(message);
                }
            })
        }));
    }

    /// Carries out what a worker found out about one subscription under the token with this fingerprint.
    pub(super) fn on_renewal_checked(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        number: u32,
        fingerprint: Option<Fingerprint>,
        step: RenewalStep,
    ) {
        let Some(client) = sockets.client(token) else { return };
        // A later token is checked too; or the client has completed the operation.
        if client.fingerprint() != fingerprint || !client.has_operation(number) {
            return;
        }
        match step {
            RenewalStep::Stay => {}
            RenewalStep::Move(ready) => {
                // It keeps its record for the access log: for client and operators it is the same subscription.
                client.forget(number);
                let member = Subscriber { connection: token.to_u64(), operation: number };
                // The first result of a live query is complete.
                if ready.prepared.live.is_none() {
                    self.record_loss(sockets, member, Missed { lost: 0, gap: true });
                }
                self.start_operation(sockets, token, number, StartRequest::Moved(ready));
            }
            RenewalStep::End(error) => {
                client.forget(number);
                let errors = vec![error];
                self.send_end(sockets, token, Delivery::Failed { operation: number, errors });
            }
        }
    }
}

/// Finds out whether a subscription of that group stays in it under this identity.
async fn renewal_step(
    runner: &OperationRunner,
    context: &KeptContext,
    identity: &Identity,
    address: execute::ClientKey,
    group: GroupId,
) -> RenewalStep {
    let Some(present) = runner.hub.operation_of(group).await else {
        // It has ended, which the client is told by other means.
        return RenewalStep::Stay;
    };
    let Some(request) = subscription_migration::request_of(&present) else {
        return RenewalStep::End(renewed("it cannot be prepared again"));
    };
    let KeptContext { headers, origin, .. } = context;
    let source = RequestSource::of_websocket(&runner.serving.path, *origin);
    let source = RequestSource { is_new: false, ..source };
    let (headers, identity) = (Kept(headers), identity.clone());
    let client = OperationClient { headers, identity, address, source };
    let prepared = operation::prepare_text(&runner.serving, request, client).await;
    let ready = match prepared {
        Ok(ready) => ready,
        Err(errors) => {
            let reason = errors.first().map_or("it is not valid", |first| &*first.message);
            return RenewalStep::End(renewed(reason));
        }
    };
    let claims = subscription_migration::claims_of(&ready);
    let timeout = runner.serving.time_max;
    match subscription_migration::live_operation(ready.clone(), claims, timeout) {
        Err(error) => RenewalStep::End(error),
        Ok(next) if next.group == present.group && next.source == present.source => {
            next.source.renew_headers();
            RenewalStep::Stay
        }
        Ok(_) if runner.hub.has_cursors(&present.source) => {
            RenewalStep::End(renewed("subscribe again, with the last cursor"))
        }
        // Patches for the group that it leaves may come after the first result of the new group, and do not fit to it.
        Ok(next) if subscription_migration::sends_patches(&next) => {
            RenewalStep::End(renewed("subscribe again"))
        }
        Ok(_) => RenewalStep::Move(Box::new(ready)),
    }
}

fn renewed(reason: &str) -> GraphqlError {
    let message =
        format!("the token was renewed, and this subscription cannot continue as it is: {reason}");
    GraphqlError::new(ErrorCode::TokenRenewed, message)
}

fn close(sockets: &mut ClientSockets, token: Token, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(CLOSE_REASON_MAX)];
    if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
        connection.protocol.close(FORBIDDEN, reason);
    }
}

//! The identity of each connection of a reactor: the token of `connection_init`, and its expiry.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use reactor::Token;
use wire::graphql_transport_ws::INVALID_MESSAGE;

use super::super::client;
use super::super::client_machine::ClientMachine;
use super::super::message::Message;
use super::{ClientSockets, SubscriptionServer};
use crate::authentication::{
    Authenticator, EXPIRED, EXPIRY_CHECK_INTERVAL_MAX, Identity, InitIdentification, InitOutcome,
    TokenRefusal,
};
use crate::live::client_context::ClientContext;
use crate::live::{init_payload, websocket};

/// The shortest interval between two searches for expired tokens. A search through a hundred thousand connections takes
/// some milliseconds.
const EXPIRY_INTERVAL_MIN: Duration = Duration::from_secs(1);

impl SubscriptionServer {
    /// Handles a `connection_init`.
    pub(super) fn on_connection_init(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        payload: Option<Bytes>,
    ) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let allowed = &router.config.websocket.init_payload_headers;
        let tokens = router.authentication.as_ref().map(Authenticator::token_source);
        let init = match init_payload::read_init_payload(
            allowed,
            tokens,
            payload,
            &client.context.headers,
        ) {
            Ok(init) => init,
            Err(reason) => {
                if let Some(ClientMachine::WebSocket(it)) = sockets.machine_mut(token) {
                    it.protocol.close(INVALID_MESSAGE, &reason);
                }
                return;
            }
        };
        if init.headers != client.context.headers {
            let headers = client::needed_headers(&router.config, &init.headers);
            let identity = client.context.identity.clone();
            client.context = self.contexts.share(ClientContext { headers, identity });
        }
        match router.on_connection_init(init.token, &client.context.identity) {
            InitIdentification::Known(identified) => {
                self.on_token_verified(sockets, token, identified);
            }
            InitIdentification::Unverified(bearer) => {
                // Verifying a signature takes as long as some hundred messages, so a worker does it.
                let (router, outlet) = (Arc::clone(router), Arc::clone(&self.outlet));
                let cores = Arc::clone(&router.workers);
                cores.run(Box::new(move || {
                    Box::pin(async move {
                        let identified = router.verify_init_token(&bearer).await;
                        outlet.mailbox().send(Message::TokenVerified(token, identified));
                    })
                }));
            }
        }
    }

    /// Finishes a `connection_init` after its token was verified.
    pub(super) fn on_token_verified(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        identified: Result<InitOutcome, TokenRefusal>,
    ) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let admitted = identified.and_then(|it| router.authorize(&it.identity).map(|()| it));
        let refusal = admitted.as_ref().err().cloned();
        if let Ok(outcome) = admitted
            && (outcome.sets_header()
                || outcome.identity.fingerprint() != client.context.identity.fingerprint())
        {
            let mut headers = client.context.headers.clone();
            if outcome.sets_header() {
                outcome.set_header(&mut headers);
                headers = client::needed_headers(&router.config, &headers);
            }
            let identity = outcome.identity;
            client.context =
                self.contexts.share(ClientContext { headers, identity: identity.clone() });
            self.schedule_expiry(&identity);
        }
        if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
            websocket::finish_init(&mut connection.protocol, refusal.as_ref());
        }
    }

    /// Schedules the search for expired tokens for the expiry of a new identity.
    pub(super) fn schedule_expiry(&mut self, identity: &Identity) {
        if let Some(left) = identity.time_left(SystemTime::now()) {
            // The system's clock, which decides on tokens, may be changed meanwhile.
            let at = Instant::now() + left.min(EXPIRY_CHECK_INTERVAL_MAX);
            self.next_expiry = Some(self.next_expiry.map_or(at, |next| next.min(at)));
        }
    }

    /// Ends connections with expired tokens. The search visits all connections, at most once a second, so that no
    /// connection needs a timer for it.
    pub(super) fn end_expired(&mut self, sockets: &mut ClientSockets) {
        let now = SystemTime::now();
        let mut next: Option<Duration> = None;
        for token in sockets.tokens() {
            let Some(client) = sockets.client(token) else { continue };
            let Some(left) = client.context.identity.time_left(now) else { continue };
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            // The next search skips a client without an identity.
            client.context = self.contexts.share(ClientContext::default());
            if let Some(router) = &self.router {
                router.metrics.authentication.count_refusal(EXPIRED);
            }
            self.drop_operations(sockets, token);
            if let Some(machine) = sockets.machine_mut(token) {
                machine.expire();
            }
        }
        let pause = next.map(|left| left.clamp(EXPIRY_INTERVAL_MIN, EXPIRY_CHECK_INTERVAL_MAX));
        self.next_expiry = pause.map(|pause| Instant::now() + pause);
    }
}

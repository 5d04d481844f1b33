//! The identity of each connection of a reactor: the token of `connection_init`, and its expiry.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use clients::authentication::{
    EXPIRY_CHECK_INTERVAL_MAX, InitIdentification, InitOutcome, TokenIdentity, TokenRefusal,
};
use reactor::Token;
use wire::graphql_transport_ws::INVALID_MESSAGE;

use super::super::client_machine::ClientMachine;
use super::super::message::Message;
use super::{ClientSockets, SubscriptionServer};
use crate::client_context::{ClientContext, KeptContext};
use crate::end_reasons::EXPIRED;
use crate::{init_payload, websocket};

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
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let allowed = &reactor.websocket.init_payload_headers;
        let tokens = reactor.runner.authentication.token_sources();
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
            let headers = reactor.needed_headers.select(&init.headers);
            let KeptContext { claims, origin, .. } = &*client.context;
            let context = KeptContext { headers, claims: claims.clone(), origin: *origin };
            client.context = self.contexts.share(context);
        }
        match reactor.runner.authentication.on_connection_init(init.token, &client.identity()) {
            InitIdentification::Known(identified) => {
                self.on_token_verified(sockets, token, identified);
            }
            InitIdentification::Unverified(bearer) => {
                // Verifying a signature takes as long as some hundred messages, so a worker does it.
                let authentication = Arc::clone(&reactor.runner.authentication);
                let outlet = Arc::clone(&self.outlet);
                reactor.workers.run(Box::new(move || {
                    Box::pin(async move {
                        let identified = authentication.verify_init_token(&bearer).await;
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
        let (Some(reactor), Some(client)) = (&self.reactor, sockets.client(token)) else { return };
        let admitted = identified
            .and_then(|it| reactor.runner.authentication.authorize(&it.identity).map(|()| it));
        let refusal = admitted.as_ref().err().cloned();
        if let Ok(outcome) = admitted
            && (outcome.sets_header() || outcome.identity.fingerprint() != client.fingerprint())
        {
            let mut headers = client.context.headers.clone();
            if outcome.sets_header() {
                outcome.set_header(&mut headers);
                headers = reactor.needed_headers.select(&headers);
            }
            let origin = client.context.origin;
            let context = ClientContext { headers, identity: outcome.identity, origin };
            self.replace_context(sockets, token, context);
        }
        if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
            websocket::finish_init(&mut connection.protocol, refusal.as_ref());
        }
    }

    /// Gives a client another context.
    pub(super) fn replace_context(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        context: ClientContext,
    ) {
        let (context, kept_token) = self.keep(context);
        self.schedule_expiry(kept_token.as_ref());
        if let Some(client) = sockets.client(token) {
            (client.context, client.token) = (context, kept_token);
        }
    }

    /// Schedules the search for expired tokens for the expiry of a new token.
    pub(super) fn schedule_expiry(&mut self, token: Option<&TokenIdentity>) {
        if let Some(left) = token.map(|token| token.time_left(SystemTime::now())) {
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
            let Some(left) = client.token.as_ref().map(|token| token.time_left(now)) else {
                continue;
            };
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            // The next search skips a client without a token.
            client.context = self.contexts.share(KeptContext::default());
            client.token = None;
            if let Some(reactor) = &self.reactor {
                reactor.runner.authentication.count_expired();
            }
            self.drop_operations(sockets, token, EXPIRED);
            if let Some(machine) = sockets.machine_mut(token) {
                machine.expire();
            }
        }
        let pause = next.map(|left| left.clamp(EXPIRY_INTERVAL_MIN, EXPIRY_CHECK_INTERVAL_MAX));
        self.next_expiry = pause.map(|pause| Instant::now() + pause);
    }
}

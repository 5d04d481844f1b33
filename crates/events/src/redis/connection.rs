//! One connection from its handshake to its end. [`super::dialer`] makes the attempts.

use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, RedisError};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::address::RedisAddress;
use crate::connection_state::LOST;

/// The maximum time to connect and sign in, after which the attempt counts as failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time for a response to a command. A broker that takes longer counts as unavailable.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a silent broker is pinged. A subscription that only waits would never notice a dead
/// connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The push handler of connections that receive no pushes.
pub(super) const NO_PUSHES: Option<fn(PushInfo) -> Result<(), std::convert::Infallible>> = None;

/// A connection that has signed in. Its reader is a task of its own.
pub(super) struct RedisConnection {
    pub(super) multiplexed: MultiplexedConnection,
    reader: JoinHandle<()>,
    address: RedisAddress,
}

impl RedisConnection {
    /// Connects and signs in. A command fails if its response takes longer than `response_timeout`.
    pub(super) async fn open(
        address: &RedisAddress,
        pushed: Option<impl AsyncPushSender>,
        response_timeout: Duration,
    ) -> Result<Self, Box<str>> {
        let stream = address.connect(CONNECT_TIMEOUT).await.map_err(|error| error.to_string())?;
        let mut config = AsyncConnectionConfig::new().set_response_timeout(Some(response_timeout));
        if let Some(pushed) = pushed {
            config = config.set_push_sender(pushed);
        }
        let hello = address.handshake();
        let signing_in = MultiplexedConnection::new_with_config(&hello, stream, config);
        match timeout(CONNECT_TIMEOUT, signing_in).await {
            Ok(Ok((connection, reader))) => Ok(Self {
                multiplexed: connection,
                reader: tokio::spawn(reader),
                address: address.clone(),
            }),
            Ok(Err(error)) => Err(sign_in_failure(&error).into()),
            Err(_) => Err("the broker did not respond within 5 s".into()),
        }
    }

    /// Opens another connection to the same server with its own maximum time for responses.
    pub(super) async fn open_another(&self, response_timeout: Duration) -> Result<Self, Box<str>> {
        Self::open(&self.address, NO_PUSHES, response_timeout).await
    }

    /// Resolves to the reason when the connection cannot be used any more.
    pub(super) async fn wait_lost(&mut self) -> Box<str> {
        loop {
            tokio::select! {
                _ = &mut self.reader => return LOST.into(),
                () = sleep(PING_INTERVAL) => {
                    let ping = redis::cmd("PING");
                    if let Err(error) = self.multiplexed.send_packed_command(&ping).await {
                        return error_text(&error).into();
                    }
                }
            }
        }
    }

    /// Closes the connection. Nothing is read after this.
    pub(super) async fn close(self) {
        if !self.reader.is_finished() {
            self.reader.abort();
            // The task ends with an error because it was aborted.
            let _ = self.reader.await;
        }
    }
}

/// Returns the broker's words when it refused a command that contains no secrets.
pub(super) fn error_text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) if error.is_io_error() => LOST.to_owned(),
        (None, _) => error.to_string(),
    }
}

/// True if the error is a response to the command and the connection still works.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Returns the reason why the handshake failed. Of the broker's response it contains only the code: servers that do not
/// know a command repeat its arguments, which here are user and password.
fn sign_in_failure(error: &RedisError) -> String {
    match error.code() {
        Some("WRONGPASS") => "the broker does not know this user and password (WRONGPASS)".into(),
        Some("NOAUTH") => "the broker requires a password (NOAUTH)".into(),
        Some("NOPERM") => "the user may not sign in this way (NOPERM)".into(),
        Some("ERR") | None if !error.is_io_error() => {
            "the broker does not speak RESP3: Redis 6, Valkey or newer is needed".into()
        }
        Some(code) => format!("the broker refused the connection ({code})"),
        None => "the broker closed the connection during the handshake".into(),
    }
}

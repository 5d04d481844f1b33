//! One connection from its handshake to its end. The owner of a connection decides when to try again.

use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, RedisError, Value};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::address::RedisAddress;

/// The maximum time to connect and sign in, after which the attempt counts as failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time for a response to a command. A broker that takes longer counts as unavailable.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of commands that wait for the task that writes them. Senders of further ones wait for room.
const WAITING_MAX: usize = 1024;

/// The interval at which a silent broker is pinged. A subscription that only waits would never notice a dead
/// connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The reason that is reported for a connection that ended.
const LOST: &str = "the connection was lost";

/// The push handler of connections that receive no pushes.
pub const NO_PUSHES: Option<fn(PushInfo) -> Result<(), std::convert::Infallible>> = None;

/// A connection that has signed in. Its reader is a task of its own.
#[derive(Debug)]
pub struct RedisConnection {
    /// The handle for commands. It may be cloned, and used on other threads and runtimes.
    pub multiplexed: MultiplexedConnection,
    reader: JoinHandle<()>,
    address: RedisAddress,
}

impl RedisConnection {
    /// Connects and signs in. A command fails if its response takes longer than `response_timeout`. The connection is
    /// for database 0.
    ///
    /// # Errors
    /// The reason, without credentials.
    pub async fn open(
        address: &RedisAddress,
        pushed: Option<impl AsyncPushSender>,
        response_timeout: Duration,
    ) -> Result<Self, Box<str>> {
        Self::open_database(address, 0, pushed, Some(response_timeout)).await
    }

    /// Connects, signs in and selects a database, as [`RedisConnection::open`] does. Without a `response_timeout`
    /// commands wait until the connection ends.
    ///
    /// # Errors
    /// The reason, without credentials.
    pub async fn open_database(
        address: &RedisAddress,
        database: u16,
        pushed: Option<impl AsyncPushSender>,
        response_timeout: Option<Duration>,
    ) -> Result<Self, Box<str>> {
        let stream = address.connect(CONNECT_TIMEOUT).await.map_err(|error| error.to_string())?;
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(response_timeout)
            .set_pipeline_buffer_size(WAITING_MAX);
        if let Some(pushed) = pushed {
            config = config.set_push_sender(pushed);
        }
        let hello = address.handshake(database);
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

    /// Returns the server.
    pub fn address(&self) -> &RedisAddress {
        &self.address
    }

    /// Opens another connection to the same server with its own maximum time for responses.
    ///
    /// # Errors
    /// The reason, without credentials.
    pub async fn open_another(&self, response_timeout: Duration) -> Result<Self, Box<str>> {
        Self::open(&self.address, NO_PUSHES, response_timeout).await
    }

    /// Resolves to the reason when the connection cannot be used any more.
    pub async fn wait_lost(&mut self) -> Box<str> {
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

    /// Resolves when the other side has closed the connection, or when it cannot be read.
    pub async fn wait_closed(&mut self) {
        // The task ends without a result; it is aborted by `close` only, which owns the connection.
        let _ = (&mut self.reader).await;
    }

    /// Checks that the server is a master. Sentinels may not have noticed yet that it no longer is.
    ///
    /// # Errors
    /// It is not, or did not respond.
    pub async fn confirm_master(&mut self) -> Result<(), Box<str>> {
        let role = redis::cmd("ROLE");
        let response = self.multiplexed.send_packed_command(&role).await;
        let is_master = match response.map_err(|error| error_text(&error))? {
            Value::Array(parts) => {
                parts.first().is_some_and(|role| *role == Value::BulkString(b"master".into()))
            }
            _ => false,
        };
        if is_master { Ok(()) } else { Err("the server is not the master".into()) }
    }

    /// Closes the connection. Nothing is read after this.
    pub async fn close(self) {
        if !self.reader.is_finished() {
            self.reader.abort();
            // The task ends with an error because it was aborted.
            let _ = self.reader.await;
        }
    }
}

/// Returns the broker's words when it refused a command that contains no secrets.
pub fn error_text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) if error.is_io_error() => LOST.to_owned(),
        (None, _) => error.to_string(),
    }
}

/// True if the error is a response to the command and the connection still works.
pub fn is_refusal(error: &RedisError) -> bool {
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

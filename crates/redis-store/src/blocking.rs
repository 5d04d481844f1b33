//! A connection of its own for commands that wait at the server, such as `XREAD BLOCK`. On the connection that all
//! threads share, they would delay every other command.

use std::sync::Arc;
use std::time::Duration;

use redis_connection::{NO_PUSHES, RedisConnection, error_text, is_refusal};
use tokio::time::timeout;

use crate::command::Command;
use crate::reply::{ConnectionLoss, Reply, StoreError};

/// A connection to the server of one key. Dropping it closes the connection.
#[derive(Debug)]
pub struct BlockingConnection {
    // Dropping the last handle for commands ends the task that reads.
    connection: RedisConnection,
    namespace: Box<str>,
}

impl BlockingConnection {
    pub(crate) async fn open(
        address: &redis_connection::RedisAddress,
        namespace: &str,
    ) -> Result<Self, StoreError> {
        let opened =
            RedisConnection::open_database(address, address.database(), NO_PUSHES, None).await;
        let connection = opened.map_err(disconnected)?;
        Ok(Self { connection, namespace: namespace.into() })
    }

    /// Sends a command and waits for its reply for at most `limit`, which must be longer than the command waits at the
    /// server. After an error other than [`StoreError::Refused`] the connection should be dropped.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn run(&mut self, command: &Command, limit: Duration) -> Result<Reply, StoreError> {
        let command = command.encode(&self.namespace, true);
        match timeout(limit, self.connection.multiplexed.send_packed_command(&command)).await {
            Ok(Ok(redis::Value::ServerError(error))) => {
                Err(StoreError::Refused(error.code().into()))
            }
            Ok(Ok(value)) => Reply::from_value(value),
            Ok(Err(error)) if is_refusal(&error) => {
                Err(StoreError::Refused(error.code().unwrap_or("ERR").into()))
            }
            Ok(Err(error)) => Err(disconnected(error_text(&error))),
            Err(_) => Err(StoreError::Timeout(limit)),
        }
    }
}

/// Returns the error of a connection that failed for this reason.
fn disconnected(reason: impl Into<Arc<str>>) -> StoreError {
    StoreError::Disconnected(ConnectionLoss::other(reason))
}

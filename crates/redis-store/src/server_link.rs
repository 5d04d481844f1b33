//! The connection to one server: a task that connects, watches and connects again, and the state that callers use.
//!
//! The circuit breaker is open whenever there is no usable connection. Clients' commands never find out whether the
//! server works again: the task does, by connecting and by a `PING` within the time limit of commands. A server that
//! was late and has caught up on the same connection is used again at once: on a busy machine a pause of some
//! milliseconds is common, and until the router has connected again, the commands of a tenth of a second fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use redis_connection::{
    NO_PUSHES, RedisAddress, RedisConnection, ServerSource, error_text, is_refusal,
};
use telemetry::LogLimit;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::breaker::Breaker;
use crate::reply::{ConnectionLoss, StoreError};
use crate::stats::StoreStats;

/// The interval at which a connection is checked, so that one over a dead network is noticed before commands fail.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a connection counts as stable, so that the next failure is the first one again. Without it, a
/// server that is just too slow would be connected to without pause.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The time limits of commands in which a late server has to catch up. No caller waits meanwhile.
const CATCH_UP_LIMITS: u32 = 5;

/// The minimum time between two times at which a server catches up, in time limits of commands. A server that is late
/// more often is treated as absent: each time costs the commands in flight their time limit.
const CATCH_UP_INTERVAL_LIMITS: u32 = 10;

/// The longest wait for replies after their time limit.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The maximum number of runs of which replies are awaited after their time limit, for each server: a megabyte.
const LATE_RUNS_MAX: usize = 1000;

/// Gets the replies of a run that came after the time limit, which may be errors of the server.
pub(crate) type LateHandler = Arc<dyn Fn(Vec<Value>) + Send + Sync>;

/// The settings that the links of one store share.
pub(crate) struct LinkSettings {
    pub(crate) timeout: Duration,
    pub(crate) retry_initial: Duration,
    pub(crate) retry_max: Duration,
    pub(crate) stats: Arc<StoreStats>,
    /// Notified when a server of a cluster is lost: its slots may belong to another one now.
    pub(crate) on_lost: Notify,
    pub(crate) log: StoreLog,
}

/// The log lines about the connections of one store. During an outage there is one per interval.
pub(crate) struct StoreLog {
    /// The name of the store.
    store: Box<str>,
    /// True if some connection was made.
    was_connected: AtomicBool,
    failures: LogLimit,
}

impl StoreLog {
    pub(crate) fn new(store: Box<str>) -> Self {
        Self { store, was_connected: AtomicBool::new(false), failures: LogLimit::new() }
    }

    /// Logs that a connection could not be made, was lost, or has no map of slots.
    pub(crate) fn log_failure(&self, server: &str, reason: &str, problem: &'static str) {
        let store = &*self.store;
        match self.failures.record(1, std::time::Instant::now()) {
            Some(failures) => tracing::warn!(store, server, reason, failures, "{problem}"),
            None => tracing::debug!(store, server, reason, "{problem}"),
        }
    }

    /// Logs a connection. The first one is reported at once, and later ones by [`StoreLog::report_recovery`].
    fn log_connected(&self, server: &str) {
        let store = &*self.store;
        match self.was_connected.swap(true, Ordering::Relaxed) {
            true => tracing::debug!(store, server, "connected to the store again"),
            false => tracing::info!(store, server, "connected to the store"),
        }
    }

    /// Waits until nothing may have failed for a while, and then logs that the connection works again, if it did not
    /// before. Dropped when the connection is lost.
    async fn report_recovery(&self, server: &str) {
        sleep(LogLimit::QUIET_TIME).await;
        if let Some(failures) = self.failures.record_success(std::time::Instant::now) {
            let store = &*self.store;
            tracing::info!(store, server, failures, "the connection to the store works again");
        }
    }
}

/// The connection to one server. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct ServerLink {
    shared: Arc<LinkState>,
    task: AbortHandle,
    /// Runs the tasks that await late replies.
    runtime: Handle,
    /// The room for such tasks.
    late_runs: Arc<Semaphore>,
}

struct LinkState {
    settings: Arc<LinkSettings>,
    state: ArcSwap<Connection>,
}

impl std::fmt::Debug for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkState").finish_non_exhaustive()
    }
}

#[expect(clippy::large_enum_variant, reason = "one for each server, behind an `Arc`")]
enum Connection {
    Usable(UsableConnection),
    /// There is none, for this reason.
    Lost(ConnectionLoss),
}

struct UsableConnection {
    commands: MultiplexedConnection,
    server: RedisAddress,
    breaker: Breaker,
    /// Notified when the breaker has opened because of a late reply.
    late: Notify,
    /// Notified when the breaker has opened for another reason.
    failed: Notify,
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        self.task.abort();
        let closed = ConnectionLoss::other("the store was closed");
        self.shared.state.store(Arc::new(Connection::Lost(closed)));
    }
}

impl ServerLink {
    /// Starts connecting to a server, by a task of that runtime.
    pub(crate) fn start(
        source: ServerSource,
        settings: &Arc<LinkSettings>,
        runtime: &Handle,
    ) -> Self {
        let not_yet = ConnectionLoss::other("not connected yet");
        let shared = Arc::new(LinkState {
            settings: Arc::clone(settings),
            state: ArcSwap::from_pointee(Connection::Lost(not_yet)),
        });
        let task = runtime.spawn(keep_connected(source, Arc::clone(&shared))).abort_handle();
        let late_runs = Arc::new(Semaphore::new(LATE_RUNS_MAX));
        Self { shared, task, runtime: runtime.clone(), late_runs }
    }

    /// True if commands can be sent.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&**self.shared.state.load(), Connection::Usable(_))
    }

    /// Returns the server to which commands are sent at present.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn server(&self) -> Result<RedisAddress, StoreError> {
        match &**self.shared.state.load() {
            Connection::Usable(usable) => Ok(usable.server.clone()),
            Connection::Lost(loss) => Err(StoreError::Disconnected(loss.clone())),
        }
    }

    /// Sends commands in one piece, and returns their `count` replies, which may be errors of the server. Replies that
    /// come within a second after the deadline are passed to `on_late`, on the runtime of the store.
    ///
    /// # Errors
    /// There is no connection, or not all replies before the deadline.
    pub(crate) async fn send(
        &self,
        commands: Pipeline,
        count: usize,
        deadline: Instant,
        on_late: Option<&LateHandler>,
    ) -> Result<Vec<Value>, StoreError> {
        let state = self.shared.state.load_full();
        let usable = match &*state {
            Connection::Usable(usable) => usable,
            Connection::Lost(loss) => return Err(StoreError::Disconnected(loss.clone())),
        };
        let mut connection = usable.commands.clone();
        let mut sending =
            Box::pin(async move { connection.send_packed_commands(&commands, 0, count).await });
        let replies = timeout_at(deadline, &mut sending).await;
        match replies {
            Ok(Ok(values)) => {
                match values.iter().any(is_unavailable) {
                    true => self.shared.record_failure(&state, usable, "it cannot serve now"),
                    false => usable.breaker.record_success(),
                }
                Ok(values)
            }
            Ok(Err(error)) if is_refusal(&error) => {
                usable.breaker.record_success();
                Err(StoreError::Refused(error.code().unwrap_or("ERR").into()))
            }
            Ok(Err(error)) => {
                let reason = error_text(&error);
                self.shared.record_failure(&state, usable, &reason);
                Err(StoreError::Disconnected(match &**self.shared.state.load() {
                    // The reason why the connection was closed, such as a late server.
                    Connection::Lost(loss) => loss.clone(),
                    Connection::Usable(_) => ConnectionLoss::other(reason),
                }))
            }
            Err(_) => {
                self.shared.record_late(&state, usable);
                if let Some(on_late) = on_late {
                    self.await_late(sending, Arc::clone(on_late));
                }
                Err(StoreError::Timeout(self.shared.settings.timeout))
            }
        }
    }

    /// Has a task await replies after their time limit, unless too many are awaited.
    fn await_late(
        &self,
        sending: impl Future<Output = RedisResult<Vec<Value>>> + Send + 'static,
        on_late: LateHandler,
    ) {
        let Ok(room) = Arc::clone(&self.late_runs).try_acquire_owned() else { return };
        self.runtime.spawn(async move {
            // Without replies there is nothing to pass on: the connection has ended, or the server hangs.
            if let Ok(Ok(values)) = timeout(LATE_MAX, sending).await {
                on_late(values);
            }
            drop(room);
        });
    }
}

/// True if the server says that another one should be used, or none for a while.
fn is_unavailable(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    matches!(error.code(), "READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH")
}

impl LinkState {
    /// Counts a failure of a connection, and closes it if it has failed too often.
    fn record_failure(&self, state: &Arc<Connection>, usable: &UsableConnection, reason: &str) {
        self.count_failure(state, usable, || ConnectionLoss::other(reason), &usable.failed);
    }

    /// Counts a reply that did not come in time, and has the server catch up if that happened too often.
    fn record_late(&self, state: &Arc<Connection>, usable: &UsableConnection) {
        self.count_failure(state, usable, || ConnectionLoss::Late, &usable.late);
    }

    fn count_failure(
        &self,
        state: &Arc<Connection>,
        usable: &UsableConnection,
        loss: impl FnOnce() -> ConnectionLoss,
        opened: &Notify,
    ) {
        if usable.breaker.record_failure() {
            self.settings.stats.breaker_opened.fetch_add(1, Ordering::Relaxed);
            self.lose(state, loss());
            opened.notify_one();
        }
    }

    /// Replaces a connection by the reason why it cannot be used, unless that has happened.
    fn lose(&self, state: &Arc<Connection>, loss: ConnectionLoss) {
        let lost = Arc::new(Connection::Lost(loss));
        let previous = self.state.compare_and_swap(state, lost);
        if Arc::ptr_eq(&previous, state) && matches!(**state, Connection::Usable(_)) {
            self.settings.on_lost.notify_one();
        }
    }
}

/// Connects, again and again, until the link is dropped.
async fn keep_connected(source: ServerSource, link: Arc<LinkState>) {
    let settings = &link.settings;
    let (mut failures, mut attempts) = (0_u32, 0_usize);
    let mut stale_before = Instant::now();
    loop {
        let (server, outcome) = connect(&source, attempts, stale_before, settings.timeout).await;
        match outcome {
            Ok(mut connection) => {
                settings.stats.connected.fetch_add(1, Ordering::Relaxed);
                settings.log.log_connected(&server);
                let since = Instant::now();
                let reason = {
                    let serving = serve(&link, &mut connection);
                    tokio::pin!(serving);
                    tokio::select! {
                        reason = &mut serving => reason,
                        () = settings.log.report_recovery(&server) => serving.await,
                    }
                };
                let problem = "the connection to the store was lost; connecting again";
                settings.log.log_failure(&server, &reason.to_string(), problem);
                connection.close().await;
                if since.elapsed() >= STABLE_AFTER {
                    failures = 0;
                }
            }
            Err(reason) => {
                settings.stats.connection_failures.fetch_add(1, Ordering::Relaxed);
                let problem = "no connection to the store; trying again";
                settings.log.log_failure(&server, &reason.to_string(), problem);
                let state = link.state.load_full();
                link.lose(&state, reason);
                attempts = attempts.wrapping_add(1);
            }
        }
        stale_before = Instant::now();
        sleep_until(stale_before + delay(settings, failures)).await;
        failures = failures.saturating_add(1);
    }
}

/// Returns the delay after so many failures. It is between half of the nominal delay and the whole, so that routers
/// that lost the same server do not come back at the same moment.
fn delay(settings: &LinkSettings, failures: u32) -> Duration {
    let nominal = settings.retry_initial.saturating_mul(2_u32.saturating_pow(failures));
    nominal.min(settings.retry_max.max(settings.retry_initial)).mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Makes one attempt to connect to a server that responds in time. Returns the name of the server, too.
async fn connect(
    source: &ServerSource,
    attempt: usize,
    since: Instant,
    limit: Duration,
) -> (String, Result<RedisConnection, ConnectionLoss>) {
    let address = match source.find_server(attempt, since).await {
        Ok(address) => address,
        Err(reason) => return (String::new(), Err(ConnectionLoss::other(reason))),
    };
    (address.display_name(), open(&address, source.is_master(), limit).await)
}

async fn open(
    address: &RedisAddress,
    needs_master: bool,
    limit: Duration,
) -> Result<RedisConnection, ConnectionLoss> {
    let opened = RedisConnection::open_database(address, address.database(), NO_PUSHES, None).await;
    let mut connection = opened.map_err(ConnectionLoss::other)?;
    let ping = redis::cmd("PING");
    // The first command of a connection may take longer than later ones.
    let check = async {
        if needs_master {
            connection.confirm_master().await?;
        }
        connection
            .multiplexed
            .send_packed_command(&ping)
            .await
            .map_err(|error| error_text(&error))?;
        Ok::<(), Box<str>>(())
    };
    let checked = match timeout(2 * limit, check).await {
        Ok(checked) => checked.map_err(ConnectionLoss::other),
        Err(_) => Err(ConnectionLoss::Late),
    };
    match checked {
        Ok(()) => Ok(connection),
        Err(loss) => {
            connection.close().await;
            Err(loss)
        }
    }
}

/// Lets callers use a connection until it is lost, and returns the reason. While a late server catches up, commands
/// fail at once.
async fn serve(link: &Arc<LinkState>, connection: &mut RedisConnection) -> ConnectionLoss {
    let settings = &link.settings;
    let interval = settings.timeout.saturating_mul(CATCH_UP_INTERVAL_LIMITS);
    let mut caught_up: Option<Instant> = None;
    loop {
        let loss = serve_until_lost(link, connection).await;
        let is_rare = caught_up.is_none_or(|at| at.elapsed() >= interval);
        let is_late = loss == ConnectionLoss::Late;
        if !(is_late && is_rare && catches_up(connection, settings.timeout).await) {
            return loss;
        }
        caught_up = Some(Instant::now());
        tracing::debug!(store = %settings.log.store, "the store was late and has caught up");
    }
}

/// True if a late server responds to what it has got, and then again within the time limit of commands.
async fn catches_up(connection: &mut RedisConnection, limit: Duration) -> bool {
    let mut pinged = connection.multiplexed.clone();
    let pings = async {
        let ping = redis::cmd("PING");
        // Replies have the order of commands: the first one comes after those that are late.
        for limit in [limit.saturating_mul(CATCH_UP_LIMITS), limit] {
            if !matches!(timeout(limit, pinged.send_packed_command(&ping)).await, Ok(Ok(_))) {
                return false;
            }
        }
        true
    };
    tokio::select! {
        () = connection.wait_closed() => false,
        has_caught_up = pings => has_caught_up,
    }
}

/// Lets callers use a connection until it is lost or the server is late too often.
async fn serve_until_lost(
    link: &Arc<LinkState>,
    connection: &mut RedisConnection,
) -> ConnectionLoss {
    let settings = &link.settings;
    let state = Arc::new(Connection::Usable(UsableConnection {
        commands: connection.multiplexed.clone(),
        server: connection.address().clone(),
        breaker: Breaker::default(),
        late: Notify::new(),
        failed: Notify::new(),
    }));
    let Connection::Usable(usable) = &*state else { unreachable!("it was created as usable") };
    link.state.store(Arc::clone(&state));
    let mut pinged = connection.multiplexed.clone();
    let pings = async {
        let ping = redis::cmd("PING");
        loop {
            sleep_until(Instant::now() + PING_INTERVAL).await;
            match timeout(settings.timeout, pinged.send_packed_command(&ping)).await {
                Ok(Ok(_)) => usable.breaker.record_success(),
                Ok(Err(error)) => link.record_failure(&state, usable, &error_text(&error)),
                Err(_) => link.record_late(&state, usable),
            }
        }
    };
    let loss = tokio::select! {
        () = connection.wait_closed() => {
            ConnectionLoss::other("the server has closed the connection")
        }
        () = usable.failed.notified() => match &**link.state.load() {
            Connection::Lost(loss) => loss.clone(),
            Connection::Usable(_) => ConnectionLoss::other("it cannot serve now"),
        },
        () = usable.late.notified() => ConnectionLoss::Late,
        () = pings => ConnectionLoss::other(""),
    };
    link.lose(&state, loss.clone());
    loss
}

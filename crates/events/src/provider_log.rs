//! The log lines about one broker that an outage or clients would otherwise repeat without limit: about its
//! connections, about refused subscriptions, and about lost events.
//!
//! Topics may contain values of clients. They appear in debug lines only; warnings have the topic of the schema.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use telemetry::LogLimit;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::ProviderStats;

/// The log lines of one provider. All of its connections share them.
#[derive(Debug)]
pub(crate) struct ProviderLog {
    provider: Box<str>,
    /// Know the topics of schemas.
    stats: Arc<ProviderStats>,
    /// True if some connection was made.
    was_connected: AtomicBool,
    /// Connections that could not be made, or were lost.
    connection_failures: LogLimit,
    /// Subscriptions and streams that the broker refuses or ends. Clients choose their topics.
    refusals: LogLimit,
    /// Streams for which JetStream has no consumer at present.
    consumer_failures: LogLimit,
    /// Events that streams have lost.
    gaps: LogLimit,
    /// The task that reports that the connection works again, once it has for a while.
    recovery: Mutex<Option<AbortHandle>>,
}

/// The connection that a log line is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedConnection<'a> {
    /// The use of the connection, if the provider has several.
    pub(crate) purpose: Option<&'a str>,
    /// The server, without credentials. Empty if none is known.
    pub(crate) server: &'a str,
}

impl ProviderLog {
    pub(crate) fn new(provider: &str, stats: Arc<ProviderStats>) -> Arc<Self> {
        Arc::new(Self {
            provider: provider.into(),
            stats,
            was_connected: AtomicBool::new(false),
            connection_failures: LogLimit::new(),
            refusals: LogLimit::new(),
            consumer_failures: LogLimit::new(),
            gaps: LogLimit::new(),
            recovery: Mutex::new(None),
        })
    }

    /// Returns the name of the provider.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Logs that a connection could not be made.
    pub(crate) fn log_failed_attempt(&self, connection: LoggedConnection<'_>, reason: &str) {
        let problems =
            ("no connection to the broker; trying again", "still no connection to the broker");
        self.log_connection_failure(connection, reason, None, problems);
    }

    /// Logs that a connection was lost, and the number of streams that used it.
    pub(crate) fn log_lost(
        &self,
        connection: LoggedConnection<'_>,
        reason: &str,
        streams: Option<usize>,
    ) {
        let problems = (
            "lost the connection to the broker; connecting again",
            "lost the connection to the broker again",
        );
        self.log_connection_failure(connection, reason, streams, problems);
    }

    /// Logs a failure of a connection: with the first text of `problems` if a warning is due, else with the second one.
    fn log_connection_failure(
        &self,
        connection: LoggedConnection<'_>,
        reason: &str,
        streams: Option<usize>,
        (problem, repeated): (&'static str, &'static str),
    ) {
        let LoggedConnection { purpose, server } = connection;
        let provider = self.provider();
        match self.record_connection_failure(Instant::now()) {
            Some(failures) => {
                tracing::warn!(provider, purpose, server, reason, streams, failures, "{problem}");
            }
            None => tracing::debug!(provider, purpose, server, reason, streams, "{repeated}"),
        }
    }

    /// Logs a connection. The first one is reported at once. That connections work again after failures is reported
    /// when nothing has failed for a while: a broker that accepts connections and drops them would otherwise cause a
    /// line for each. Must be called inside a Tokio runtime.
    pub(crate) fn log_connected(self: &Arc<Self>, connection: LoggedConnection<'_>) {
        let LoggedConnection { purpose, server } = connection;
        let provider = self.provider();
        if self.was_connected.swap(true, Ordering::Relaxed) {
            tracing::debug!(provider, purpose, server, "connected to the broker again");
        } else {
            tracing::info!(provider, purpose, server, "connected to the broker");
        }
        let (log, server) = (Arc::downgrade(self), Box::<str>::from(server));
        let reporting = tokio::spawn(async move {
            sleep(LogLimit::QUIET_TIME).await;
            if let Some(log) = log.upgrade() {
                log.report_recovery(&server, Instant::now());
            }
        });
        if let Some(previous) = self.lock_recovery().replace(reporting.abort_handle()) {
            previous.abort();
        }
    }

    /// Logs that the broker refuses a subscription or a publication, or ends a subscription. A reason may contain the
    /// topic. An empty topic is unknown.
    pub(crate) fn log_refusal(&self, topic: &str, reason: &str, problem: &'static str) {
        self.log_topic_problem(&self.refusals, topic, (reason, topic), problem);
    }

    /// Logs that streams of a topic have lost events. The reason does not contain the topic. An empty topic is unknown.
    pub(crate) fn log_gap(&self, topic: &str, reason: &str, problem: &'static str) {
        self.log_topic_problem(&self.gaps, topic, (reason, ""), problem);
    }

    /// Logs a problem with a topic. All lines have the reason without the text `hidden`. Warnings have the topic of the
    /// schema, and debug lines the masked one.
    fn log_topic_problem(
        &self,
        limit: &LogLimit,
        topic: &str,
        (reason, hidden): (&str, &str),
        problem: &'static str,
    ) {
        let provider = self.provider();
        let reason = &*hide_topic(reason, hidden);
        if let Some(suppressed) = limit.admit(Instant::now()) {
            let topic = self.stats.schema_topic(topic);
            tracing::warn!(provider, topic = topic.as_deref(), reason, suppressed, "{problem}");
        }
        // A masked topic costs an allocation. Only an enabled line evaluates its fields.
        tracing::debug!(provider, topic = self.masked(topic), reason, "{problem}");
    }

    /// Returns a topic without values of clients; `None` for an empty one, which is unknown.
    fn masked(&self, topic: &str) -> Option<String> {
        (!topic.is_empty()).then(|| self.stats.masked_topic(topic))
    }

    /// Logs that JetStream has no consumer for a stream. A reason may contain a subject in quotes.
    pub(crate) fn log_no_consumer(&self, reason: &str) {
        let provider = self.provider();
        let reason = &*hide_topic(reason, quoted_part(reason).unwrap_or_default());
        match self.consumer_failures.record(1, Instant::now()) {
            Some(failures) => {
                tracing::warn!(
                    provider,
                    reason,
                    failures,
                    "no consumer of JetStream; trying again"
                );
            }
            None => tracing::debug!(provider, reason, "still no consumer of JetStream"),
        }
    }

    /// Counts a failure of a connection. If a line is due, returns the number of failures to report.
    fn record_connection_failure(&self, now: Instant) -> Option<u64> {
        if let Some(recovery) = self.lock_recovery().take() {
            recovery.abort();
        }
        self.connection_failures.record(1, now)
    }

    /// Logs that connections work again, with the number of failures: once for each outage, after a quiet time.
    fn report_recovery(&self, server: &str, now: Instant) {
        if let Some(failures) = self.connection_failures.record_success(|| now) {
            let provider = self.provider();
            tracing::info!(provider, server, failures, "the connection to the broker works again");
        }
    }

    /// Forgets the failures of connections without a line, because lines about single brokers have reported their end.
    #[cfg(feature = "kafka")]
    pub(crate) fn forget_connection_failures(&self, now: Instant) {
        self.connection_failures.record_success(|| now);
    }

    /// Locks the recovery. No code panics under this lock, so a poisoned lock holds a valid value.
    fn lock_recovery(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a reason without the topic that it may contain, as it is or with escaped characters.
pub(crate) fn hide_topic<'r>(reason: &'r str, topic: &str) -> Cow<'r, str> {
    if topic.is_empty() {
        return reason.into();
    }
    let quoted = format!("{topic:?}");
    let escaped = &quoted[1..quoted.len() - 1];
    match reason.contains(topic) || reason.contains(escaped) {
        true => reason.replace(escaped, "…").replace(topic, "…").into(),
        false => reason.into(),
    }
}

/// Returns a reason without these topics.
pub(crate) fn hide_topics(reason: &str, topics: &[Box<str>]) -> String {
    let mut topics: Vec<&str> = topics.iter().map(|it| &**it).collect();
    // A topic may begin with another one.
    topics.sort_unstable_by_key(|it| Reverse(it.len()));
    topics.iter().fold(reason.to_owned(), |reason, topic| hide_topic(&reason, topic).into_owned())
}

/// Returns the part between the first and the last quote, such as the subject in `Permissions Violation for Publish to
/// "orders"`. A subject may contain quotes.
pub(crate) fn quoted_part(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('"')?;
    rest.rsplit_once('"').map(|(part, _)| part)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{self, Write};
    use std::time::Duration;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    const BROKER: LoggedConnection<'_> = LoggedConnection { purpose: None, server: "broker:4222" };

    /// The lines of a log.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for &Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Lines {
        type Writer = &'w Self;

        fn make_writer(&'w self) -> Self::Writer {
            self
        }
    }

    /// Returns the lines, without debug lines, that `log` writes.
    pub(crate) fn captured(log: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(lines.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn an_outage_is_one_warning_per_interval_whatever_its_reasons_and_losses_are() {
        let log = ProviderLog::new("nats/default", Arc::default());
        let lines = captured(|| {
            for _ in 0..100 {
                log.log_failed_attempt(BROKER, "connection refused");
                log.log_failed_attempt(BROKER, "timed out");
                log.log_lost(BROKER, "the connection was lost", Some(3));
            }
        });
        let expected = "WARN no connection to the broker; trying again provider=\"nats/default\" \
                        server=\"broker:4222\" reason=\"connection refused\" failures=1";
        assert_eq!(lines, [expected]);
        let later = Instant::now() + LogLimit::QUIET_TIME;
        assert_eq!(log.record_connection_failure(later), Some(300), "the others are counted");
    }

    #[test]
    fn a_recovery_is_reported_after_a_quiet_time_with_the_number_of_failures() {
        let log = ProviderLog::new("nats/default", Arc::default());
        let lines = captured(|| {
            log.log_lost(BROKER, "the connection was lost", None);
            log.log_failed_attempt(BROKER, "connection refused");
            log.report_recovery("broker:4222", Instant::now());
            log.report_recovery("broker:4222", Instant::now() + LogLimit::QUIET_TIME);
            log.report_recovery("broker:4222", Instant::now() + Duration::from_secs(3600));
        });
        let lost = "WARN lost the connection to the broker; connecting again provider=\"nats/default\" \
                    server=\"broker:4222\" reason=\"the connection was lost\" failures=1";
        let recovered = "INFO the connection to the broker works again provider=\"nats/default\" \
                         server=\"broker:4222\" failures=2";
        assert_eq!(lines, [lost, recovered]);
    }

    #[test]
    fn the_quoted_part_of_a_reason_is_hidden() {
        let text = "Permissions Violation for Publish to \"orders.7\"";
        assert_eq!(quoted_part(text), Some("orders.7"));
        assert_eq!(hide_topic(text, "orders.7"), "Permissions Violation for Publish to \"…\"");
        assert_eq!(quoted_part("Stale Connection"), None);
        assert_eq!(hide_topic("Stale Connection", ""), "Stale Connection");
        let text = r#"Permissions Violation for Publish to "a"s3cret""#;
        assert_eq!(quoted_part(text), Some(r#"a"s3cret"#));
    }

    #[test]
    fn topics_are_hidden_whatever_their_characters_and_their_order_are() {
        let topic = r#"a"s3cret\b"#;
        for reason in [format!("no {topic:?} here"), format!("no \"{topic}\" here")] {
            assert_eq!(hide_topic(&reason, topic), r#"no "…" here"#);
        }
        let topics: [Box<str>; 2] = ["moved.1".into(), "moved.12".into()];
        assert_eq!(hide_topics("no moved.12, no moved.1", &topics), "no …, no …");
    }

    #[test]
    fn refusals_are_one_warning_per_interval_without_the_topics_that_clients_choose() {
        let stats = Arc::new(ProviderStats::default());
        stats.register_topic("moved.{{args.id}}", &["moved.".to_owned(), String::new()]);
        let log = ProviderLog::new("redis/default", stats);
        let lines = captured(|| {
            for number in 0..100 {
                let topic = format!("moved.secret-{number}");
                let reason = format!("no permission to read \"{topic}\"");
                log.log_refusal(&topic, &reason, "the broker refuses a subscription");
            }
        });
        let expected = "WARN the broker refuses a subscription provider=\"redis/default\" \
                        topic=\"moved.{{args.id}}\" reason=\"no permission to read \\\"…\\\"\" suppressed=0";
        assert_eq!(lines, [expected]);
    }
}

//! Subscribers that stay connected over WebSocket during a surge. They are clients of [`crate::subscriptions`], in a
//! thread of their own; whatever events the server sends are counted.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::report::subscriptions::{SubscriptionInterval, SubscriptionRun};
use crate::report::{SurgeSubscribers, SurgeSubscribersInterval};
use crate::subscriptions::{
    self, Scenario, Subscription, SubscriptionRunError, SubscriptionSettings, SubscriptionTarget,
};

/// The maximum number of subscribers beside a surge; more have a command of their own.
pub const SUBSCRIBERS_MAX: usize = 20_000;

/// The time in which all subscribers must be connected before the surge begins.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The subscribers of a surge.
#[derive(Debug, Clone)]
pub struct SurgeSubscriptions {
    /// The endpoint that they connect to.
    pub target: SubscriptionTarget,
    /// The GraphQL text of the subscription.
    pub query: String,
    /// The number of subscribers, from 1 to [`SUBSCRIBERS_MAX`].
    pub count: usize,
}

/// The latest state of the thread, and a signal for its changes.
#[derive(Default)]
struct SharedState {
    state: Mutex<LatestState>,
    changed: Condvar,
}

#[derive(Default)]
struct LatestState {
    interval: Option<SubscriptionInterval>,
    has_ended: bool,
}

/// Subscribers that are connected.
pub(super) struct ConnectedSubscribers {
    thread: JoinHandle<Result<SubscriptionRun, SubscriptionRunError>>,
    shared: Arc<SharedState>,
    wanted: usize,
}

impl ConnectedSubscribers {
    /// Connects the subscribers and waits until all are subscribed. They stay for `hold` at least.
    ///
    /// # Errors
    /// A message: they cannot subscribe, or not in time.
    pub(super) fn connect(settings: &SurgeSubscriptions, hold: Duration) -> Result<Self, String> {
        let wanted = settings.count;
        if !(1..=SUBSCRIBERS_MAX).contains(&wanted) {
            return Err(format!("the number of subscribers must be from 1 to {SUBSCRIBERS_MAX}"));
        }
        let settings = subscription_settings(settings, hold);
        let shared = Arc::new(SharedState::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("subscribers".to_owned()).spawn(move || {
            let run = subscriptions::run(&settings, |interval| {
                of_thread.update(|state| state.interval = Some(interval.clone()));
            });
            of_thread.update(|state| state.has_ended = true);
            run
        });
        let thread = thread.map_err(|error| format!("no thread for subscribers: {error}"))?;
        let subscribers = Self { thread, shared, wanted };
        match subscribers.wait_until_subscribed() {
            (_, true) => match subscribers.finish() {
                Ok(ended) => Err(describe_early_end(&ended)),
                Err(message) => Err(message),
            },
            (subscribed, false) if subscribed < wanted => Err(format!(
                "only {subscribed} of {wanted} subscribers were connected within {JOIN_TIMEOUT:?}"
            )),
            _ => Ok(subscribers),
        }
    }

    /// Returns the number of subscribers, and whether the thread has ended, once all are subscribed or the time is
    /// over.
    fn wait_until_subscribed(&self) -> (usize, bool) {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let interval = state.interval.as_ref();
            let subscribed = interval.map_or(0, |interval| interval.subscribed as usize);
            let left = deadline.saturating_duration_since(Instant::now());
            if subscribed >= self.wanted || state.has_ended || left.is_zero() {
                return (subscribed, state.has_ended);
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of subscribers and their results in the latest second.
    pub(super) fn latest(&self) -> Option<SurgeSubscribersInterval> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.interval.as_ref().map(|interval| SurgeSubscribersInterval {
            subscribed: interval.subscribed,
            results_per_second: interval.deliveries_per_second,
        })
    }

    /// Waits until the subscribers have ended and returns what happened to them.
    ///
    /// # Errors
    /// The message of the run.
    pub(super) fn finish(self) -> Result<SurgeSubscribers, String> {
        let run =
            self.thread.join().map_err(|_| "the thread of subscribers panicked".to_owned())?;
        let run = run.map_err(|error| error.to_string())?;
        Ok(SurgeSubscribers {
            wanted: self.wanted as u64,
            subscribed: run.subscribed,
            ended: run.ends,
            example: run.example,
        })
    }
}

/// Says why subscribers have ended before the surge.
fn describe_early_end(subscribers: &SurgeSubscribers) -> String {
    let reasons = subscribers.ended.iter().map(|end| format!("{} × {}", end.count, end.what));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let example = subscribers.example.as_deref().unwrap_or_default();
    format!("the subscribers cannot stay subscribed: {reasons} {example}").trim_end().to_owned()
}

impl SharedState {
    fn update(&self, change: impl FnOnce(&mut LatestState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Returns the settings of subscribers that stay and publish nothing.
fn subscription_settings(settings: &SurgeSubscriptions, hold: Duration) -> SubscriptionSettings {
    SubscriptionSettings {
        name: "subscribers".to_owned(),
        target: settings.target.clone(),
        subscription: Subscription {
            query: settings.query.clone(),
            keys: 1,
            distinct: 1,
            ..Subscription::default()
        },
        clients: settings.count,
        scenario: Scenario::Idle,
        events: None,
        event_count: 0,
        rate: 1.0,
        hold,
        slow_share: 0.0,
        churn_rate: 1.0,
        duration: hold,
        window: 1,
        sources: None,
        timeout: JOIN_TIMEOUT,
        retries: 0,
        quiet: Duration::from_secs(1),
        pid: None,
        never_sleeps: false,
    }
}

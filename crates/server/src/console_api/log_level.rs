//! The level of the log, changed for a limited time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use telemetry::logging::{self, LevelFilter};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Level;

/// The longest time in minutes: a level that was forgotten must not fill a disk.
const MINUTES_MAX: u64 = 60;

/// The level that was set by an operator. When its time is over, the one of the start counts again.
#[derive(Debug, Clone)]
pub(super) struct TemporaryLevel {
    changed: Arc<Mutex<Option<ChangedLevel>>>,
    /// Sets the level of the log, or without one restores that of the start. Returns false if that is not possible.
    apply: fn(Option<LevelFilter>) -> bool,
}

#[derive(Debug)]
struct ChangedLevel {
    level: LevelFilter,
    until: Instant,
    /// The task that ends it.
    end: AbortHandle,
}

impl Default for TemporaryLevel {
    fn default() -> Self {
        Self { changed: Arc::default(), apply: logging::set_level }
    }
}

impl TemporaryLevel {
    fn lock(&self) -> MutexGuard<'_, Option<ChangedLevel>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets a level for some minutes, or with `configured` restores the one of the start. Must be called inside a Tokio
/// runtime.
///
/// # Errors
/// The request is wrong, or the level cannot be changed.
pub(super) fn change(state: &TemporaryLevel, level: &str, minutes: &str) -> Result<Value, String> {
    let wanted = parse(level, minutes)?;
    let mut changed = state.lock();
    if !set_level(state.apply, wanted) {
        return Err("the log of this process cannot be changed".to_owned());
    }
    if let Some(before) = changed.take() {
        before.end.abort();
    }
    *changed = wanted.map(|(level, time)| {
        let (state, until) = (state.clone(), Instant::now() + time);
        let end = tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            let mut changed = state.lock();
            // A later change has replaced this one, which ends with it.
            if changed.as_ref().is_some_and(|it| Instant::now() >= it.until) {
                set_level(state.apply, None);
                *changed = None;
            }
        });
        ChangedLevel { level, until, end: end.abort_handle() }
    });
    drop(changed);
    Ok(describe(state))
}

/// Changes the level and logs the change: before the change if the log shows the line then, and otherwise after it. A
/// change to `error` would hide its own line, and the log would not say why it is silent. Returns false if the level
/// cannot be changed.
fn set_level(
    apply: fn(Option<LevelFilter>) -> bool,
    wanted: Option<(LevelFilter, Duration)>,
) -> bool {
    let is_shown = match wanted {
        Some(_) => tracing::enabled!(Level::WARN),
        None => tracing::enabled!(Level::INFO),
    };
    if is_shown {
        log_change(wanted);
    }
    let is_set = apply(wanted.map(|(level, _)| level));
    match (is_set, is_shown) {
        (true, false) => log_change(wanted),
        (false, true) => tracing::warn!("the level of the log could not be changed"),
        (true, true) | (false, false) => {}
    }
    is_set
}

fn log_change(wanted: Option<(LevelFilter, Duration)>) {
    match wanted {
        Some((level, time)) => {
            let minutes = time.as_secs() / 60;
            // A field `level` would be there twice: each line has its own.
            tracing::warn!(new_level = %level, minutes, "an operator changes the level of the log");
        }
        None => tracing::info!("the log gets its configured level again"),
    }
}

/// Returns the level and how long it stays; null if it is the one of the start.
pub(super) fn describe(state: &TemporaryLevel) -> Value {
    let changed = state.lock();
    changed.as_ref().map_or(Value::Null, |it| {
        let rest = it.until.saturating_duration_since(Instant::now());
        json!({"level": it.level.to_string(), "secondsLeft": rest.as_secs()})
    })
}

/// Parses a level and its time; `None` is the level of the start.
fn parse(level: &str, minutes: &str) -> Result<Option<(LevelFilter, Duration)>, String> {
    if level == "configured" {
        return Ok(None);
    }
    let names = ["error", "warn", "info", "debug", "trace"];
    let level: LevelFilter = names
        .contains(&level)
        .then(|| level.parse().ok())
        .flatten()
        .ok_or_else(|| format!("`level` is one of {} and configured", names.join(", ")))?;
    let minutes = minutes.parse().ok().filter(|it| (1..=MINUTES_MAX).contains(it));
    let minutes: u64 =
        minutes.ok_or_else(|| format!("`minutes` is a whole number from 1 to {MINUTES_MAX}"))?;
    Ok(Some((level, Duration::from_secs(minutes * 60))))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// The levels that the test of this thread has set; `None` is the one of the start.
        static APPLIED: RefCell<Vec<Option<LevelFilter>>> = const { RefCell::new(Vec::new()) };
    }

    /// Returns a state that records the levels instead of changing the log of the process.
    fn recording_state() -> TemporaryLevel {
        fn record(level: Option<LevelFilter>) -> bool {
            APPLIED.with_borrow_mut(|it| it.push(level));
            true
        }
        TemporaryLevel { apply: record, ..TemporaryLevel::default() }
    }

    fn applied() -> Vec<Option<LevelFilter>> {
        APPLIED.with_borrow(Clone::clone)
    }

    /// Moves the paused clock of the test on, and lets the tasks run that are due meanwhile. It waits for nothing: the
    /// clock moves as soon as all tasks are idle.
    async fn pass_seconds(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_level_of_the_start_returns_when_the_time_is_over() {
        let state = recording_state();
        let shown = change(&state, "debug", "1").unwrap();
        assert_eq!(shown, json!({"level": "debug", "secondsLeft": 60}));
        pass_seconds(58).await;
        assert_eq!(describe(&state)["level"], "debug");
        assert_eq!(applied(), [Some(LevelFilter::DEBUG)]);
        pass_seconds(4).await;
        assert_eq!(describe(&state), Value::Null);
        assert_eq!(applied(), [Some(LevelFilter::DEBUG), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_change_has_its_own_time_and_can_be_ended_at_once() {
        let state = recording_state();
        change(&state, "debug", "1").unwrap();
        pass_seconds(30).await;
        change(&state, "trace", "1").unwrap();
        // The time of the first change is over.
        pass_seconds(45).await;
        assert_eq!(describe(&state)["level"], "trace");
        let both = [Some(LevelFilter::DEBUG), Some(LevelFilter::TRACE)];
        assert_eq!(applied(), both);
        assert_eq!(change(&state, "configured", ""), Ok(Value::Null));
        assert_eq!(applied(), [both[0], both[1], None]);
        // Nothing is left to end.
        pass_seconds(60).await;
        assert_eq!(applied(), [both[0], both[1], None]);
    }

    #[test]
    fn a_level_has_a_limited_time() {
        let minute = Duration::from_secs(60);
        assert_eq!(parse("debug", "5"), Ok(Some((LevelFilter::DEBUG, minute * 5))));
        assert_eq!(parse("configured", ""), Ok(None));
        for (level, minutes) in [
            ("debug", ""),
            ("debug", "0"),
            ("debug", "61"),
            ("debug", "-1"),
            ("verbose", "5"),
            ("off", "5"),
            ("", "5"),
        ] {
            assert!(parse(level, minutes).is_err(), "{level} {minutes}");
        }
    }
}

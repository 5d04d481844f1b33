//! The decision about rate limits that several routers share: one script in Redis decides about all of an operation.
//!
//! The script is the generic cell rate algorithm (`gcra`) in whole microseconds of the server's clock, so the clocks of
//! routers do not matter. A key has one number, the time at which its whole burst is available again, and expires then.
//! An operation that one limit refuses counts against none of them: at one server because the script does nothing then.
//! In a cluster a script may only use keys of one slot, so each limit has a call of its own, and the units of those
//! that admitted an operation are returned if another one refused it.
//!
//! An operation without a response in time is decided by `on_failure`, while the store is late within what it has
//! admitted lately (`key_accounts`). A response that comes late still counts there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use config::OnStoreFailure;
use execute::{GraphqlError, RateLimitState};
use redis_store::{Command, Reply, Script, Store, StoreError};

use super::gcra::Exceeded;
use super::key_accounts::{AccountKey, KeyAccounts};
use super::rate_limit::Taken;

/// Takes units of several keys, or none of them. `KEYS` has a key for each limit, `ARGV` for each of them the
/// microseconds for one unit, those for the whole burst, and the number of units; a negative number returns units.
///
/// Replies with `{0}`, or with the number of the limit that refuses, the units that are available there, and the
/// microseconds until the operation would be admitted.
static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("take_units.lua")));

/// The seconds that clients are asked to wait if an operation is refused because the store is away.
const RETRY_SECONDS: u64 = 1;

/// The limits of an operation that are not decided yet, because several routers share them.
#[derive(Debug)]
#[must_use]
pub(crate) struct PendingLimits<'a> {
    /// Units that were taken from limits of this process.
    pub(super) local: Vec<Taken<'a>>,
    /// Units to be taken from shared limits.
    pub(super) shared: Vec<Taken<'a>>,
}

/// The decision about limits that one script decides.
enum Decision {
    Admitted,
    /// The limit with this index in the group refuses.
    Refused(usize, Exceeded),
    /// The store is away, or does not execute the script.
    Undecided,
    /// The store is late. It may still decide about these keys.
    Late(Option<Arc<[CountedKey]>>),
}

/// A key of a group and the units that an operation takes from it.
struct CountedKey {
    accounts: Arc<KeyAccounts>,
    key: AccountKey,
    units: i64,
}

impl CountedKey {
    /// Returns the key of a shared limit; `None` if the limit is not shared.
    fn new(taken: &Taken<'_>) -> Option<Self> {
        let accounts = Arc::clone(&taken.limit.shared.as_ref()?.accounts);
        let key = accounts.key(&taken.key);
        Some(Self { accounts, key, units: i64::try_from(taken.weight).unwrap_or(i64::MAX) })
    }
}

impl<'a> PendingLimits<'a> {
    /// Decides about all limits in one round trip for each store.
    ///
    /// # Errors
    /// A limit is reached, or cannot be decided and `on_failure` is `deny`. The operation counts against none of them.
    pub(crate) async fn decide(self) -> Result<(), GraphqlError> {
        let Self { local, shared } = self;
        let groups = groups(shared);
        let decided =
            futures_util::future::join_all(groups.iter().map(|it| decide_group(it))).await;
        let mut refusal = None;
        // Units of this process that were taken because a store did not decide.
        let mut replaced: Vec<&Taken<'a>> = Vec::new();
        for (group, decision) in groups.iter().zip(&decided) {
            match decision {
                Decision::Admitted => {}
                Decision::Refused(index, exceeded) => {
                    let taken = &group[*index];
                    taken.count_refused();
                    refusal = refusal.or_else(|| Some(taken.limit.refusal(*exceeded)));
                }
                Decision::Undecided | Decision::Late(_) => {
                    let is_late = matches!(decision, Decision::Late(_));
                    for taken in group {
                        match decide_without_store(taken, is_late, fastrand::u16(..)) {
                            Ok(true) => replaced.push(taken),
                            Ok(false) => {}
                            Err(error) => {
                                taken.count_refused();
                                refusal = refusal.or(Some(error));
                            }
                        }
                    }
                }
            }
        }
        let Some(refusal) = refusal else {
            groups.iter().flatten().chain(&local).for_each(Taken::count_admitted);
            decided.iter().for_each(note_admitted);
            return Ok(());
        };
        local.iter().chain(replaced).for_each(Taken::give_back_local);
        let admitted = groups.iter().zip(&decided);
        let admitted = admitted.filter(|(_, decision)| matches!(decision, Decision::Admitted));
        let returned = admitted.filter_map(|(group, _)| {
            let (store, command) = script_command(group, -1)?;
            Some(store.run_one(command))
        });
        // Units that cannot be returned become available again by and by.
        let _ = futures_util::future::join_all(returned).await;
        Err(refusal)
    }
}

/// Divides limits into those that one script can decide.
fn groups(shared: Vec<Taken<'_>>) -> Vec<Vec<Taken<'_>>> {
    let mut groups: Vec<Vec<Taken<'_>>> = Vec::new();
    for taken in shared {
        let store = taken.limit.shared.as_ref().map(|it| &it.store);
        let joins = |group: &Vec<Taken<'_>>| {
            let other = group[0].limit.shared.as_ref().map(|it| &it.store);
            store.zip(other).is_some_and(|(a, b)| Arc::ptr_eq(a, b) && !a.is_cluster())
        };
        match groups.iter_mut().find(|it| joins(it)) {
            Some(group) => group.push(taken),
            None => groups.push(vec![taken]),
        }
    }
    groups
}

/// Has the store decide about a group. Balances of late responses are settled only where the group is one limit: an
/// operation that counts against several is admitted by all of them or by none.
async fn decide_group(group: &[Taken<'_>]) -> Decision {
    let Some((store, command)) = script_command(group, 1) else {
        return Decision::Undecided;
    };
    let keys: Arc<[CountedKey]> = group.iter().filter_map(CountedKey::new).collect();
    let late = Arc::clone(&keys);
    let reply = store.run_one_or_late(command, move |reply| note_late_reply(&late, reply)).await;
    let decision = match reply.as_ref().map(decision_of) {
        Ok(Some(Decision::Refused(index, _))) if index >= group.len() => None,
        Ok(decision) => decision,
        Err(_) => None,
    };
    let Some(decision) = decision else {
        return match reply {
            Err(StoreError::Timeout(_)) => Decision::Late(Some(keys)),
            Err(error) if error.is_late() => Decision::Late(None),
            Ok(_) | Err(_) => Decision::Undecided,
        };
    };
    let now = Instant::now();
    let ([key], [Taken { limit, weight, .. }]) = (&*keys, group) else {
        record(&keys, &decision, now);
        return decision;
    };
    let is_admitted = matches!(decision, Decision::Admitted);
    match (key.accounts.settle(key.key, key.units, is_admitted, now), decision) {
        (true, _) => Decision::Admitted,
        (false, Decision::Admitted) => match &limit.shared {
            Some(shared) => Decision::Refused(0, shared.exceeded(*weight)),
            None => Decision::Admitted,
        },
        (false, refused) => refused,
    }
}

/// Records a decision of the store, in time or late.
fn record(keys: &[CountedKey], decision: &Decision, now: Instant) {
    // The script stops at the limit that refuses.
    let (admitted, refused) = match decision {
        Decision::Admitted => (keys.len(), None),
        Decision::Refused(index, _) => (*index, keys.get(*index)),
        Decision::Undecided | Decision::Late(_) => (0, None),
    };
    for key in keys.iter().take(admitted) {
        key.accounts.record(key.key, true, now);
    }
    if let Some(key) = refused {
        key.accounts.record(key.key, false, now);
    }
}

/// Notes a response of the store that came after the operation had been decided.
fn note_late_reply(keys: &[CountedKey], reply: &Reply) {
    let Some(decision) = decision_of(reply) else { return };
    let now = Instant::now();
    record(keys, &decision, now);
    if let ([key], Decision::Admitted) = (keys, &decision) {
        key.accounts.note_late(key.key, key.units, now);
    }
}

/// Notes that an operation was admitted, if the store may still decide about it.
fn note_admitted(decision: &Decision) {
    if let Decision::Late(Some(keys)) = decision
        && let [key] = &**keys
    {
        key.accounts.note_late(key.key, -key.units, Instant::now());
    }
}

/// Returns the command that takes the units of a group, or returns them if `sign` is negative, and its store; `None` if
/// the group has no shared limit.
fn script_command<'a>(group: &'a [Taken<'_>], sign: i64) -> Option<(&'a Store, Command)> {
    let limits = || group.iter().filter_map(|it| Some((it, it.limit.shared.as_ref()?)));
    let (_, first) = limits().next()?;
    let keys = limits().map(|(taken, shared)| shared.key(&taken.key));
    let mut command = Command::script(&TAKE, keys);
    for (taken, shared) in limits() {
        // More than the burst is never admitted. The bound keeps numbers small enough to be exact in the script.
        let weight = taken.weight.min(shared.burst + 1);
        let window = shared.interval.saturating_mul(shared.burst);
        command = command.number(shared.interval).number(window);
        command = command.value((sign * i64::try_from(weight).unwrap_or(i64::MAX)).to_string());
    }
    Some((first.store.as_ref(), command))
}

/// Reads the reply of the script; `None` if it has another form.
fn decision_of(reply: &Reply) -> Option<Decision> {
    let Reply::List(numbers) = reply else { return None };
    let mut numbers = numbers.iter().map(|it| u64::try_from(it.integer()?).ok());
    let number = numbers.next()??;
    let Some(index) = number.checked_sub(1) else { return Some(Decision::Admitted) };
    let (remaining, micros) = (numbers.next()??, numbers.next()??);
    let exceeded = Exceeded { remaining, retry_after: Duration::from_micros(micros) };
    Some(Decision::Refused(usize::try_from(index).ok()?, exceeded))
}

/// Decides about a limit of which the store did not respond: within what it has admitted lately if it `is_late`.
/// `draw` is random. Returns true if units of this process were taken.
fn decide_without_store(taken: &Taken<'_>, is_late: bool, draw: u16) -> Result<bool, GraphqlError> {
    taken.limit.state().undecided.fetch_add(1, Ordering::Relaxed);
    let now = Instant::now();
    let Some(shared) = &taken.limit.shared else { return taken.take_local(now).map(|()| true) };
    let admits = || !is_late || shared.accounts.admits(shared.accounts.key(&taken.key), draw, now);
    match shared.on_failure {
        OnStoreFailure::Deny => Err(unavailable(&taken.limit.state().name)),
        OnStoreFailure::Local | OnStoreFailure::Allow if !admits() => {
            Err(taken.limit.refusal(shared.exceeded(taken.weight)))
        }
        OnStoreFailure::Local => taken.take_local(now).map(|()| true),
        OnStoreFailure::Allow => Ok(false),
    }
}

/// Returns the error of an operation if the store cannot decide and the limit then refuses.
fn unavailable(name: &str) -> GraphqlError {
    let message = format!(
        "the rate limit `{name}` cannot be checked at present: try again in {RETRY_SECONDS} s"
    );
    let limit = RateLimitState {
        name: name.into(),
        quota: 0,
        window_seconds: RETRY_SECONDS,
        remaining: 0,
        retry_after_seconds: RETRY_SECONDS,
        // The client is not at fault.
        close_after: 0,
    };
    GraphqlError::rate_limited(message, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_the_script_are_read_and_others_are_no_decision() {
        let read = |numbers: &[i64]| {
            let reply = Reply::List(numbers.iter().map(|it| Reply::Integer(*it)).collect());
            decision_of(&reply).map(|it| match it {
                Decision::Admitted => "admitted".to_owned(),
                Decision::Refused(index, it) => {
                    format!("{index} {} {:?}", it.remaining, it.retry_after)
                }
                Decision::Undecided | Decision::Late(_) => "undecided".to_owned(),
            })
        };
        assert_eq!(read(&[0]).as_deref(), Some("admitted"));
        assert_eq!(read(&[2, 3, 1500]).as_deref(), Some("1 3 1.5ms"));
        for foreign in [&[][..], &[-1], &[1], &[1, 2], &[1, -2, 3]] {
            assert_eq!(read(foreign), None, "{foreign:?}");
        }
        assert!(decision_of(&Reply::Nil).is_none());
    }
}

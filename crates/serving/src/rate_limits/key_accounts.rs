//! The latest decisions of the store about the keys of a shared limit. Decisions without the store follow them.
//!
//! On a busy machine some responses of a store are late although it works. An operation that is decided without its
//! response must not come on top of what the store admits. So each key that is at its limit has an account:
//!
//! - The **share** of its operations that the store refused lately. While the store is late the same share is refused.
//!   If it is late for all routers they together admit as much as before. If it is late for one, that one admits its
//!   part only.
//! - The **balance** of late responses: units that the store counted for operations that were refused meanwhile, less
//!   those of operations that were admitted meanwhile. When the late responses have come, it is the difference between
//!   what the store has admitted and what the router has. The next decisions of the store settle it.
//!
//! A key that the store has not refused for some five hundred decisions, or about which it has decided nothing for two
//! seconds, has no account: a client that stays below its limit is not refused because of a late store, and one that
//! hangs has no influence for long. One that is away has none (`shared_decision`). Updates that meet may lose a step of
//! a share, which is one of many; balances are exact.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// The number of accounts of a limit: 16 KiB. Keys at their limit are few; one that finds the place of its account
/// taken has none.
const ACCOUNTS: usize = 1024;

/// The number of decisions over which a share is averaged.
const DECISIONS: u16 = 64;

/// The time unit of accounts, in milliseconds.
const TICK_MILLIS: u128 = 64;

/// The number of ticks for which a decision of the store counts: two seconds, in which the store has caught up or is
/// connected again if it works.
const RECENT_TICKS: u32 = 31;

/// The accounts of the keys of one limit. All graphs of the process share them, and they survive reloads.
#[derive(Debug)]
pub(super) struct KeyAccounts {
    accounts: Box<[Account]>,
    /// Randomly seeded: clients cannot choose keys with equal hashes.
    hasher: RandomState,
    started: Instant,
}

#[derive(Debug, Default)]
struct Account {
    /// A [`Share`], or 0 if the account is free.
    share: AtomicU64,
    /// The units that the store counted and the router has not admitted; negative if it has admitted more.
    balance: AtomicI64,
}

/// The hash of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct AccountKey(u64);

/// The share of the operations of a key that the store refused lately.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// The part of the key's hash that does not choose the account.
    tag: u16,
    /// The time of the last decision of the store.
    tick: u32,
    /// The share, in 65535ths.
    refused: u16,
}

impl KeyAccounts {
    /// Creates accounts, all of them free.
    pub(super) fn new() -> Self {
        Self {
            accounts: std::iter::repeat_with(Account::default).take(ACCOUNTS).collect(),
            hasher: RandomState::new(),
            started: Instant::now(),
        }
    }

    /// Returns what finds the account of a key.
    pub(super) fn key(&self, key: &str) -> AccountKey {
        AccountKey(self.hasher.hash_one(key))
    }

    /// Records a decision of the store, in time or late.
    // hot path: one load for a key below its limit
    pub(super) fn record(&self, key: AccountKey, is_admitted: bool, now: Instant) {
        let account = self.account(key);
        let bits = account.share.load(Ordering::Relaxed);
        if bits == 0 && is_admitted {
            return;
        }
        let (known, tick) = (Share::from_bits(bits), self.tick(now));
        let is_free = bits == 0 || !known.is_recent(tick);
        let before = match (known.tag == key.tag(), is_free) {
            (true, false) => known.refused,
            // The account of another key.
            (false, false) => return,
            (_, true) => {
                account.balance.store(0, Ordering::Relaxed);
                0
            }
        };
        // Rounded away from the value before, so that both ends are reached.
        let refused = match is_admitted {
            true => before - before.div_ceil(DECISIONS),
            false => before + (u16::MAX - before).div_ceil(DECISIONS),
        };
        let share = Share { tag: key.tag(), tick, refused };
        account.share.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Records a decision of the store that came in time, and settles the balance of the key. Returns true if the
    /// operation is admitted.
    pub(super) fn settle(
        &self,
        key: AccountKey,
        units: i64,
        is_admitted: bool,
        now: Instant,
    ) -> bool {
        self.record(key, is_admitted, now);
        if !self.is_open(key, now) {
            return is_admitted;
        }
        let balance = &self.account(key).balance;
        // Units that the store refused are taken from what it counted before, and units that it counted pay for those
        // that the router admitted before.
        let settle = |it: i64| match is_admitted {
            true => (it <= -units).then_some(it + units),
            false => (it >= units).then_some(it - units),
        };
        let settled = balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, settle);
        is_admitted != settled.is_ok()
    }

    /// Decides about an operation without the store: admits the share that the store admitted lately. `draw` is random.
    pub(super) fn admits(&self, key: AccountKey, draw: u16, now: Instant) -> bool {
        let share = Share::from_bits(self.account(key).share.load(Ordering::Relaxed));
        !self.is_open(key, now) || draw >= share.refused
    }

    /// Notes units of an operation with a late response that the store counted; negative for those of one that the
    /// router admitted.
    pub(super) fn note_late(&self, key: AccountKey, units: i64, now: Instant) {
        if self.is_open(key, now) {
            self.account(key).balance.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// True if the key has an account.
    fn is_open(&self, key: AccountKey, now: Instant) -> bool {
        let share = Share::from_bits(self.account(key).share.load(Ordering::Relaxed));
        share.refused > 0 && share.tag == key.tag() && share.is_recent(self.tick(now))
    }

    fn account(&self, key: AccountKey) -> &Account {
        &self.accounts[key.0 as usize % ACCOUNTS]
    }

    fn tick(&self, now: Instant) -> u32 {
        let millis = now.saturating_duration_since(self.started).as_millis();
        u32::try_from(millis / TICK_MILLIS).unwrap_or(u32::MAX)
    }
}

impl AccountKey {
    fn tag(self) -> u16 {
        // The low bits choose the account.
        (self.0 >> 48) as u16
    }
}

impl Share {
    fn from_bits(bits: u64) -> Self {
        Self { tag: (bits >> 48) as u16, tick: (bits >> 16) as u32, refused: bits as u16 }
    }

    /// Returns the share as a number, which is 0 if no operation was refused: then the account is free.
    fn to_bits(self) -> u64 {
        if self.refused == 0 {
            return 0;
        }
        (u64::from(self.tag) << 48) | (u64::from(self.tick) << 16) | u64::from(self.refused)
    }

    fn is_recent(self, tick: u32) -> bool {
        tick.saturating_sub(self.tick) <= RECENT_TICKS
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns accounts and the key `hot`, of which three of four operations were refused.
    fn limited(now: Instant) -> (KeyAccounts, AccountKey) {
        let accounts = KeyAccounts::new();
        let key = accounts.key("hot");
        for number in 0..1000 {
            accounts.record(key, number % 4 == 3, now);
        }
        (accounts, key)
    }

    /// Returns the number of operations of a thousand that are admitted without the store.
    fn admitted(accounts: &KeyAccounts, key: AccountKey, now: Instant) -> usize {
        (0..1000_u32).filter(|it| accounts.admits(key, (it * 65) as u16, now)).count()
    }

    #[test]
    fn without_the_store_a_key_has_the_share_that_it_had_before() {
        let now = Instant::now();
        let (accounts, key) = limited(now);
        let share = admitted(&accounts, key, now);
        assert!((220..=280).contains(&share), "{share}");
        assert_eq!(admitted(&accounts, accounts.key("other"), now), 1000);
        let later = now + Duration::from_secs(3);
        assert_eq!(admitted(&accounts, key, later), 1000, "the store has been away for long");
    }

    #[test]
    fn a_key_that_is_below_its_limit_again_has_no_account() {
        let now = Instant::now();
        let (accounts, key) = limited(now);
        accounts.note_late(key, -5, now);
        for _ in 0..2000 {
            accounts.record(key, true, now);
        }
        assert_eq!(admitted(&accounts, key, now), 1000);
        accounts.note_late(key, -5, now);
        assert!(accounts.settle(key, 1, true, now), "nothing is owed");
        assert!(!accounts.settle(key, 1, false, now), "and nothing is left");
    }

    #[test]
    fn late_responses_are_settled_by_the_next_decisions() {
        let now = Instant::now();
        let (accounts, key) = limited(now);
        // Refused meanwhile, and counted by the store.
        accounts.note_late(key, 5, now);
        let decisions = [(3, false), (3, false), (2, false), (1, false)];
        let admitted = decisions.map(|(units, it)| accounts.settle(key, units, it, now));
        assert_eq!(admitted, [true, false, true, false]);
        // Admitted meanwhile, and refused by the store.
        accounts.note_late(key, -2, now);
        let decisions = [(3, true), (1, false), (2, true), (2, true)];
        let admitted = decisions.map(|(units, it)| accounts.settle(key, units, it, now));
        assert_eq!(admitted, [true, false, false, true]);
        // Admitted meanwhile, and counted by the store.
        accounts.note_late(key, -2, now);
        accounts.note_late(key, 2, now);
        assert!(accounts.settle(key, 2, true, now) && !accounts.settle(key, 2, false, now));
    }

    #[test]
    fn a_key_does_not_lose_its_account_to_another_one_while_it_is_in_use() {
        let now = Instant::now();
        let (accounts, key) = limited(now);
        let other = AccountKey(key.0 ^ (1 << 60));
        accounts.record(other, false, now);
        accounts.record(other, true, now);
        assert_eq!(admitted(&accounts, other, now), 1000);
        assert!(admitted(&accounts, key, now) < 300);
        accounts.note_late(key, 5, now);
        let later = now + Duration::from_secs(3);
        accounts.record(other, false, later);
        assert!(!accounts.settle(other, 1, false, later), "it has no balance of the first key");
        assert_eq!(admitted(&accounts, key, later), 1000);
    }
}

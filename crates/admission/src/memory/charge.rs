//! Memory that one holder has, counted until it is dropped.

use std::sync::Arc;

use bytes::Bytes;

use super::account::MemoryAccount;
use super::kind::MemoryKind;
use super::{CHARGED_BYTES_MIN, MemoryUsedUp, OPERATION_BYTES};

/// Bytes that count as held in a [`MemoryAccount`]. Dropping it releases them.
#[derive(Debug)]
pub struct MemoryCharge {
    /// `None` without a budget.
    account: Option<Arc<MemoryAccount>>,
    kind: MemoryKind,
    bytes: u64,
    /// The bytes of these that are not taken yet.
    promised: u64,
}

impl MemoryCharge {
    /// Creates a charge of no bytes.
    pub fn empty(account: &Arc<MemoryAccount>, kind: MemoryKind) -> Self {
        let account = account.budget().map(|_| Arc::clone(account));
        Self { account, kind, bytes: 0, promised: 0 }
    }

    /// Counts the memory of one operation of usual size.
    ///
    /// # Errors
    /// The budget is used up. The refusal is counted.
    // hot path: some 10 ns for each operation
    pub fn of_operation(account: &Arc<MemoryAccount>) -> Result<Self, MemoryUsedUp> {
        Self::try_new(account, MemoryKind::Operations, OPERATION_BYTES)
    }

    /// Counts bytes that are about to be taken or that have just arrived.
    ///
    /// # Errors
    /// They do not fit into the budget. The refusal is counted.
    pub fn try_new(
        account: &Arc<MemoryAccount>,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<Self, MemoryUsedUp> {
        let mut charge = Self::empty(account, kind);
        charge.try_grow(bytes)?;
        Ok(charge)
    }

    /// Counts bytes that exist already, and are not refused.
    pub fn new(account: &Arc<MemoryAccount>, kind: MemoryKind, bytes: u64) -> Self {
        let mut charge = Self::empty(account, kind);
        charge.grow(bytes);
        charge
    }

    /// Returns the counted bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more bytes.
    ///
    /// # Errors
    /// They do not fit into the budget. The charge is as before, and the refusal is counted.
    pub fn try_grow(&mut self, more: u64) -> Result<(), MemoryUsedUp> {
        let Some(account) = &self.account else { return Ok(()) };
        account.try_add(self.kind, more)?;
        self.bytes += more;
        Ok(())
    }

    /// Counts more bytes, which exist already.
    pub fn grow(&mut self, more: u64) {
        // hot path: a body that a cache holds, too, counts with no bytes, and all workers share the counters.
        let Some(account) = self.account.as_ref().filter(|_| more > 0) else { return };
        account.add(self.kind, more);
        self.bytes += more;
    }

    /// Counts bytes that are not taken yet.
    ///
    /// # Errors
    /// They do not fit into the budget. The charge is as before, and the refusal is counted.
    pub fn try_promise(&mut self, more: u64) -> Result<(), MemoryUsedUp> {
        let Some(account) = &self.account else { return Ok(()) };
        account.try_add_promised(self.kind, more)?;
        self.bytes += more;
        self.promised += more;
        Ok(())
    }

    /// Notes that all promised bytes are taken.
    pub fn take_promised(&mut self) {
        self.set_taken(self.bytes);
    }

    /// Notes how many of the bytes are taken so far. The others are promised.
    pub fn set_taken(&mut self, taken: u64) {
        let Some(account) = &self.account else { return };
        let promised = self.bytes.saturating_sub(taken);
        if promised == self.promised {
            return;
        }
        match promised.checked_sub(self.promised) {
            Some(more) => account.add_promised(more),
            None => account.subtract_promised(self.promised - promised),
        }
        self.promised = promised;
    }

    /// Releases bytes, at most all of them.
    pub fn shrink(&mut self, less: u64) {
        let Some(account) = &self.account else { return };
        let less = less.min(self.bytes);
        if less == 0 {
            return;
        }
        account.subtract(self.kind, less);
        self.bytes -= less;
        let promised = self.promised.min(self.bytes);
        if promised < self.promised {
            account.subtract_promised(self.promised - promised);
            self.promised = promised;
        }
    }

    /// Counts exactly so many bytes from now on, which exist already.
    pub fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => self.shrink(self.bytes - bytes),
        }
    }

    /// Returns a body that keeps the charge until its last slice is dropped. The charge then counts the bytes of the
    /// body. Small bodies are returned without the charge.
    pub fn hold(mut self, body: Bytes) -> Bytes {
        if self.account.is_none() || body.len() < CHARGED_BYTES_MIN {
            return body;
        }
        self.take_promised();
        self.set(body.len() as u64);
        Bytes::from_owner(HeldBytes { body, _charge: self })
    }
}

/// A copy of a holder takes as much memory again.
impl Clone for MemoryCharge {
    fn clone(&self) -> Self {
        let mut copy =
            Self { account: self.account.clone(), kind: self.kind, bytes: 0, promised: 0 };
        copy.grow(self.bytes);
        copy
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// The owner of a counted body.
struct HeldBytes {
    body: Bytes,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_body_counts_until_its_last_slice_is_dropped() {
        let account = MemoryAccount::new(1 << 30);
        let kind = MemoryKind::RequestBodies;
        let mut charge = MemoryCharge::empty(&account, kind);
        charge.try_promise(1 << 20).expect("it fits");
        let body = charge.hold(Bytes::from(vec![0; CHARGED_BYTES_MIN]));
        let slice = body.slice(10..20);
        drop(body);
        assert_eq!(account.held(kind), CHARGED_BYTES_MIN as u64);
        drop(slice);
        assert_eq!(account.held(kind), 0);
        let small = MemoryCharge::new(&account, kind, 10).hold(Bytes::from_static(b"0123456789"));
        assert_eq!((account.held(kind), &*small), (0, &b"0123456789"[..]));
    }

    #[test]
    fn a_copy_counts_as_much_again() {
        let account = MemoryAccount::new(1 << 30);
        let first = MemoryCharge::of_operation(&account).expect("it fits");
        let second = first.clone();
        assert_eq!(account.held_total(), first.bytes() + second.bytes());
        drop((first, second));
        assert_eq!(account.held_total(), 0);
    }

    #[test]
    fn any_sequence_of_changes_keeps_the_sum_and_never_exceeds_the_bound() {
        const BUDGET: u64 = 1 << 24;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let account = MemoryAccount::new(BUDGET);
            let mut charges: Vec<MemoryCharge> = Vec::new();
            let mut refused = 0;
            for _ in 0..400 {
                let bytes = random.u64(0..1 << 20);
                let kind = MemoryKind::ALL[random.usize(..MemoryKind::ALL.len())];
                let place = random.usize(0..=charges.len());
                match (random.u8(0..6), charges.get_mut(place)) {
                    (0 | 1, _) | (_, None) => match MemoryCharge::try_new(&account, kind, bytes) {
                        Ok(charge) => charges.push(charge),
                        Err(MemoryUsedUp) => refused += 1,
                    },
                    (2, Some(charge)) => refused += u64::from(charge.try_grow(bytes).is_err()),
                    (3, Some(charge)) => refused += u64::from(charge.try_promise(bytes).is_err()),
                    (4, Some(charge)) => charge.shrink(bytes),
                    (_, Some(_)) => drop(charges.swap_remove(place)),
                }
                if random.u8(0..10) == 0 {
                    account.measure(random.u64(0..BUDGET / 2));
                }
                let sum =
                    |kind| charges.iter().filter(move |it| it.kind == kind).map(|it| it.bytes);
                for kind in MemoryKind::ALL {
                    assert_eq!(account.held(kind), sum(kind).sum::<u64>(), "seed {seed}");
                }
                assert!(account.held_total() <= BUDGET, "seed {seed}");
            }
            let all: u64 = MemoryKind::ALL.into_iter().map(|it| account.refused(it)).sum();
            assert_eq!(all, refused, "seed {seed}");
            charges.clear();
            assert_eq!(account.held_total(), 0, "seed {seed}");
            account.measure(0);
        }
    }

    #[test]
    fn concurrent_charges_never_exceed_the_budget_together() {
        const BUDGET: u64 = 1 << 20;
        let account = MemoryAccount::new(BUDGET);
        let charged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (account, charged) = (&account, &charged);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..2000 {
                        let bytes = random.u64(1..BUDGET);
                        let charge = MemoryCharge::try_new(account, MemoryKind::Uploads, bytes);
                        if charge.is_ok() {
                            let together = charged.fetch_add(bytes, Ordering::SeqCst) + bytes;
                            assert!(together <= BUDGET, "{together}");
                            charged.fetch_sub(bytes, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(account.held_total(), 0);
    }
}

//! Tests of the account together with the charges of its holders.

use std::sync::Arc;

use super::{MemoryAccount, MemoryCharge, MemoryKind, MemoryUsedUp, OPERATION_BYTES};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 128 * MIB;

/// An account after the measurement of a router that holds nothing for work.
fn account(resident: u64) -> Arc<MemoryAccount> {
    let account = MemoryAccount::new(BUDGET);
    account.measure(resident);
    account
}

#[test]
fn work_may_take_what_the_rest_of_the_process_leaves_of_the_budget() {
    let account = account(48 * MIB);
    assert_eq!(account.for_work(), 80 * MIB);
    assert_eq!(account.room(), 60 * MIB);
    let body =
        MemoryCharge::try_new(&account, MemoryKind::RequestBodies, 60 * MIB).expect("it fits");
    assert_eq!(account.room(), 0);
    let refused = MemoryCharge::try_new(&account, MemoryKind::SubgraphResponses, 1);
    assert_eq!(refused.err(), Some(MemoryUsedUp));
    assert_eq!(account.check_room(MemoryKind::Uploads, 1), Err(MemoryUsedUp));
    assert!(account.is_short());
    assert_eq!(account.refused(MemoryKind::SubgraphResponses), 1);
    assert_eq!(account.refused(MemoryKind::Uploads), 1);
    drop(body);
    assert_eq!((account.held_total(), account.is_short()), (0, false));
}

#[test]
fn operations_of_usual_size_are_admitted_when_large_ones_are_not() {
    let account = account(48 * MIB);
    let _large = MemoryCharge::try_new(&account, MemoryKind::Uploads, 60 * MIB).expect("it fits");
    let admitted = || MemoryCharge::of_operation(&account).ok();
    let operations: Vec<_> = std::iter::from_fn(admitted).collect();
    assert_eq!(operations.len() as u64, 20 * MIB / OPERATION_BYTES);
    assert_eq!(account.held_total(), account.for_work());
    assert_eq!(account.refused(MemoryKind::Operations), 1);
}

#[test]
fn a_router_that_needs_the_whole_budget_itself_serves_some_operations() {
    let account = account(2 * BUDGET);
    assert_eq!(account.for_work(), BUDGET / 8);
    let _work = MemoryCharge::new(&account, MemoryKind::Responses, BUDGET / 8);
    assert!(MemoryCharge::of_operation(&account).is_err());
}

#[test]
fn promised_memory_is_missing_in_the_resident_memory_until_it_is_taken() {
    let account = account(40 * MIB);
    let mut body = MemoryCharge::empty(&account, MemoryKind::SubgraphResponses);
    body.try_promise(30 * MIB).expect("it fits");
    account.measure(40 * MIB);
    assert_eq!(account.uncounted(), 40 * MIB);
    body.take_promised();
    account.measure(70 * MIB);
    assert_eq!(account.uncounted(), 40 * MIB);
    drop(body);
    // The allocator has not returned it yet.
    account.measure(70 * MIB);
    assert_eq!(account.uncounted(), 70 * MIB);
}

#[test]
fn released_memory_is_used_again_when_it_is_known_not_to_be_resident() {
    let account = account(48 * MIB);
    let take = |account: &Arc<MemoryAccount>| {
        MemoryCharge::try_new(account, MemoryKind::RequestBodies, 40 * MIB).is_ok()
    };
    assert!(take(&account), "88 MiB");
    assert!(!take(&account), "the allocator may keep the first 40 MiB: 128 MiB");
    account.measure(48 * MIB);
    assert!(take(&account));
    // Where the resident memory can be read at any time, it is, and free memory is released if it must be.
    let account = MemoryAccount::measured_by(|_| Some(48 * MIB), BUDGET);
    account.measure(48 * MIB);
    assert!((0..10).all(|_| take(&account)));
    let kept = |has_released| Some(if has_released { 48 * MIB } else { 110 * MIB });
    let account = MemoryAccount::measured_by(kept, BUDGET);
    account.measure(48 * MIB);
    assert!((0..10).all(|_| take(&account)));
    let account = MemoryAccount::measured_by(|_| Some(110 * MIB), BUDGET);
    account.measure(48 * MIB);
    assert!(take(&account));
    assert!(!take(&account));
}

#[test]
fn uncounted_memory_rises_at_once_and_falls_slowly_to_what_is_measured() {
    let account = account(60 * MIB);
    account.measure(20 * MIB);
    assert_eq!(account.uncounted(), 40 * MIB);
    for _ in 0..100 {
        account.measure(20 * MIB);
    }
    assert_eq!(account.uncounted(), 20 * MIB);
    account.measure(60 * MIB);
    assert_eq!(account.uncounted(), 60 * MIB);
}

#[test]
fn slow_clients_release_memory_before_others_are_refused() {
    let account = account(48 * MIB);
    let mut waiting = MemoryCharge::new(&account, MemoryKind::Responses, 50 * MIB);
    assert_eq!((account.excess_of_work(), account.excess()), (10 * MIB, 0));
    assert!(account.room() > 0);
    waiting.grow(29 * MIB);
    assert_eq!((account.excess_of_work(), account.excess()), (39 * MIB, 15 * MIB));
    drop(waiting);
    // Events are not counted, because a copy for each client would count for memory that all of them share.
    account.measure(BUDGET);
    assert_eq!(account.excess(), BUDGET / 8);
}

#[test]
fn the_pause_of_refused_clients_grows_with_the_length_of_the_shortage() {
    let account = account(0);
    let longest =
        |account: &MemoryAccount| (0..1000).map(|random| account.retry_after_seconds(random)).max();
    assert_eq!(longest(&account), Some(2));
    for _ in 0..100 {
        account.count_refused(MemoryKind::Operations);
        account.measure(0);
    }
    assert_eq!(longest(&account), Some(12));
    for _ in 0..1000 {
        account.count_refused(MemoryKind::Operations);
        account.measure(0);
    }
    assert_eq!(longest(&account), Some(30));
    for _ in 0..100 {
        account.measure(0);
    }
    assert_eq!(longest(&account), Some(2));
}

#[test]
fn without_a_budget_nothing_is_counted_and_refused() {
    let account = MemoryAccount::unlimited();
    account.measure(BUDGET);
    let charge =
        MemoryCharge::try_new(&account, MemoryKind::Uploads, u64::MAX).expect("there is no bound");
    assert_eq!((charge.bytes(), account.held_total(), account.excess()), (0, 0, 0));
    assert_eq!(account.check_room(MemoryKind::Uploads, u64::MAX), Ok(()));
    assert!(!account.is_short());
}

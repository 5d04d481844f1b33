//! Three routers with one key of a shared limit, in virtual time: what they admit together while responses of the store
//! are late, and while routers are cut off from it because they were.

use std::time::{Duration, Instant};

use super::gcra::KeyedRate;
use super::key_accounts::{AccountKey, KeyAccounts};

/// The operations that the limit admits in a second. Each router gets as many, one each millisecond.
const RATE: u32 = 1000;

const BURST: u32 = 20;

const ROUTERS: usize = 3;

/// The milliseconds after which an operation is decided without the store.
const TIMEOUT: u64 = 10;

/// The milliseconds before the measured ones, and the measured ones.
const WARM_UP: u64 = 3_000;
const MEASURED: u64 = 10_000;

/// A disturbance by the millisecond.
struct Disturbance {
    name: &'static str,
    /// True while the store executes nothing. It executes what has come when the pause ends.
    is_paused: fn(u64) -> bool,
    /// True while the router with this index sends no commands, because the store was late for it.
    is_cut_off: fn(usize, u64) -> bool,
}

struct Router {
    accounts: KeyAccounts,
    key: AccountKey,
    random: fastrand::Rng,
    admitted: u32,
}

/// A command that the store has not executed.
struct Sent {
    router: usize,
    at: u64,
    /// True if the operation was decided without the store.
    is_late: bool,
}

impl Router {
    fn new(seed: u64) -> Self {
        let accounts = KeyAccounts::new();
        let key = accounts.key("all");
        Self { accounts, key, random: fastrand::Rng::with_seed(seed), admitted: 0 }
    }

    /// Decides an operation without the store. Returns true if it is admitted.
    fn decide_alone(&mut self, now: Instant) -> bool {
        let is_admitted = self.accounts.admits(self.key, self.random.u16(..), now);
        self.admitted += u32::from(is_admitted);
        is_admitted
    }

    fn on_decision(&mut self, sent: &Sent, is_admitted: bool, now: Instant) {
        if !sent.is_late {
            self.admitted += u32::from(self.accounts.settle(self.key, 1, is_admitted, now));
            return;
        }
        self.accounts.record(self.key, is_admitted, now);
        if is_admitted {
            self.accounts.note_late(self.key, 1, now);
        }
    }
}

/// Returns the percentage that is admitted of what the limit allows.
fn admitted_percent(disturbance: &Disturbance) -> f64 {
    let store = KeyedRate::new(RATE, Duration::from_secs(1), BURST, 1000);
    let mut routers: Vec<_> = (0..ROUTERS as u64).map(Router::new).collect();
    let mut order = fastrand::Rng::with_seed(7);
    let began = Instant::now();
    let mut waiting: Vec<Sent> = Vec::new();
    for at in 0..WARM_UP + MEASURED {
        let now = began + Duration::from_millis(at);
        if at == WARM_UP {
            routers.iter_mut().for_each(|it| it.admitted = 0);
        }
        for sent in waiting.iter_mut().filter(|it| it.at + TIMEOUT == at) {
            sent.is_late = true;
            let router = &mut routers[sent.router];
            if router.decide_alone(now) {
                router.accounts.note_late(router.key, -1, now);
            }
        }
        let first = order.usize(..ROUTERS);
        for index in (0..ROUTERS).map(|it| (it + first) % ROUTERS) {
            match (disturbance.is_cut_off)(index, at) {
                true => {
                    routers[index].decide_alone(now);
                }
                false => waiting.push(Sent { router: index, at, is_late: false }),
            }
        }
        if !(disturbance.is_paused)(at) {
            for sent in waiting.drain(..) {
                let is_admitted = store.take("all", 1, now).is_ok();
                routers[sent.router].on_decision(&sent, is_admitted, now);
            }
        }
    }
    let admitted: u32 = routers.iter().map(|it| it.admitted).sum();
    100.0 * f64::from(admitted) / (f64::from(RATE) * MEASURED as f64 / 1000.0)
}

#[test]
fn three_routers_admit_what_the_limit_allows_although_responses_are_late() {
    let disturbances = [
        Disturbance { name: "none", is_paused: |_| false, is_cut_off: |_, _| false },
        Disturbance {
            name: "the store pauses for 15 ms in each half second",
            is_paused: |at| at % 500 < 15,
            is_cut_off: |_, _| false,
        },
        Disturbance {
            name: "the store pauses for 20 ms in each 200 ms",
            is_paused: |at| at % 200 < 20,
            is_cut_off: |_, _| false,
        },
        Disturbance {
            name: "the store pauses for 40 ms, longer than the burst, every two seconds",
            is_paused: |at| at % 2000 < 40,
            is_cut_off: |_, _| false,
        },
        Disturbance {
            name: "each router is cut off in turn, for 20 ms in each half second",
            is_paused: |_| false,
            is_cut_off: |index, at| at % 500 < 20 && (at / 500) as usize % ROUTERS == index,
        },
        Disturbance {
            name: "all are cut off for 100 ms every two and a half seconds",
            is_paused: |_| false,
            is_cut_off: |_, at| at % 2500 < 100,
        },
        Disturbance {
            name: "pauses of 15 ms, and then one router is cut off for 20 ms",
            is_paused: |at| at % 500 < 15,
            is_cut_off: |index, at| (15..35).contains(&(at % 500)) && index == 1,
        },
    ];
    for disturbance in disturbances {
        let percent = admitted_percent(&disturbance);
        assert!((98.0..=102.0).contains(&percent), "{percent} %: {}", disturbance.name);
    }
}

//! The use of fields and arguments by application.
//!
//! A request costs one counter, that of its operation and its application (`PendingUses`). Now and then, and when the
//! use is read, these counters are multiplied out: each field and argument of the operation gets their sum
//! (`table`). So fields are not counted one by one while requests are served.
//!
//! What is bounded: the counters of operations and applications are few, because they are multiplied out when there are
//! many; the table has a maximum number of cells, one for each coordinate of each application. A cell that finds no
//! room is counted for `other`, so that each used field is in the table, whatever applications clients make up.

mod report;
mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use prepare::FieldUse;
use telemetry::name_table::{NameKey, NameTable};
use telemetry::{Metric, Striped, read};

use super::client_figures::{ClientFigures, ClientLabel};

pub use report::{CoordinateUses, FieldUsageReport, UsageRow};

use table::UsageTable;

/// The maximum number of operations and applications that one thread counts before they are multiplied out. That takes
/// about a millisecond for operations with twenty fields.
const PENDING_MAX: usize = 1_024;

/// The maximum memory of the fields of these operations, in bytes. It is reached earlier if operations are large: about
/// 8,000 fields.
const PENDING_BYTES_MAX: u64 = 256 << 10;

/// The counters of the use of fields.
#[derive(Debug)]
pub struct FieldUsage {
    started: SystemTime,
    began: Instant,
    pending: Striped<Mutex<Pending>>,
    table: Mutex<UsageTable>,
    /// Uses that found no room.
    lost: AtomicU64,
}

/// The requests by operation and application. An operation is known by the address of its uses, which the value keeps.
type PendingUses = HashMap<(usize, NameKey), PendingUse, foldhash::fast::RandomState>;

/// The counters of one thread.
#[derive(Default, Debug)]
struct Pending {
    uses: PendingUses,
    /// The memory of the fields of all operations.
    bytes: u64,
}

#[derive(Debug)]
struct PendingUse {
    field_use: Arc<FieldUse>,
    requests: u64,
    /// The seconds after the start of the first and the last request.
    first: u32,
    last: u32,
}

/// The table of applications, which decides which of them have a name here.
type Clients = NameTable<ClientLabel, ClientFigures>;

impl FieldUsage {
    /// Creates counters with at most about `cells_max` cells.
    pub(crate) fn new(cells_max: usize, now: Instant) -> Self {
        Self {
            started: SystemTime::now(),
            began: now,
            pending: Striped::default(),
            table: Mutex::new(UsageTable::new(cells_max)),
            lost: AtomicU64::new(0),
        }
    }

    /// Counts a request at `now` for an operation with these fields.
    // hot path: less than 100 ns, with a lock that no other thread waits for while there are few threads
    pub(crate) fn count(
        &self,
        field_use: &Arc<FieldUse>,
        client: NameKey,
        clients: Option<&Clients>,
        now: Instant,
    ) {
        let at = now.saturating_duration_since(self.began).as_secs();
        // 2^32 seconds are 136 years.
        let at = at as u32;
        let mut pending = lock(self.pending.local());
        let key = (Arc::as_ptr(field_use).addr(), client);
        let Pending { uses, bytes } = &mut *pending;
        let entry = uses.entry(key).or_insert_with(|| {
            *bytes += field_use.memory();
            PendingUse { field_use: Arc::clone(field_use), requests: 0, first: at, last: at }
        });
        entry.requests += 1;
        (entry.first, entry.last) = (entry.first.min(at), entry.last.max(at));
        if uses.len() >= PENDING_MAX || *bytes >= PENDING_BYTES_MAX {
            let full = std::mem::take(&mut *pending);
            drop(pending);
            self.multiply_out(full.uses, clients, &mut lock(&self.table));
        }
    }

    /// Adds pending counts to the table.
    fn multiply_out(
        &self,
        pending: PendingUses,
        clients: Option<&Clients>,
        table: &mut UsageTable,
    ) {
        let mut lost = 0;
        for ((_, client), pending) in pending {
            let row = clients.and_then(|clients| clients.row(client));
            let client = match &row {
                Some(row) => table.client(&row.label),
                None => UsageTable::OTHER_CLIENT,
            };
            let PendingUse { field_use, requests, first, last } = pending;
            table.add_request(requests);
            for coordinate in field_use.coordinates() {
                if !table.add(coordinate, client, requests, (first, last)) {
                    lost += requests;
                }
            }
        }
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Returns the table with all that was counted until now.
    fn settled(&self, clients: Option<&Clients>) -> MutexGuard<'_, UsageTable> {
        let pending: Vec<_> =
            self.pending.iter().map(|copy| std::mem::take(&mut *lock(copy))).collect();
        let mut table = lock(&self.table);
        for pending in pending {
            self.multiply_out(pending.uses, clients, &mut table);
        }
        table
    }

    /// Returns the uses of each of these coordinates, with at most `clients_max` applications.
    pub(crate) fn uses_of(
        &self,
        coordinates: &[String],
        clients_max: usize,
        clients: Option<&Clients>,
    ) -> Vec<CoordinateUses> {
        // The lock is released before the sorting.
        let snapshot = self.settled(clients).snapshot_of(coordinates);
        snapshot.uses(coordinates, clients_max, self.started)
    }

    /// Returns all counts.
    pub(crate) fn report(&self, clients: Option<&Clients>) -> FieldUsageReport {
        // The lock is released before the sorting.
        let snapshot = self.settled(clients).snapshot();
        snapshot.report(self.started, read(&self.lost))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between loses counts, and breaks nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The metrics of the counters themselves.
pub const FIELD_USAGE_METRICS: &[Metric<FieldUsage>] = &[
    Metric::gauge(
        "starling_field_usage_counters",
        "Counters of the use of fields and arguments, one for each application that uses one",
        |it| lock(&it.table).cells(),
    ),
    Metric::gauge(
        "starling_field_usage_counters_max",
        "The number of these counters from which further applications count as `other`",
        |it| lock(&it.table).cells_max(),
    ),
    Metric::counter(
        "starling_field_usage_lost",
        "Uses of fields and arguments that found no room in these counters",
        |it| read(&it.lost),
    ),
];

#[cfg(test)]
mod tests;

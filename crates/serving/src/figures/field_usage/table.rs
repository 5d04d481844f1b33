//! The cells of the table: requests by coordinate and application.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::report::{CoordinateUses, FieldUsageReport, UsageRow};
use crate::figures::client_figures::ClientLabel;
use crate::figures::names::OTHER;

/// The maximum number of names and versions of applications. Further ones count as `other`.
const CLIENTS_MAX: usize = 5_000;

/// The table.
#[derive(Debug)]
pub(super) struct UsageTable {
    cells_max: usize,
    cells: usize,
    requests: u64,
    /// The first one has all that have no name. Snapshots share the list until the next application is added.
    clients: Arc<Vec<ClientLabel>>,
    clients_by_label: BTreeMap<ClientLabel, u32>,
    coordinates: HashMap<Arc<str>, BTreeMap<u32, UsageCell>>,
}

/// A copy of all cells. It has no texts of its own, so that making it takes a millisecond, during which requests wait.
#[derive(Debug)]
pub(super) struct UsageSnapshot {
    requests: u64,
    clients: Arc<Vec<ClientLabel>>,
    cells: Vec<(Arc<str>, u32, UsageCell)>,
}

/// A copy of the cells of some coordinates.
#[derive(Debug)]
pub(super) struct CoordinatesSnapshot {
    clients: Arc<Vec<ClientLabel>>,
    /// The cells by application, for each coordinate in the order of the request.
    cells: Vec<Vec<(u32, UsageCell)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct UsageCell {
    requests: u64,
    /// The seconds after the start.
    first: u32,
    last: u32,
}

impl UsageTable {
    /// The number of the applications without a name.
    pub(super) const OTHER_CLIENT: u32 = 0;

    pub(super) fn new(cells_max: usize) -> Self {
        let other = ClientLabel { name: OTHER.into(), version: OTHER.into() };
        Self {
            cells_max,
            cells: 0,
            requests: 0,
            clients_by_label: BTreeMap::from([(other.clone(), Self::OTHER_CLIENT)]),
            clients: Arc::new(vec![other]),
            coordinates: HashMap::new(),
        }
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells as u64
    }

    pub(super) fn cells_max(&self) -> u64 {
        self.cells_max as u64
    }

    /// Returns the number of an application.
    pub(super) fn client(&mut self, label: &ClientLabel) -> u32 {
        if let Some(client) = self.clients_by_label.get(label) {
            return *client;
        }
        if self.clients.len() >= CLIENTS_MAX {
            return Self::OTHER_CLIENT;
        }
        // Below the maximum.
        let client = self.clients.len() as u32;
        Arc::make_mut(&mut self.clients).push(label.clone());
        self.clients_by_label.insert(label.clone(), client);
        client
    }

    /// Counts requests, whatever they use.
    pub(super) fn add_request(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// Counts uses of a coordinate. False if there is no room for another coordinate.
    pub(super) fn add(
        &mut self,
        coordinate: &str,
        client: u32,
        requests: u64,
        (first, last): (u32, u32),
    ) -> bool {
        if !self.coordinates.contains_key(coordinate) {
            // The coordinates are those of the schemas that have served, so their number is not up to clients. This
            // bounds it if schemas change often.
            if self.cells >= self.cells_max.saturating_mul(2) {
                return false;
            }
            self.coordinates.insert(coordinate.into(), BTreeMap::new());
        }
        let Some(cells) = self.coordinates.get_mut(coordinate) else { return false };
        let has_room = self.cells < self.cells_max;
        let client =
            if has_room || cells.contains_key(&client) { client } else { Self::OTHER_CLIENT };
        let cell = cells.entry(client).or_insert_with(|| {
            self.cells += 1;
            UsageCell { requests: 0, first, last }
        });
        cell.requests += requests;
        (cell.first, cell.last) = (cell.first.min(first), cell.last.max(last));
        true
    }

    /// Copies the counts of these coordinates.
    pub(super) fn snapshot_of(&self, coordinates: &[String]) -> CoordinatesSnapshot {
        let cells_of = |coordinate: &String| {
            let cells = self.coordinates.get(coordinate.as_str()).into_iter().flatten();
            cells.map(|(client, cell)| (*client, *cell)).collect()
        };
        let cells = coordinates.iter().map(cells_of).collect();
        CoordinatesSnapshot { clients: Arc::clone(&self.clients), cells }
    }

    /// Copies all counts.
    pub(super) fn snapshot(&self) -> UsageSnapshot {
        let mut all = Vec::with_capacity(self.cells);
        for (coordinate, cells) in &self.coordinates {
            all.extend(cells.iter().map(|(client, cell)| (Arc::clone(coordinate), *client, *cell)));
        }
        UsageSnapshot { requests: self.requests, clients: Arc::clone(&self.clients), cells: all }
    }
}

impl CoordinatesSnapshot {
    /// Returns the uses of each of the coordinates of the request, with at most `clients_max` applications.
    pub(super) fn uses(
        self,
        coordinates: &[String],
        clients_max: usize,
        started: SystemTime,
    ) -> Vec<CoordinateUses> {
        let Self { clients, cells } = self;
        // The numbers are those of the list, which only grows.
        let label = |client: u32| &clients[client as usize];
        let order = |(one, a): &(u32, UsageCell), (other, b): &(u32, UsageCell)| {
            b.requests.cmp(&a.requests).then_with(|| label(*one).cmp(label(*other)))
        };
        let uses_of = |(coordinate, mut cells): (&String, Vec<(u32, UsageCell)>)| {
            let last_used = cells.iter().map(|(_, cell)| cell.last).max();
            let requests = cells.iter().map(|(_, cell)| cell.requests).sum();
            let client_count = cells.len();
            if client_count > clients_max {
                cells.select_nth_unstable_by(clients_max, order);
                cells.truncate(clients_max);
            }
            cells.sort_unstable_by(order);
            let row = |(client, cell): (u32, UsageCell)| {
                usage_row(coordinate, label(client), cell, started)
            };
            CoordinateUses {
                requests,
                last_used: last_used.map(|it| unix_after(started, it)),
                client_count,
                clients: cells.into_iter().map(row).collect(),
            }
        };
        coordinates.iter().zip(cells).map(uses_of).collect()
    }
}

impl UsageSnapshot {
    /// Returns all counts, sorted by coordinate and application.
    pub(super) fn report(self, started: SystemTime, lost: u64) -> FieldUsageReport {
        let Self { requests, clients, mut cells } = self;
        // The numbers are those of the list, which only grows.
        let label = |client: u32| &clients[client as usize];
        cells.sort_unstable_by(|(a, one, _), (b, other, _)| {
            a.cmp(b).then_with(|| label(*one).cmp(label(*other)))
        });
        let row = |(coordinate, client, cell): (Arc<str>, u32, UsageCell)| {
            usage_row(&coordinate, label(client), cell, started)
        };
        let uses = cells.into_iter().map(row).collect();
        FieldUsageReport {
            since: unix(started),
            until: unix(SystemTime::now()),
            requests,
            lost,
            uses,
        }
    }
}

fn usage_row(
    coordinate: &str,
    client: &ClientLabel,
    cell: UsageCell,
    started: SystemTime,
) -> UsageRow {
    UsageRow {
        coordinate: coordinate.into(),
        client: client.name.clone(),
        client_version: client.version.clone(),
        requests: cell.requests,
        first_used: unix_after(started, cell.first),
        last_used: unix_after(started, cell.last),
    }
}

/// Returns the seconds since 1970, `seconds` after the start.
fn unix_after(started: SystemTime, seconds: u32) -> u64 {
    unix(started + Duration::from_secs(u64::from(seconds)))
}

/// Returns the seconds since 1970.
fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

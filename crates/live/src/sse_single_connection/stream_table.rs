//! The table of streams that clients have reserved or opened, by token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use execute::ClientKey;

use super::stream::{SharedStream, StreamRefusal};

/// The maximum number of streams that are reserved and not open yet. A client opens its own within a round trip, so
/// this many are thousands of clients that arrive in one second; each stream is some 300 bytes. At the maximum, the
/// client that has the most loses its oldest.
const RESERVATIONS_MAX: usize = 10_000;

/// The time for which a stream stays reserved unless it is opened.
const RESERVATION_TIME_MAX: Duration = Duration::from_secs(30);

/// The shortest interval between two sweeps that make room for a reservation. A sweep visits all streams, so a client
/// over its limit must not cause one with each request.
const FULL_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// All streams of this mode, by token.
#[derive(Debug, Default)]
pub(crate) struct StreamTable(Mutex<StreamEntries>);

#[derive(Debug, Default)]
struct StreamEntries {
    entries: HashMap<Box<str>, StreamEntry>,
    /// The number of streams that are reserved and not open.
    reserved: usize,
    /// The same number per client; clients without any are absent.
    reserved_by: HashMap<ClientKey, usize>,
    /// The time of the last sweep.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct StreamEntry {
    stream: Arc<SharedStream>,
    /// The client that has reserved the stream.
    client: ClientKey,
    /// The end of the reservation; `None` once the stream is open.
    reserved_until: Option<Instant>,
}

impl StreamTable {
    /// Reserves a stream for a client, which may have `most`. Returns false if the client has so many, or if there are
    /// too many in total.
    pub(super) fn reserve(
        &self,
        token: &str,
        stream: Arc<SharedStream>,
        (client, most): (ClientKey, usize),
        now: Instant,
    ) -> bool {
        let is_full = |table: &StreamEntries| {
            table.reserved >= RESERVATIONS_MAX || table.reserved_by(client) >= most
        };
        let mut table = self.lock();
        let is_due = |table: &StreamEntries| {
            let since = table.swept_at.map(|at| now.saturating_duration_since(at));
            since.is_none_or(|since| since >= FULL_SWEEP_INTERVAL)
        };
        if is_full(&table) && is_due(&table) {
            drop(table);
            self.sweep(now);
            table = self.lock();
        }
        if table.reserved_by(client) >= most {
            return false;
        }
        let mut replaced = None;
        if table.reserved >= RESERVATIONS_MAX {
            replaced = table.take_from_greediest(client);
            if replaced.is_none() {
                return false;
            }
        }
        let reserved_until = Some(now + RESERVATION_TIME_MAX);
        table.entries.insert(token.into(), StreamEntry { stream, client, reserved_until });
        table.reserved += 1;
        *table.reserved_by.entry(client).or_default() += 1;
        // The replaced stream is dropped, and its operations end, after the table is unlocked.
        drop(table);
        drop(replaced);
        true
    }

    /// Opens a reserved stream.
    ///
    /// # Errors
    /// No stream has that token (any more), or it is open already.
    pub(super) fn open(
        &self,
        token: &str,
        now: Instant,
    ) -> Result<Arc<SharedStream>, StreamRefusal> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(token).ok_or(StreamRefusal::NotFound)?;
        let until = entry.reserved_until.ok_or(StreamRefusal::InUse)?;
        let (stream, client) = (Arc::clone(&entry.stream), entry.client);
        if until <= now {
            table.entries.remove(token);
        } else {
            entry.reserved_until = None;
        }
        table.count_out(client);
        drop(table);
        // A stream that is opened too late is dropped here, which ends its operations.
        if until <= now { Err(StreamRefusal::NotFound) } else { Ok(stream) }
    }

    /// Drops streams that were not opened in time, which ends their operations.
    pub(super) fn sweep(&self, now: Instant) {
        let mut table = self.lock();
        table.swept_at = Some(now);
        if table.reserved == 0 {
            return;
        }
        let entries = &mut table.entries;
        let over = entries.extract_if(|_, entry| entry.reserved_until.is_some_and(|it| it <= now));
        let over: Vec<_> = over.collect();
        for (_, entry) in &over {
            table.count_out(entry.client);
        }
        // The streams are dropped, and their operations end, after the table is unlocked.
        drop(table);
        drop(over);
    }

    /// Returns a stream that is open or still reserved.
    pub(super) fn find(&self, token: &str, now: Instant) -> Option<Arc<SharedStream>> {
        let table = self.lock();
        let entry = table.entries.get(token)?;
        let is_there = entry.reserved_until.is_none_or(|until| now < until);
        is_there.then(|| Arc::clone(&entry.stream))
    }

    /// Removes an open stream that is over.
    pub(super) fn remove(&self, token: &str) {
        let removed = self.lock().entries.remove(token);
        drop(removed);
    }

    /// Locks the table. No code of the application runs under this lock, so a poisoned lock holds a valid table.
    fn lock(&self) -> MutexGuard<'_, StreamEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamEntries {
    /// The number of streams that a client has reserved and not opened.
    fn reserved_by(&self, client: ClientKey) -> usize {
        self.reserved_by.get(&client).copied().unwrap_or(0)
    }

    /// Counts a reserved stream of a client as open, or as over.
    fn count_out(&mut self, client: ClientKey) {
        self.reserved -= 1;
        if let Some(count) = self.reserved_by.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.reserved_by.remove(&client);
            }
        }
    }

    /// Makes room for `client`: takes the oldest reservation of the client with the most. `None` if that is `client`.
    fn take_from_greediest(&mut self, client: ClientKey) -> Option<StreamEntry> {
        let (&greediest, &count) = self.reserved_by.iter().max_by_key(|(_, count)| **count)?;
        if count <= self.reserved_by(client) + 1 {
            return None;
        }
        let of_it = self.entries.iter().filter(|(_, entry)| entry.client == greediest);
        let reserved = of_it.filter_map(|(token, entry)| Some((entry.reserved_until?, token)));
        let oldest = reserved.min().map(|(_, token)| token.clone())?;
        self.count_out(greediest);
        self.entries.remove(&oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client, and the number of streams that it may reserve.
    const ALONE: (ClientKey, usize) = (ClientKey::UNKNOWN, RESERVATIONS_MAX);

    #[test]
    fn a_stream_is_opened_once_and_in_time() {
        let (streams, now) = (StreamTable::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(["a", "b"].iter().all(|it| streams.reserve(
            it,
            SharedStream::unbounded(),
            ALONE,
            at(0)
        )));
        assert!(streams.open("a", at(29)).is_ok());
        assert_eq!(streams.open("a", at(29)).err(), Some(StreamRefusal::InUse));
        assert_eq!(streams.open("b", at(30)).err(), Some(StreamRefusal::NotFound));
        assert_eq!(streams.open("c", at(0)).err(), Some(StreamRefusal::NotFound));
        assert!(streams.find("a", at(1000)).is_some(), "an open stream does not expire");
        streams.remove("a");
        assert!(streams.find("a", at(0)).is_none());
    }

    #[test]
    fn reservations_are_limited_and_unused_ones_make_room() {
        let (streams, now) = (StreamTable::default(), Instant::now());
        let shared = SharedStream::unbounded();
        for number in 0..RESERVATIONS_MAX {
            assert!(streams.reserve(&number.to_string(), Arc::clone(&shared), ALONE, now));
        }
        assert!(!streams.reserve("one more", Arc::clone(&shared), ALONE, now));
        assert!(streams.open("7", now).is_ok());
        assert!(streams.reserve("one more", Arc::clone(&shared), ALONE, now));
        assert!(streams.reserve("later", shared, ALONE, now + RESERVATION_TIME_MAX));
        assert_eq!(streams.lock().entries.len(), 2, "the open one and the new one");
    }

    #[test]
    fn a_client_over_its_limit_does_not_cause_a_sweep_each_time() {
        let (streams, now, shared) =
            (StreamTable::default(), Instant::now(), SharedStream::unbounded());
        let reserve = |token: &str, now| {
            streams.reserve(token, Arc::clone(&shared), (ClientKey::UNKNOWN, 1), now)
        };
        assert!(reserve("first", now) && !reserve("second", now));
        let soon = now + FULL_SWEEP_INTERVAL / 2;
        assert!(!reserve("second", soon));
        assert_eq!(streams.lock().swept_at, Some(now));
        assert!(reserve("second", now + RESERVATION_TIME_MAX));
    }

    #[test]
    fn a_client_that_reserves_all_streams_makes_room_for_others() {
        let (streams, now, shared) =
            (StreamTable::default(), Instant::now(), SharedStream::unbounded());
        let [greedy, polite] = [b"greedy", b"polite"].map(|it| ClientKey::of_identity(it));
        let reserve = |token: &str, client, most, now| {
            streams.reserve(token, Arc::clone(&shared), (client, most), now)
        };
        assert!((0..10).all(|number| reserve(&number.to_string(), greedy, 10, now)));
        assert!(!reserve("one more", greedy, 10, now), "that is the limit of the client");
        let later = now + Duration::from_secs(1);
        let rest = (10..RESERVATIONS_MAX).map(|number| number.to_string());
        assert!(rest.clone().all(|token| reserve(&token, greedy, RESERVATIONS_MAX, later)));
        assert!(!reserve("one more", greedy, RESERVATIONS_MAX + 1, later));
        assert!(reserve("polite", polite, 10, later));
        let table = streams.lock();
        assert_eq!((table.reserved, table.reserved_by(polite)), (RESERVATIONS_MAX, 1));
        let oldest = (0..10).filter(|number| table.entries.contains_key(&*number.to_string()));
        assert_eq!(oldest.count(), 9, "the oldest has made room");
    }

    #[tokio::test]
    async fn operations_of_a_stream_that_is_not_opened_in_time_end_with_it() {
        let (streams, now) = (StreamTable::default(), Instant::now());
        let reserve = |token, now| {
            let (stream, task) =
                (SharedStream::unbounded(), tokio::spawn(std::future::pending::<()>()));
            stream.operations().insert(0, task.abort_handle());
            assert!(streams.reserve(token, stream, ALONE, now));
            task
        };
        let tasks = [reserve("never", now), reserve("too late", now)];
        let later = reserve("later", now + Duration::from_secs(1));
        let opened = reserve("opened", now);
        let stream = streams.open("opened", now);
        let end = now + RESERVATION_TIME_MAX;
        assert_eq!(streams.open("too late", end).err(), Some(StreamRefusal::NotFound));
        streams.sweep(end);
        for task in tasks {
            let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
            assert!(ended.expect("it was stopped").is_err_and(|error| error.is_cancelled()));
        }
        assert!(!later.is_finished() && !opened.is_finished());
        assert!(streams.find("later", end).is_some() && stream.is_ok());
        let table = streams.lock();
        assert_eq!((table.entries.len(), table.reserved), (2, 1));
    }
}

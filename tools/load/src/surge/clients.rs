//! The clients of a surge, without sockets and without a clock: what a user's request becomes, and what a client does
//! with the response.
//!
//! A client has a cache of its own that honours `cache-control: max-age`. If its request is refused, it waits for
//! `retry-after`, a little longer by chance so that clients do not return together, and repeats it. It gives up when
//! its user has no patience left.

use std::time::Duration;

use crate::random::Random;

/// The maximum number of clients; the cache of each takes up to 768 bytes.
pub const SURGE_CLIENTS_MAX: usize = 100_000;

/// The maximum number of responses in the cache of one client. The one that ends first makes room.
const CACHED_MAX: usize = 32;

/// The part of `retry-after` that a client adds at most, by chance.
const RETRY_JITTER: f64 = 0.5;

/// The waiting time before the first repetition if the response does not name one; it doubles with each repetition.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);

/// The longest waiting time without `retry-after`.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// The behaviour of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientBehaviour {
    /// The number of clients, from 1 to [`SURGE_CLIENTS_MAX`].
    pub clients: usize,
    /// True if clients use responses again for their `max-age`.
    pub caches: bool,
    /// The number of times that a refused request is repeated.
    pub retries: u32,
    /// The time after which a user gives up.
    pub patience: Duration,
}

/// One kind of request: an operation with one set of variables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequestKind {
    /// The weight among all kinds.
    pub(super) weight: f64,
    /// True for queries, which may be cached and may always be repeated. Other operations are repeated only if the
    /// server has refused them and so has not executed them.
    pub(super) is_query: bool,
}

/// A user's wish: a request with all its repetitions. Times are counted from the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UserRequest {
    pub(super) client: u32,
    pub(super) kind: u32,
    /// The time at which the user wanted it.
    pub(super) wanted: Duration,
    /// The number of times that it has been repeated.
    pub(super) repeated: u32,
}

/// The end of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// The response is correct and may be used again for this time.
    Correct {
        /// The time for which it is fresh.
        fresh: Option<Duration>,
    },
    /// The server refused to execute the operation (status 429 or 503).
    Refused {
        /// The time that the server wants the client to wait.
        retry_after: Option<Duration>,
    },
    /// There was no response: the connection failed or ended.
    NoResponse,
    /// The response is wrong in another way, so that repeating does not help.
    Wrong,
}

/// The client's reaction to the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The request is done, for better or worse.
    Done,
    /// The client repeats the request at this time.
    Repeat(Duration, UserRequest),
    /// The client gives up: its repetitions are used up, or the next one would be too late for its user.
    GiveUp,
}

/// All clients.
#[derive(Debug)]
pub(super) struct VirtualClients {
    behaviour: ClientBehaviour,
    kinds: Vec<RequestKind>,
    /// For each kind, the sum of the weights up to it.
    weights: Vec<f64>,
    /// For each client: the kinds of the cached responses, and when they end.
    caches: Vec<Vec<(u32, Duration)>>,
    random: Random,
}

impl VirtualClients {
    /// Creates the clients. There is at least one kind, and the sum of the weights is not zero.
    pub(super) fn new(behaviour: ClientBehaviour, kinds: Vec<RequestKind>, seed: u64) -> Self {
        let mut sum = 0.0;
        let weights = kinds.iter().map(|kind| {
            sum += kind.weight;
            sum
        });
        Self {
            behaviour,
            weights: weights.collect(),
            kinds,
            caches: vec![Vec::new(); behaviour.clients],
            random: Random::new(seed),
        }
    }

    /// Draws the client and the kind of a user's request.
    pub(super) fn draw(&mut self, wanted: Duration) -> UserRequest {
        let client = (self.random.unit() * self.caches.len() as f64) as u32;
        let at = self.random.unit() * self.weights.last().copied().unwrap_or(0.0);
        let kind = self.weights.partition_point(|sum| *sum <= at).min(self.kinds.len() - 1);
        UserRequest { client, kind: kind as u32, wanted, repeated: 0 }
    }

    /// True if the client's cache has a fresh response to the request.
    pub(super) fn is_cached(&self, request: &UserRequest) -> bool {
        let cache = &self.caches[request.client as usize];
        cache.iter().any(|(kind, ends)| *kind == request.kind && *ends > request.wanted)
    }

    /// Returns the time at which the user gives up.
    pub(super) fn deadline(&self, request: &UserRequest) -> Duration {
        request.wanted.saturating_add(self.behaviour.patience)
    }

    /// Handles the end of an attempt at this time.
    pub(super) fn on_end(
        &mut self,
        request: &UserRequest,
        end: AttemptEnd,
        now: Duration,
    ) -> NextStep {
        let is_query = self.kinds[request.kind as usize].is_query;
        let wait = match end {
            AttemptEnd::Correct { fresh } => {
                if let Some(fresh) = fresh.filter(|_| is_query && self.behaviour.caches) {
                    self.store(request, now, fresh);
                }
                return NextStep::Done;
            }
            AttemptEnd::Wrong => return NextStep::Done,
            AttemptEnd::NoResponse if !is_query => return NextStep::GiveUp,
            AttemptEnd::Refused { retry_after: Some(wait) } => {
                wait.mul_f64(1.0 + RETRY_JITTER * self.random.unit())
            }
            AttemptEnd::Refused { retry_after: None } | AttemptEnd::NoResponse => {
                let doubled = BACKOFF_FIRST.saturating_mul(1 << request.repeated.min(16));
                doubled.min(BACKOFF_MAX).mul_f64(0.5 + 0.5 * self.random.unit())
            }
        };
        let at = now.saturating_add(wait);
        if request.repeated >= self.behaviour.retries || at >= self.deadline(request) {
            return NextStep::GiveUp;
        }
        NextStep::Repeat(at, UserRequest { repeated: request.repeated + 1, ..*request })
    }

    fn store(&mut self, request: &UserRequest, now: Duration, fresh: Duration) {
        let cache = &mut self.caches[request.client as usize];
        cache.retain(|(kind, ends)| *kind != request.kind && *ends > now);
        if fresh.is_zero() {
            return;
        }
        if cache.len() >= CACHED_MAX
            && let Some(first) = (0..cache.len()).min_by_key(|index| cache[*index].1)
        {
            cache.swap_remove(first);
        }
        cache.push((request.kind, now.saturating_add(fresh)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const QUERY: RequestKind = RequestKind { weight: 1.0, is_query: true };

    fn behaviour() -> ClientBehaviour {
        ClientBehaviour { clients: 1, caches: true, retries: 3, patience: 30 * SECOND }
    }

    fn clients(behaviour: ClientBehaviour, kinds: &[RequestKind]) -> VirtualClients {
        VirtualClients::new(behaviour, kinds.to_vec(), 1)
    }

    #[test]
    fn kinds_are_drawn_by_weight_and_all_clients_take_part() {
        let behaviour = ClientBehaviour { clients: 50, ..behaviour() };
        let kinds = [1.0, 0.0, 3.0].map(|weight| RequestKind { weight, ..QUERY });
        let mut clients = clients(behaviour, &kinds);
        let (mut kinds, mut seen) = ([0_u32; 3], [false; 50]);
        for _ in 0..40_000 {
            let request = clients.draw(SECOND);
            kinds[request.kind as usize] += 1;
            seen[request.client as usize] = true;
        }
        assert!(kinds[0].abs_diff(10_000) < 600 && kinds[1] == 0, "{kinds:?}");
        assert_eq!(seen, [true; 50]);
    }

    #[test]
    fn a_response_is_used_again_for_its_time_and_only_by_its_client() {
        let behaviour = ClientBehaviour { clients: 2, ..behaviour() };
        let mut clients = clients(behaviour, &[QUERY, QUERY]);
        let at = |client, kind, seconds| UserRequest {
            client,
            kind,
            wanted: seconds * SECOND,
            repeated: 0,
        };
        let fresh = AttemptEnd::Correct { fresh: Some(10 * SECOND) };
        assert_eq!(clients.on_end(&at(0, 0, 1), fresh, 2 * SECOND), NextStep::Done);
        for (request, expected) in [
            (at(0, 0, 3), true),
            (at(0, 0, 11), true),
            (at(0, 0, 12), false),
            (at(0, 1, 3), false),
            (at(1, 0, 3), false),
        ] {
            assert_eq!(clients.is_cached(&request), expected, "{request:?}");
        }
        // A later response without a time takes the place of the one before.
        clients.on_end(
            &at(0, 0, 4),
            AttemptEnd::Correct { fresh: Some(Duration::ZERO) },
            4 * SECOND,
        );
        assert!(!clients.is_cached(&at(0, 0, 5)));
    }

    #[test]
    fn clients_without_caches_and_mutations_store_nothing() {
        let request = UserRequest { client: 0, kind: 0, wanted: SECOND, repeated: 0 };
        let fresh = AttemptEnd::Correct { fresh: Some(10 * SECOND) };
        for (behaviour, kind) in [
            (ClientBehaviour { caches: false, ..behaviour() }, QUERY),
            (behaviour(), RequestKind { is_query: false, ..QUERY }),
        ] {
            let mut clients = clients(behaviour, &[kind]);
            clients.on_end(&request, fresh, SECOND);
            assert!(!clients.is_cached(&request));
        }
    }

    #[test]
    fn the_cache_of_a_client_is_bounded_and_loses_what_ends_first() {
        let mut clients = clients(behaviour(), &[QUERY; CACHED_MAX + 1]);
        let of = |kind| UserRequest { client: 0, kind, wanted: SECOND, repeated: 0 };
        for kind in 0..=CACHED_MAX as u32 {
            let fresh = SECOND * (100 + kind);
            clients.on_end(&of(kind), AttemptEnd::Correct { fresh: Some(fresh) }, SECOND);
        }
        assert!(!clients.is_cached(&of(0)) && clients.is_cached(&of(1)));
        assert_eq!(clients.caches[0].len(), CACHED_MAX);
    }

    /// Runs a request in virtual time against a server that refuses everything; returns the times of its repetitions.
    fn repetitions(
        clients: &mut VirtualClients,
        end: AttemptEnd,
        wanted: Duration,
    ) -> Vec<Duration> {
        let mut request = UserRequest { client: 0, kind: 0, wanted, repeated: 0 };
        let (mut now, mut times) = (wanted, Vec::new());
        loop {
            match clients.on_end(&request, end, now) {
                NextStep::Repeat(at, repeated) => {
                    times.push(at - wanted);
                    (now, request) = (at, repeated);
                }
                NextStep::GiveUp => return times,
                NextStep::Done => panic!("a refused request is not done"),
            }
        }
    }

    #[test]
    fn refused_requests_return_after_the_given_time_and_not_together() {
        let mut clients = clients(behaviour(), &[QUERY]);
        let end = AttemptEnd::Refused { retry_after: Some(4 * SECOND) };
        let mut firsts = Vec::new();
        for number in 0..200 {
            let times = repetitions(&mut clients, end, SECOND * number);
            assert_eq!(times.len(), 3, "{times:?}");
            let mut before = Duration::ZERO;
            for time in times.iter().copied() {
                let wait = time - before;
                assert!(wait >= 4 * SECOND && wait <= 6 * SECOND, "{times:?}");
                before = time;
            }
            firsts.push(times[0]);
        }
        firsts.sort();
        assert!(firsts[199] - firsts[0] > SECOND, "they are spread over two seconds: {firsts:?}");
    }

    #[test]
    fn a_user_without_patience_gives_up() {
        let hurried = ClientBehaviour { patience: 10 * SECOND, retries: 100, ..behaviour() };
        let mut clients = clients(hurried, &[QUERY]);
        let refused = |seconds| AttemptEnd::Refused { retry_after: Some(SECOND * seconds) };
        assert!(repetitions(&mut clients, refused(11), SECOND).is_empty());
        let times = repetitions(&mut clients, refused(3), SECOND);
        assert!((2..=3).contains(&times.len()), "{times:?}");
        assert!(times.iter().all(|time| *time < 10 * SECOND), "{times:?}");
    }

    #[test]
    fn without_a_given_time_the_wait_doubles_up_to_a_bound() {
        let patient = ClientBehaviour { patience: 600 * SECOND, retries: 8, ..behaviour() };
        let mut clients = clients(patient, &[QUERY]);
        let times = repetitions(&mut clients, AttemptEnd::NoResponse, SECOND);
        assert_eq!(times.len(), 8);
        let mut before = Duration::ZERO;
        for (index, time) in times.iter().enumerate() {
            let most = (BACKOFF_FIRST * (1 << index)).min(BACKOFF_MAX);
            assert!(*time - before >= most / 2 && *time - before <= most, "{times:?}");
            before = *time;
        }
    }

    #[test]
    fn a_mutation_is_repeated_only_if_it_was_refused() {
        let mutation = RequestKind { is_query: false, ..QUERY };
        let mut clients = clients(behaviour(), &[mutation]);
        assert!(repetitions(&mut clients, AttemptEnd::NoResponse, SECOND).is_empty());
        let refused = AttemptEnd::Refused { retry_after: Some(SECOND) };
        assert_eq!(repetitions(&mut clients, refused, SECOND).len(), 3);
        let request = UserRequest { client: 0, kind: 0, wanted: SECOND, repeated: 0 };
        assert_eq!(clients.on_end(&request, AttemptEnd::Wrong, SECOND), NextStep::Done);
    }
}

//! The pace at which new connections are accepted while workers have much to do.
//!
//! A worker begins to serve a few new connections in each of its turns
//! ([`ACCEPTED_PER_CORE`](crate::http_server::ACCEPTED_PER_CORE)). A turn is long while many requests wait, so that
//! alone would keep new clients waiting for seconds. Responses therefore earn places for further ones. Refusals do not:
//! a router that refuses ten times what it can do would accept the more clients the more it refuses.

/// The number of responses for which one more connection is accepted: as many as earn the first turn of one that does
/// not begin with a GET ([`crate::first_turn`]), because its request can be refused only after both. Accepting one
/// takes about as much time as the cheapest responses, so new connections take a third of it at most.
const RESPONSES_PER_CONNECTION: u64 = 2;

/// The number of connections that are accepted at once after a pause at most.
const SAVED_MAX: u64 = 64;

/// Counts the connections that responses have earned.
#[derive(Debug, Default)]
pub struct AcceptPace {
    /// The number of responses that has been spent.
    spent: u64,
}

impl AcceptPace {
    /// Takes the turn of one more connection, if there have been enough responses since the last ones. `responses` is
    /// their number since the start.
    pub(super) fn take(&mut self, responses: u64) -> bool {
        let least = responses.saturating_sub(SAVED_MAX * RESPONSES_PER_CONNECTION);
        self.spent = self.spent.max(least);
        let next = self.spent + RESPONSES_PER_CONNECTION;
        let is_earned = next <= responses;
        if is_earned {
            self.spent = next;
        }
        is_earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_costs_two_responses() {
        let mut pace = AcceptPace::default();
        let taken =
            |pace: &mut AcceptPace, responses| (0..1000).filter(|_| pace.take(responses)).count();
        assert_eq!(taken(&mut pace, 1), 0);
        assert_eq!(taken(&mut pace, 2), 1);
        assert_eq!(taken(&mut pace, 21), 9);
        assert_eq!(taken(&mut pace, 22), 1);
    }

    #[test]
    fn few_are_saved_for_later() {
        let mut pace = AcceptPace::default();
        assert_eq!((0..1000).filter(|_| pace.take(1_000_000)).count(), 64);
        assert!(!pace.take(1_000_001));
        assert!(pace.take(1_000_002));
    }
}

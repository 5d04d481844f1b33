//! Connection attempts to the addresses of one server, as RFC 8305 says ("happy eyeballs"): one address after the
//! other, each with a head start over the next; the first connection wins.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::error::ConnectError;

/// The head start of an address over the next one: the value that RFC 8305, section 5 recommends.
const HEAD_START: Duration = Duration::from_millis(250);

/// The maximum number of addresses that are tried for one connection. At one head start each, they take longer than
/// most callers wait; further addresses of a name are spares.
const ATTEMPTS_MAX: usize = 16;

/// Puts addresses into the order of attempts (RFC 8305, section 4): the resolver's order with alternating families,
/// beginning with the family of the first.
pub(crate) fn interleave_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return addresses };
    let begins_with_v6 = first.is_ipv6();
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|it| it.is_ipv6() == begins_with_v6);
    let mut order = Vec::with_capacity(one.len() + other.len());
    while !(one.is_empty() && other.is_empty()) {
        order.extend(one.pop_front());
        order.extend(other.pop_front());
    }
    order.truncate(ATTEMPTS_MAX);
    order
}

/// Connects to the first address that accepts. A failed attempt starts the next one at once.
///
/// # Errors
/// The reason of the last failure, if all attempts failed.
pub(crate) async fn connect_to_first<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = io::Result<T>>,
{
    let mut left = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last_error = ConnectError::Resolve;
    attempts.extend(left.next().map(&connect));
    loop {
        let mut head_start = pin!(tokio::time::sleep(HEAD_START));
        tokio::select! {
            biased;
            done = attempts.next() => match done {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => {
                    last_error = ConnectError::Refused(error.kind());
                    attempts.extend(left.next().map(&connect));
                }
                None => return Err(last_error),
            },
            () = &mut head_start, if left.len() > 0 => {
                attempts.extend(left.next().map(&connect));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The behaviour of an address in a test.
    #[derive(Clone, Copy)]
    enum Behaviour {
        Accepts { after_ms: u64 },
        Refuses,
        Hangs,
    }

    /// Returns the port of the winner, and the ports that were tried with the times of the attempts in milliseconds.
    async fn check(
        addresses: &[(&str, Behaviour)],
    ) -> (Result<u16, ConnectError>, Vec<(u16, u64)>) {
        let start = Instant::now();
        let tried = RefCell::new(Vec::new());
        let behaviours: Vec<_> = addresses.iter().map(|&(it, b)| (address(it), b)).collect();
        let order = behaviours.iter().map(|it| it.0).collect();
        let won = connect_to_first(order, |address| {
            let at = u64::try_from(start.elapsed().as_millis()).unwrap();
            tried.borrow_mut().push((address.port(), at));
            let behaviour = behaviours.iter().find(|it| it.0 == address).unwrap().1;
            async move {
                match behaviour {
                    Behaviour::Accepts { after_ms } => {
                        tokio::time::sleep(Duration::from_millis(after_ms)).await;
                        Ok(address.port())
                    }
                    Behaviour::Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                    Behaviour::Hangs => std::future::pending().await,
                }
            }
        })
        .await;
        (won, tried.into_inner())
    }

    const OPEN: Behaviour = Behaviour::Accepts { after_ms: 10 };

    #[test]
    fn families_take_turns_beginning_with_the_one_that_the_resolver_prefers() {
        let order = |list: &[&str]| {
            let order = interleave_families(list.iter().map(|it| address(it)).collect());
            order.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            order(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]),
            ["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]
        );
        assert_eq!(order(&["1.1.1.1:1", "[::1]:1"]), ["1.1.1.1:1", "[::1]:1"]);
        assert_eq!(interleave_families(vec![address("1.1.1.1:1"); 40]).len(), ATTEMPTS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_hangs_delays_the_next_by_its_head_start_only() {
        let (won, tried) =
            check(&[("[::1]:1", Behaviour::Hangs), ("1.1.1.1:2", OPEN), ("[::2]:3", OPEN)]).await;
        assert_eq!((won, tried), (Ok(2), vec![(1, 0), (2, 250)]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_delays_nothing() {
        let (won, tried) = check(&[("[::1]:1", Behaviour::Refuses), ("1.1.1.1:2", OPEN)]).await;
        assert_eq!((won, tried), (Ok(2), vec![(1, 0), (2, 0)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_address_may_still_win() {
        let slow = Behaviour::Accepts { after_ms: 300 };
        let (won, tried) = check(&[("[::1]:1", slow), ("1.1.1.1:2", Behaviour::Hangs)]).await;
        assert_eq!((won, tried), (Ok(1), vec![(1, 0), (2, 250)]));
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_attempts_fail_the_last_reason_is_returned() {
        let refuses = Behaviour::Refuses;
        let (won, tried) = check(&[("[::1]:1", refuses), ("1.1.1.1:2", refuses)]).await;
        assert_eq!(won, Err(ConnectError::Refused(io::ErrorKind::ConnectionRefused)));
        assert_eq!(tried, [(1, 0), (2, 0)]);
        assert_eq!(check(&[]).await.0, Err(ConnectError::Resolve));
    }
}

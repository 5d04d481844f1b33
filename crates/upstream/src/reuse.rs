//! Decides whether the HTTP/1.1 connections of a subgraph may carry one request after another.
//!
//! HTTP/1.1 matches responses to requests by their order alone. If a server sends bytes when no
//! request is open, its count of responses is wrong, and its next bytes may be taken for the
//! response to a request that they do not belong to. The connection on which that is noticed is
//! closed, and for a while no connection of this subgraph is used twice: each request then has a
//! connection of its own, on which nothing else can arrive. At the start and after each such time
//! the first connections are on probation: they are watched for a moment before one is used again,
//! so that a server that always sends too much is noticed before any response can be mismatched.
//! HTTP/2 numbers its streams and is not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::UpstreamStats;
use crate::stats::count;

/// Time for which connections are not reused after unsolicited bytes. New connections cost a round
/// trip each; a mismatched response may show one client the data of another.
const PAUSE: Duration = Duration::from_secs(60);

/// The beginnings of the response that a server sends on an idle connection before it closes it
/// (RFC 9110, section 15.5.9). Such a response does not mean that the count of the server is wrong.
const REQUEST_TIMEOUT_HEADS: [&[u8]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// Number of bytes that distinguish a request timeout from another response.
pub(crate) const UNSOLICITED_BYTES: usize = 12;

/// Decides whether connections of one subgraph are reused.
#[derive(Debug)]
pub(crate) struct ReuseGuard {
    subgraph: Box<str>,
    start: Instant,
    /// Milliseconds after `start` from which on connections are reused; 0 if nothing was noticed.
    paused_until: AtomicU64,
    probation: Duration,
    /// True once a connection has passed its probation.
    is_proven: AtomicBool,
    stats: Arc<UpstreamStats>,
}

impl ReuseGuard {
    pub(crate) fn new(
        subgraph: &str,
        probation: Duration,
        stats: Arc<UpstreamStats>,
        now: Instant,
    ) -> Self {
        Self {
            subgraph: subgraph.into(),
            start: now,
            paused_until: AtomicU64::new(0),
            probation,
            is_proven: AtomicBool::new(probation.is_zero()),
            stats,
        }
    }

    /// The time for which a connection is watched before it is used again; `None` once one has
    /// passed its probation.
    pub(crate) fn probation(&self) -> Option<Duration> {
        (!self.is_proven.load(Ordering::Relaxed)).then_some(self.probation)
    }

    /// Records that nothing was received on a connection during its probation.
    pub(crate) fn note_proven(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }

    /// True unless unsolicited bytes were noticed a short time ago. hot path: one atomic read for
    /// each request.
    pub(crate) fn may_reuse(&self) -> bool {
        let until = self.paused_until.load(Ordering::Relaxed);
        until == 0 || self.millis(Instant::now()) >= until
    }

    /// Records that the server has sent `bytes` when no request was open.
    pub(crate) fn note_unsolicited(&self, bytes: &[u8]) {
        if !is_harmless(bytes) {
            self.pause_reuse();
        }
    }

    /// Stops the reuse of connections for a while: the server has sent a response that belongs to no request.
    pub(crate) fn pause_reuse(&self) {
        count(&self.stats.unsolicited);
        self.is_proven.store(self.probation.is_zero(), Ordering::Relaxed);
        let now = self.millis(Instant::now());
        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        let before = self.paused_until.swap(now + pause, Ordering::Relaxed);
        if before <= now {
            tracing::warn!(
                subgraph = &*self.subgraph,
                pause_seconds = PAUSE.as_secs(),
                "a subgraph has sent a response without a request; its HTTP/1.1 connections are closed after each request \
                 for a while. Repair the server, or use HTTP/2 (traffic.subgraphs.NAME.protocol)"
            );
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }
}

/// True for the end of a connection, the line break that some servers append to a body, and a
/// request timeout.
fn is_harmless(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
        || REQUEST_TIMEOUT_HEADS.iter().any(|head| bytes.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsolicited_bytes_stop_reuse_and_timeouts_and_line_breaks_do_not() {
        for (bytes, stops) in [
            (&b""[..], false),
            (b"\r\n", false),
            (b"HTTP/1.1 408 Request Timeout\r\n", false),
            (b"HTTP/1.1 200", true),
            (b"H", true),
        ] {
            let guard = ReuseGuard::new("a", Duration::ZERO, Arc::default(), Instant::now());
            assert!(guard.may_reuse());
            guard.note_unsolicited(bytes);
            assert_eq!(guard.may_reuse(), !stops, "{bytes:?}");
            let noticed = guard.stats.unsolicited.load(Ordering::Relaxed);
            assert_eq!(noticed, u64::from(stops));
        }
    }

    #[test]
    fn connections_are_reused_again_after_the_pause() {
        let Some(start) = Instant::now().checked_sub(2 * PAUSE) else { return };
        let guard = ReuseGuard::new("a", Duration::ZERO, Arc::default(), start);
        guard.paused_until.store(1, Ordering::Relaxed);
        assert!(guard.may_reuse());
    }
}

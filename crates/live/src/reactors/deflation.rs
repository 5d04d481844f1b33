//! Compression of results, once for all clients that accept it, within the time that a reactor may spend on it. Further
//! results are sent uncompressed, which every client accepts: a thread that compresses delays all of its connections.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::websocket::deflate_shared;

/// The maximum number of bytes compressed in one [`WINDOW`], which takes some 2 ms. A larger result is not compressed
/// at all.
const WINDOW_BYTES_MAX: usize = 256 << 10;

/// The period of the limit [`WINDOW_BYTES_MAX`].
const WINDOW: Duration = Duration::from_millis(10);

/// The number of results kept with their compressed form, for clients that get them later than others.
const KEPT_MAX: usize = 32;

/// The compressor of a reactor, see the module.
pub(super) struct Deflation {
    /// The size from which results are compressed.
    bytes_min: usize,
    window_began: Option<Instant>,
    window_bytes: usize,
    /// The latest results with their compressed form; `None` if it would not be smaller.
    kept: VecDeque<(Bytes, Option<Bytes>)>,
}

impl Deflation {
    /// Makes a compressor of results of at least `bytes_min`.
    pub(super) fn new(bytes_min: usize) -> Self {
        Self { bytes_min, window_began: None, window_bytes: 0, kept: VecDeque::new() }
    }

    /// Returns the compressed message of `payload`; `None` if compression is not worthwhile, or if the limit of the
    /// period is reached. The message is kept for other clients if `is_event`. The response of a query is not kept: it
    /// counts for its client as long as its bytes exist.
    pub(super) fn deflated(
        &mut self,
        payload: &Bytes,
        is_event: bool,
        now: Instant,
    ) -> Option<Bytes> {
        if payload.len() < self.bytes_min {
            return None;
        }
        let is_it =
            |known: &Bytes| known.as_ptr() == payload.as_ptr() && known.len() == payload.len();
        // Kept bytes stay allocated, so no other payload has their address.
        if let Some((_, deflated)) = self.kept.iter().find(|(known, _)| is_it(known)) {
            return deflated.clone();
        }
        if self.window_began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            self.window_began = Some(now);
            self.window_bytes = 0;
        }
        if self.window_bytes + payload.len() > WINDOW_BYTES_MAX {
            return None;
        }
        self.window_bytes += payload.len();
        let deflated = deflate_shared(payload, b"}");
        if is_event {
            if self.kept.len() >= KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back((payload.clone(), deflated.clone()));
        }
        deflated
    }

    /// Frees the kept results, when no client waits for any of them.
    pub(super) fn forget(&mut self) {
        self.kept = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_compressed_once_and_no_more_than_a_turn_allows() {
        let (mut deflation, now) = (Deflation::new(1000), Instant::now());
        let payload = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        assert_eq!(deflation.deflated(&payload(999), true, now), None);
        let large = payload(200 << 10);
        let first = deflation.deflated(&large, true, now).expect("it is repetitive");
        // The next result exceeds the limit of the period; the first is compressed already.
        assert_eq!(deflation.deflated(&payload(100 << 10), true, now), None);
        let again = deflation.deflated(&large, true, now).expect("it is known");
        assert_eq!(again.as_ptr(), first.as_ptr());
        assert!(deflation.deflated(&payload(100 << 10), true, now + WINDOW).is_some());
        assert_eq!(deflation.deflated(&payload(300 << 10), true, now + 2 * WINDOW), None);
        for _ in 0..2 * KEPT_MAX {
            deflation.deflated(&payload(1000), true, now + 3 * WINDOW);
        }
        assert_eq!(deflation.kept.len(), KEPT_MAX);
        deflation.deflated(&large, false, now + 4 * WINDOW);
        assert!(!deflation.kept.iter().any(|(known, _)| known.as_ptr() == large.as_ptr()));
        deflation.forget();
        assert!(deflation.kept.is_empty());
    }
}

//! Compressed bodies, both ways: responses for clients that accept them, and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{BodyCopies, EntryId};
use clients::offload::{INLINE_BYTES_MAX, Offload, OffloadError};
use coding::{Coding, ExpandError, Preference};
use config::Compression;
use execute::ClientKey;
use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, VARY,
};
use single_flight::{Role, SingleFlight};
use telemetry::{Metric, read};
use tokio::sync::Semaphore;

use super::response::{Response, ResponseBody};

/// The size from which bodies are compressed on the blocking pool. At about 100 MB/s this size takes 160 µs, during
/// which a worker serves no other client. The handover to the pool and back costs about 20 µs.
const BLOCKING_BYTES_MIN: usize = 16 << 10;

/// The time in which a compression ends that several requests wait for. A caller that has much more time does not join
/// one.
const COMPRESSION_TIME_MAX: Duration = Duration::from_secs(10);

/// Compresses responses as far as CPUs are free for it. A response from memory is compressed once in each coding: the
/// copy is stored with it.
#[derive(Debug)]
pub struct Compressor {
    settings: Compression,
    work: Arc<CompressionWork>,
    /// The compressions of stored responses in progress.
    in_progress: Arc<SingleFlight<(EntryId, Coding), Option<Bytes>>>,
    /// The number of responses that were sent with a stored copy.
    reused: AtomicU64,
}

/// The compression of single bodies.
#[derive(Debug)]
struct CompressionWork {
    /// Permits for large bodies that are compressed at the same time. More would only take CPUs from the workers and
    /// threads from the system.
    permits: Semaphore,
    bytes_before: AtomicU64,
    bytes_after: AtomicU64,
    /// The number of responses that were left uncompressed because no CPU was free.
    uncompressed: AtomicU64,
}

/// The metrics of compression.
pub const COMPRESSION_METRICS: &[Metric<Compressor>] = &[
    Metric::counter(
        "starling_http_compression_in_bytes",
        "Bytes of responses before compression",
        |it| read(&it.work.bytes_before),
    ),
    Metric::counter(
        "starling_http_compression_out_bytes",
        "Bytes of responses after compression",
        |it| read(&it.work.bytes_after),
    ),
    Metric::counter(
        "starling_http_compression_skipped",
        "Responses not compressed because all CPUs were compressing already",
        |it| read(&it.work.uncompressed),
    ),
    Metric::counter(
        "starling_http_compression_reused",
        "Responses from memory that were sent with a compressed copy that was made before, or by an equal request at \
         the same time",
        |it| read(&it.reused),
    ),
];

impl Compressor {
    /// Returns a compressor for a router with `cores` workers.
    pub fn new(settings: Compression, cores: usize) -> Self {
        let work = CompressionWork {
            permits: Semaphore::new(cores),
            bytes_before: AtomicU64::new(0),
            bytes_after: AtomicU64::new(0),
            uncompressed: AtomicU64::new(0),
        };
        let (in_progress, reused) = (Arc::default(), AtomicU64::new(0));
        Self { settings, work: Arc::new(work), in_progress, reused }
    }

    /// Returns the codings that the client of a request with these headers accepts.
    pub(crate) fn negotiate(&self, headers: &HeaderMap) -> Preference {
        if !self.settings.enabled || !headers.contains_key(ACCEPT_ENCODING) {
            return Preference { coding: None, identity: true };
        }
        let values = headers.get_all(ACCEPT_ENCODING).iter();
        coding::negotiate(values.filter_map(|value| value.to_str().ok()))
    }

    /// Compresses `response` if its client accepts that and it is worth it. `copies` has the compressed copies of a
    /// response from memory.
    pub async fn compress(
        &self,
        wanted: Preference,
        copies: Option<BodyCopies>,
        response: &mut Response,
    ) {
        if !self.is_candidate(response) {
            return;
        }
        add_vary(response);
        let ResponseBody::Whole(body) = response.body() else { return };
        let body = body.clone();
        let Some(coding) = wanted.coding else { return };
        let found = copies.as_ref().and_then(|copies| copies.find(number_of(coding)));
        let compressed = match (found, copies) {
            (Some(copy), _) => {
                self.reused.fetch_add(1, Ordering::Relaxed);
                Some(copy)
            }
            // Once for each copy, so its state is not moved with that of every request.
            (None, Some(copies)) => Box::pin(self.make_copy(copies, coding, body, wanted)).await,
            (None, None) => self.work.compress(coding, body, wanted.identity, None).await,
        };
        let Some(compressed) = compressed else { return };
        *response.body_mut() = ResponseBody::Whole(compressed);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }

    /// Makes the copy of a response from memory, once for all requests that wait for it. `None` if it does not become
    /// smaller, or if no CPU is free for it and the client accepts the response as it is.
    async fn make_copy(
        &self,
        copies: BodyCopies,
        coding: Coding,
        body: Bytes,
        wanted: Preference,
    ) -> Option<Bytes> {
        let (work, own, may_skip) = (Arc::clone(&self.work), body.clone(), wanted.identity);
        let (key, deadline) = ((copies.id(), coding), Instant::now() + COMPRESSION_TIME_MAX);
        let joined = self.in_progress.join(key, deadline, || async move {
            // It may have been made after the first look.
            if let Some(copy) = copies.find(number_of(coding)) {
                return Some(copy);
            }
            work.compress(coding, own, may_skip, Some(copies)).await
        });
        match joined.await {
            Ok((Some(copy), role)) => {
                if role == Role::Follower {
                    self.reused.fetch_add(1, Ordering::Relaxed);
                }
                Some(copy)
            }
            // The other client accepts the response as it is, and this one does not.
            _ if !may_skip => self.work.compress(coding, body, false, None).await,
            _ => None,
        }
    }

    /// True if the response is worth compressing: it depends on `accept-encoding`.
    pub(crate) fn is_candidate(&self, response: &Response) -> bool {
        let ResponseBody::Whole(body) = response.body() else { return false };
        self.settings.enabled
            && body.len() >= self.settings.min_size
            && is_compressible(response.headers())
    }

    /// Returns the bytes of responses before compression, the bytes after it, and the number of responses that were
    /// left uncompressed because no CPU was free.
    #[cfg(test)]
    fn counters(&self) -> [u64; 3] {
        [&self.work.bytes_before, &self.work.bytes_after, &self.work.uncompressed]
            .map(|it| it.load(Ordering::Relaxed))
    }
}

impl CompressionWork {
    /// Compresses a body, and stores the result in `copies`. `None` if the body does not become smaller, or if it need
    /// not be compressed (`may_skip`) and no CPU is free for it.
    async fn compress(
        &self,
        coding: Coding,
        body: Bytes,
        may_skip: bool,
        copies: Option<BodyCopies>,
    ) -> Option<Bytes> {
        let length = body.len();
        let compress = move || {
            let compressed = coding::compress(coding, &body)?;
            if let Some(copies) = copies {
                copies.keep(number_of(coding), &compressed);
            }
            Some(compressed)
        };
        let compressed = if length < BLOCKING_BYTES_MIN {
            compress()
        } else {
            let permit = match may_skip {
                // While all CPUs compress, an uncompressed response arrives sooner.
                true => self.permits.try_acquire().ok(),
                false => self.permits.acquire().await.ok(),
            };
            let Some(_permit) = permit else {
                self.uncompressed.fetch_add(1, Ordering::Relaxed);
                return None;
            };
            let work = tokio::task::spawn_blocking(compress);
            // A panic there was reported by its own hook; the client gets the uncompressed body.
            work.await.ok().flatten()
        };
        let compressed = compressed?;
        self.bytes_before.fetch_add(length as u64, Ordering::Relaxed);
        self.bytes_after.fetch_add(compressed.len() as u64, Ordering::Relaxed);
        Some(compressed.into())
    }
}

/// The number under which copies in a coding are stored, the same for the whole process.
fn number_of(coding: Coding) -> u8 {
    let number = Coding::ALL.iter().position(|known| *known == coding);
    // There are at most four.
    number.unwrap_or_default() as u8
}

/// Tells caches that a response depends on `accept-encoding`, unless the response says it already.
fn add_vary(response: &mut Response) {
    let name = ACCEPT_ENCODING.as_str().as_bytes();
    let mut told = response.headers().get_all(VARY).iter();
    if !told.any(|value| value.as_bytes().windows(name.len()).any(|window| window == name)) {
        response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// The value of `cache-control` in almost every response.
const NO_STORE: &str = "no-store";

/// True if the response is uncompressed text that may be changed on its way (RFC 9110, section 7.7). Files of the page
/// bring their own compressed form, and have a strong `etag`, which names their bytes. A weak one, as responses to
/// operations have it, names all codings of a response.
fn is_compressible(headers: &HeaderMap) -> bool {
    let is_text = headers.get(CONTENT_TYPE).is_some_and(|value| {
        [&b"application/json"[..], b"application/graphql-response+json", b"text/"]
            .iter()
            .any(|prefix| value.as_bytes().starts_with(prefix))
    });
    let is_fixed =
        headers.get(CACHE_CONTROL).filter(|value| *value != NO_STORE).is_some_and(|value| {
            value.to_str().is_ok_and(|it| it.split(',').any(|it| it.trim() == "no-transform"))
        });
    let has_strong_etag = headers.get(ETAG).is_some_and(|etag| !etag.as_bytes().starts_with(b"W/"));
    is_text && !is_fixed && !headers.contains_key(CONTENT_ENCODING) && !has_strong_etag
}

/// Returns the coding of a request body.
///
/// # Errors
/// The coding is not supported, or there are several on top of each other.
pub(crate) fn request_coding(headers: &HeaderMap) -> Result<Option<Coding>, ()> {
    let mut coding = None;
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().map_err(|_| ())?;
        for name in value.split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            // Each further coding would multiply the cost that a few bytes can cause.
            if coding.is_some() {
                return Err(());
            }
            coding = Some(Coding::from_name(name).ok_or(())?);
        }
    }
    Ok(coding)
}

/// The maximum expanded size of a request body that is expanded on the worker itself, which takes about 50 µs.
const INLINE_EXPANDED_BYTES_MAX: usize = 16 << 10;

/// The maximum size of an expanded request body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpansionBounds {
    /// `limits.body`
    pub(crate) bytes_max: usize,
    /// `limits.body_expansion_ratio`
    pub(crate) ratio_max: u32,
}

/// The reason that a request body was not expanded.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum NotExpanded {
    /// The body expands to more than this number of bytes, `limits.body`.
    TooLarge(usize),
    /// The body expands to more than this number of bytes, which is too much for its size
    /// (`limits.body_expansion_ratio`).
    TooDense(usize),
    /// The body is not valid in its coding.
    Broken(ExpandError),
    /// There was no room to expand the body.
    OffloadError(OffloadError),
}

impl ExpansionBounds {
    /// Returns the size to which a body of `body` bytes may expand: at least [`INLINE_BYTES_MAX`].
    fn bytes_for(self, body: usize) -> usize {
        let dense = body.saturating_mul(self.ratio_max as usize).max(INLINE_BYTES_MAX);
        dense.min(self.bytes_max)
    }
}

/// Expands a request body: on the worker if the expanded body is small, otherwise on the blocking pool.
///
/// # Errors
/// See [`NotExpanded`].
pub(crate) async fn expand(
    offload: &Offload,
    (client, deadline): (ClientKey, Instant),
    coding: Coding,
    body: Bytes,
    bounds: ExpansionBounds,
) -> Result<Bytes, NotExpanded> {
    let limit = bounds.bytes_for(body.len());
    let inline = limit.min(INLINE_EXPANDED_BYTES_MAX);
    let outcome = |expanded: Result<Vec<u8>, ExpandError>| match expanded {
        Ok(expanded) => Ok(expanded.into()),
        Err(ExpandError::TooLarge(_)) if limit < bounds.bytes_max => {
            Err(NotExpanded::TooDense(limit))
        }
        Err(ExpandError::TooLarge(_)) => Err(NotExpanded::TooLarge(limit)),
        Err(error) => Err(NotExpanded::Broken(error)),
    };
    if body.len() <= inline {
        let expanded = coding::expand(coding, &body, inline);
        // The expanded size is known only after the attempt.
        if inline == limit || !matches!(expanded, Err(ExpandError::TooLarge(_))) {
            return outcome(expanded);
        }
    }
    let size = body.len();
    let work = move || coding::expand(coding, &body, limit);
    outcome(offload.run(client, size, deadline, work).await.map_err(NotExpanded::OffloadError)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;
    use http::StatusCode;

    const JSON: &str = "application/json; charset=utf-8";

    fn compressor(min_size: usize) -> Compressor {
        Compressor::new(Compression { enabled: true, min_size }, 1)
    }

    /// The coding of the answer, its length and `vary`.
    async fn compressed(
        compressor: &Compressor,
        accepted: &'static str,
        mut response: Response,
    ) -> (Option<HeaderValue>, usize, Option<HeaderValue>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        compressor.compress(compressor.negotiate(&headers), None, &mut response).await;
        let ResponseBody::Whole(body) = response.body() else { panic!("a stream") };
        let header = |name| response.headers().get(name).cloned();
        (header(CONTENT_ENCODING), body.len(), header(VARY))
    }

    fn body(length: usize) -> Response {
        response::with_type(StatusCode::OK, JSON, vec![b'a'; length].into())
    }

    #[tokio::test]
    async fn large_text_is_compressed_for_clients_that_accept_it() {
        let compressor = compressor(1000);
        let vary = Some(HeaderValue::from_static("accept-encoding"));
        for length in [1000, 100_000] {
            let (coding, after, varies) = compressed(&compressor, "gzip", body(length)).await;
            assert_eq!((coding, varies), (Some(HeaderValue::from_static("gzip")), vary.clone()));
            assert!(after < 500, "{after}");
        }
        assert_eq!(compressed(&compressor, "identity", body(1000)).await, (None, 1000, vary));
        assert_eq!(compressed(&compressor, "gzip", body(999)).await, (None, 999, None));
    }

    #[tokio::test]
    async fn responses_that_are_not_text_or_must_not_be_changed_stay_uncompressed() {
        let compressor = compressor(10);
        let mut fixed = body(100);
        fixed
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        let mut done = body(100);
        done.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        let image = response::with_type(StatusCode::OK, "image/png", vec![b'a'; 100].into());
        for response in [fixed, image] {
            assert_eq!(compressed(&compressor, "gzip", response).await, (None, 100, None));
        }
        let br = Some(HeaderValue::from_static("br"));
        assert_eq!(compressed(&compressor, "gzip", done).await, (br, 100, None));
        let mut file = body(100);
        file.headers_mut().insert(ETAG, HeaderValue::from_static("\"1\""));
        assert_eq!(compressed(&compressor, "gzip", file).await, (None, 100, None));
    }

    #[tokio::test]
    async fn a_response_with_a_weak_etag_is_compressed() {
        let mut cached = body(1000);
        cached.headers_mut().insert(ETAG, HeaderValue::from_static("W/\"1\""));
        let (coding, after, vary) = compressed(&compressor(1000), "gzip", cached).await;
        assert_eq!(coding, Some(HeaderValue::from_static("gzip")));
        assert_eq!(vary, Some(HeaderValue::from_static("accept-encoding")));
        assert!(after < 500, "{after}");
    }

    #[tokio::test]
    async fn a_response_stays_uncompressed_while_all_cpus_compress() {
        let compressor = compressor(1000);
        let _taken = compressor.work.permits.try_acquire().expect("one");
        let (coding, length, _) = compressed(&compressor, "gzip", body(100_000)).await;
        assert_eq!((coding, length, compressor.counters()), (None, 100_000, [0, 0, 1]));
        let (coding, ..) = compressed(&compressor, "gzip", body(1000)).await;
        assert!(coding.is_some(), "small bodies need no permit");
    }

    /// Stores a body, and returns the entry that is found then.
    fn stored(store: &Arc<cache::Store>, body: &[u8]) -> BodyCopies {
        let fresh_for = Duration::from_secs(60);
        let policy = cache::CachePolicy { fresh_for, ..cache::CachePolicy::default() };
        let base = cache::KeyBase::new(
            &cache::KeySecret::from_bytes([1; 16]),
            cache::HashDomain::Response,
        );
        let (keys, tags) = (base.keys_of(body), Default::default());
        let address = cache::EntryAddress { keys, tags };
        let start = store.begin_fetch(cache::Timestamp(1));
        let content = cache::ResponseContent::Data;
        let new = cache::NewEntry { policy: &policy, start, content, extra: b"", body };
        let stats = cache::LookupStats::default();
        store.insert(&address, &new, cache::Timestamp(1), &stats);
        match store.lookup(&address, cache::Timestamp(2), u64::MAX, &stats) {
            cache::Lookup::Fresh(hit) => store.copies_of(&hit),
            miss => panic!("{miss:?}"),
        }
    }

    fn new_store() -> Arc<cache::Store> {
        Arc::new(cache::Store::new(&cache::StoreSettings::default(), Arc::default()))
    }

    async fn send(compressor: &Compressor, coding: Coding, copies: &BodyCopies) -> Response {
        let mut response = body(100_000);
        let wanted = Preference { coding: Some(coding), identity: true };
        compressor.compress(wanted, Some(copies.clone()), &mut response).await;
        response
    }

    #[tokio::test]
    async fn a_stored_response_is_compressed_once_in_each_coding() {
        let (compressor, store) = (compressor(1000), new_store());
        let copies = stored(&store, &[b'a'; 100_000]);
        for (number, coding) in (1..).zip(Coding::ALL) {
            let local = tokio::task::LocalSet::new();
            let both = local.run_until(async {
                tokio::join!(send(&compressor, coding, &copies), send(&compressor, coding, &copies))
            });
            let (first, second) = both.await;
            let third = send(&compressor, coding, &copies).await;
            let name = Some(&HeaderValue::from_static(coding.name()));
            for response in [&first, &second, &third] {
                assert_eq!(response.headers().get(CONTENT_ENCODING), name);
                let ResponseBody::Whole(sent) = response.body() else { panic!("a stream") };
                let expanded = coding::expand(coding, sent, 100_000).expect("a body");
                assert_eq!(expanded, [b'a'; 100_000]);
            }
            assert_eq!(compressor.counters()[0], number * 100_000, "{coding:?}");
            assert_eq!(compressor.reused.load(Ordering::Relaxed), number * 2);
        }
        let stats = store.stats();
        assert_eq!(
            [read(&stats.copies), read(&stats.copies_refused)],
            [Coding::ALL.len() as u64, 0]
        );
    }

    #[tokio::test]
    async fn a_stored_response_below_the_threshold_has_no_copies() {
        let (compressor, store) = (compressor(100_001), new_store());
        let copies = stored(&store, &[b'a'; 100_000]);
        let response = send(&compressor, Coding::Gzip, &copies).await;
        assert_eq!(response.headers().get(CONTENT_ENCODING), None);
        assert_eq!(copies.find(number_of(Coding::Gzip)), None);
    }

    #[tokio::test]
    async fn a_stored_copy_is_sent_while_all_cpus_compress() {
        let (compressor, store) = (compressor(1000), new_store());
        let copies = stored(&store, &[b'a'; 100_000]);
        let taken = compressor.work.permits.try_acquire().expect("one");
        let response = send(&compressor, Coding::Gzip, &copies).await;
        assert_eq!(response.headers().get(CONTENT_ENCODING), None);
        drop(taken);
        send(&compressor, Coding::Gzip, &copies).await;
        let _taken = compressor.work.permits.try_acquire().expect("one");
        let response = send(&compressor, Coding::Gzip, &copies).await;
        let gzip = HeaderValue::from_static("gzip");
        assert_eq!(response.headers().get(CONTENT_ENCODING), Some(&gzip));
    }

    #[test]
    fn a_request_comes_in_one_coding_at_most() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["identity"], Ok(None)),
            (&["gzip"], Ok(Some(Coding::Gzip))),
            (&["BR"], Ok(Some(Coding::Brotli))),
            (&["identity, zstd"], Ok(Some(Coding::Zstd))),
            (&["gzip, gzip"], Err(())),
            (&["gzip", "br"], Err(())),
            (&["compress"], Err(())),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(request_coding(&headers), expected, "{values:?}");
        }
    }

    #[tokio::test]
    async fn a_body_may_expand_in_proportion_to_its_size_and_small_ones_to_a_floor() {
        let offload = Offload::new(1);
        let bounds = ExpansionBounds { bytes_max: 2 << 20, ratio_max: 100 };
        let expand = |text: Vec<u8>| {
            let body =
                Bytes::from(coding::compress(Coding::Gzip, &text).expect("it is repetitive"));
            let whose = (ClientKey::UNKNOWN, Instant::now() + Duration::from_secs(30));
            let offload = &offload;
            async move {
                let size = body.len();
                (size, expand(offload, whose, Coding::Gzip, body, bounds).await.map(|it| it.len()))
            }
        };
        // A few bytes of gzip: far more than a hundredfold, and below the floor.
        assert_eq!(expand(vec![b'1'; INLINE_BYTES_MAX]).await.1, Ok(INLINE_BYTES_MAX));
        let (size, outcome) = expand(vec![b'1'; 1 << 20]).await;
        assert_eq!(outcome, Err(NotExpanded::TooDense(100 * size)));
        // JSON of this kind shrinks to about a half.
        let numbers = (0..100_000_u32).map(|it| format!("{},", it.wrapping_mul(2_654_435_761)));
        let numbers = numbers.collect::<String>().into_bytes();
        let whole = numbers.len();
        assert_eq!(expand(numbers.clone()).await.1, Ok(whole));
        assert_eq!(expand(numbers.repeat(3)).await.1, Err(NotExpanded::TooLarge(2 << 20)));
    }
}

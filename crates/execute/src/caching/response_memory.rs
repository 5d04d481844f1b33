//! Memory for requests that the store answers completely: the addresses of their representations, and the responses
//! that are assembled of entries, with their nodes. Both depend on nothing but their input, so they are kept for equal
//! input and neither hashed nor parsed again. The store still looks up each entry, and decides if it may be served.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use astjson::{ParsedText, Shape};
use bytes::Bytes;
use cache::{CacheKey, EntryAddress, EntryHandle, EntryKeys, Hit, Memo};
use foldhash::fast::RandomState;
use telemetry::Metric;

/// The part of the memory for responses that one of them may take, with nodes and entries: a few times its text.
const RESPONSE_SHARE: u64 = 64;

/// The addresses and responses that are kept, for all operations of the process.
#[derive(Debug)]
pub struct ResponseMemory {
    addresses: Memo<RequestAddresses>,
    responses: Memo<AssembledResponse>,
    hashes: RandomState,
    /// The maximum size of a response that is kept.
    response_bytes_max: usize,
    /// Responses that were taken from the memory.
    taken: AtomicU64,
}

/// The metrics of the memory.
pub const RESPONSE_MEMORY_METRICS: &[Metric<ResponseMemory>] = &[
    Metric::gauge(
        "starling_cache_parsed_bytes",
        "Memory of stored responses that are kept in parsed form, a sixteenth of cache.memory at most",
        ResponseMemory::bytes,
    ),
    Metric::counter(
        "starling_cache_parsed_hits",
        "Responses made of stored entities or root fields that were parsed already",
        ResponseMemory::taken,
    ),
];

/// The representations of a request body, by batch: their positions, and their addresses.
#[derive(Debug)]
pub(crate) struct RequestAddresses {
    body: Bytes,
    /// The keys of each batch without a representation: with the body and the graph, which says what is part of a key,
    /// everything that the addresses depend on.
    bases: Vec<EntryKeys>,
    /// The number of the graph's generation.
    generation: u64,
    pub(crate) items: BatchItems,
    pub(crate) all: BatchAddresses,
}

/// The positions of representations in a request body, by batch.
pub(super) type BatchItems = Vec<Vec<Range<usize>>>;

/// The addresses of representations, by batch.
pub(super) type BatchAddresses = Vec<Vec<EntryAddress>>;

/// A response that was assembled of stored entries.
#[derive(Debug)]
pub(crate) struct AssembledResponse {
    input: ResponseInput,
    pub(crate) text: ParsedText,
}

/// Everything that an assembled response depends on but its shape, which the text knows.
#[derive(Debug)]
struct ResponseInput {
    entries: Vec<EntryHandle>,
    places: Vec<u32>,
}

/// The place of a response in the memory, if it is not there yet.
#[derive(Debug)]
pub(crate) struct NewResponse {
    hash: u64,
    input: ResponseInput,
}

impl ResponseMemory {
    /// Creates an empty memory for at most so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let [addresses, responses] = [bytes_max / 4, bytes_max - bytes_max / 4];
        Self {
            addresses: Memo::new(addresses),
            responses: Memo::new(responses),
            hashes: RandomState::default(),
            response_bytes_max: usize::try_from(responses / RESPONSE_SHARE).unwrap_or(usize::MAX),
            taken: AtomicU64::new(0),
        }
    }

    /// The number of responses that were taken from the memory.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// The size of everything that is kept, in bytes.
    pub fn bytes(&self) -> u64 {
        self.addresses.bytes() + self.responses.bytes()
    }

    /// Returns the addresses of a request with this body and these keys. `compute` does it the first time.
    pub(super) fn addresses_of(
        &self,
        body: &Bytes,
        bases: Vec<EntryKeys>,
        generation: u64,
        compute: impl FnOnce(&Bytes) -> Option<(BatchItems, BatchAddresses)>,
    ) -> Option<Arc<RequestAddresses>> {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(body);
        hasher.write_u64(generation);
        for base in &bases {
            hasher.write_u64(base.public.word());
            hasher.write_u64(base.private.map_or(0, CacheKey::word));
        }
        let hash = hasher.finish();
        let known = self.addresses.get(hash);
        if let Some(known) = known.filter(|it| it.is_of(body, &bases, generation)) {
            return Some(known);
        }
        let (items, all) = compute(body)?;
        let new = Arc::new(RequestAddresses { body: body.clone(), bases, generation, items, all });
        if self.addresses.has_come_before(hash) {
            self.addresses.keep(hash, Arc::clone(&new), new.bytes());
        }
        Some(new)
    }

    /// Returns the response that these entries make in that shape, or its place; `None` if it is not worth keeping.
    /// `places` tells responses of equal entries apart: the numbers of the fields, or the number of entries of each
    /// batch.
    pub(crate) fn response_of<'h>(
        &self,
        hits: impl Iterator<Item = &'h Hit> + Clone,
        places: Vec<u32>,
        shape: &Shape,
    ) -> Option<Result<Arc<AssembledResponse>, NewResponse>> {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_u64(shape.identity());
        places.iter().for_each(|place| hasher.write_u32(*place));
        hits.clone().for_each(|hit| hasher.write_u64(hit.key().word()));
        let hash = hasher.finish();
        let known = self.responses.get(hash);
        if let Some(known) =
            known.filter(|it| it.text.is_of(shape) && it.input.is_of(hits.clone(), &places))
        {
            self.taken.fetch_add(1, Relaxed);
            return Some(Ok(known));
        }
        let bytes: usize = hits.clone().map(|hit| hit.body().len()).sum();
        if bytes > self.response_bytes_max || !self.responses.has_come_before(hash) {
            return None;
        }
        let entries = hits.map(Hit::handle).collect();
        Some(Err(NewResponse { hash, input: ResponseInput { entries, places } }))
    }

    /// Keeps a response at its place.
    pub(crate) fn keep_response(&self, place: NewResponse, text: ParsedText) {
        let NewResponse { hash, input } = place;
        let bytes = text.bytes() + input.bytes();
        self.responses.keep(hash, Arc::new(AssembledResponse { input, text }), bytes);
    }
}

impl ResponseInput {
    fn is_of<'h>(&self, mut hits: impl Iterator<Item = &'h Hit>, places: &[u32]) -> bool {
        self.places == places
            && self.entries.iter().all(|entry| hits.next().is_some_and(|hit| hit.is(entry)))
            && hits.next().is_none()
    }

    /// The memory that it takes, in bytes, with the entries that it may keep alone.
    fn bytes(&self) -> usize {
        let entries: usize = self.entries.iter().map(EntryHandle::bytes).sum();
        entries + size_of_val(&*self.entries) + size_of_val(&*self.places)
    }
}

impl RequestAddresses {
    fn is_of(&self, body: &Bytes, bases: &[EntryKeys], generation: u64) -> bool {
        self.generation == generation && self.bases == bases && self.body == *body
    }

    /// The memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        let items: usize = self.all.iter().map(Vec::len).sum();
        let each = size_of::<EntryAddress>() + size_of::<Range<usize>>();
        self.body.len() + size_of_val(&*self.bases) + items * each
    }
}

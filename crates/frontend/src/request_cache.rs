//! A cache of parsed request bodies, compared byte for byte. Most clients send the same text for the same operation,
//! and parsing JSON with an escaped document in it costs more than comparing it.
//!
//! Each worker has one small cache without locks. It holds the result of parsing and nothing of the graph, so it
//! survives a reload.

use std::cell::RefCell;
use std::hash::BuildHasher;

use bytes::Bytes;
use foldhash::fast::RandomState;
use prepare::OperationRequest;

use super::request::ParsedRequest;

/// The number of entries. A body has one possible place and replaces the entry there. At most 64 × 2 ×
/// [`BODY_BYTES_MAX`] = 2 MiB for each worker.
const ENTRIES: usize = 64;

/// The maximum size of a cached body; longer ones are parsed each time. Documents of clients are mostly under 4 KiB.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The number of hashes of bodies that were received once. A body is cached when it is received for the second time, so
/// that bodies that are never repeated (because their variables differ) displace nothing.
const CANDIDATES: usize = 512;

struct CachedRequest {
    hash: u64,
    body: Box<[u8]>,
    request: OperationRequest,
}

struct RequestCache {
    hasher: RandomState,
    entries: Vec<Option<CachedRequest>>,
    candidates: Vec<u64>,
}

thread_local! {
    static CACHE: RefCell<RequestCache> = RefCell::new(RequestCache {
        hasher: RandomState::default(),
        entries: std::iter::repeat_with(|| None).take(ENTRIES).collect(),
        candidates: vec![0; CANDIDATES],
    });
}

/// Returns the parsed `body`, from the cache or by `parse`. A body with one operation is cached when it is received for
/// the second time.
pub(crate) fn find_or_parse<E>(
    body: Bytes,
    parse: impl FnOnce(Bytes) -> Result<ParsedRequest, E>,
) -> Result<ParsedRequest, E> {
    if body.len() > BODY_BYTES_MAX {
        return parse(body);
    }
    CACHE.with_borrow_mut(|cache| {
        let hash = cache.hasher.hash_one(&*body);
        let entry = &mut cache.entries[hash as usize % ENTRIES];
        if let Some(known) = entry
            && known.hash == hash
            && *known.body == *body
        {
            return Ok(ParsedRequest::One(known.request.clone()));
        }
        let candidate = &mut cache.candidates[(hash >> 32) as usize % CANDIDATES];
        if std::mem::replace(candidate, hash) != hash {
            return parse(body);
        }
        let request = match parse(body.clone())? {
            ParsedRequest::One(request) => request,
            batch @ ParsedRequest::Batch(_) => return Ok(batch),
        };
        // Copies, because slices would keep the buffer of a connection.
        let own = |text: &Bytes| Bytes::copy_from_slice(text);
        let request = OperationRequest {
            query: own(&request.query),
            document_id: request.document_id.clone(),
            operation_name: request.operation_name.clone(),
            variables: own(&request.variables),
            extensions: own(&request.extensions),
        };
        *entry = Some(CachedRequest { hash, body: (&*body).into(), request: request.clone() });
        Ok(ParsedRequest::One(request))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn one(query: Bytes) -> ParsedRequest {
        ParsedRequest::One(OperationRequest { query, ..OperationRequest::default() })
    }

    #[test]
    fn a_body_is_parsed_twice_and_then_cached() {
        let times = Cell::new(0);
        let ask = |body: &'static str| {
            find_or_parse(Bytes::from_static(body.as_bytes()), |body| {
                times.set(times.get() + 1);
                Ok::<_, ()>(one(body))
            })
        };
        for expected in [1, 2, 2, 2] {
            assert_eq!(ask("{a}"), Ok(one(Bytes::from_static(b"{a}"))));
            assert_eq!(times.get(), expected);
        }
    }

    #[test]
    fn a_body_that_cannot_be_parsed_is_not_cached() {
        for _ in 0..4 {
            let response = find_or_parse(Bytes::from_static(b"["), |_| Err("no"));
            assert_eq!(response, Err("no"));
        }
    }

    #[test]
    fn any_number_of_bodies_is_distinguished() {
        for round in 0..3 {
            for number in 0..2_000 {
                let body = Bytes::from(format!("{{\"query\":\"{number}\"}}"));
                let response = find_or_parse(body.clone(), |query| Ok::<_, ()>(one(query)));
                assert_eq!(response, Ok(one(body)), "{round}");
            }
        }
    }
}

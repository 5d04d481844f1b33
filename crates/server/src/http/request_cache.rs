//! Request bodies that come again and again, byte for byte: most clients send the same text for the same
//! operation, and reading JSON with an escaped document in it costs more than comparing it.
//!
//! One small table per core, without locks. It holds what reading yields and nothing of the graph, so a reload
//! does not concern it.

use std::cell::RefCell;
use std::hash::BuildHasher;

use bytes::Bytes;
use foldhash::fast::RandomState;
use prepare::OperationRequest;

use super::request::ParsedRequest;

/// Places of the cache. A body has one; who comes later takes it. At most 64 × 2 × [`BODY_BYTES_MAX`] = 2 MiB
/// a core.
const ENTRIES: usize = 64;

/// Longer bodies are read each time. Documents that clients send are mostly under 4 KiB.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Places for hashes of bodies that came once. A body is kept when it comes the second time, so that bodies
/// that never come again (every one with other variables) push nothing out.
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

/// What `body` says: known, or read by `read` and, if it is one operation, kept from the second time on.
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
        // Texts of its own: slices would keep the buffer of a connection.
        let own = |text: &Bytes| Bytes::copy_from_slice(text);
        let request = OperationRequest {
            query: own(&request.query),
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
    fn a_body_is_read_twice_and_then_known() {
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
    fn what_cannot_be_read_is_not_known() {
        for _ in 0..4 {
            let response = find_or_parse(Bytes::from_static(b"["), |_| Err("no"));
            assert_eq!(response, Err("no"));
        }
    }

    #[test]
    fn any_number_of_bodies_is_told_apart() {
        for round in 0..3 {
            for number in 0..2_000 {
                let body = Bytes::from(format!("{{\"query\":\"{number}\"}}"));
                let response = find_or_parse(body.clone(), |query| Ok::<_, ()>(one(query)));
                assert_eq!(response, Ok(one(body)), "{round}");
            }
        }
    }
}

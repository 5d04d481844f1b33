//! Any bytes as the response of a subgraph over HTTP/1.1: reading never panics, never makes more body than there are
//! bytes, and gives the same result however the bytes are cut.
//!
//! The first byte is the size of the pieces, the rest is the response.

#![no_main]

use libfuzzer_sys::fuzz_target;
use upstream::fuzz_response;

/// Longer heads are refused or not, depending on the pieces in which they arrive.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else { return };
    if data.len() >= RESPONSE_BYTES_MAX {
        return;
    }
    let whole = fuzz_response([data]);
    let cut = fuzz_response(data.chunks(usize::from(*size).max(1)));
    assert_eq!(whole.is_err(), cut.is_err(), "{whole:?} and {cut:?}");
    let (Ok(Some(whole)), Ok(cut)) = (whole, cut) else { return };
    assert_eq!(Some(&whole), cut.as_ref());
    assert!(whole.body.len() + whole.rest.len() <= data.len());
    assert!((200..1000).contains(&whole.status));
    match whole.announced {
        Some(length) if whole.is_complete => assert_eq!(whole.body.len() as u64, length),
        // A body of known length is handed over in one piece.
        Some(_) => assert!(whole.body.is_empty()),
        None => {}
    }
    if !whole.is_complete {
        assert!(whole.rest.is_empty());
    }
});

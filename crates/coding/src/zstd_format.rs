//! The coding `zstd`: the compressor of each thread, and decoders with bounded memory.

use std::cell::RefCell;

/// The level: the bytes that the next one saves are not worth its time (`compress`).
const LEVEL: i32 = 1;

/// The largest window that a frame may request, 2^23 bytes: larger windows are not `zstd` as a content coding (RFC 9659,
/// section 3), and would let a client make the router allocate memory.
const WINDOW_BITS: u32 = 23;

/// A decoder that reads from a slice.
pub(crate) type SliceDecoder<'a> = zstd::stream::read::Decoder<'static, &'a [u8]>;

thread_local! {
    /// The compressor of the thread. Its tables take some hundred kilobytes, so it is made once per thread instead of
    /// once per body.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses `bytes`. `None` if the library fails.
pub(crate) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        kept.as_mut()?.compress(bytes).ok()
    })
}

/// Makes a decoder of `bytes` that refuses large windows.
///
/// # Errors
/// The library cannot allocate a decoder.
pub(crate) fn new_decoder(bytes: &[u8]) -> std::io::Result<SliceDecoder<'_>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
    decoder.window_log_max(WINDOW_BITS)?;
    Ok(decoder)
}

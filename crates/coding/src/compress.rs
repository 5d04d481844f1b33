//! Compressing whole bodies, at levels for answers that are made anew each time.

use std::cell::RefCell;
use std::io::Write;

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::Coding;

// Levels: what the next one saves in bytes must be worth what it costs in time. For an answer of 87 kB
// see `cargo bench -p coding`.
const ZSTD_LEVEL: i32 = 1;
const BROTLI_QUALITY: i32 = 3;
const DEFLATE_LEVEL: u32 = 3;

/// Brotli's window, 2^18 bytes. The usual 4 MiB would be allocated for every body.
const BROTLI_WINDOW_BITS: i32 = 18;

thread_local! {
    /// Its tables are some hundred kilobytes: made once per thread, not once per body.
    static ZSTD: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses `bytes`. `None` if the library fails, or if it gains nothing: send the body as it is.
pub fn compress(coding: Coding, bytes: &[u8]) -> Option<Vec<u8>> {
    let compressed = match coding {
        Coding::Zstd => zstd(bytes),
        Coding::Brotli => brotli(bytes),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(room_for(bytes), Compression::new(DEFLATE_LEVEL));
            encoder.write_all(bytes).and_then(|()| encoder.finish()).ok()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(room_for(bytes), Compression::new(DEFLATE_LEVEL));
            encoder.write_all(bytes).and_then(|()| encoder.finish()).ok()
        }
    };
    compressed.filter(|it| it.len() < bytes.len())
}

/// JSON shrinks to less than a quarter as a rule.
fn room_for(bytes: &[u8]) -> Vec<u8> {
    Vec::with_capacity(bytes.len() / 4)
}

fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    ZSTD.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        kept.as_mut()?.compress(bytes).ok()
    })
}

fn brotli(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let params = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW_BITS,
        size_hint: bytes.len(),
        ..BrotliEncoderParams::default()
    };
    let mut compressed = room_for(bytes);
    brotli::BrotliCompress(&mut bytes, &mut compressed, &params).ok()?;
    Some(compressed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand;

    #[test]
    fn what_is_compressed_expands_to_the_same() {
        let text: String = (0..2000).map(|n| format!("{{\"id\":{n},\"name\":\"a\"}},")).collect();
        for coding in Coding::ALL {
            for bytes in [text.as_bytes(), &text.as_bytes()[..200]] {
                let compressed = compress(coding, bytes).expect("it is repetitive");
                assert!(compressed.len() * 2 < bytes.len(), "{coding:?}");
                let expanded = expand(coding, &compressed, bytes.len());
                assert_eq!(expanded.as_deref(), Ok(bytes), "{coding:?}");
            }
        }
    }

    #[test]
    fn what_does_not_become_smaller_stays_as_it_is() {
        for coding in Coding::ALL {
            assert_eq!(compress(coding, b""), None, "{coding:?}");
            assert_eq!(compress(coding, b"{}"), None, "{coding:?}");
        }
    }
}

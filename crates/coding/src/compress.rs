//! Compression of whole bodies, at levels for responses that are computed anew each time.

use std::io::Write;

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::coding::Coding;
#[cfg(feature = "zstd")]
use crate::zstd_format;

// Levels: the bytes that the next level saves must be worth its time. The measurements are for a response of 87 kB, by
// `cargo bench -p coding`. That of zstd is in `zstd_format`.
const BROTLI_QUALITY: i32 = 3;
const DEFLATE_LEVEL: u32 = 3;

/// Brotli's window, 2^18 bytes. The usual window of 4 MiB would be allocated for every body.
const BROTLI_WINDOW_BITS: i32 = 18;

/// Compresses `bytes`. `None` if the library fails or the result is not smaller; the body is then sent uncompressed.
pub fn compress(coding: Coding, bytes: &[u8]) -> Option<Vec<u8>> {
    let compressed = match coding {
        #[cfg(feature = "zstd")]
        Coding::Zstd => zstd_format::compress(bytes),
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

/// Returns an output buffer for the compressed form of `bytes`. JSON usually shrinks to less than a quarter.
fn room_for(bytes: &[u8]) -> Vec<u8> {
    Vec::with_capacity(bytes.len() / 4)
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
    fn compressed_bytes_expand_to_the_original() {
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
    fn bytes_that_would_not_shrink_are_not_compressed() {
        for coding in Coding::ALL {
            assert_eq!(compress(coding, b""), None, "{coding:?}");
            assert_eq!(compress(coding, b"{}"), None, "{coding:?}");
        }
    }
}

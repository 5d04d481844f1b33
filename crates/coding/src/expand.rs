//! Expansion of compressed bodies from untrusted clients and servers: a few bytes may expand to gigabytes.

use std::io::Read;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use crate::coding::Coding;
#[cfg(feature = "zstd")]
use crate::zstd_format;

/// The reason that a body was not expanded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExpandError {
    /// The body expands to more bytes than allowed.
    #[error("it expands to more than {0} bytes")]
    TooLarge(usize),
    /// The body is cut off, damaged, or not of this coding.
    #[error("it is not valid {}: {reason}", .coding.name())]
    Broken {
        /// The coding that the body claims.
        coding: Coding,
        /// The decoder's message.
        reason: String,
    },
}

/// The read buffer of the brotli decoder.
const BROTLI_READ_BYTES: usize = 4 << 10;

/// The memory that is allocated before the expanded size is known.
const FIRST_BYTES: usize = 16 << 10;

/// Expands `bytes` to at most `limit` bytes. Memory stays within the limit and the decoder's window (at most 16 MiB),
/// whatever the body claims.
///
/// # Errors
/// See [`ExpandError`]. Bytes behind the end of the compressed data are an error too: a proxy that reads them
/// differently would see another request.
pub fn expand(coding: Coding, bytes: &[u8], limit: usize) -> Result<Vec<u8>, ExpandError> {
    let broken = |reason: String| ExpandError::Broken { coding, reason };
    let (expanded, rest) = match coding {
        Coding::Gzip => {
            let mut decoder = MultiGzDecoder::new(bytes);
            let expanded = read(&mut decoder, limit);
            (expanded, decoder.into_inner())
        }
        Coding::Deflate => {
            let mut decoder = ZlibDecoder::new(bytes);
            let expanded = read(&mut decoder, limit);
            (expanded, decoder.into_inner())
        }
        #[cfg(feature = "zstd")]
        Coding::Zstd => {
            let decoder = zstd_format::new_decoder(bytes);
            let mut decoder = decoder.map_err(|error| broken(error.to_string()))?;
            let expanded = read(&mut decoder, limit);
            (expanded, decoder.finish())
        }
        Coding::Brotli => {
            let mut decoder = brotli::Decompressor::new(bytes, BROTLI_READ_BYTES);
            let expanded = read(&mut decoder, limit);
            // The decoder does not report the bytes that it has read ahead, only those that it has not read.
            (expanded, decoder.into_inner())
        }
    };
    let expanded = expanded.map_err(|error| broken(error.to_string()))?;
    if expanded.len() > limit {
        return Err(ExpandError::TooLarge(limit));
    }
    if !rest.is_empty() {
        return Err(broken("something follows its end".to_owned()));
    }
    Ok(expanded)
}

/// Reads one byte more than the limit, to find out whether the output exceeds it.
fn read(decoder: &mut impl Read, limit: usize) -> std::io::Result<Vec<u8>> {
    let most = limit.saturating_add(1);
    let mut expanded = Vec::with_capacity(most.min(FIRST_BYTES));
    decoder.take(most as u64).read_to_end(&mut expanded)?;
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress;

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let zeros = vec![0; 2 << 20];
        for coding in Coding::ALL {
            let bomb = compress(coding, &zeros).expect("zeros compress well");
            assert!(bomb.len() < 64 << 10, "{coding:?}: {}", bomb.len());
            assert_eq!(expand(coding, &bomb, 1000), Err(ExpandError::TooLarge(1000)));
            assert_eq!(expand(coding, &bomb, zeros.len()).map(|it| it.len()), Ok(zeros.len()));
        }
    }

    #[test]
    fn truncated_damaged_and_foreign_bodies_are_refused() {
        let text = "{\"query\":\"{ a }\"}".repeat(50);
        for coding in Coding::ALL {
            let whole = compress(coding, text.as_bytes()).expect("it is repetitive");
            let cut = &whole[..whole.len() - 1];
            for bytes in [&[][..], &whole[..1], cut, text.as_bytes()] {
                let expanded = expand(coding, bytes, 10_000);
                assert!(
                    matches!(expanded, Err(ExpandError::Broken { .. })),
                    "{coding:?} {bytes:?}: {expanded:?}"
                );
            }
        }
    }

    #[test]
    fn bytes_behind_the_end_are_refused() {
        let text = "{\"query\":\"{ a }\"}".repeat(50);
        for coding in Coding::ALL.into_iter().filter(|it| *it != Coding::Brotli) {
            let mut bytes = compress(coding, text.as_bytes()).expect("it is repetitive");
            bytes.extend_from_slice(b"GET / HTTP/1.1");
            let expanded = expand(coding, &bytes, 10_000);
            assert!(
                matches!(expanded, Err(ExpandError::Broken { .. })),
                "{coding:?}: {expanded:?}"
            );
        }
    }

    #[test]
    fn consecutive_members_and_frames_are_one_body() {
        let has_parts = |it: &Coding| ["gzip", "zstd"].contains(&it.name());
        for coding in Coding::ALL.into_iter().filter(has_parts) {
            let one = compress(coding, &[b'a'; 1000]).expect("it is repetitive");
            let expanded = expand(coding, &[one.clone(), one].concat(), 10_000);
            assert_eq!(expanded.map(|it| it.len()), Ok(2000), "{coding:?}");
        }
    }
}

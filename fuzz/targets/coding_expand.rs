//! Any bytes as a compressed body: expanding it never panics and never exceeds the limit, and a
//! compressed body expands to the original.
//!
//! The first byte selects the coding and the limit, the rest is the body.

#![no_main]

use coding::{Coding, ExpandError, compress, expand};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let coding = Coding::ALL[usize::from(first % 4)];
    let limit = usize::from(first / 4) << 10;
    match expand(coding, body, limit) {
        Ok(expanded) => assert!(expanded.len() <= limit),
        Err(ExpandError::TooLarge(of)) => assert_eq!(of, limit),
        Err(ExpandError::Broken { .. }) => {}
    }
    if let Some(compressed) = compress(coding, body) {
        assert!(compressed.len() < body.len());
        assert_eq!(expand(coding, &compressed, body.len()).as_deref(), Ok(body));
    }
});

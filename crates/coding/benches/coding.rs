//! The time to compress and expand the response of the federation benchmark, at the router's levels and at neighbouring
//! ones.
#![allow(clippy::print_stdout, reason = "a bench talks by printing")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]

use std::io::Write;

use coding::{Coding, compress, expand};
use divan::Bencher;
use divan::counter::BytesCount;

const BODY: &[u8] = include_bytes!("../../../fixtures/federation-benchmark/expected_response.json");

const BROTLI_QUALITIES: [i32; 5] = [1, 2, 3, 4, 5];
const GZIP_LEVELS: [u32; 4] = [1, 2, 3, 6];
const ZSTD_LEVELS: [i32; 3] = [-1, 1, 3];

fn main() {
    println!("{} bytes become:", BODY.len());
    for coding in Coding::ALL {
        println!("  {}: {}", coding.name(), compress(coding, BODY).unwrap().len());
    }
    for quality in BROTLI_QUALITIES {
        println!("  br, quality {quality}: {}", brotli(quality).len());
    }
    for level in GZIP_LEVELS {
        println!("  gzip, level {level}: {}", gzip(level).len());
    }
    for level in ZSTD_LEVELS {
        println!("  zstd, level {level}: {}", zstd(level).len());
    }
    divan::main();
}

#[divan::bench(args = Coding::ALL)]
fn compressing(bencher: Bencher<'_, '_>, coding: Coding) {
    bencher.counter(BytesCount::new(BODY.len())).bench(|| compress(coding, BODY));
}

#[divan::bench(args = Coding::ALL)]
fn expanding(bencher: Bencher<'_, '_>, coding: Coding) {
    let compressed = compress(coding, BODY).unwrap();
    bencher.counter(BytesCount::new(BODY.len())).bench(|| expand(coding, &compressed, 1 << 20));
}

#[divan::bench(args = BROTLI_QUALITIES)]
fn brotli(quality: i32) -> Vec<u8> {
    let params = brotli::enc::BrotliEncoderParams {
        quality,
        lgwin: 18,
        size_hint: BODY.len(),
        ..Default::default()
    };
    let mut compressed = Vec::new();
    brotli::BrotliCompress(&mut { BODY }, &mut compressed, &params).unwrap();
    compressed
}

#[divan::bench(args = GZIP_LEVELS)]
fn gzip(level: u32) -> Vec<u8> {
    let level = flate2::Compression::new(level);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(BODY).unwrap();
    encoder.finish().unwrap()
}

#[divan::bench(args = ZSTD_LEVELS)]
fn zstd(level: i32) -> Vec<u8> {
    zstd::bulk::compress(BODY, level).unwrap()
}

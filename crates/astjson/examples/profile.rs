//! Runs one case over and over, for profilers and for counting instructions.
//!
//! ```text
//! cargo build --release -p astjson --example profile
//! target/release/examples/profile shape 1000
//! valgrind --tool=callgrind target/release/examples/profile micro 100
//! ```
//!
//! The case is one of `text`, `dense`, `1kB`, `1MB` (generic parsing), `shape`, `print`,
//! `pipeline`, `micro`; the second argument is the number of runs. A third selects a set of SIMD
//! instructions by number, 0 being none. It prints the best time of a run.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "compare/cases.rs"]
mod cases;

use std::hint::black_box;
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let case = arguments.get(1).map_or("dense", String::as_str);
    let rounds = arguments.get(2).map_or(1000u32, |rounds| rounds.parse().unwrap());
    let mut document = Document::new();
    if let Some(level) = arguments.get(3) {
        assert!(document.scan_with_level(level.parse().unwrap()), "this CPU has fewer levels");
    }
    let mut out = Vec::new();
    let text = Bytes::from(match case {
        "text" => cases::TEXT.to_owned(),
        "1kB" => cases::small(),
        "1MB" => cases::large(),
        _ => cases::DENSE.to_owned(),
    });
    let mut job: Box<dyn FnMut()> = match case {
        "shape" => {
            let shape = cases::dense_shape();
            Box::new(move || {
                document.reset();
                black_box(document.parse_shaped(text.clone(), &shape).unwrap());
            })
        }
        "print" => {
            let root = document.parse(text).unwrap();
            Box::new(move || {
                out.clear();
                document.print(root, &mut out);
            })
        }
        "pipeline" => {
            let mut pipeline = cases::Pipeline::new(&cases::SubgraphResponses::new());
            Box::new(move || pipeline.run())
        }
        "micro" => Box::new(move || cases::micro(&mut document, &mut out)),
        _ => Box::new(move || {
            document.reset();
            black_box(document.parse(text.clone()).unwrap());
        }),
    };
    // Several runs at a time, so that reading the clock does not count.
    let times: u32 = if case == "micro" { 100 } else { 1 };
    let mut best = Duration::MAX;
    for _ in 0..rounds.div_ceil(times) {
        let start = Instant::now();
        for _ in 0..times {
            job();
        }
        best = best.min(start.elapsed() / times);
    }
    println!("{case}: {:.3} µs", best.as_nanos() as f64 / 1e3);
}

//! `cargo bench -p astjson` measures astjson alone, case by case. The example `compare` measures it
//! beside its rivals.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../examples/compare/cases.rs"]
mod cases;

use astjson::Document;
use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;

fn main() {
    divan::main();
}

fn document(name: &str) -> String {
    match name {
        "text" => cases::TEXT.to_owned(),
        "dense" => cases::DENSE.to_owned(),
        "1kB" => cases::small(),
        _ => cases::large(),
    }
}

#[divan::bench(args = ["text", "dense", "1kB", "1MB"])]
fn parse(bencher: Bencher<'_, '_>, name: &str) {
    let text = Bytes::from(document(name));
    let mut document = Document::new();
    bencher.counter(BytesCount::new(text.len())).bench_local(|| {
        document.reset();
        document.parse(text.clone())
    });
}

#[divan::bench]
fn shape(bencher: Bencher<'_, '_>) {
    let text = Bytes::from_static(cases::DENSE.as_bytes());
    let shape = cases::dense_shape();
    let mut document = Document::new();
    bencher.counter(BytesCount::new(text.len())).bench_local(|| {
        document.reset();
        document.parse_shaped(text.clone(), &shape)
    });
}

#[divan::bench(args = ["text", "dense"])]
fn print(bencher: Bencher<'_, '_>, name: &str) {
    let text = document(name);
    let size = text.len();
    let mut document = Document::new();
    let root = document.parse(text).unwrap();
    let mut out = Vec::new();
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        out.clear();
        document.print(root, &mut out);
    });
}

#[divan::bench]
fn pipeline(bencher: Bencher<'_, '_>) {
    let mut pipeline = cases::Pipeline::new(&cases::SubgraphResponses::new());
    bencher.bench_local(|| pipeline.run());
}

#[divan::bench]
fn micro(bencher: Bencher<'_, '_>) {
    let (mut document, mut out) = (Document::new(), Vec::new());
    bencher.bench_local(|| cases::micro(&mut document, &mut out));
}

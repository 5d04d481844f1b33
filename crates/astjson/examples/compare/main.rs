//! Measures astjson against serde_json, sonic-rs and simd-json, side by side.
//!
//! ```text
//! cargo run --release -p astjson --example compare
//! ```
//!
//! Each case is run many times, the libraries in turn, and the best time counts, because on a
//! shared machine it is the least disturbed one. The rivals are measured a second time in a build
//! with `-C target-cpu=native`, made on the first run; their better result counts. (`--no-native`
//! skips that.) The last line is for scripts.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod cases;
mod rivals;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;
use rivals::Rival;

/// Counts allocations and live bytes.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

#[allow(unsafe_code)]
// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The measurements of a library in a case.
#[derive(Clone, Copy)]
struct Measured {
    nanoseconds: f64,
    allocations: usize,
    live_bytes: isize,
}

/// Results by case and library.
type Results = BTreeMap<(&'static str, &'static str), Measured>;

/// Duration of a case in a round, for all libraries together.
const ROUND: Duration = Duration::from_millis(300);

/// A job: does the work, and returns its result, still allocated.
type Job<'a> = Box<dyn FnMut() -> Box<dyn std::any::Any> + 'a>;

/// Runs the jobs of a case in turn and keeps the best time of each.
fn measure(results: &mut Results, case: &'static str, mut jobs: Vec<(&'static str, Job<'_>)>) {
    for (name, job) in &mut jobs {
        // Warm up, then count.
        for _ in 0..3 {
            drop(job());
        }
        let (allocations, live) =
            (ALLOCATIONS.load(Ordering::Relaxed), LIVE_BYTES.load(Ordering::Relaxed));
        let made = job();
        let measured = Measured {
            nanoseconds: f64::MAX,
            // The box of the result is part of the measurement's own cost.
            allocations: ALLOCATIONS.load(Ordering::Relaxed) - allocations,
            live_bytes: LIVE_BYTES.load(Ordering::Relaxed) - live,
        };
        drop(made);
        results.entry((case, name)).or_insert(measured);
    }
    let start = Instant::now();
    while start.elapsed() < ROUND {
        for (name, job) in &mut jobs {
            // A few runs in a row, so that each finds the caches as the one before left them.
            let mut best = f64::MAX;
            for _ in 0..4 {
                let start = Instant::now();
                let made = job();
                best = best.min(start.elapsed().as_nanos() as f64);
                drop(black_box(made));
            }
            if let Some(measured) = results.get_mut(&(case, *name)) {
                measured.nanoseconds = measured.nanoseconds.min(best);
            }
        }
    }
}

fn parse_job<'a, R: Rival + 'static>(text: &'a str) -> (&'static str, Job<'a>) {
    let mut buffer = text.as_bytes().to_vec();
    let job = move || {
        R::refresh(&mut buffer, text);
        Box::new(R::parse(&mut buffer)) as Box<dyn std::any::Any>
    };
    (R::NAME, Box::new(job))
}

fn print_job<'a, R: Rival + 'static>(text: &str) -> (&'static str, Job<'a>) {
    let value = R::parse(&mut text.as_bytes().to_vec());
    let mut out = Vec::with_capacity(2 * text.len());
    let job = move || {
        out.clear();
        value.print(&mut out);
        black_box(&mut out);
        Box::new(()) as Box<dyn std::any::Any>
    };
    (R::NAME, Box::new(job))
}

fn pipeline_job<'a, R: Rival + 'static>(
    responses: &'a cases::SubgraphResponses,
) -> (&'static str, Job<'a>) {
    let mut texts = rivals::texts(responses);
    let mut out = Vec::new();
    let job = move || {
        for (text, from) in texts.iter_mut().zip(responses.all()) {
            R::refresh(text, from);
        }
        rivals::pipeline::<R>(&mut texts, &mut out);
        black_box(&mut out);
        Box::new(()) as Box<dyn std::any::Any>
    };
    (R::NAME, Box::new(job))
}

/// The job of astjson for parsing: generic, or by the shape of the dense document. With `live`
/// every run uses a new document, so that its memory is measured.
fn own_parse_job<'a>(text: &str, shaped: bool, live: bool) -> Job<'a> {
    let text = Bytes::from(text.to_owned());
    let shape = cases::dense_shape();
    let mut document = Document::new();
    Box::new(move || {
        if live {
            document = Document::new();
        } else {
            document.reset();
        }
        let root = if shaped {
            document.parse_shaped(text.clone(), &shape)
        } else {
            document.parse(text.clone())
        };
        black_box(root.unwrap());
        Box::new(())
    })
}

const OWN: &str = "astjson";

fn round(results: &mut Results, own: bool) {
    type Serde = serde_json::Value;
    type Sonic = sonic_rs::Value;
    type Simd = simd_json::OwnedValue;
    let (small, large) = (cases::small(), cases::large());
    let documents =
        [("text", cases::TEXT), ("dense", cases::DENSE), ("1kB", &small), ("1MB", &large)];
    for (case, text) in documents {
        let mut jobs =
            vec![parse_job::<Serde>(text), parse_job::<Sonic>(text), parse_job::<Simd>(text)];
        if own {
            jobs.push((OWN, own_parse_job(text, false, false)));
        }
        measure(results, case, jobs);
    }
    if own {
        measure(results, "shape", vec![(OWN, own_parse_job(cases::DENSE, true, false))]);
        // The rivals have no shapes: their side is the generic parse of the same document, run
        // again beside astjson.
        measure(results, "dense", vec![parse_job::<Sonic>(cases::DENSE)]);
    }
    let text = cases::DENSE;
    let mut jobs =
        vec![print_job::<Serde>(text), print_job::<Sonic>(text), print_job::<Simd>(text)];
    if own {
        let mut document = Document::new();
        let root = document.parse(text).unwrap();
        let mut out = Vec::with_capacity(2 * text.len());
        let job = move || {
            out.clear();
            document.print(root, &mut out);
            black_box(&mut out);
            Box::new(()) as Box<dyn std::any::Any>
        };
        jobs.push((OWN, Box::new(job)));
    }
    measure(results, "print", jobs);
    let responses = cases::SubgraphResponses::new();
    let mut jobs = vec![
        pipeline_job::<Serde>(&responses),
        pipeline_job::<Sonic>(&responses),
        pipeline_job::<Simd>(&responses),
    ];
    if own {
        let mut pipeline = cases::Pipeline::new(&responses);
        let job = move || {
            pipeline.run();
            Box::new(()) as Box<dyn std::any::Any>
        };
        jobs.push((OWN, Box::new(job)));
    }
    measure(results, "pipeline", jobs);
    if own {
        let (mut document, mut out) = (Document::new(), Vec::new());
        let job = move || {
            // A thousand, because a tick of the clock is longer than one.
            for _ in 0..1000 {
                cases::micro(&mut document, &mut out);
            }
            Box::new(()) as Box<dyn std::any::Any>
        };
        measure(results, "micro x1000", vec![(OWN, Box::new(job))]);
    }
}

/// Checks that all libraries do the same job.
fn check_same_result() {
    let responses = cases::SubgraphResponses::new();
    let mut pipeline = cases::Pipeline::new(&responses);
    pipeline.run();
    let expected: serde_json::Value = serde_json::from_slice(&pipeline.out).unwrap();
    fn same<R: Rival>(responses: &cases::SubgraphResponses, expected: &serde_json::Value) {
        let mut out = Vec::new();
        rivals::pipeline::<R>(&mut rivals::texts(responses), &mut out);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).unwrap(), *expected);
    }
    same::<serde_json::Value>(&responses, &expected);
    same::<sonic_rs::Value>(&responses, &expected);
    same::<simd_json::OwnedValue>(&responses, &expected);
}

/// Builds this example for this CPU. Returns the program, or the reason of the failure.
fn build_native() -> Result<std::path::PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    // target/release/examples/compare
    let target = program.ancestors().nth(3).ok_or("no target directory")?.join("native");
    eprintln!("building the rivals with -C target-cpu=native in {}", target.display());
    let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--example", "compare", "--quiet"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "-C target-cpu=native")
        .status()
        .map_err(|error| error.to_string())?;
    status.success().then(|| target.join("release/examples/compare")).ok_or(status.to_string())
}

/// Runs the native build once and keeps results that are better.
fn run_native(program: &Path, results: &mut Results) {
    let output = Command::new(program).arg("--rivals").output().unwrap();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split('\t');
        let (Some(case), Some(name), Some(time)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        for ((own_case, own_name), measured) in results.iter_mut() {
            if *own_case == case && *own_name == name {
                measured.nanoseconds = measured.nanoseconds.min(time.parse().unwrap());
            }
        }
    }
}

fn main() {
    let argument = std::env::args().nth(1);
    let mut results = Results::new();
    if argument.as_deref() == Some("--rivals") {
        round(&mut results, false);
        for ((case, name), measured) in &results {
            println!("{case}\t{name}\t{}", measured.nanoseconds);
        }
        return;
    }
    check_same_result();
    let native = match argument.as_deref() {
        Some("--no-native") => None,
        _ => build_native().map_err(|error| eprintln!("rivals without native: {error}")).ok(),
    };
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        round(&mut results, true);
        if let Some(program) = &native {
            run_native(program, &mut results);
        }
    }
    // Memory of one parse of astjson: a new document, dropped after the count.
    for (case, text, shaped) in [
        ("text", cases::TEXT, false),
        ("dense", cases::DENSE, false),
        ("shape", cases::DENSE, true),
        ("1kB", cases::small().as_str(), false),
        ("1MB", cases::large().as_str(), false),
    ] {
        let bytes = Bytes::from(text.to_owned());
        let shape = cases::dense_shape();
        let before = LIVE_BYTES.load(Ordering::Relaxed);
        let mut document = Document::new();
        let root =
            if shaped { document.parse_shaped(bytes, &shape) } else { document.parse(bytes) };
        root.unwrap();
        let live_bytes = LIVE_BYTES.load(Ordering::Relaxed) - before;
        results.get_mut(&(case, OWN)).unwrap().live_bytes = live_bytes;
    }
    report(&results, native.is_some());
}

fn report(results: &Results, native: bool) {
    let (small, large) = (cases::small(), cases::large());
    let responses = cases::SubgraphResponses::new();
    let sizes = [
        ("text", cases::TEXT.len()),
        ("dense", cases::DENSE.len()),
        ("1kB", small.len()),
        ("1MB", large.len()),
        ("shape", cases::DENSE.len()),
        ("print", cases::DENSE.len()),
        ("pipeline", responses.all().iter().map(|text| text.len()).sum()),
    ];
    println!(
        "\nrivals: {}",
        if native { "the better of generic and native builds" } else { "generic build only" }
    );
    println!(
        "{:10}{:>10}  {:12}{:>10}{:>8}{:>10}{:>12}",
        "case", "bytes", "library", "µs", "MB/s", "allocs", "live bytes"
    );
    for (case, size) in sizes {
        for name in ["serde_json", "simd-json", "sonic-rs", OWN] {
            let Some(measured) = results.get(&(case, name)) else { continue };
            println!(
                "{case:10}{size:>10}  {name:12}{:>10.1}{:>8.0}{:>10}{:>12}",
                measured.nanoseconds / 1e3,
                size as f64 * 1e3 / measured.nanoseconds,
                measured.allocations,
                measured.live_bytes,
            );
        }
    }
    let time = |case, name| results.get(&(case, name)).map(|measured| measured.nanoseconds);
    let best_rival = |case| {
        let times = ["serde_json", "simd-json", "sonic-rs"].into_iter();
        times.filter_map(|name| time(case, name)).fold(f64::MAX, f64::min)
    };
    let ratio = |own_case, rival_case| best_rival(rival_case) / time(own_case, OWN).unwrap();
    println!(
        "\nratios: text={:.2} dense={:.2} shape={:.2} print={:.2} pipeline={:.2} micro_ns={:.0}",
        ratio("text", "text"),
        ratio("dense", "dense"),
        ratio("shape", "dense"),
        ratio("print", "print"),
        ratio("pipeline", "pipeline"),
        time("micro x1000", OWN).unwrap() / 1e3,
    );
}

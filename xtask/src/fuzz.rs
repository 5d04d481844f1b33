//! Fuzzing on stable Rust: builds the targets of `fuzz/` with coverage instrumentation and runs them under libFuzzer,
//! which is part of `libfuzzer-sys`.
//!
//! Seeds worth keeping are in `fuzz/corpus/TARGET/`. Inputs that a run adds go to the target folder and are kept
//! there; an input that causes a failure goes to `fuzz/artifacts/TARGET/`.
//!
//! The target `federations` needs no coverage: it tries random federations, seed after seed, with and without fields
//! that clients may not use, and writes the first one with a wrong response to `tools/federations/fixtures/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::commands::{self, Failure};

/// The compiler flags that let libFuzzer see which branches an input takes. They are flags of LLVM's passes and need
/// no nightly compiler.
const INSTRUMENTATION: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 --cfg fuzzing";

/// The time after which an input is reported as a hang.
const INPUT_SECONDS_MAX: u32 = 10;

/// The memory limit of a target. Protocol machines are bounded and need far less.
const MEMORY_MB_MAX: u32 = 2048;

/// The target that generates its own input.
const FEDERATIONS: &str = "federations";

/// Runs `target`, or each target in turn, for `seconds` each.
pub(crate) fn run(root: &Path, target: Option<&str>, seconds: u32) -> Result<(), Failure> {
    match target {
        Some(FEDERATIONS) => run_federations(root, seconds),
        Some(target) => run_coverage_targets(root, Some(target), seconds),
        None => run_federations(root, seconds).and(run_coverage_targets(root, None, seconds)),
    }
}

fn run_federations(root: &Path, seconds: u32) -> Result<(), Failure> {
    let mut run = commands::cargo();
    run.current_dir(root).args(["run", "--release", "--package", FEDERATIONS, "--"]);
    commands::run(run.args(["--seconds", &seconds.to_string()]))
}

fn run_coverage_targets(root: &Path, target: Option<&str>, seconds: u32) -> Result<(), Failure> {
    let package = root.join("fuzz");
    let manifest = package.join("Cargo.toml");
    if !manifest.is_file() {
        return Err("there is no fuzz/Cargo.toml".to_owned());
    }
    let (known, target_folder) = list_targets(&manifest)?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| target.is_none_or(|wanted| wanted == *name)).collect();
    if chosen.is_empty() {
        return Err(format!(
            "unknown fuzz target `{}`; the targets are {FEDERATIONS}, {}",
            target.unwrap_or_default(),
            known.join(", ")
        ));
    }

    let triple = commands::host_triple()?;
    let build_folder = target_folder.join("fuzz-build");
    // With `--target` the flags apply to the fuzz targets only, not to build scripts and macros.
    let mut build = commands::cargo();
    build.current_dir(&package).args(["build", "--release", "--target", &triple]);
    build.arg("--manifest-path").arg(&manifest).arg("--target-dir").arg(&build_folder);
    for name in &chosen {
        build.args(["--bin", name]);
    }
    commands::run(build.env("RUSTFLAGS", INSTRUMENTATION).env_remove("CARGO_ENCODED_RUSTFLAGS"))?;

    let mut failed = Vec::new();
    for name in chosen {
        let corpus = target_folder.join("fuzz-corpus").join(name);
        let artifacts = package.join("artifacts").join(name);
        for folder in [&corpus, &artifacts] {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let mut fuzz = Command::new(build_folder.join(&triple).join("release").join(name));
        fuzz.current_dir(&package)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus);
        let seeds = package.join("corpus").join(name);
        if seeds.is_dir() {
            fuzz.arg(seeds);
        }
        if let Err(reason) = commands::run(&mut fuzz) {
            eprintln!("xtask: {reason}");
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("{} found failing inputs; they are in fuzz/artifacts/", failed.join(", ")))
}

/// Returns the names of the package's programs and the target folder for its builds.
fn list_targets(manifest: &Path) -> Result<(Vec<String>, PathBuf), Failure> {
    let metadata = commands::read_output(
        commands::cargo()
            .args(["metadata", "--format-version=1", "--no-deps", "--manifest-path"])
            .arg(manifest),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let mut names: Vec<String> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
        })
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    let folder =
        metadata["target_directory"].as_str().ok_or("cargo metadata has no target folder")?;
    Ok((names, PathBuf::from(folder)))
}

//! Tries random federations until a response is wrong or the time is over, each with all rights and with requirements
//! that clients meet in part: `federations [--seconds N] [--seed FIRST] [--out FOLDER]`. `cargo xtask fuzz federations`
//! runs it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks by printing")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use federations::{Tally, run_access_trial, run_trial};

/// The number of operations for each federation.
const OPERATIONS: usize = 10;

/// The number of operations for each of the clients of a federation with requirements.
const OPERATIONS_PER_CLIENT: usize = 5;

struct Settings {
    time: Duration,
    seed: u64,
    out: PathBuf,
}

fn main() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings {
        time: Duration::from_secs(60),
        seed: std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs() << 20),
        out: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures")),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{flag}: {error}"));
        match flag.as_str() {
            "--seconds" => settings.time = Duration::from_secs(number()?),
            "--seed" => settings.seed = number()?,
            "--out" => settings.out = PathBuf::from(&value),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(settings)
}

fn run(settings: &Settings) -> Result<(), String> {
    let started = Instant::now();
    let (mut tally, mut access_tally) = (Tally::default(), Tally::default());
    let mut seed = settings.seed;
    while started.elapsed() < settings.time {
        run_trial(seed, OPERATIONS, &mut tally)
            .and_then(|()| run_access_trial(seed, OPERATIONS_PER_CLIENT, &mut access_tally))
            .map_err(|found| found.write_case(&settings.out))?;
        seed += 1;
    }
    println!("seeds {} to {}: {tally:?}", settings.seed, seed.saturating_sub(1));
    println!("with requirements: {access_tally:?}");
    Ok(())
}

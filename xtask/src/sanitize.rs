//! The crates with `unsafe` under the tools that watch it: Miri on portable code, AddressSanitizer
//! on the instructions that this CPU has, and the instructions of ARM in an emulator.
//!
//! The first two need nightly Rust. Whatever is missing is said with the command that installs it.

use crate::{Failure, process};
use std::path::Path;
use std::process::{Command, Stdio};

/// Tests that are run where programs run slowly: all but those that count allocations or read
/// hundreds of files. Property tests are left out under Miri.
const SLOW_TESTS: [&str; 11] = [
    "--lib",
    "--test",
    "editing",
    "--test",
    "model",
    "--test",
    "projection",
    "--test",
    "runs",
    "--test",
    "shape",
];

/// The target with NEON, and the programs that link for it and run it.
const ARM: &str = "aarch64-unknown-linux-gnu";
const ARM_LINKER: &str = "aarch64-linux-gnu-gcc";
const ARM_EMULATOR: &str = "qemu-aarch64";

/// Runs all three, and says at the end which of them failed.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let host = process::host_triple()?;
    let toolchain = "install it with `rustup toolchain install nightly --component miri`";
    if !answers(rustup(root, "nightly").args(["cargo", "--version"])) {
        return Err(format!("nightly Rust is missing; {toolchain}"));
    }
    if !answers(rustup(root, "nightly").args(["cargo", "miri", "--version"])) {
        return Err(format!("Miri is missing; {toolchain}"));
    }

    let mut miri = rustup(root, "nightly");
    miri.args(["cargo", "miri", "test", "-p", "astjson"]).args(SLOW_TESTS);
    // Property tests ask for the current folder.
    miri.env("MIRIFLAGS", "-Zmiri-disable-isolation");

    let mut address = rustup(root, "nightly");
    address.args(["cargo", "test", "-p", "astjson", "--lib", "--tests", "--target", &host]);
    // With --target the flags reach the tests only, and not build scripts and macros.
    address.env("RUSTFLAGS", "-Zsanitizer=address");

    let mut arm = rustup(root, "stable");
    let emulated =
        [ARM_LINKER, ARM_EMULATOR].map(|name| answers(Command::new(name).arg("--version")));
    if emulated == [true, true] {
        arm.args(["cargo", "test", "-p", "astjson", "--target", ARM]).args(SLOW_TESTS);
        arm.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER);
        let runner = format!("{ARM_EMULATOR} -L /usr/aarch64-linux-gnu");
        arm.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    } else {
        println!(
            "ARM is checked only; to run it, on Debian: `apt-get install qemu-user gcc-aarch64-linux-gnu`"
        );
        arm.args(["cargo", "check", "-p", "astjson", "--target", ARM]);
    }

    let mut failed = Vec::new();
    for (name, mut command) in [("Miri", miri), ("AddressSanitizer", address)] {
        if let Err(reason) = process::run(&mut command) {
            eprintln!("xtask: {reason}");
            failed.push(name);
        }
    }
    if let Err(reason) = process::run(&mut arm) {
        eprintln!("xtask: {reason}; if the target is missing: `rustup target add {ARM}`");
        failed.push("ARM");
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("{} failed", failed.join(", "))) }
}

/// A command of a toolchain that need not be the one in use. What cargo sets for the programs it
/// runs would otherwise reach it.
fn rustup(root: &Path, toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(root).args(["run", toolchain]);
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// Whether a command can be run at all. It says nothing either way.
fn answers(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

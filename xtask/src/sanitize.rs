//! Runs the crates with `unsafe` under tools that detect undefined behaviour: Miri for portable code, AddressSanitizer
//! for the instructions of this CPU, and an emulator for those of ARM.
//!
//! The first two need nightly Rust. A missing tool is reported with the command that installs it.

use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::commands::{self, Failure};

/// The tests for slow environments: all except those that count allocations or read hundreds of files. Miri also skips
/// property tests.
const SLOW_TESTS: [&str; 9] =
    ["--lib", "--test", "editing", "--test", "model", "--test", "runs", "--test", "shape"];

/// The target with NEON instructions, its linker and its emulator.
const ARM: &str = "aarch64-unknown-linux-gnu";
const ARM_LINKER: &str = "aarch64-linux-gnu-gcc";
const ARM_EMULATOR: &str = "qemu-aarch64";

/// Runs all checks, then reports the failed ones.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let host = commands::host_triple()?;
    let toolchain = "install it with `rustup toolchain install nightly --component miri`";
    if !can_run(rustup_command(root, "nightly").args(["cargo", "--version"])) {
        return Err(format!("nightly Rust is missing; {toolchain}"));
    }
    if !can_run(rustup_command(root, "nightly").args(["cargo", "miri", "--version"])) {
        return Err(format!("Miri is missing; {toolchain}"));
    }

    let mut miri = rustup_command(root, "nightly");
    miri.args(["cargo", "miri", "test", "-p", "astjson"]).args(SLOW_TESTS);
    // Property tests read the current folder, which Miri's isolation forbids.
    miri.env("MIRIFLAGS", "-Zmiri-disable-isolation");

    // Only the memory of its connections: Miri has no sockets.
    let mut slab = rustup_command(root, "nightly");
    slab.args(["cargo", "miri", "test", "-p", "reactor", "--lib", "--", "chunk", "slab"]);

    let mut address = rustup_command(root, "nightly");
    let packages = ["-p", "astjson", "-p", "reactor", "--lib", "--tests"];
    address.args(["cargo", "test"]).args(packages).args(["--target", &host]);
    // With `--target` the flags apply to the tests only, not to build scripts and macros.
    address.env("RUSTFLAGS", "-Zsanitizer=address");

    // The pinned toolchain, to which `rustup target add` installs the target.
    let mut arm = Command::new("cargo");
    arm.current_dir(root);
    let emulated =
        [ARM_LINKER, ARM_EMULATOR].map(|name| can_run(Command::new(name).arg("--version")));
    if emulated == [true, true] {
        arm.args(["test", "-p", "astjson", "--target", ARM]).args(SLOW_TESTS);
        arm.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER);
        let runner = format!("{ARM_EMULATOR} -L /usr/aarch64-linux-gnu");
        arm.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    } else {
        println!(
            "ARM is checked only; to run it, on Debian: `apt-get install qemu-user gcc-aarch64-linux-gnu`"
        );
        arm.args(["check", "-p", "astjson", "--target", ARM]);
    }

    let mut failed = Vec::new();
    let commands = [("Miri", miri), ("Miri (slab)", slab), ("AddressSanitizer", address)];
    for (name, mut command) in commands {
        if let Err(reason) = commands::run(&mut command) {
            eprintln!("xtask: {reason}");
            failed.push(name);
        }
    }
    if let Err(reason) = commands::run(&mut arm) {
        eprintln!("xtask: {reason}; if the target is missing: `rustup target add {ARM}`");
        failed.push("ARM");
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("{} failed", failed.join(", "))) }
}

/// Returns a command of a toolchain other than the active one, without the variables that cargo sets for programs it
/// runs.
fn rustup_command(root: &Path, toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(root).args(["run", toolchain]);
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// True if a command runs successfully. Its output is discarded.
fn can_run(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

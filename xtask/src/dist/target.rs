//! The compiler and the linker of a target, and the build.

use super::source::Source;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use test_kit::builds::Build;
use test_kit::commands::{self, Failure};

/// The compiler and the linker of a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Toolchain {
    target: String,
    linker: Linker,
}

#[derive(Debug, PartialEq, Eq)]
enum Linker {
    /// The compiler of this machine, for this machine.
    Native,
    /// GCC for another machine; the prefix of its programs.
    Cross(String),
    /// cargo-zigbuild, for this version of glibc or the oldest that it has.
    Zig(Option<String>),
}

impl Toolchain {
    /// Finds compiler and linker.
    ///
    /// # Errors
    /// The reason why the target cannot be built here, and what is missing.
    pub(super) fn find(target: &str, host: &str, glibc: Option<&str>) -> Result<Self, Failure> {
        if !target.contains("-linux-") {
            return Err("archives are made for Linux only".to_owned());
        }
        if !has_standard_library(target) {
            return Err(format!(
                "its standard library is missing, and `rustup target add {target}` cannot install it"
            ));
        }
        let has_zig = runs("cargo-zigbuild", &["--version"]);
        let linker = match glibc {
            Some(_) if !has_zig => {
                return Err(
                    "--glibc needs cargo-zigbuild: `pip install cargo-zigbuild` installs it"
                        .to_owned(),
                );
            }
            Some(version) => Linker::Zig(Some(version.to_owned())),
            None if target == host => Linker::Native,
            None if has_zig => Linker::Zig(None),
            None => {
                let prefix = gnu_prefix(target);
                let compiler = format!("{prefix}gcc");
                if !runs(&compiler, &["--version"]) {
                    return Err(format!(
                        "neither cargo-zigbuild nor {compiler} is installed (Debian: gcc-{}linux-gnu)",
                        prefix.trim_end_matches("linux-gnu-").replace('_', "-")
                    ));
                }
                Linker::Cross(prefix)
            }
        };
        Ok(Self { target: target.to_owned(), linker })
    }

    /// Builds the router and returns the path of the program.
    ///
    /// # Errors
    /// The build fails.
    pub(super) fn build(
        &self,
        root: &Path,
        build: Build,
        source: &Source,
    ) -> Result<PathBuf, Failure> {
        let mut cargo = commands::cargo();
        let (command, target) = match &self.linker {
            Linker::Zig(Some(glibc)) => ("zigbuild", format!("{}.{glibc}", self.target)),
            Linker::Zig(None) => ("zigbuild", self.target.clone()),
            Linker::Native | Linker::Cross(_) => ("build", self.target.clone()),
        };
        cargo.current_dir(root).arg(command).args(["--locked", "--package", "starling"]);
        cargo.args(build.arguments()).arg("--message-format=json-render-diagnostics");
        // Without `--target` a native build shares its dependencies with other builds of the profile.
        if self.linker != Linker::Native {
            cargo.args(["--target", &target]);
        }
        match &self.linker {
            Linker::Native => {}
            Linker::Cross(prefix) => {
                let name = self.target.replace('-', "_");
                let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
                cargo.env(linker, format!("{prefix}gcc"));
                for (variable, program) in [("CC", "gcc"), ("CXX", "g++"), ("AR", "ar")] {
                    cargo.env(format!("{variable}_{name}"), format!("{prefix}{program}"));
                }
                self.name_compiler(&mut cargo, |program| format!("{prefix}{program}"))?;
                cargo.env("NM", format!("{prefix}nm")).env("LD", format!("{prefix}ld"));
            }
            Linker::Zig(_) => {
                // Zig's name of the target that cargo-zigbuild builds for.
                let target = target.replacen("-unknown-", "-", 1);
                self.name_compiler(&mut cargo, |program| match program {
                    "gcc" => format!("cargo-zigbuild zig cc -- -target {target}"),
                    "g++" => format!("cargo-zigbuild zig c++ -- -target {target}"),
                    program => format!("cargo-zigbuild zig {program}"),
                })?;
                // Librdkafka's list of exported functions names one that this build does not have, which Zig's linker
                // does not accept.
                cargo.env("LDFLAGS", "-Wl,--undefined-version");
            }
        }
        // A package without the page in the browser would surprise its users.
        if std::env::var_os("STARLING_IDE").is_none() {
            cargo.env("STARLING_IDE", "graphiql");
        }
        source.describe_build(&mut cargo);
        println!("building the router for {target}");
        let messages = commands::read_output(&mut cargo)?;
        let messages = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let programs = messages.filter(|message| message["target"]["name"] == "starling");
        programs
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back()
            .ok_or_else(|| "cargo built no program `starling`".to_owned())
    }

    /// Names the compiler for build scripts that read the variables without a target, as that of librdkafka does. Other
    /// programs of the build stay programs for this machine. `program_of` returns what replaces a program of GNU.
    fn name_compiler(
        &self,
        cargo: &mut Command,
        program_of: impl Fn(&str) -> String,
    ) -> Result<(), Failure> {
        let host = commands::host_triple()?;
        for (variable, program) in
            [("CC", "gcc"), ("CXX", "g++"), ("AR", "ar"), ("RANLIB", "ranlib")]
        {
            cargo.env(variable, program_of(program));
            if host != self.target {
                cargo.env(format!("{variable}_{}", host.replace('-', "_")), program);
            }
        }
        Ok(())
    }

    /// Returns the program that separates debug symbols.
    pub(super) fn objcopy(&self) -> String {
        match &self.linker {
            Linker::Native => "objcopy".to_owned(),
            Linker::Cross(prefix) => format!("{prefix}objcopy"),
            // Zig brings one only in part. That of LLVM, or of GNU for this target, knows the format.
            Linker::Zig(_) => {
                let known =
                    ["llvm-objcopy".to_owned(), format!("{}objcopy", gnu_prefix(&self.target))];
                known
                    .into_iter()
                    .find(|it| runs(it, &["--version"]))
                    .unwrap_or("objcopy".to_owned())
            }
        }
    }
}

/// Returns the prefix of GNU's programs for a target: `aarch64-linux-gnu-` for `aarch64-unknown-linux-gnu`.
fn gnu_prefix(target: &str) -> String {
    format!("{}-", target.replacen("-unknown-", "-", 1))
}

/// True if Rust's standard library for the target is there, or can be installed.
fn has_standard_library(target: &str) -> bool {
    let exists = || {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", target]).stderr(Stdio::null());
        let folder = rustc.output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
        folder.is_some_and(|folder| Path::new(folder.trim()).is_dir())
    };
    exists() || (runs("rustup", &["target", "add", target]) && exists())
}

/// True if the program can be started and succeeds.
fn runs(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_needs_no_other_linker_and_a_target_without_a_library_is_refused() {
        let host = commands::host_triple().unwrap();
        let native = Toolchain { target: host.clone(), linker: Linker::Native };
        assert_eq!(Toolchain::find(&host, &host, None), Ok(native));
        let reason = Toolchain::find("x-unknown-linux-gnu", &host, None).unwrap_err();
        assert!(reason.contains("rustup target add x-unknown-linux-gnu"), "{reason}");
        let reason = Toolchain::find("x86_64-pc-windows-msvc", &host, None).unwrap_err();
        assert_eq!(reason, "archives are made for Linux only");
    }

    #[test]
    fn programs_of_gnu_have_the_target_in_their_names() {
        assert_eq!(gnu_prefix("aarch64-unknown-linux-gnu"), "aarch64-linux-gnu-");
    }
}

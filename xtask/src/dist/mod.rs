//! `cargo xtask dist`: makes the archives of a release.
//!
//! For each target one archive with the program and all files that belong to it ([`contents`]), one with the debug
//! symbols ([`symbols`]), the list of its components ([`sbom`]), and a Debian package ([`debian`]); beside them
//! `install.sh` and the sums of all files.
//! The same commit gives the same bytes, if compiler and path of the checkout are the same: dates come from the commit
//! ([`source`]), entries are sorted ([`archive`]).

mod archive;
mod components;
mod contents;
mod debian;
mod files;
mod notices;
mod release;
mod sbom;
mod source;
mod symbols;
mod target;
#[cfg(test)]
mod tests;

use crate::arguments::DistArguments;
use archive::{Compression, Entry};
pub(crate) use components::target_folder;
use files::{at, read};
use release::Release;
use source::Source;
use std::fs;
use std::path::{Path, PathBuf};
use target::Toolchain;
use test_kit::builds::{Build, build_programs};
use test_kit::commands::{self, Failure};

/// The targets of a release.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The file with the SHA-256 of every other file.
const SUMS: &str = "SHA256SUMS";

/// The script that installs an archive, relative to the root.
const INSTALLER: &str = "packaging/install.sh";

/// Makes the archives.
pub(crate) fn run(root: &Path, arguments: &DistArguments) -> Result<(), Failure> {
    let output = match &arguments.output {
        Some(folder) => folder.clone(),
        None => target_folder(root)?.join("packages"),
    };
    let source = Source::read(root)?;
    if let Some(binary) = &arguments.binary {
        let host = commands::host_triple()?;
        let release =
            Release { root, source: &source, output: &output, compression: Compression::Fast };
        release.prepare()?;
        release.pack(&Program { binary, helper: binary, target: &host, objcopy: "objcopy" })?;
        return release.finish();
    }
    let is_dist = arguments.profile == "dist";
    let build = if is_dist { Build::Dist } else { Build::Debug };
    let compression = if is_dist { Compression::Best } else { Compression::Fast };
    let release = Release { root, source: &source, output: &output, compression };
    release.prepare()?;

    let host = commands::host_triple()?;
    let chosen: Vec<&str> = match arguments.target.as_slice() {
        [] => TARGETS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut skipped = Vec::new();
    let mut packed = 0;
    let mut helper = None;
    for target in chosen {
        let toolchain = match Toolchain::find(target, &host, arguments.glibc.as_deref()) {
            Ok(toolchain) => toolchain,
            // A target that was asked for is not optional.
            Err(reason) if !arguments.target.is_empty() => {
                return Err(format!("{target}: {reason}"));
            }
            Err(reason) => {
                skipped.push(format!("{target}: {reason}"));
                continue;
            }
        };
        let binary = toolchain.build(root, build, &source)?;
        // Completions and man pages do not depend on the target, and only a program of this machine can print them.
        let helper = match &helper {
            _ if target == host => &*helper.insert(binary.clone()),
            Some(helper) => helper,
            None => {
                let [program] = build_programs(root, Build::Debug, ["starling"])?;
                &*helper.insert(program)
            }
        };
        let objcopy = toolchain.objcopy();
        release.pack(&Program { binary: &binary, helper, target, objcopy: &objcopy })?;
        packed += 1;
    }
    for reason in &skipped {
        println!("skipped: {reason}");
    }
    if packed == 0 {
        return Err("no target can be built here".to_owned());
    }
    release.finish()
}

/// A program that an archive is made of.
struct Program<'a> {
    /// The program for `target`.
    binary: &'a Path,
    /// The same program for this machine.
    helper: &'a Path,
    target: &'a str,
    /// The program that separates debug symbols for `target`.
    objcopy: &'a str,
}

impl Release<'_> {
    /// Creates an empty output folder.
    fn prepare(&self) -> Result<(), Failure> {
        // Archives of an earlier run would get into the sums.
        match fs::read_dir(self.output) {
            Ok(entries) => {
                for entry in entries {
                    let path = entry.map_err(|error| error.to_string())?.path();
                    if !is_of_release(&path) {
                        return Err(format!(
                            "{} has other files than archives, such as {}: name another folder by `--output`",
                            self.output.display(),
                            path.display()
                        ));
                    }
                    fs::remove_file(&path).map_err(|error| at(&path, &error))?;
                }
                Ok(())
            }
            Err(_) => fs::create_dir_all(self.output).map_err(|error| at(self.output, &error)),
        }
    }

    /// Writes the archives of one target.
    fn pack(&self, program: &Program<'_>) -> Result<(), Failure> {
        let name = format!("starling-{}-{}", env!("CARGO_PKG_VERSION"), program.target);
        println!("packing {name}");
        let scratch = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        let split = symbols::split(program.binary, scratch.path(), program.objcopy)?;
        let components = components::read(self.root, program.target)?;
        let sbom = sbom::write(&components, program.target, self.source);
        let mut entries = contents::collect(self.root, program.helper, scratch.path())?;
        entries.push(Entry::program("starling", read(&split.program)?));
        let notices = notices::write(&components.crates);
        entries.push(Entry::file("licences/third-party.txt", notices));
        entries.push(Entry::file("sbom.cdx.json", sbom.clone().into_bytes()));
        debian::write(&entries, program.target, self)?;
        let archive = self.output.join(format!("{name}.tar.gz"));
        archive::write(&archive, &name, entries, self.source.seconds, self.compression)?;
        let debug = vec![Entry::file("starling.debug", read(&split.symbols)?)];
        let archive = self.output.join(format!("{name}.debug.tar.gz"));
        archive::write(&archive, &name, debug, self.source.seconds, self.compression)?;
        let file = self.output.join(format!("{name}.cdx.json"));
        fs::write(&file, sbom).map_err(|error| at(&file, &error))
    }

    /// Writes the files that belong to all archives.
    fn finish(&self) -> Result<(), Failure> {
        let installer = self.output.join("install.sh");
        fs::copy(self.root.join(INSTALLER), &installer).map_err(|error| at(&installer, &error))?;
        let sums = archive::sums(self.output)?;
        let file = self.output.join(SUMS);
        fs::write(&file, &sums).map_err(|error| at(&file, &error))?;
        println!("{}:\n{}", self.output.display(), sums.trim_end());
        Ok(())
    }
}

/// True if the file has the name of one that [`Release`] writes.
fn is_of_release(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_archive = name.starts_with("starling-")
        && [".tar.gz", ".cdx.json"].iter().any(|end| name.ends_with(end));
    let is_package = name.starts_with("starling_") && name.ends_with(".deb");
    is_archive || is_package || name == SUMS || name == "install.sh"
}

/// Packs a program that exists for this machine, for the tests of packages. Returns the folder of the archives.
///
/// # Errors
/// See [`run`].
pub(crate) fn pack_for_tests(
    root: &Path,
    binary: &Path,
    output: PathBuf,
) -> Result<PathBuf, Failure> {
    let arguments = DistArguments {
        target: Vec::new(),
        profile: "dev".to_owned(),
        glibc: None,
        binary: Some(binary.to_owned()),
        output: Some(output.clone()),
    };
    run(root, &arguments)?;
    Ok(output)
}

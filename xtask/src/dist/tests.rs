//! Tests of the parts that need no build. The suite `packages` checks whole archives.

use super::archive::{self, Compression, Entry};
use super::release::Release;
use super::source::Source;
use super::{SUMS, components, is_of_release};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use test_kit::builds::workspace_root;
use test_kit::commands;

/// Paths, modes, times and contents of an archive.
fn list(file: &Path) -> Vec<(String, u32, u64, String)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(file).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let header = entry.header();
        let (mode, time) = (header.mode().unwrap(), header.mtime().unwrap());
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        (path, mode, time, content)
    });
    entries.collect()
}

#[test]
fn an_archive_is_the_same_for_the_same_files_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let entries = || vec![Entry::program("starling", "run"), Entry::file("docs/a.md", "read")];
    let mut reversed = entries();
    reversed.reverse();
    archive::write(&first, "x", entries(), 1_700_000_000, Compression::Best).unwrap();
    archive::write(&second, "x", reversed, 1_700_000_000, Compression::Best).unwrap();
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let entry =
        |path: &str, mode: u32, text: &str| (path.to_owned(), mode, 1_700_000_000, text.to_owned());
    assert_eq!(
        list(&first),
        [entry("x/docs/a.md", 0o644, "read"), entry("x/starling", 0o755, "run")]
    );
}

#[test]
fn sums_are_lines_as_sha256sum_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("b", ""), ("a", "abc")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n\
        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n";
    assert_eq!(archive::sums(folder.path()), Ok(expected.to_owned()));
}

#[test]
fn archives_of_an_earlier_run_are_deleted_and_other_files_are_not() {
    let root = workspace_root();
    let folder = tempfile::tempdir().unwrap();
    let source = Source { commit: None, seconds: 0 };
    let release = Release {
        root: &root,
        source: &source,
        output: folder.path(),
        compression: Compression::Fast,
    };
    for name in [
        "starling-0.0.1-x.tar.gz",
        "starling-0.0.1-x.cdx.json",
        "starling_0.0.1_x.deb",
        SUMS,
        "install.sh",
    ] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    release.prepare().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let other = folder.path().join("thesis.tex");
    fs::write(&other, "").unwrap();
    let reason = release.prepare().unwrap_err();
    assert!(reason.contains("thesis.tex") && reason.contains("--output"), "{reason}");
    assert!(other.exists());
    assert!(!is_of_release(&other));
}

#[test]
fn the_components_are_those_of_the_router_and_not_those_of_its_tests() {
    let components =
        components::read(&workspace_root(), &commands::host_triple().unwrap()).unwrap();
    let names: Vec<&str> = components.crates.iter().map(|it| it.id.0.as_str()).collect();
    for name in ["tokio", "rustls", "rdkafka-sys", "regorus", "tikv-jemalloc-sys"] {
        assert!(names.contains(&name), "{name}");
    }
    for name in ["starling", "cache", "expect-test", "foyer-memory", "divan", "serde_derive", "tar"]
    {
        assert!(!names.contains(&name), "{name}");
    }
    for it in &components.crates {
        assert!(it.licence.is_some() && it.checksum.is_some() && it.folder.is_dir(), "{:?}", it.id);
        for used in &it.dependencies {
            assert!(components.crates.iter().any(|it| it.id == *used), "{used:?} is not listed");
        }
    }
    assert!(components.direct.iter().any(|(name, _)| name == "tokio"));
    assert!(components.npm.iter().any(|it| it.name == "graphiql"));
}

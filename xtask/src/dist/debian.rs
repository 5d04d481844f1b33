//! The Debian package, made by `dpkg-deb` of the files of an archive. Where that program is missing, there is none.

use super::archive::{Compression, Entry};
use super::files::at;
use super::release::Release;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use test_kit::commands::{self, Failure};

/// Scripts that run after installation and before removal, relative to the root.
const SCRIPTS: [&str; 2] = ["postinst", "prerm"];

/// Folders of archives, and those of the package.
const FOLDERS: [(&str, &str); 3] = [
    ("man/", "usr/share/man/man1/"),
    ("licences/", "usr/share/doc/starling/licences/"),
    ("examples/", "usr/share/doc/starling/examples/"),
];

/// Files of archives, and those of the package.
const FILES: [(&str, &str); 8] = [
    ("starling", "usr/bin/starling"),
    ("systemd/starling.service", "usr/lib/systemd/system/starling.service"),
    ("completions/starling", "usr/share/bash-completion/completions/starling"),
    ("completions/starling.fish", "usr/share/fish/vendor_completions.d/starling.fish"),
    ("completions/_starling", "usr/share/zsh/vendor-completions/_starling"),
    ("CHANGELOG.md", "usr/share/doc/starling/CHANGELOG.md"),
    ("INSTALLATION.md", "usr/share/doc/starling/INSTALLATION.md"),
    ("sbom.cdx.json", "usr/share/doc/starling/sbom.cdx.json"),
];

/// Writes the package of a target beside its archives.
///
/// # Errors
/// A file cannot be written, or `dpkg-deb` fails.
pub(super) fn write(entries: &[Entry], target: &str, release: &Release<'_>) -> Result<(), Failure> {
    let Some(architecture) = architecture(target) else {
        println!("skipped: the Debian package of {target}: its architecture is unknown");
        return Ok(());
    };
    if commands::read_output(Command::new("dpkg-deb").arg("--version")).is_err() {
        println!("skipped: the Debian package of {target}: dpkg-deb is not installed");
        return Ok(());
    }
    let scratch = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let folder = scratch.path();
    let mut bytes = 0;
    let mut libc = None;
    for entry in entries {
        let path = place(&entry.path)
            .ok_or_else(|| format!("the Debian package has no place for {}", entry.path))?;
        let mut content = entry.content.clone();
        if entry.path == "starling" {
            libc = newest_libc(&content);
        } else if entry.path.ends_with(".service") {
            content =
                String::from_utf8_lossy(&content).replace("/usr/local/bin/", "/usr/bin/").into();
        }
        bytes += content.len();
        put(&folder.join(path), &content, entry.mode)?;
    }
    for name in SCRIPTS {
        let script = release.root.join("packaging/debian").join(name);
        let script = fs::read(&script).map_err(|error| at(&script, &error))?;
        put(&folder.join("DEBIAN").join(name), &script, 0o755)?;
    }
    let copyright = release.root.join("packaging/debian/copyright");
    let copyright = fs::read(&copyright).map_err(|error| at(&copyright, &error))?;
    put(&folder.join("usr/share/doc/starling/copyright"), &copyright, 0o644)?;
    let libc = libc.map(|version| format!(" (>= {version})")).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let control = format!(
        "Package: starling\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: The Starling authors <starling@example.invalid>\nInstalled-Size: {}\n\
         Depends: adduser, libc6{libc}, libgcc-s1\nRecommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: federated GraphQL router for live data\n \
         One program joins many subgraphs into one graph, serves queries from them, and drives\n \
         subscriptions from events of NATS, Kafka and Redis.\n",
        bytes.div_ceil(1024)
    );
    put(&folder.join("DEBIAN/control"), control.as_bytes(), 0o644)?;

    let package = release.output.join(format!("starling_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    // Names, owners and times do not depend on this machine.
    build.env("SOURCE_DATE_EPOCH", release.source.seconds.to_string()).arg("--root-owner-group");
    build.arg(match release.compression {
        Compression::Fast => "-z1",
        Compression::Best => "-z9",
    });
    commands::read_output(build.args(["-Zxz", "--build"]).arg(folder).arg(&package)).map(drop)
}

/// Returns Debian's name of the architecture of a target.
fn architecture(target: &str) -> Option<&'static str> {
    match target.split('-').next()? {
        "x86_64" => Some("amd64"),
        "aarch64" => Some("arm64"),
        _ => None,
    }
}

/// Returns the path in the package of a file of an archive.
fn place(path: &str) -> Option<String> {
    if let Some((_, place)) = FILES.iter().find(|(file, _)| *file == path) {
        return Some((*place).to_owned());
    }
    FOLDERS.iter().find_map(|(from, to)| Some(format!("{to}{}", path.strip_prefix(from)?)))
}

/// Returns the newest version of glibc that a program names in its table of symbols: `2.34`.
fn newest_libc(program: &[u8]) -> Option<String> {
    let mark = b"GLIBC_";
    let after = program.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    let versions = after.filter_map(|(at, _)| {
        let rest = &program[at + mark.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        // Names in the table end with a zero; other texts do not.
        let text = std::str::from_utf8(&rest[..end]).ok().filter(|_| rest[end] == 0)?;
        text.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()
    });
    let newest = versions.max()?;
    Some(newest.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
}

/// Writes a file and the folders above it.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write().map_err(|error| at(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_file_has_a_place() {
        for (path, expected) in [
            ("starling", Some("usr/bin/starling")),
            ("man/starling-serve.1", Some("usr/share/man/man1/starling-serve.1")),
            ("licences/third-party.txt", Some("usr/share/doc/starling/licences/third-party.txt")),
            ("other/file", None),
        ] {
            assert_eq!(place(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_newest_glibc_is_found_among_symbols() {
        let program =
            b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0needs GLIBC_2.99 or so\0";
        assert_eq!(newest_libc(program).as_deref(), Some("2.34"));
        assert_eq!(newest_libc(b"nothing"), None);
    }
}

//! The packages that are in the program of a target.
//!
//! `cargo tree` knows which packages the features of a release need, and `cargo metadata` what they are. Crates of this
//! workspace are not listed: they are the program. The page in the browser contains npm packages.

use super::files::at;
use crate::licences;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use test_kit::commands::{self, Failure};

/// The lock file of the page, relative to the root.
const PAGE_LOCK: &str = "crates/ide/page/package-lock.json";

/// All packages in a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Components {
    /// Packages of crates.io, sorted.
    pub(super) crates: Vec<Crate>,
    /// The crates that code of this workspace uses itself.
    pub(super) direct: BTreeSet<PackageId>,
    /// Packages of npm in the page, sorted.
    pub(super) npm: Vec<NpmPackage>,
}

/// Name and version of a crate.
pub(super) type PackageId = (String, String);

/// A crate that is not ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crate {
    pub(super) id: PackageId,
    pub(super) description: Option<String>,
    /// An SPDX expression.
    pub(super) licence: Option<String>,
    pub(super) repository: Option<String>,
    /// SHA-256 of the published archive.
    pub(super) checksum: Option<String>,
    /// The folder of its sources.
    pub(super) folder: PathBuf,
    pub(super) dependencies: BTreeSet<PackageId>,
}

/// A package in the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpmPackage {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    /// The hash of the published archive, as npm writes it: `sha512-BASE64`.
    pub(super) integrity: Option<String>,
}

/// Returns the target folder of cargo.
///
/// # Errors
/// `cargo metadata` fails.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, Failure> {
    let metadata = metadata(root, &["--no-deps"])?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target folder".to_owned())
}

/// Reads the packages of the program for a target, with all features.
///
/// # Errors
/// Cargo fails, or its output has another form.
pub(super) fn read(root: &Path, target: &str) -> Result<Components, Failure> {
    let mut tree = commands::cargo();
    tree.current_dir(root).args([
        "tree",
        "--locked",
        "--package",
        "starling",
        "--features",
        "full",
    ]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}"]);
    tree.args(["--target", target]);
    let edges = parse_tree(&commands::read_output(&mut tree)?)?;

    let metadata = metadata(root, &["--filter-platform", target])?;
    let lock = read_text(&root.join("Cargo.lock"))?;
    let checksums = parse_checksums(&lock);
    let clarified = licences::parse_clarifications(&read_text(&root.join("deny.toml"))?);
    let mut crates = Vec::new();
    let mut own = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let id = (text("name").unwrap_or_default(), text("version").unwrap_or_default());
        if package["source"].is_null() {
            own.insert(id);
            continue;
        }
        let Some(dependencies) = edges.get(&id) else { continue };
        let manifest = text("manifest_path").unwrap_or_default();
        crates.push(Crate {
            description: text("description"),
            licence: text("license").or_else(|| clarified.get(&id.0).cloned()),
            repository: text("repository"),
            checksum: checksums.get(&id).cloned(),
            folder: Path::new(&manifest).parent().unwrap_or(Path::new("")).to_owned(),
            dependencies: dependencies.clone(),
            id,
        });
    }
    crates.sort_by(|a, b| a.id.cmp(&b.id));
    let direct = edges.iter().filter(|(id, _)| own.contains(*id)).flat_map(|(_, used)| used);
    let direct = direct.filter(|id| !own.contains(*id)).cloned().collect();
    let npm = parse_npm_lock(&read_text(&root.join(PAGE_LOCK))?)?;
    Ok(Components { crates, direct, npm })
}

fn metadata(root: &Path, words: &[&str]) -> Result<serde_json::Value, Failure> {
    let mut cargo = commands::cargo();
    cargo.current_dir(root).args(["metadata", "--locked", "--format-version=1"]).args(words);
    serde_json::from_str(&commands::read_output(&mut cargo)?)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))
}

fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| at(path, &error))
}

/// Returns the direct dependencies of each package in the output of `cargo tree`: a line is `DEPTH NAME vVERSION`, and
/// the dependencies of a package are printed at its first place only.
fn parse_tree(text: &str) -> Result<BTreeMap<PackageId, BTreeSet<PackageId>>, Failure> {
    let mut edges: BTreeMap<PackageId, BTreeSet<PackageId>> = BTreeMap::new();
    let mut path: Vec<PackageId> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let parts = (|| {
            let depth: usize = words.next()?.parse().ok()?;
            let name = words.next()?;
            Some((depth, (name.to_owned(), words.next()?.strip_prefix('v')?.to_owned())))
        })();
        let (depth, id) = parts.ok_or_else(|| format!("cargo tree prints `{line}`"))?;
        if depth > path.len() {
            return Err(format!("cargo tree prints `{line}` without what needs it"));
        }
        path.truncate(depth);
        if let Some(parent) = path.last() {
            edges.entry(parent.clone()).or_default().insert(id.clone());
        }
        edges.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(edges)
}

/// Returns the checksums in `Cargo.lock`.
fn parse_checksums(lock: &str) -> BTreeMap<PackageId, String> {
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let value = |key: &str| {
                let line =
                    package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
                line.map(|value| value.trim_matches('"').to_owned())
            };
            Some(((value("name")?, value("version")?), value("checksum")?))
        })
        .collect()
}

/// Returns the packages in the lock file of npm, without the bundler, which is in no page.
fn parse_npm_lock(lock: &str) -> Result<Vec<NpmPackage>, Failure> {
    let lock: serde_json::Value =
        serde_json::from_str(lock).map_err(|error| format!("{PAGE_LOCK} is not JSON: {error}"))?;
    let packages =
        lock["packages"].as_object().ok_or("the lock file of the page has no packages")?;
    let mut npm = Vec::new();
    for (path, package) in packages {
        let Some((_, name)) = path.rsplit_once("node_modules/") else { continue };
        if name == "esbuild" || name.starts_with("@esbuild/") {
            continue;
        }
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        npm.push(NpmPackage {
            name: name.to_owned(),
            version: text("version").unwrap_or_default(),
            licence: text("license"),
            integrity: text("integrity"),
        });
    }
    npm.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    npm.dedup();
    Ok(npm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> PackageId {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_tree_becomes_the_dependencies_of_each_package() {
        let tree = "0 starling v0.1.0 (/x)\n1 a v1.0.0\n2 b v2.0.0\n1 b v2.0.0 (*)\n1 c v3.0.0+4\n";
        let edges = parse_tree(tree).unwrap();
        let of = |name: &str, version: &str| {
            edges[&id(name, version)].iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            of("starling", "0.1.0"),
            [id("a", "1.0.0"), id("b", "2.0.0"), id("c", "3.0.0+4")]
        );
        assert_eq!(of("a", "1.0.0"), [id("b", "2.0.0")]);
        assert_eq!(of("b", "2.0.0"), []);
        for wrong in ["x a v1.0.0", "0 a", "0 a 1.0.0", "0 a v1.0.0\n2 b v1.0.0"] {
            assert!(parse_tree(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn checksums_are_those_of_published_packages() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\n\
            version = \"2.0.0\"\nsource = \"x\"\nchecksum = \"ab\"\ndependencies = [\n \"a\",\n]\n";
        assert_eq!(parse_checksums(lock), BTreeMap::from([(id("b", "2.0.0"), "ab".to_owned())]));
    }

    #[test]
    fn the_bundler_is_no_part_of_the_page() {
        let lock = r#"{"packages": {"": {"name": "page"},
            "node_modules/esbuild": {"version": "1.0.0"},
            "node_modules/@esbuild/linux-x64": {"version": "1.0.0"},
            "node_modules/a/node_modules/@b/c": {"version": "2.0.0", "license": "MIT", "integrity": "sha512-AA=="}}}"#;
        let expected = NpmPackage {
            name: "@b/c".to_owned(),
            version: "2.0.0".to_owned(),
            licence: Some("MIT".to_owned()),
            integrity: Some("sha512-AA==".to_owned()),
        };
        assert_eq!(parse_npm_lock(lock), Ok(vec![expected]));
    }
}

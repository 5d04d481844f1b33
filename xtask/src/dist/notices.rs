//! The licences of the packages in a program, as their texts ask for.

use super::components::Crate;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The beginnings of the names of files with licences and notices, in lower case.
const NAMES: [&str; 6] = ["licen", "copying", "copyright", "notice", "unlicense", "patents"];

/// C libraries are in folders of their own below a package: `openssl-src/openssl/LICENSE.txt`.
const DEPTH_MAX: usize = 2;

/// Longer files are no licences. The longest in use, that of librdkafka, has 27 kB.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// A line between two texts.
const RULE: &str =
    "================================================================================\n";

/// Returns a text with each licence once, and above it the packages to which it belongs.
pub(super) fn write(crates: &[Crate]) -> String {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = String::new();
    for it in crates {
        let (name, version) = &it.id;
        let licence = it.licence.as_deref().unwrap_or("see below");
        let title = format!("{name} {version} ({licence})");
        let found = find_texts(&it.folder, 0);
        if found.is_empty() {
            let place = it.repository.as_deref().unwrap_or("https://crates.io");
            let _ = writeln!(without, "- {title}: {place}");
        }
        for text in found {
            let titles = texts.entry(text).or_default();
            if !titles.contains(&title) {
                titles.push(title.clone());
            }
        }
    }
    let mut notices = "Starling contains the packages below, under the licences that follow their names. The notices of \
                       the packages in the\npage for trying out queries are at /ide/third-party.txt of a router.\n\n"
        .to_owned();
    if !without.is_empty() {
        let _ =
            writeln!(notices, "Packages that name their licence without its text:\n\n{without}");
    }
    // The texts follow the order of the packages.
    let mut texts: Vec<_> = texts.into_iter().map(|(text, titles)| (titles, text)).collect();
    texts.sort();
    for (titles, text) in texts {
        let _ = writeln!(notices, "{RULE}{}\n{RULE}\n{}\n", titles.join("\n"), text.trim_end());
    }
    notices
}

/// Returns the texts of the licences below a folder, sorted.
fn find_texts(folder: &Path, depth: usize) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let Ok(facts) = fs::symlink_metadata(&path) else { continue };
        if facts.is_dir() && depth < DEPTH_MAX {
            texts.extend(find_texts(&path, depth + 1));
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_named = NAMES.iter().any(|start| name.starts_with(start));
        // A module `license.rs` is none.
        let is_text = !path.extension().is_some_and(|it| it == "rs" || it == "c" || it == "h");
        if facts.is_file() && is_named && is_text && facts.len() <= FILE_BYTES_MAX {
            texts.extend(fs::read_to_string(&path).map(|text| text.replace('\r', "")));
        }
    }
    texts
}

//! The documents of the repository: links lead to files and headings, and samples that are also files are equal to
//! them.

#![allow(clippy::unwrap_used)] // a document that cannot be read fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The documents outside `docs/` that are checked for dead links.
const DOCUMENTS: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benches/README.md"];

/// Pages that show files of the repository, with the folder of these files.
const PAGES_WITH_FILES: [(&str, &str); 2] = [
    ("docs/quick-start.md", "examples/quick-start"),
    ("docs/installation.md", "examples/deployment"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the paths of all documents, relative to the root.
fn documents() -> BTreeSet<PathBuf> {
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let pages = pages.map(|name| Path::new("docs").join(name));
    let pages = pages.filter(|page| page.extension().is_some_and(|it| it == "md"));
    DOCUMENTS.iter().map(PathBuf::from).chain(pages).collect()
}

/// Returns the lines of a document outside fenced blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    });
    lines.map(|(index, line)| (index + 1, line)).collect()
}

/// Returns the targets of all links outside code, with their lines: the text in parentheses directly after a bracket.
/// A code span may continue on the next line of its paragraph.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut is_code = false;
    for (line, content) in prose(text) {
        is_code &= !content.trim().is_empty();
        let mut outside = String::new();
        for (index, part) in content.split('`').enumerate() {
            is_code ^= index > 0;
            if !is_code {
                outside += part;
            }
        }
        let after_brackets = outside.match_indices("](").map(|(at, it)| &outside[at + it.len()..]);
        let targets = after_brackets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
        links.extend(targets.map(|target| (line, target)));
    }
    links
}

/// Returns the anchors of a document's headings, formed as GitHub forms them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).into_iter().filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let mut anchors = BTreeSet::new();
    for title in headings {
        let kept = title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug = kept.collect::<String>().trim().replace(' ', "-");
        let count = seen.entry(slug.clone()).or_default();
        anchors.insert(match *count {
            0 => slug,
            repeated => format!("{slug}-{repeated}"),
        });
        *count += 1;
    }
    anchors
}

/// Resolves `..` and `.`: `docs/../benches/README.md` becomes `benches/README.md`.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Returns the file and the anchor to which a link of `document` leads; `None` for web addresses.
fn destination(document: &Path, target: &str) -> Option<(PathBuf, Option<String>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (target, None),
    };
    let file = match file {
        "" => document.to_owned(),
        file => normalize(&document.parent().unwrap_or(Path::new("")).join(file)),
    };
    Some((file, anchor))
}

#[test]
fn every_relative_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let mut dead = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for (line, target) in links(&text) {
            let Some((file, anchor)) = destination(&document, &target) else { continue };
            checked += 1;
            let place = format!("{}:{line}: {target}", document.display());
            let path = root().join(&file);
            let is_page = file.extension().is_some_and(|it| it == "md");
            if !path.exists() {
                dead.push(format!("{place}: no such file"));
            } else if let Some(anchor) = anchor.filter(|_| is_page)
                && !anchors(&fs::read_to_string(path).unwrap()).contains(&anchor)
            {
                dead.push(format!("{place}: no such heading"));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    assert!(checked > 100, "only {checked} links were found: are they still read?");
}

#[test]
fn a_reader_of_the_readme_finds_every_page() {
    let readme = Path::new("README.md");
    let text = fs::read_to_string(root().join(readme)).unwrap();
    let links = links(&text).into_iter();
    let linked: BTreeSet<PathBuf> =
        links.filter_map(|(_, target)| Some(destination(readme, &target)?.0)).collect();
    let mut pages = documents();
    pages.remove(readme);
    let missing: Vec<_> = pages.difference(&linked).collect();
    assert!(missing.is_empty(), "the README does not link to {missing:?}");
}

/// Returns the fenced blocks with a comment `<!-- test: … file=NAME … -->` before them, as (NAME, text).
fn named_blocks(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = line.trim().strip_prefix("<!-- test:") else { continue };
        let words = comment.trim_end_matches("-->").split_whitespace();
        let Some(name) = words.into_iter().find_map(|word| word.strip_prefix("file=")) else {
            continue;
        };
        let block = lines[index + 2..].iter().take_while(|line| line.trim() != "```");
        let block: String = block.map(|line| format!("{line}\n")).collect();
        blocks.push((name.to_owned(), block));
    }
    blocks
}

#[test]
fn samples_that_are_also_files_of_the_repository_are_equal_to_them() {
    for (page, folder) in PAGES_WITH_FILES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut shown = BTreeSet::new();
        for (name, block) in named_blocks(&text) {
            let file = root().join(folder).join(&name);
            let Ok(content) = fs::read_to_string(&file) else { continue };
            assert_eq!(block, content, "{page} shows {folder}/{name} differently");
            shown.insert(name);
        }
        assert!(!shown.is_empty(), "{page} shows no file of {folder}");
        if page == "docs/quick-start.md" {
            let files = fs::read_dir(root().join(folder)).unwrap();
            let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            // Files that npm and the composition write: the page names them without printing them.
            let files =
                files.filter(|name| !matches!(&**name, "package.json" | "supergraph.graphql"));
            let files =
                files.filter(|name| !matches!(&**name, "node_modules" | "package-lock.json"));
            assert_eq!(
                files.collect::<BTreeSet<_>>(),
                shown,
                "{page} shows every file of {folder}"
            );
        }
    }
}

/// The probes on the page are an excerpt of a larger file.
#[test]
fn the_probes_on_the_page_are_those_of_the_deployment() {
    let page = fs::read_to_string(root().join("docs/production.md")).unwrap();
    let blocks = named_blocks(&page);
    let (_, probes) = blocks.iter().find(|(name, _)| name == "probes.yaml").unwrap();
    let file = fs::read_to_string(root().join("examples/deployment/kubernetes.yaml")).unwrap();
    assert!(file.contains(probes.as_str()), "kubernetes.yaml has other probes:\n{probes}");
}

#[test]
fn links_in_code_are_ignored_and_anchors_are_those_of_github() {
    let text = "see [a](b.md#c) and `[f](g)`\nand `a span\n[h](i)` [d](e)\n\n[`j`](k)\n";
    let expected = [(1, "b.md#c"), (3, "e"), (5, "k")].map(|(line, link)| (line, link.to_owned()));
    assert_eq!(links(text), expected);
    let text = "# What is, really?\n```sh\n# no heading\n```\n## `log`\n## `log`\n#no heading\n";
    let expected = ["log", "log-1", "what-is-really"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(
        destination(Path::new("docs/a.md"), "../benches/README.md#x"),
        Some((PathBuf::from("benches/README.md"), Some("x".to_owned())))
    );
    assert_eq!(destination(Path::new("docs/a.md"), "https://example.com/"), None);
}

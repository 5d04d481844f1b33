//! The documents of the repository: links lead to files and headings, and samples that are also files are equal to
//! them.

#![allow(clippy::unwrap_used)] // a document that cannot be read fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The documents outside `docs/` that are checked for dead links.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benches/README.md",
];

/// Pages that show files of the repository, with the folder of these files.
const PAGES_WITH_FILES: [(&str, &str); 4] = [
    ("docs/composition.md", "examples/composition"),
    ("docs/quick-start.md", "examples/quick-start"),
    ("docs/installation.md", "examples/deployment"),
    ("docs/scaling.md", "examples/deployment"),
];

/// Pages that list further pages, which the README need not repeat.
const INDEXES: [&str; 1] = ["docs/composition/codes.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the paths of all documents, relative to the root.
fn documents() -> BTreeSet<PathBuf> {
    let mut documents: BTreeSet<_> = DOCUMENTS.iter().map(PathBuf::from).collect();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                documents.insert(path);
            }
        }
    }
    documents
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
    let linked_from = |page: &Path| -> BTreeSet<PathBuf> {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let links = links(&text).into_iter();
        links.filter_map(|(_, target)| Some(destination(page, &target)?.0)).collect()
    };
    let mut linked = linked_from(readme);
    for index in INDEXES.map(Path::new) {
        assert!(linked.contains(index), "the README does not link to {}", index.display());
        linked.extend(linked_from(index));
    }
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

#[test]
fn the_files_of_a_deployment_are_yaml() {
    for name in ["autoscaling.yaml", "kubernetes.yaml", "prometheus-adapter.yaml"] {
        let text = fs::read_to_string(root().join("examples/deployment").join(name)).unwrap();
        let events: Result<Vec<_>, _> = granit_parser::Parser::new_from_str(&text).collect();
        let events = events.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(events.len() > 20, "{name} has only {} parts", events.len());
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

/// The code spans of a document that are paths of Rust items: `server::http::pipeline`.
fn item_paths(text: &str) -> BTreeSet<String> {
    let spans = prose(text).into_iter().flat_map(|(_, line)| line.split('`').skip(1).step_by(2));
    let paths = spans.map(|span| {
        let end = span.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        span[..end.unwrap_or(span.len())].trim_end_matches(':')
    });
    paths.filter(|path| path.contains("::")).map(str::to_owned).collect()
}

/// The sources below a file or folder.
fn sources(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|it| sources(&it));
    below.filter(|it| it.extension().is_some_and(|it| it == "rs")).collect()
}

/// True if one of the sources defines an item, a variant or a field of that name.
fn defines(files: &[PathBuf], name: &str) -> bool {
    let keywords = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
    files.iter().any(|file| {
        let text = fs::read_to_string(file).unwrap();
        let words =
            || text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|it| !it.is_empty());
        let is_item = words().zip(words().skip(1)).any(|(a, b)| keywords.contains(&a) && b == name);
        let is_variant = |line: &str| {
            let rest = line.trim_start().strip_prefix(name);
            rest.is_some_and(|it| it.starts_with(['(', ',']) || it.starts_with(" {"))
        };
        is_item || text.contains(&format!("pub {name}:")) || text.lines().any(is_variant)
    })
}

/// What is wrong with a path: each module must be a file or folder of its parent, and the rest must be defined there.
fn unknown_part(path: &str) -> Option<String> {
    let mut parts = path.split("::");
    let name = parts.next()?;
    let crates =
        ["crates", "tools"].map(|it| root().join(it).join(name.replace('_', "-")).join("src"));
    let Some(folder) = crates.into_iter().find(|it| it.is_dir()) else {
        return Some(format!("no crate is called {name}"));
    };
    let mut place = folder.clone();
    for part in parts {
        let module = [place.join(format!("{part}.rs")), place.join(part)];
        let exists = module.iter().any(|it| it.exists());
        if exists {
            place.push(part);
            continue;
        }
        let mut files = sources(&place.with_extension("rs"));
        files.retain(|it| it.exists());
        if place.is_dir() {
            files.extend(sources(&place));
        }
        let deeper = |file: &&PathBuf| {
            file.file_stem().is_some_and(|it| it == part)
                || file.parent().is_some_and(|it| it.ends_with(part))
        };
        let heads = [place.join("lib.rs"), place.join("mod.rs"), place.with_extension("rs")];
        let heads: Vec<_> = heads.into_iter().filter(|it| it.exists()).collect();
        let is_exported = heads.iter().any(|it| {
            let text = fs::read_to_string(it).unwrap();
            text.lines().any(|line| line.starts_with("pub use") && line.contains(part))
        });
        if let Some(module) = files.iter().find(deeper).filter(|_| !is_exported) {
            let module = module.strip_prefix(root()).unwrap().display().to_string();
            return Some(format!("the module {part} is in another folder: {module}"));
        }
        if !defines(&files, part) {
            return Some(format!(
                "nothing is called {part} in {}",
                place.strip_prefix(root()).unwrap().display()
            ));
        }
    }
    None
}

#[test]
fn every_item_that_the_architecture_names_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let paths = item_paths(&text);
    assert!(paths.len() > 80, "only {} paths were found: are they still read?", paths.len());
    let unknown: Vec<_> =
        paths.iter().filter_map(|path| Some(format!("{path}: {}", unknown_part(path)?))).collect();
    assert!(
        unknown.is_empty(),
        "ARCHITECTURE.md names what does not exist:\n{}",
        unknown.join("\n")
    );
}

#[test]
fn a_path_is_checked_part_by_part() {
    assert_eq!(item_paths("`graph::Field` and `a b`, `cargo`, `x::y(z) → w`").len(), 2);
    assert_eq!(unknown_part("hub::shard::catch_up::ring"), None);
    assert!(unknown_part("hub::shard::ring").is_some_and(|it| it.contains("another folder")));
    assert_eq!(unknown_part("hub::Hub::advance"), None);
    assert!(unknown_part("hub::shard::no_such_module").is_some());
    assert!(unknown_part("hub::NoSuchType").is_some());
    assert!(unknown_part("no_such_crate::x").is_some());
}

//! Comparison with stored results of the reference implementation: `tests/reference/README.md` says what a case is. The
//! outcome and the codes must be the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use compose::{Composition, Finding, SubgraphInput};
use serde_json::Value;

const REFERENCE: &str = "@apollo/composition";

fn folders(kind: &str) -> Vec<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(kind);
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut folders: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
    folders.retain(|it| it.is_dir());
    folders.sort();
    folders
}

fn read_subgraphs(folder: &Path) -> Vec<SubgraphInput> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of a case exists") {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a file name").to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".graphql").filter(|name| *name != "reference") else {
            continue;
        };
        let sdl = fs::read_to_string(&path).expect("a text file");
        let url = format!("http://{name}.example/graphql");
        inputs.push(SubgraphInput { name: name.to_owned(), url, file, sdl, subscription: None });
    }
    inputs
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    let mut codes: Vec<_> = findings.iter().map(|it| it.code.name()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn outcomes_and_codes_are_those_of_the_reference() {
    let mut differences = Vec::new();
    for folder in ["codes", "hints", "merging"].into_iter().flat_map(folders) {
        let stored = fs::read_to_string(folder.join("reference.json")).expect("a stored result");
        let stored: Value = serde_json::from_str(&stored).expect("JSON");
        let wanted = &stored[REFERENCE];
        if wanted.get("crash").is_some() {
            continue;
        }
        let mut wanted_codes: Vec<_> =
            wanted["codes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        wanted_codes.sort_unstable();
        wanted_codes.dedup();
        let result = compose::compose(&read_subgraphs(&folder));
        let (is_success, given) = match &result {
            Composition::Success { .. } => (true, Vec::new()),
            Composition::Failure { errors, .. } => (false, codes(errors)),
        };
        if wanted["success"] != is_success || given != wanted_codes {
            differences.push(format!("{}: {given:?}, not {wanted_codes:?}", folder.display()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

//! Every folder of `tests/cases` is one federation: a file for each subgraph, and the expected result.
//! `expected.graphql` is the supergraph, `expected.txt` the errors or hints. `UPDATE_EXPECT=1` rewrites them. Subgraphs
//! with names that begin with `events` have no URL. A subgraph that begins with `# subscription: PROTOCOL URL` has
//! these settings; `-` leaves out either.

use std::{
    fs,
    path::{Path, PathBuf},
};

use compose::{Composition, Finding, SubgraphInput, SubscriptionEndpoint};

const EXPECTED_SDL: &str = "expected.graphql";
const EXPECTED_FINDINGS: &str = "expected.txt";

fn folders(parent: &str) -> Vec<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(parent);
    let entries = fs::read_dir(parent).expect("the folder of cases exists");
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
        let Some(name) = file.strip_suffix(".graphql") else { continue };
        if file == EXPECTED_SDL {
            continue;
        }
        let url =
            if name.starts_with("events") { String::new() } else { format!("http://{name}/") };
        let sdl = fs::read_to_string(&path).expect("a text file");
        let subscription = read_endpoint(&sdl);
        inputs.push(SubgraphInput { name: name.to_owned(), url, file, sdl, subscription });
    }
    inputs
}

fn read_endpoint(sdl: &str) -> Option<SubscriptionEndpoint> {
    let settings = sdl.lines().next()?.strip_prefix("# subscription: ")?;
    let (protocol, url) = settings.split_once(' ').expect("a protocol and a URL");
    let given = |text: &str| (text != "-").then(|| text.into());
    Some(SubscriptionEndpoint { protocol: given(protocol), url: given(url) })
}

fn print(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n\n")).collect()
}

/// Compares a file with its expected text; an empty text means that the file does not exist.
fn check_file(path: &Path, actual: &str) {
    if actual.is_empty() && !path.exists() {
        return;
    }
    if actual.is_empty() && std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::remove_file(path).expect("the old file can be removed");
        return;
    }
    expect_test::expect_file![path].assert_eq(actual);
}

#[test]
fn each_case_gives_its_expected_supergraph_or_findings() {
    for folder in folders("cases") {
        let (sdl, findings) = match compose::compose(&read_subgraphs(&folder)) {
            Composition::Success { supergraph_sdl, hints } => (supergraph_sdl, print(&hints)),
            Composition::Failure { errors, .. } => (String::new(), print(&errors)),
        };
        check_file(&folder.join(EXPECTED_SDL), &sdl);
        check_file(&folder.join(EXPECTED_FINDINGS), &findings);
    }
}

#[test]
fn the_router_loads_every_composed_case() {
    for folder in folders("cases") {
        let Composition::Success { supergraph_sdl, .. } =
            compose::compose(&read_subgraphs(&folder))
        else {
            continue;
        };
        // The router refuses graphs with authorization that it does not enforce yet.
        let is_refused = ["authenticated", "requiresScopes", "policy"]
            .iter()
            .any(|name| supergraph_sdl.contains(&format!("specs.apollo.dev/{name}/")));
        if is_refused {
            continue;
        }
        let loaded = graph::Supergraph::from_sdl(&supergraph_sdl, EXPECTED_SDL);
        if let Err(errors) = loaded {
            panic!("{}: {errors}\n{supergraph_sdl}", folder.display());
        }
    }
}

#[test]
fn each_code_has_a_case() {
    let mut known = String::new();
    for folder in folders("cases") {
        known += &fs::read_to_string(folder.join(EXPECTED_FINDINGS)).unwrap_or_default();
    }
    let is_missing = |code: &&compose::Code| !known.contains(&format!(" {code}: "));
    let missing: Vec<_> = compose::Code::all().iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

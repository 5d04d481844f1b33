//! Every folder of `tests/contracts` is one federation with the tags of a contract in `contract.txt`. The expected
//! result is the schema that clients see, `expected.graphql`, or the errors and unknown tags, `expected.txt`.
//! `UPDATE_EXPECT=1` rewrites them.

use std::{fs, path::Path};

use compose::{Composition, ContractFilter, SubgraphInput};
use graph::Supergraph;

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text file")
}

fn read_subgraphs(folder: &Path) -> Vec<SubgraphInput> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of a case exists") {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a file name").to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".graphql").filter(|it| *it != "expected") else {
            continue;
        };
        let url = format!("http://{name}/");
        inputs.push(SubgraphInput {
            name: name.to_owned(),
            url,
            sdl: read(&path),
            file,
            subscription: None,
        });
    }
    inputs
}

fn read_filter(folder: &Path) -> ContractFilter {
    let text = read(&folder.join("contract.txt"));
    let tags = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
    };
    let (include, exclude): (Vec<_>, Vec<_>) = (tags("include:"), tags("exclude:"));
    ContractFilter::new(include, exclude).expect("a filter")
}

/// Checks that clients of the contract see a part of the whole graph, and nothing else.
fn check_part(folder: &Path, subgraphs: &[SubgraphInput], contract: &Supergraph) {
    let Composition::Success { supergraph_sdl, .. } = compose::compose(subgraphs) else {
        panic!("{} does not compose", folder.display());
    };
    let whole = Supergraph::from_sdl(&supergraph_sdl, "supergraph.graphql").expect("a supergraph");
    for change in compose::diff(&whole.api, &contract.api) {
        let code = change.code;
        let is_removal = code.name().contains("REMOVED") || code.name().starts_with("SCHEMA_");
        assert!(is_removal, "{}: {change}", folder.display());
    }
}

#[test]
fn each_contract_shows_its_expected_part_of_the_graph() {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contracts");
    let entries = fs::read_dir(parent).expect("the folder of cases exists");
    let mut folders: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
    folders.sort();
    for folder in folders {
        let subgraphs = read_subgraphs(&folder);
        let (composition, missing) = compose::compose_contract(&subgraphs, &read_filter(&folder));
        let mut messages: String = missing.iter().map(|it| format!("unknown tag {it}\n")).collect();
        let mut visible = String::new();
        match composition {
            Composition::Success { supergraph_sdl, .. } => {
                let graph = Supergraph::from_sdl(&supergraph_sdl, "supergraph.graphql")
                    .unwrap_or_else(|errors| panic!("{}: {errors}", folder.display()));
                visible = graph.api_sdl();
                check_part(&folder, &subgraphs, &graph);
            }
            Composition::Failure { errors, .. } => {
                messages.extend(errors.iter().map(|it| format!("{it}\n\n")));
            }
        }
        for (name, actual) in [("expected.graphql", visible), ("expected.txt", messages)] {
            let path = folder.join(name);
            if !actual.is_empty() || path.exists() {
                expect_test::expect_file![path].assert_eq(&actual);
            }
        }
    }
}

/// A subgraph with places for tags, which are written `%`.
const TAGGED: &str = r#"
extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@tag"])
type Query % { user(id: ID = 1 %, filter: Filter %): User % found: Found % node: Node % size(of: Size %): Size % }
interface Node % { id: ID! % }
type User implements Node % { id: ID! % name: String % pet: Pet % born: Date % }
type Pet implements Node % { id: ID! % owner: User % }
union Found % = User | Pet
input Filter % { name: String % near: Place % order: Order = UP % }
input Place % { city: String % zip: String % }
enum Order % { UP % DOWN % }
enum Size % { SMALL % LARGE % }
scalar Date %
"#;

/// The codes of errors about the visible part of a graph.
const VISIBILITY_CODES: [&str; 6] = [
    "REFERENCED_INACCESSIBLE",
    "DEFAULT_VALUE_USES_INACCESSIBLE",
    "QUERY_ROOT_TYPE_INACCESSIBLE",
    "REQUIRED_INACCESSIBLE",
    "IMPLEMENTED_BY_INACCESSIBLE",
    "ONLY_INACCESSIBLE_CHILDREN",
];

/// Returns the schema of a subgraph with random tags.
fn random_tags(random: &mut fastrand::Rng) -> String {
    let mut parts = TAGGED.split('%');
    let mut sdl = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Most elements have the tag `a`, so that contracts that include it are not empty.
        sdl.push_str(match random.u8(0..12) {
            0 => "@tag(name: \"b\")",
            1 => "@tag(name: \"a\") @tag(name: \"b\")",
            2..=8 => "@tag(name: \"a\")",
            _ => "",
        });
        sdl.push_str(part);
    }
    sdl
}

#[test]
fn every_contract_is_a_valid_part_of_the_graph_or_is_refused() {
    let mut random = fastrand::Rng::with_seed(11);
    let filters = [(vec!["a"], vec![]), (vec![], vec!["b"]), (vec!["a"], vec!["b"])];
    let mut valid = 0;
    for round in 0..600 {
        let (include, exclude) = &filters[round % filters.len()];
        let owned = |tags: &[&str]| tags.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let filter = ContractFilter::new(owned(include), owned(exclude)).expect("a filter");
        let sdl = random_tags(&mut random);
        let (name, url, file) = ("a".to_owned(), "http://a/".to_owned(), "a.graphql".to_owned());
        let subgraphs = [SubgraphInput { name, url, file, sdl: sdl.clone(), subscription: None }];
        let (composition, missing) = compose::compose_contract(&subgraphs, &filter);
        assert!(missing.iter().all(|tag| !sdl.contains(&format!("\"{tag}\""))), "{missing:?}");
        match composition {
            Composition::Success { supergraph_sdl, .. } => {
                let graph = Supergraph::from_sdl(&supergraph_sdl, "supergraph.graphql")
                    .unwrap_or_else(|errors| panic!("{errors}\n{sdl}"));
                check_part(Path::new(&sdl), &subgraphs, &graph);
                valid += 1;
            }
            Composition::Failure { errors, .. } => {
                let is_other = |it: &&compose::Finding| !VISIBILITY_CODES.contains(&it.code.name());
                let other = errors.iter().find(is_other);
                assert!(other.is_none(), "{other:?}\n{sdl}");
            }
        }
    }
    assert!(valid > 60, "most contracts are refused: {valid}");
}

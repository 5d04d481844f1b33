//! Costs of operations in fixture folders. Each folder of `tests/cases` is a federation: a file for each subgraph, or
//! `supergraph.graphql`. Each file of its folder `operations` is a case. The comments at its head have its input
//! (`variables`, `list size`, `response`: the data of a response) and what is expected (`estimated`, `actual`,
//! `conflict`, `subgraph NAME COST`).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use astjson::Document;
use compose::{Composition, SubgraphInput};
use cost::CostSettings;
use graph::Supergraph;
use prepare::{PrepareSettings, Preparer};

/// The length of lists of the subgraph `reviews` that no directive describes.
const REVIEWS_LIST_SIZE: u64 = 7;

fn load(folder: &Path) -> Arc<Supergraph> {
    let given = folder.join("supergraph.graphql");
    let sdl = match fs::read_to_string(given) {
        Ok(sdl) => sdl,
        Err(_) => compose_subgraphs(folder),
    };
    match Supergraph::from_sdl(&sdl, "supergraph.graphql") {
        Ok(graph) => Arc::new(graph),
        Err(errors) => panic!("{}: {errors}\n{sdl}", folder.display()),
    }
}

fn compose_subgraphs(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("the folder of a case exists");
    let paths = entries.map(|it| it.expect("an entry").path());
    let mut paths: Vec<_> = paths.filter(|it| it.is_file()).collect();
    paths.sort();
    let input = |path: &std::path::PathBuf| {
        let name = path.file_stem().expect("a file name").to_string_lossy().into_owned();
        SubgraphInput {
            url: format!("http://{name}/"),
            file: format!("{name}.graphql"),
            name,
            sdl: fs::read_to_string(path).expect("a text file"),
            subscription: None,
        }
    };
    match compose::compose(&paths.iter().map(input).collect::<Vec<_>>()) {
        Composition::Success { supergraph_sdl, .. } => supergraph_sdl,
        Composition::Failure { errors, .. } => {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            panic!("{}: {}", folder.display(), errors.join("\n"))
        }
    }
}

/// The comments at the head of a case.
struct Head<'a>(&'a str);

impl<'a> Head<'a> {
    fn all(&self, key: &str) -> impl Iterator<Item = &'a str> {
        let lines = self.0.lines().take_while(|line| line.starts_with("# "));
        let key = format!("# {key}: ");
        lines.filter_map(move |line| line.strip_prefix(&*key))
    }

    fn one(&self, key: &str) -> Option<&'a str> {
        self.all(key).next()
    }
}

/// Returns the expected lines and the actual ones.
fn run(graph: &Arc<Supergraph>, text: &str, is_shared: bool) -> (String, String) {
    let head = Head(text);
    let list_size = head.one("list size").map_or(10, |it| it.parse().expect("a number"));
    let sizes = graph.subgraphs.iter().map(|subgraph| match &*subgraph.name {
        "reviews" => REVIEWS_LIST_SIZE,
        _ => list_size,
    });
    let cost =
        CostSettings { list_size, subgraph_list_sizes: sizes.collect(), stats: Arc::default() };
    let settings = PrepareSettings { cost: Some(cost), ..PrepareSettings::default() };
    let preparer = Preparer::new(Arc::clone(graph), 1, settings);
    let prepared = match is_shared {
        false => Arc::new(preparer.prepare_now(text.as_bytes(), None).expect("a valid operation")),
        true => {
            let request = prepare::OperationRequest {
                query: text.to_owned().into(),
                ..prepare::OperationRequest::default()
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(preparer.prepare(&request)).expect("a valid operation")
        }
    };
    let variables = head.one("variables").unwrap_or("{}").to_owned();
    let variables = prepared.coerce(&variables.into()).expect("values that fit their types");
    let cost = prepared.cost.as_ref().expect("costs are estimated");
    let estimate = cost.estimate(&variables);
    let (mut expected, mut actual) = (Vec::new(), Vec::new());
    for key in ["estimated", "actual", "conflict", "subgraph"] {
        expected.extend(head.all(key).map(|value| format!("{key}: {value}")));
    }
    actual.push(format!("estimated: {}", estimate.total));
    if let Some(response) = head.one("response") {
        let mut document = Document::new();
        let root = document.parse(response.to_owned()).expect("a response is JSON");
        let cost = cost.count(&document, root, &variables);
        assert!(cost <= estimate.total, "more than estimated: {cost}\n{text}");
        actual.push(format!("actual: {cost}"));
    }
    actual.extend(estimate.conflict.map(|field| format!("conflict: {field}")));
    if head.one("subgraph").is_some() {
        for (subgraph, cost) in &estimate.subgraphs {
            let name = &graph.subgraph(*subgraph).name;
            actual.push(format!("subgraph: {name} {cost}"));
        }
    }
    (expected.join("\n"), actual.join("\n"))
}

#[test]
fn each_case_has_its_expected_costs() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let (mut count, mut wrong) = (0, String::new());
    for folder in fs::read_dir(cases).expect("the folder of cases exists") {
        let folder = folder.expect("an entry").path();
        let graph = load(&folder);
        for case in fs::read_dir(folder.join("operations")).expect("each folder has cases") {
            let path = case.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a text file");
            // Literals stay, or become variables.
            for is_shared in [false, true] {
                let (expected, actual) = run(&graph, &text, is_shared);
                if expected != actual {
                    wrong += &format!(
                        "{} (literals extracted: {is_shared})\n{actual}\nexpected\n{expected}\n\n",
                        path.display()
                    );
                }
            }
            count += 1;
        }
    }
    assert!(count > 50, "only {count} cases were found");
    assert!(wrong.is_empty(), "{wrong}");
}

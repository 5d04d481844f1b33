//! Plans of fixture folders: `supergraph.graphql`, operations, and the expected plans. `operation.graphql` has
//! `plan.txt`, `operation.<name>.graphql` has `plan.<name>.txt`; if there is no plan, the file contains the error. A
//! first line `# labels: A, B` turns on labels of progressive overrides. `UPDATE_EXPECT=1` rewrites the plans; review
//! the difference.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graph::{OverrideLabels, Supergraph};
use plan::Plan;
use prepare::{PrepareError, PrepareSettings, Preparer};

fn load(path: &Path) -> Arc<Supergraph> {
    let sdl = std::fs::read_to_string(path).expect("the fixture exists");
    match Supergraph::from_sdl(&sdl, "supergraph.graphql") {
        Ok(supergraph) => Arc::new(supergraph),
        Err(errors) => panic!("{}: {errors}", path.display()),
    }
}

fn plan(graph: &Arc<Supergraph>, operation: &str) -> Result<Arc<Plan>, String> {
    let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
    let labels = labels(graph, operation);
    match preparer.prepare_now_with(operation.as_bytes(), None, labels) {
        Ok(prepared) => {
            let checker = soundness::Checker::new(Arc::new(graph.with_override_labels(labels)));
            assert_eq!(checker.check(&prepared.operation, &prepared.plan), Ok(()), "{operation}");
            Ok(prepared.plan)
        }
        Err(PrepareError::Plan(error)) => Err(error.to_string()),
        Err(other) => panic!("the fixture's operation is invalid: {other}\n{operation}"),
    }
}

fn labels(graph: &Supergraph, operation: &str) -> OverrideLabels {
    let first = operation.lines().next().and_then(|line| line.strip_prefix("# labels: "));
    let mut labels = OverrideLabels::NONE;
    for name in first.into_iter().flat_map(|names| names.split(", ")) {
        let label = graph.override_labels.iter().position(|known| **known == *name);
        labels.insert(label.expect("fixtures are valid"));
    }
    labels
}

/// Plans one operation, compares the plan with the file, and returns the difference.
fn check(graph: &Arc<Supergraph>, operation: &Path, expected: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(operation).expect("fixtures are valid");
    let first = plan(graph, &text);
    let actual = match &first {
        Ok(plan) => {
            let json = plan.to_json(graph);
            serde_json::from_str::<serde_json::Value>(&json).expect("plans print as JSON");
            plan.to_text(graph)
        }
        Err(error) => format!("error: {error}\n"),
    };
    assert!(first == plan(graph, &text), "planning is deterministic: {}", operation.display());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(expected, &actual).expect("fixtures are valid");
    }
    let wanted = std::fs::read_to_string(expected).unwrap_or_default();
    if wanted == actual {
        return Ok(());
    }
    Err(format!("--- {}\n{wanted}\n+++ the plan\n{actual}", expected.display()))
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn every_fixture_gets_its_plan() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder("tests/fixtures"))
        .expect("fixtures are valid")
        .map(|entry| entry.expect("fixtures are valid").path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    let mut differences = Vec::new();
    let mut checked = 0;
    for case in cases {
        let graph = load(&case.join("supergraph.graphql"));
        let mut files: Vec<PathBuf> = std::fs::read_dir(&case)
            .expect("fixtures are valid")
            .map(|entry| entry.expect("fixtures are valid").path())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().expect("fixtures are valid").to_string_lossy().into_owned();
            let Some(rest) = name.strip_prefix("operation") else { continue };
            let expected = case.join(format!("plan{}", rest.replace(".graphql", ".txt")));
            checked += 1;
            differences.extend(check(&graph, &file, &expected).err());
        }
    }
    assert!(checked > 0, "there are fixtures");
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn the_benchmark_takes_six_requests_in_four_waves() {
    let data = folder("../../fixtures/federation-benchmark");
    let graph = load(&data.join("supergraph.graphql"));
    let operation = data.join("operation.graphql");
    let plan = plan(&graph, &std::fs::read_to_string(&operation).expect("fixtures are valid"))
        .expect("fixtures are valid");
    assert_eq!((plan.fetches.len(), plan.waves().into_iter().max()), (6, Some(4)));
    let expected = folder("tests/fixtures/federation-benchmark.plan.txt");
    if let Err(difference) = check(&graph, &operation, &expected) {
        panic!("{difference}");
    }
}

#[test]
fn a_plan_is_printed_as_a_flowchart() {
    let data = folder("../../fixtures/federation-benchmark");
    let graph = load(&data.join("supergraph.graphql"));
    let text = std::fs::read_to_string(data.join("operation.graphql"));
    let plan = plan(&graph, &text.expect("fixtures are valid")).expect("fixtures are valid");
    let actual = plan.to_mermaid(&graph);
    let expected = folder("tests/fixtures/federation-benchmark.mermaid");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, &actual).expect("fixtures are valid");
    }
    assert_eq!(actual, std::fs::read_to_string(expected).unwrap_or_default());
}

/// Checks that known members of the JSON format remain, because programs read it.
#[test]
fn a_plan_is_printed_as_one_line_of_json() {
    let data = folder("../../fixtures/federation-benchmark");
    let graph = load(&data.join("supergraph.graphql"));
    let text = std::fs::read_to_string(data.join("operation.graphql"));
    let plan = plan(&graph, &text.expect("fixtures are valid")).expect("fixtures are valid");
    let actual = plan.to_json(&graph);
    assert_eq!(actual.lines().count(), 1);
    let expected = folder("tests/fixtures/federation-benchmark.plan.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, actual + "\n").expect("fixtures are valid");
        return;
    }
    assert_eq!(actual + "\n", std::fs::read_to_string(expected).unwrap_or_default());
}

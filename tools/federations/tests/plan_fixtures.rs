//! Every operation of the planner's fixtures is executed over random stores and with all values of its variables, and
//! must have the response of the reference server. Operations that the planner refuses there are refused here.

use std::path::{Path, PathBuf};

use apollo_compiler::ast::{Document, OperationDefinition, OperationType};
use federations::{LoadedCase, ObjectStore, Outcome, Random, Variables};
use graph::Supergraph;
use serde_json::{Value, json};

/// The number of stores for each supergraph; every second one has failing resolvers.
const STORES: u64 = 4;

/// The meta field of introspection, which the reference server does not support.
const INTROSPECTION: &str = "__schema";

struct Fixture {
    name: String,
    operation: String,
    /// The text of the plan, or of the error.
    plan: String,
}

fn text(path: &Path) -> String {
    match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("fixtures are valid");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("fixtures are valid").path()).collect();
    files.sort();
    files
}

fn fixtures_of(folder: &Path) -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for file in files_of(folder) {
        let name = file.file_name().expect("files have names").to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("operation") else { continue };
        let plan = text(&folder.join(format!("plan{}", rest.replace(".graphql", ".txt"))));
        fixtures.push(Fixture { name: file.display().to_string(), operation: text(&file), plan });
    }
    fixtures
}

/// Returns every combination of the booleans, with a fixed value for the other variables.
fn variables_of(operation: &OperationDefinition) -> Vec<Variables> {
    let mut all = vec![Variables::new()];
    for variable in &operation.variables {
        let values: Vec<Value> = match variable.ty.inner_named_type().as_str() {
            "Boolean" => vec![json!(false), json!(true)],
            "Int" => vec![json!(1)],
            "ID" | "String" => vec![json!("1")],
            _ if !variable.ty.is_non_null() => vec![Value::Null],
            other => panic!("no value for a variable of type {other}"),
        };
        let one_more = |known: &Variables| -> Vec<Variables> {
            let with = |value: &Value| {
                let mut more = known.clone();
                more.insert(variable.name.to_string(), value.clone());
                more
            };
            values.iter().map(with).collect()
        };
        all = all.iter().flat_map(one_more).collect();
    }
    all
}

fn operation_of(document: &Document) -> &OperationDefinition {
    let mut operations = document.definitions.iter().filter_map(|it| it.as_operation_definition());
    operations.next().expect("fixtures have an operation")
}

#[test]
fn operations_of_the_planners_fixtures_have_the_responses_of_one_server() {
    let folders =
        files_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/plan/tests/fixtures"));
    let (mut executed, mut wrong) = (0, Vec::new());
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let sdl = text(&folder.join("supergraph.graphql"));
        let graph = match Supergraph::from_sdl(&sdl, "supergraph.graphql") {
            Ok(graph) => graph,
            Err(errors) => panic!("{}: {errors}", folder.display()),
        };
        let fixtures = fixtures_of(folder);
        if fixtures.iter().all(|fixture| fixture.plan.starts_with("error")) {
            // Composition would reject such a supergraph, so there is no expected response.
            continue;
        }
        for seed in 0..STORES {
            let data = ObjectStore::random(&graph, &mut Random::new(seed + 1), seed % 2 == 1);
            let loaded = match LoadedCase::load(&sdl, data, &[]) {
                Ok(loaded) => loaded,
                Err(problem) => panic!("{}: {problem}", folder.display()),
            };
            for Fixture { name, operation, plan } in &fixtures {
                let document = Document::parse(operation.clone(), "operation.graphql");
                let document = document.expect("fixtures are valid");
                let asked = operation_of(&document);
                // The event of a subgraph's own subscription has no errors besides its value.
                let may_fail = seed % 2 == 1;
                if (may_fail && asked.operation_type == OperationType::Subscription)
                    || operation.contains(INTROSPECTION)
                {
                    continue;
                }
                for variables in variables_of(asked) {
                    let at = format!("{name} store {seed} {}", Value::Object(variables.clone()));
                    match loaded.compare(operation, &variables) {
                        Ok(Outcome::Correct { .. }) if !plan.starts_with("error") => executed += 1,
                        Ok(Outcome::Refused(message)) if plan.contains(&message) => {}
                        Ok(other) => wrong.push(format!("{at}: {other:?}")),
                        Err(failure) => {
                            wrong.push(format!("{at}: {:?} {}", failure.kind, failure.message));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(executed > 300, "{executed} executed");
}

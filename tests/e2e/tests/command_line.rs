//! The commands that print a result and exit, and the start and end of the long-running commands.

#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use e2e::router::{Router, run};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// One subgraph with one field, as a user would write it for a first try.
const SUPERGRAPH: &str = r#"schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.3", for: EXECUTION)
{
  query: Query
}

directive @join__enumValue(graph: join__Graph!) repeatable on ENUM_VALUE
directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION
directive @join__graph(name: String!, url: String!) on ENUM_VALUE
directive @join__implements(graph: join__Graph!, interface: String!) repeatable on OBJECT | INTERFACE
directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR
directive @join__unionMember(graph: join__Graph!, member: String!) repeatable on UNION
directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA

scalar join__FieldSet
scalar link__Import

enum link__Purpose {
  SECURITY
  EXECUTION
}

enum join__Graph {
  BIRDS @join__graph(name: "birds", url: "http://127.0.0.1:9/")
}

type Query @join__type(graph: BIRDS) {
  bird(id: ID!): Bird
}

type Bird @join__type(graph: BIRDS, key: "id") {
  id: ID!
  name: String!
}
"#;

/// Creates a folder with files and returns the path of each.
fn folder<const N: usize>(files: [(&str, &str); N]) -> (TempDir, [PathBuf; N]) {
    let folder = tempfile::tempdir().unwrap();
    let paths = files.map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    (folder, paths)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_demo_serves_and_exits_cleanly_on_ctrl_c() {
    let router = Router::demo();
    let response = router.post(r#"{"query": "{ __typename }"}"#).unwrap();
    assert_eq!(
        (response.status, response.text().as_str()),
        (200, r#"{"data":{"__typename":"Query"}}"#)
    );
    let address = router.address();
    assert!(router.output().contains(&format!("http://{address}/")), "{}", router.output());
    assert_eq!(router.interrupt(), Some(0));
}

#[test]
fn serve_needs_only_a_supergraph() {
    let (_folder, [supergraph]) = folder([("supergraph.graphql", SUPERGRAPH)]);
    let router = Router::start(["serve", "--supergraph", text(&supergraph)]);
    // The subgraph does not run: its field is null, and the client gets the code and a fixed message.
    let response =
        router.post(r#"{"query": "{ __typename bird(id: 1) { name } }"}"#).unwrap().text();
    assert!(
        response.starts_with(r#"{"data":{"__typename":"Query","bird":null},"errors":["#),
        "{response}"
    );
    assert!(response.contains(r#""code":"SUBGRAPH_REQUEST_FAILED""#), "{response}");
    assert!(!response.contains("birds"), "{response}");
    assert_eq!(router.interrupt(), Some(0));
}

#[test]
fn an_invalid_configuration_is_refused_with_its_position_and_a_suggestion() {
    let (_folder, [config, _supergraph]) = folder([
        ("starling.yaml", "supergraph:\n  file: supergraph.graphql\nlimts:\n  depth: 3\n"),
        ("supergraph.graphql", SUPERGRAPH),
    ]);
    for command in ["check", "serve"] {
        let (code, _, complaint) = run([command, "--config", text(&config)]);
        assert_eq!(code, Some(1), "{command}: {complaint}");
        for part in ["starling.yaml:3:1", "limts", "did you mean `limits`?"] {
            assert!(complaint.contains(part), "{command} does not say {part}:\n{complaint}");
        }
    }
}

#[test]
fn an_invalid_supergraph_is_refused_at_the_start_with_its_position() {
    let broken = SUPERGRAPH.replace("name: String!", "name: Sting!");
    let line = 1 + broken.lines().position(|line| line.contains("Sting")).unwrap();
    let (_folder, [supergraph]) = folder([("supergraph.graphql", &broken)]);
    for command in ["check", "serve"] {
        let (code, _, complaint) = run([command, "--supergraph", text(&supergraph)]);
        assert_eq!(code, Some(1), "{command}: {complaint}");
        for part in [&*format!("supergraph.graphql:{line}:"), "Sting"] {
            assert!(complaint.contains(part), "{command} does not say {part}:\n{complaint}");
        }
    }
}

#[test]
fn check_accepts_a_valid_configuration() {
    let (_folder, [config, _supergraph]) = folder([
        ("starling.yaml", "supergraph:\n  file: supergraph.graphql\n"),
        ("supergraph.graphql", SUPERGRAPH),
    ]);
    let (code, _, complaint) = run(["check", "--config", text(&config)]);
    assert_eq!(code, Some(0), "{complaint}");
}

#[test]
fn plan_prints_the_query_of_each_subgraph() {
    let (_folder, [supergraph, operation]) = folder([
        ("supergraph.graphql", SUPERGRAPH),
        ("operation.graphql", "query Bird($id: ID!) { bird(id: $id) { name } }"),
    ]);
    let words = ["plan", "--supergraph", text(&supergraph), "--operation", text(&operation)];
    let (code, plan, complaint) = run(words);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(plan.contains("birds") && plan.contains("name"), "{plan}");

    let (code, json, complaint) = run(words.into_iter().chain(["--format", "json"]));
    assert_eq!(code, Some(0), "{complaint}");
    assert!(json.trim_start().starts_with('{') && json.contains("\"birds\""), "{json}");
}

#[test]
fn plan_reports_the_errors_of_an_operation() {
    let (_folder, [supergraph, operation]) = folder([
        ("supergraph.graphql", SUPERGRAPH),
        ("operation.graphql", "{ bird(id: 1) { wings } }"),
    ]);
    let (code, _, complaint) =
        run(["plan", "--supergraph", text(&supergraph), "--operation", text(&operation)]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("wings"), "{complaint}");
}

/// The tests need every feature. A program without one would fail in places that do not name it.
#[test]
#[cfg(target_os = "linux")]
fn the_version_names_the_features_of_the_build() {
    let (code, version, complaint) = run(["--version"]);
    assert_eq!(code, Some(0), "{complaint}");
    let features = "\nfeatures: aws, kafka, profiling, rego, zstd\n";
    assert!(version.contains(features), "build the router with `--features full`: {version}");
}

#[test]
fn config_schema_prints_a_json_schema_of_every_section() {
    let (code, schema, complaint) = run(["config-schema"]);
    assert_eq!(code, Some(0), "{complaint}");
    for part in ["\"$schema\"", "\"listen\"", "\"supergraph\"", "\"subscriptions\"", "\"events\""] {
        assert!(schema.contains(part), "no {part}");
    }
}

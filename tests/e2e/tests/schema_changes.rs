//! The commands around changes of a schema: `diff`, `validate` and contracts.

#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::router::run;
use serde_json::Value;
use tempfile::TempDir;

/// A subgraph as a user would write it for a first try.
const SUPERGRAPH: &str = r#"schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.3", for: EXECUTION)
{
  query: Query
}

enum join__Graph {
  BIRDS @join__graph(name: "birds", url: "http://127.0.0.1:9/")
}

type Query @join__type(graph: BIRDS) {
  bird(id: ID!): Bird
  sizes(of: Size): [Size!]!
}

type Bird @join__type(graph: BIRDS, key: "id") {
  id: ID!
  name: String!
  nick: String @deprecated(reason: "use name")
}

enum Size @join__type(graph: BIRDS) {
  SMALL @join__enumValue(graph: BIRDS)
  LARGE @join__enumValue(graph: BIRDS)
}
"#;

/// Creates files in a new folder.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Runs a command in which words that end with a file or folder of `folder` become its path.
fn run_in(folder: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    let place = |word: &&str| {
        let path: PathBuf = folder.path().join(word);
        let is_path = !word.starts_with('-') && Path::new(&path).exists();
        if is_path { path.display().to_string() } else { (*word).to_owned() }
    };
    let (code, out, err) = run(words.iter().map(place));
    let root = format!("{}/", folder.path().display());
    (code, out.replace(&root, ""), err.replace(&root, ""))
}

#[test]
fn diff_lists_changes_by_weight_and_fails_on_breaking_ones() {
    let new = SUPERGRAPH
        .replace("  nick: String @deprecated(reason: \"use name\")\n", "  wings: Int\n")
        .replace("  LARGE", "  HUGE @join__enumValue(graph: BIRDS)\n  LARGE");
    let folder = folder(&[("old.graphql", SUPERGRAPH), ("new.graphql", &new)]);
    let (code, text, complaint) = run_in(&folder, &["diff", "old.graphql", "new.graphql"]);
    assert_eq!(code, Some(1), "{complaint}");
    expect_test::expect![[r#"
        Breaking:
          FIELD_REMOVED: the field `Bird.nick`, which was deprecated, was removed
            why: operations that select it are refused

        Dangerous:
          VALUE_ADDED_TO_ENUM: the value `HUGE` was added to the enum `Size`
            why: clients may receive a value that they do not know

        Safe:
          FIELD_ADDED: the field `Bird.wings: Int` was added
            why: operations of today do not select it

        1 breaking, 1 dangerous, 1 safe.
    "#]]
    .assert_eq(&text);

    let (code, json, _) =
        run_in(&folder, &["diff", "old.graphql", "new.graphql", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["ok"]), (Some(1), &Value::Bool(false)));
    assert_eq!(json["counts"]["dangerous"], 1);
    assert_eq!(json["changes"][0]["code"], "FIELD_REMOVED");
    assert_eq!(json["changes"][0]["path"], "Bird.nick");

    let (code, text, _) = run_in(&folder, &["diff", "old.graphql", "old.graphql"]);
    assert_eq!((code, text.as_str()), (Some(0), "No changes.\n"));
}

#[test]
fn diff_counts_only_what_breaks_the_given_operations() {
    let new = SUPERGRAPH
        .replace("  nick: String @deprecated(reason: \"use name\")\n", "")
        .replace("  LARGE @join__enumValue(graph: BIRDS)\n", "");
    let folder = folder(&[
        ("old.graphql", SUPERGRAPH),
        ("new.graphql", &new),
        ("web/bird.graphql", "query Bird { bird(id: 1) { ...Names } }"),
        ("web/parts/names.gql", "fragment Names on Bird { name }"),
        ("web/package.json", r#"{"name": "web"}"#),
        (
            "phone/m.json",
            r#"{"format": "apollo-persisted-query-manifest", "version": 1, "operations": [{"id": "1", "name": "Large", "body": "query Large($size: Size) { sizes(of: $size) }"}]}"#,
        ),
        ("empty/readme.txt", ""),
    ]);
    let diff = |operations: &str| {
        run_in(&folder, &["diff", "old.graphql", "new.graphql", "--operations", operations])
    };
    let (code, text, complaint) = diff("web");
    assert_eq!(code, Some(0), "{complaint}");
    assert!(text.contains("not used by the operation"), "{text}");
    assert!(text.contains("0 breaking, 0 dangerous, 2 safe."), "{text}");
    let (code, text, complaint) = diff("phone");
    assert_eq!(code, Some(1), "{complaint}");
    assert!(text.contains("affects: query Large (phone/m.json#Large)"), "{text}");
    assert!(text.contains("1 breaking, 0 dangerous, 1 safe.\n1 operation checked."), "{text}");
    let (code, _, complaint) = diff("empty");
    assert_eq!(code, Some(2));
    assert!(complaint.contains("empty contains no operations"), "{complaint}");
}

/// The subgraph of [`SUPERGRAPH`], and one that it does not have yet.
const COMPOSITION: [(&str, &str); 3] = [
    (
        "supergraph.yaml",
        "subgraphs:\n  birds:\n    routing_url: http://127.0.0.1:9/\n    schema: {file: birds.graphql}\n  nests:\n    routing_url: http://127.0.0.1:10/\n    schema: {file: nests.graphql}\n",
    ),
    (
        "birds.graphql",
        "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@tag\"])\ntype Query { bird(id: ID!): Bird sizes(of: Size): [Size!]! }\ntype Bird @key(fields: \"id\") { id: ID! name: String! @tag(name: \"public\") nick: String @deprecated(reason: \"use name\") }\nenum Size { SMALL LARGE }\n",
    ),
    (
        "nests.graphql",
        "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@tag\"])\ntype Bird @key(fields: \"id\") { id: ID! eggs: Int @tag(name: \"public\") }\n",
    ),
];

#[test]
fn graphs_are_composed_where_they_are_compared_or_operations_are_validated() {
    let files = [
        &COMPOSITION[..],
        &[("old.graphql", SUPERGRAPH), ("operations/a.graphql", "{ bird(id: 1) { name eggs } }")],
    ];
    let folder = folder(&files.concat());
    let (code, text, complaint) = run_in(&folder, &["diff", "old.graphql", "supergraph.yaml"]);
    assert_eq!(code, Some(0), "{complaint}{text}");
    assert!(text.contains("FIELD_ADDED: the field `Bird.eggs: Int` was added"), "{text}");
    assert!(text.ends_with("0 breaking, 0 dangerous, 1 safe.\n"), "{text}");
    let words = ["validate", "--config", "supergraph.yaml", "--operations", "operations"];
    let (code, text, complaint) = run_in(&folder, &words);
    assert_eq!((code, text.as_str()), (Some(0), "1 operation: 0 errors, 0 warnings.\n"));
    assert_eq!(complaint, "");
    fs::write(folder.path().join("starling.yaml"), "supergraph: {compose: supergraph.yaml}\n")
        .unwrap();
    let words = ["validate", "--config", "starling.yaml", "--operations", "operations"];
    let (code, _, complaint) = run_in(&folder, &words);
    assert_eq!(code, Some(0), "{complaint}");
    // The same schemas in a folder of their own, in place of the list.
    fs::create_dir(folder.path().join("schemas")).unwrap();
    for (name, text) in &COMPOSITION[1..] {
        fs::write(folder.path().join("schemas").join(name), text).unwrap();
    }
    let settings = "supergraph: {directory: schemas}\n\
                    subgraphs: {birds: {url: \"http://127.0.0.1:9/\"}, nests: {url: \"http://127.0.0.1:10/\"}}\n";
    fs::write(folder.path().join("starling.yaml"), settings).unwrap();
    let (code, _, complaint) = run_in(&folder, &words);
    assert_eq!(code, Some(0), "{complaint}");

    let broken = COMPOSITION[2].1.replace("eggs: Int", "eggs: Int name: String!");
    fs::write(folder.path().join("nests.graphql"), broken).unwrap();
    let (code, _, complaint) = run_in(&folder, &["diff", "old.graphql", "supergraph.yaml"]);
    assert_eq!(code, Some(2));
    for part in ["INVALID_FIELD_SHARING", "supergraph.yaml do not compose"] {
        assert!(complaint.contains(part), "{complaint}");
    }
}

#[test]
fn diff_has_a_status_of_its_own_for_unreadable_graphs() {
    let folder = folder(&[("old.graphql", SUPERGRAPH), ("broken.graphql", "type Query {")]);
    for new in ["broken.graphql", "absent.graphql"] {
        let (code, out, complaint) = run_in(&folder, &["diff", "old.graphql", new]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{new}");
        assert!(complaint.contains(new), "{complaint}");
    }
    let (code, _, _) = run_in(&folder, &["diff", "old.graphql"]);
    assert_eq!(code, Some(2), "an argument is missing");
}

#[test]
fn validate_reports_each_mistake_with_its_place() {
    let folder = folder(&[
        ("supergraph.graphql", SUPERGRAPH),
        (
            "good/a.graphql",
            "query A { bird(id: 1) { name } }\nquery B($size: Size) { sizes(of: $size) }",
        ),
        ("old/a.graphql", "query Nick {\n  bird(id: 1) {\n    nick\n  }\n}"),
        (
            "bad/a.graphql",
            "query A {\n  bird(id: 1) { ...Wings }\n}\n\nquery B { bird(id: 2) { ...Wings name } }",
        ),
        ("bad/b.graphql", "# Shared.\nfragment Wings on Bird {\n  wings\n}"),
        ("broken/a.graphql", "query {\n  bird(\n}"),
    ]);
    let validate = |operations: &str| {
        let words = ["validate", "--supergraph", "supergraph.graphql", "--operations", operations];
        run_in(&folder, &words)
    };
    let (code, text, complaint) = validate("good");
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "2 operations: 0 errors, 0 warnings.\n"),
        "{complaint}"
    );

    let (code, text, complaint) = validate("old");
    assert_eq!((code, text.as_str()), (Some(0), "1 operation: 0 errors, 1 warning.\n"));
    for part in ["warning[deprecated]: `Bird.nick` is deprecated: use name", "old/a.graphql:3:5"] {
        assert!(complaint.contains(part), "{complaint}");
    }

    let (code, text, complaint) = validate("bad");
    assert_eq!((code, text.as_str()), (Some(1), "2 operations: 1 error, 0 warnings.\n"));
    for part in ["bad/b.graphql:3:3", "wings"] {
        assert!(complaint.contains(part), "{complaint}");
    }

    let (code, text, complaint) = validate("broken");
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(complaint.contains("broken/a.graphql:3:1"), "{complaint}");
}

#[test]
fn validate_prints_json_and_takes_the_limits_of_the_router() {
    let folder = folder(&[
        ("supergraph.graphql", SUPERGRAPH),
        ("starling.yaml", "supergraph:\n  file: supergraph.graphql\nlimits:\n  depth: 1\n"),
        ("a.graphql", "query A { bird(id: 1) { nick } }"),
    ]);
    let words = ["--operations", "a.graphql", "--format", "json"];
    let (code, json, complaint) = run_in(
        &folder,
        &[&["validate", "--supergraph", "supergraph.graphql"], &words[..]].concat(),
    );
    assert_eq!(code, Some(0), "{complaint}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let finding = &json["findings"][0];
    assert_eq!(finding["code"], "deprecated");
    assert_eq!((&finding["line"], &finding["column"]), (&1.into(), &25.into()));
    assert_eq!(finding["operation"], "query A (a.graphql)");

    let (code, json, complaint) =
        run_in(&folder, &[&["validate", "--config", "starling.yaml"], &words[..]].concat());
    assert_eq!(code, Some(1), "{complaint}");
    assert!(json.contains("limits.depth"), "{json}");
}

#[test]
fn a_contract_hides_elements_from_clients_that_planning_still_uses() {
    let birds = COMPOSITION[1]
        .1
        .replace("bird(id: ID!): Bird", "bird(id: ID!): Bird @tag(name: \"public\")");
    let files = [
        COMPOSITION[0],
        ("birds.graphql", &*birds),
        COMPOSITION[2],
        ("a.graphql", "{ bird(id: 1) { name eggs } }"),
    ];
    let folder = folder(&files);
    let compose = |words: &[&str]| {
        run_in(&folder, &[&["compose", "--config", "supergraph.yaml"], words].concat())
    };
    let (code, whole, complaint) = compose(&[]);
    assert_eq!(code, Some(0), "{complaint}");
    let (code, contract, complaint) =
        compose(&["--include-tags", "public", "--exclude-tags", "secret"]);
    assert_eq!(code, Some(0), "{complaint}");
    for part in ["warning[unknown-tag]", "no element of the graph has the tag `secret`"] {
        assert!(complaint.contains(part), "{complaint}");
    }
    fs::write(folder.path().join("whole.graphql"), whole).unwrap();
    fs::write(folder.path().join("contract.graphql"), contract).unwrap();

    // The operation selects no key, and clients of the contract cannot.
    let words = ["plan", "--supergraph", "contract.graphql", "--operation", "a.graphql"];
    let (code, plan, complaint) = run_in(&folder, &words);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(plan.contains("nests") && plan.contains("id"), "{plan}");
    fs::write(folder.path().join("a.graphql"), "{ bird(id: 1) { id } }").unwrap();
    let (code, _, complaint) = run_in(&folder, &words);
    assert_eq!(code, Some(1), "{complaint}");
    let (_, changes, _) = run_in(&folder, &["diff", "whole.graphql", "contract.graphql"]);
    for removed in ["FIELD_REMOVED: the field `Bird.id`", "FIELD_REMOVED: the field `Query.sizes`"]
    {
        assert!(changes.contains(removed), "{changes}");
    }

    let (code, out, complaint) = compose(&["--include-tags", "a b"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(complaint.contains("`a b` is not a tag"), "{complaint}");
    let (code, _, complaint) = compose(&["--include-tags", "nothing"]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("QUERY_ROOT_TYPE_INACCESSIBLE"), "{complaint}");
}

//! A failing case is shrunk until nothing can be removed, and becomes a folder that fails in the same way. Here the
//! expectation is wrong on purpose: one of the objects has no key, so no router can fetch its name, but the reference
//! server knows it.

use federations::{Case, Failure, FailureKind, ObjectStore, Variables, shrink};

const SUPERGRAPH: &str = r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0") @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) { query: Query }
enum join__Graph {
  A @join__graph(name: "a", url: "http://a")
  B @join__graph(name: "b", url: "http://b")
  C @join__graph(name: "c", url: "http://c")
}
type Query @join__type(graph: A) @join__type(graph: B) @join__type(graph: C) {
  bees: [Bee] @join__field(graph: A)
  ants(first: Int): [Ant!] @join__field(graph: B)
}
type Bee @join__type(graph: A, key: "code") @join__type(graph: B, key: "code") @join__type(graph: C, key: "code") {
  code: String
  name: String @join__field(graph: B)
  friends: [Bee!] @join__field(graph: A)
  size: Int @join__field(graph: C)
}
type Ant @join__type(graph: B) { name: String bee: Bee }
"#;

const OPERATION: &str = "query Q($x: Boolean!) {
  ants(first: 1) { name bee { ...Both } }
  bees { code ...Both friends @include(if: $x) { size } }
}
fragment Both on Bee { size name @include(if: $x) }";

const DATA: &str = r#"{
  "Query": {"bees": ["Bee:1", "Bee:2"], "ants": ["Ant:1"]},
  "Bee:1": {"code": "one", "name": "first", "friends": ["Bee:1"], "size": 3},
  "Bee:2": {"code": null, "name": "second", "friends": [], "size": null},
  "Ant:1": {"name": "red", "bee": "Bee:1"}
}"#;

fn broken() -> Case {
    let mut variables = Variables::new();
    variables.insert("x".to_owned(), true.into());
    Case {
        labels: Vec::new(),
        unmet: Vec::new(),
        supergraph: SUPERGRAPH.to_owned(),
        operation: OPERATION.to_owned(),
        variables,
        data: ObjectStore::parse(DATA).expect("valid data"),
    }
}

fn failure_of(case: &Case) -> Failure {
    case.compare().expect("the case loads").expect_err("the case fails")
}

#[test]
fn a_failing_case_becomes_a_small_folder_that_fails_in_the_same_way() {
    let case = broken();
    let failure = failure_of(&case);
    assert_eq!(failure.kind, FailureKind::Data);
    let shrunk = shrink(&case, &failure, 20_000).case;
    let words: Vec<&str> = shrunk.operation.split_whitespace().collect();
    assert_eq!(words.join(" "), "query Q { bees { name } }");
    for gone in ["graph: C", "type Ant", "size", "friends"] {
        assert!(!shrunk.supergraph.contains(gone), "{gone} in {}", shrunk.supergraph);
    }
    let folder = tempfile::tempdir().expect("a folder");
    shrunk.write(folder.path()).expect("the case is written");
    let read = Case::read(folder.path()).expect("the written case is read");
    assert_eq!(failure_of(&read).kind, FailureKind::Data);
}

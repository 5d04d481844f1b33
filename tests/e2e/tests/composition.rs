//! The commands `compose` and `subgraph introspect`, as users run them.

#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::router::{binary, run};
use expect_test::expect;
use load::subgraph::{Server, Subgraph};
use tempfile::TempDir;

const PRODUCTS: &str = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])

type Query {
  product(id: ID!): Product
}

type Product @key(fields: "id") {
  id: ID!
  name: String
}
"#;

const REVIEWS: &str = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key"])

type Product @key(fields: "id") {
  id: ID!
  stars: Int
}
"#;

const EVENTS: &str = r#"type Subscription {
  productChanged(id: ID!): Product @edfs__natsSubscribe(subjects: ["products.{{ args.id }}"])
}

type Product @key(fields: "id", resolvable: false) {
  id: ID! @external
}
"#;

/// A folder with the files of a composition.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            fs::write(folder.path(name), text).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `compose` for `supergraph.yaml` and returns exit code, standard output and standard error, in which the
    /// path of the folder is left out.
    fn compose(&self, further: &[&str]) -> (Option<i32>, String, String) {
        let config = self.path("supergraph.yaml");
        let words = ["compose", "--config", &config];
        let (code, out, err) = run(words.iter().chain(further));
        let folder = format!("{}/", self.0.path().display());
        (code, out.replace(&folder, ""), err.replace(&folder, ""))
    }

    /// Returns the error output of a composition that must fail.
    #[track_caller]
    fn fails(&self) -> String {
        let output = self.path("out.graphql");
        fs::write(&output, "the last supergraph").unwrap();
        let (code, out, err) = self.compose(&["--output", &output]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(!err.contains("panicked"), "{err}");
        assert_eq!(fs::read_to_string(&output).unwrap(), "the last supergraph");
        err
    }
}

const MAPPING: &str = "\
federation_version: =2.7.0
subgraphs:
  products: {routing_url: http://products/, schema: {file: ./products.graphql}}
  reviews: {routing_url: http://reviews/, schema: {file: reviews.graphql}}
  events: {schema: {file: events.graphql}}
";

const LIST: &str = "\
version: 1
subgraphs:
  - {name: products, routing_url: http://products/, schema: {file: products.graphql}}
  - {name: reviews, routing_url: http://reviews/, schema: {file: reviews.graphql}}
  - {name: events, schema: {file: events.graphql}}
";

const SCHEMAS: [(&str, &str); 3] =
    [("products.graphql", PRODUCTS), ("reviews.graphql", REVIEWS), ("events.graphql", EVENTS)];

#[test]
fn both_forms_of_the_file_give_the_same_supergraph_which_the_router_loads() {
    let mut supergraphs = Vec::new();
    for yaml in [MAPPING, LIST] {
        let folder = Folder::new(&SCHEMAS);
        fs::write(folder.path("supergraph.yaml"), yaml).unwrap();
        let (code, sdl, err) = folder.compose(&[]);
        assert_eq!(code, Some(0), "{err}");
        let output = folder.path("supergraph.graphql");
        let (code, out, err) = folder.compose(&["--output", &output]);
        assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
        assert!(err.ends_with("composed 3 subgraphs into supergraph.graphql\n"), "{err}");
        assert_eq!(fs::read_to_string(&output).unwrap(), sdl);
        let router = "supergraph: {file: supergraph.graphql}\n\
                      events: {providers: {nats: [{id: default, url: 'nats://127.0.0.1:4222'}]}}\n";
        fs::write(folder.path("starling.yaml"), router).unwrap();
        let (code, _, err) = run(["check", "--config", &folder.path("starling.yaml")]);
        assert_eq!(code, Some(0), "{err}");
        supergraphs.push(sdl);
    }
    assert!(
        supergraphs[0].contains("EVENTS @join__graph(name: \"events\", url: \"\")"),
        "{}",
        supergraphs[0]
    );
    assert_eq!(supergraphs[0], supergraphs[1]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_hyphen_names_standard_input_and_output_and_a_full_disk_is_an_error() {
    use std::process::{Command, Stdio};
    let folder = Folder::new(&SCHEMAS);
    fs::write(folder.path("supergraph.yaml"), MAPPING).unwrap();
    let compose = |words: &[&str], out: Stdio| {
        let output = Command::new(binary())
            .arg("compose")
            .args(words)
            .current_dir(folder.0.path())
            .stdin(fs::File::open(folder.path("supergraph.yaml")).unwrap())
            .stdout(out)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, sdl, err) = compose(&["--config", "-", "--output", "-"], Stdio::piped());
    assert_eq!((code, sdl.as_str()), (Some(0), folder.compose(&[]).1.as_str()), "{err}");
    assert!(err.contains("--> standard input:1:1"), "{err}");
    assert!(!Path::new(&folder.path("-")).exists());
    // A script would go on with an empty file.
    for format in ["text", "json"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let words = ["--config", "supergraph.yaml", "--format", format];
        let (code, _, err) = compose(&words, full.into());
        assert_eq!(code, Some(1));
        assert!(err.contains("error[unwritable-output]: cannot write to standard output"), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_subgraphs_are_asked_for_their_schemas() {
    let server = |sdl: &str| Server::start(Subgraph::builder(sdl).build().unwrap());
    let (products, reviews) = (server(PRODUCTS).await.unwrap(), server(REVIEWS).await.unwrap());
    let url = products.url("");
    let words = ["subgraph", "introspect", &url, "--header", "authorization: Bearer hunter2"];
    let (code, sdl, err) = run(words);
    assert_eq!((code, sdl.as_str(), err.as_str()), (Some(0), PRODUCTS, ""));

    let yaml = format!(
        "subgraphs:\n  products: {{schema: {{subgraph_url: '{url}'}}}}\n  \
         reviews: {{routing_url: http://reviews/, introspection: {{url: '{}'}}}}\n",
        reviews.url("/internal")
    );
    let folder = Folder::new(&[("supergraph.yaml", &yaml)]);
    let (code, sdl, err) = folder.compose(&[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        sdl.contains(&format!("PRODUCTS @join__graph(name: \"products\", url: \"{url}\")")),
        "{sdl}"
    );
    assert!(sdl.contains("url: \"http://reviews/\""), "{sdl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_subgraph_is_waited_for_with_a_note() {
    let products = Subgraph::builder(PRODUCTS).build().unwrap();
    let server = Server::builder().delay(Duration::from_millis(1500)).subgraph("", products);
    let server = server.start().await.unwrap();
    let url = server.url("");
    let yaml = format!("subgraphs: {{products: {{schema: {{subgraph_url: '{url}'}}}}}}");
    let folder = Folder::new(&[("supergraph.yaml", &yaml)]);
    let (code, _, err) = folder.compose(&[]);
    assert_eq!((code, err.as_str()), (Some(0), "waiting for the schemas of the subgraphs…\n"));
    let (_, _, err) = folder.compose(&["--format", "json"]);
    assert_eq!(err, "");
}

#[test]
fn a_subgraph_that_cannot_be_asked_is_an_error() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, out, err) = run(["subgraph", "introspect", &format!("http://{closed}/")]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    expect![[r#"
        error[unreachable-subgraph]: the subgraph cannot be introspected: its server cannot be reached: connection refused
         |
         = help: check that the subgraph runs and that this machine can reach it, or give its schema as a file
    "#]].assert_eq(&err);
    let url = format!("http://{closed}/");
    let (code, _, err) = run(["subgraph", "introspect", &url, "--header", "hunter2"]);
    assert_eq!(code, Some(2));
    assert!(!err.contains("hunter2") && err.contains("--header"), "{err}");

    let yaml = format!(
        "subgraphs: {{a: {{schema: {{subgraph_url: '{url}', introspection_headers: {{x: hunter2}}}}}}}}"
    );
    let err = Folder::new(&[("supergraph.yaml", &yaml)]).fails();
    assert!(err.contains("error[unreachable-subgraph]"), "{err}");
    assert!(err.contains("supergraph.yaml:1:") && !err.contains("hunter2"), "{err}");
}

#[test]
fn a_query_that_cannot_be_planned_is_shown_with_the_reason_for_each_subgraph() {
    let reviews =
        REVIEWS.replace("fields: \"id\"", "fields: \"sku\"").replace("  id: ID!", "  sku: ID!");
    let yaml = MAPPING.replace("  events: {schema: {file: events.graphql}}\n", "");
    let folder = Folder::new(&[
        ("supergraph.yaml", &yaml),
        ("products.graphql", PRODUCTS),
        ("reviews.graphql", &reviews),
    ]);
    expect![[r#"
        warning[unused-key]: `federation_version` has no effect
         --> supergraph.yaml:1:1
          |
        1 | federation_version: =2.7.0
          | ^^^^^^^^^^^^^^^^^^ ignored
          |
          = help: each subgraph is read by the version in its own `@link`; the key may stay for other tools

        error[SATISFIABILITY_ERROR]: the query `{ product(id: …) { sku } }` cannot be planned, because no subgraph that the router can reach resolves `Product.sku`
         --> reviews.graphql:4:3
          |
        4 |   sku: ID!
          |   ^^^ in subgraph `reviews`
          |
         ::: reviews.graphql:5:3
          |
        5 |   stars: Int
          |   ^^^^^ in subgraph `reviews`
          |
          = note: `products` gives the object, but does not resolve the field
          = note: `reviews` resolves the field for objects with the key "sku", which `products` cannot give
          = note: The same is true of `stars`.
          = help: add the fields of the key "sku" to `Product` in `products`

        2 subgraphs cannot be composed: 1 error
    "#]].assert_eq(&folder.fails());
}

#[test]
fn programs_read_the_result_as_json() {
    let folder = Folder::new(&SCHEMAS);
    fs::write(folder.path("supergraph.yaml"), MAPPING).unwrap();
    let json = |further: &[&str]| -> (Option<i32>, serde_json::Value) {
        let (code, out, err) = folder.compose(&[&["--format", "json"], further].concat());
        assert_eq!(err, "");
        (code, serde_json::from_str(&out).unwrap())
    };
    let (code, result) = json(&[]);
    assert_eq!(code, Some(0));
    assert_eq!(result["outcome"], "success");
    assert_eq!(result["errors"], serde_json::json!([]));
    assert_eq!(result["hints"][0]["code"], "unused-key");
    assert!(result["supergraph"].as_str().unwrap().contains("type Product"));

    fs::write(folder.path("reviews.graphql"), "type Product { id: }").unwrap();
    let (code, result) = json(&["--output", &folder.path("none/out.graphql")]);
    assert_eq!(code, Some(1));
    assert_eq!(result["supergraph"], serde_json::Value::Null);
    assert_eq!(result["outcome"], "failure");
    expect![[r#"
        [
          {
            "code": "INVALID_GRAPHQL",
            "severity": "error",
            "message": "the text is not GraphQL: expected a Type",
            "advice": "correct the syntax; the rest of the schema is checked afterwards",
            "places": [
              {
                "subgraph": "reviews",
                "file": "reviews.graphql",
                "line": 1,
                "column": 20
              }
            ]
          }
        ]"#]]
    .assert_eq(&format!("{:#}", result["errors"]));

    fs::remove_file(folder.path("products.graphql")).unwrap();
    let (code, result) = json(&[]);
    assert_eq!(code, Some(1));
    expect![[r#"
        [
          {
            "code": "unreadable-schema",
            "severity": "error",
            "message": "subgraph `products`: cannot read its schema products.graphql: there is no such file",
            "advice": "check the path in `schema.file`; it is relative to the folder of this file",
            "places": [
              {
                "subgraph": null,
                "file": "supergraph.yaml",
                "line": 3,
                "column": 60
              }
            ]
          }
        ]"#]].assert_eq(&format!("{:#}", result["errors"]));
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let folder = Folder::new(&SCHEMAS);
    fs::write(folder.path("supergraph.yaml"), LIST).unwrap();
    for input in ["supergraph.yaml", "reviews.graphql"] {
        let (code, _, err) = folder.compose(&["--output", &folder.path(input)]);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(&format!("{input}: it is an input of the composition")), "{err}");
    }
    assert_eq!(fs::read_to_string(folder.path("supergraph.yaml")).unwrap(), LIST);
    let (code, out, err) = folder.compose(&["--output", &folder.path("none/out.graphql")]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        err.contains("error[unwritable-file]: cannot write the supergraph none/out.graphql"),
        "{err}"
    );
}

/// Composes one subgraph and returns the error output.
#[track_caller]
fn fails_with(sdl: &str) -> String {
    let yaml = "subgraphs: {a: {routing_url: 'http://a/', schema: {file: a.graphql}}}";
    Folder::new(&[("supergraph.yaml", yaml), ("a.graphql", sdl)]).fails()
}

#[test]
fn every_bad_input_gives_errors_with_places() {
    let missing = Folder::new(&[]);
    assert!(missing.fails().contains("cannot read the composition configuration supergraph.yaml"));
    for (yaml, parts) in [
        ("subgraphs: [", &["error[yaml-syntax]", "supergraph.yaml:1:"][..]),
        ("subgraphs: {}", &["error[no-subgraphs]", "supergraph.yaml:1:1"]),
        ("", &["`subgraphs` is missing"]),
        (
            "subgraphs: {a: {routing_url: http://a/, schema: {file: a.graphql}}, b: {routing_url: http://a/, schema: {file: .}}}",
            &["a.graphql: there is no such file", "it is a folder", "supergraph.yaml:1:56"],
        ),
        (
            "subgraphs: [{name: a, schema: {sdl: a}}, {name: a, schema: {sdl: a}}]",
            &["two subgraphs are named `a`", "first given here"],
        ),
    ] {
        let err = Folder::new(&[("supergraph.yaml", yaml)]).fails();
        for part in parts {
            assert!(err.contains(part), "{yaml} does not say {part}:\n{err}");
        }
    }
}

#[test]
fn every_bad_schema_gives_errors_with_places() {
    for (sdl, parts) in [
        ("type Query {\n  a: \n}", &["error[INVALID_GRAPHQL]", "a.graphql:3:1"][..]),
        ("", &["error[", "a.graphql"]),
        ("{ a }", &["error[INVALID_GRAPHQL]", "a.graphql:1:1"]),
        ("type A { a: Int }", &["error[NO_QUERIES]"]),
        (
            "type Query { a: A }\ninterface A implements B { a: Int }\ninterface B implements A { a: Int }",
            &["error[INVALID_GRAPHQL]", "a.graphql:2:"],
        ),
        (
            "type Query { a(b: B): Int }\ninput B { c: C! }\ninput C { b: B! }",
            &["error[INVALID_GRAPHQL]", "a.graphql:2:"],
        ),
        (
            "type Query { a: Int @d }\ndirective @d(a: Int @d) on FIELD_DEFINITION | ARGUMENT_DEFINITION",
            &["error[INVALID_GRAPHQL]", "a.graphql:2:"],
        ),
    ] {
        let err = fails_with(sdl);
        for part in parts {
            assert!(err.contains(part), "{sdl} does not say {part}:\n{err}");
        }
    }
}

#[test]
fn schemas_of_ten_megabytes_give_errors_in_bounded_time() {
    const BYTES: usize = 10 << 20;
    let text = "word ".repeat(400);
    let types = (0..BYTES / 2000).map(|it| format!("\"{text}\" type T{it} {{ a: Missing }}\n"));
    let types: String = types.collect();
    // Each name is missing, and each error could suggest any of the others.
    let names: String =
        (0..BYTES / 40).map(|it| format!("type T{it} {{ a: Missing{it} }}\n")).collect();
    for sdl in ["{".repeat(BYTES), "a".repeat(BYTES), "\"".repeat(BYTES), types, names] {
        let start = sdl[..20].to_owned();
        let err = fails_with(&sdl);
        assert!(
            err.contains("a.graphql:") && err.len() < 1 << 20,
            "{start} gives {} bytes",
            err.len()
        );
    }
    let folder = Folder::new(&[("a.graphql", &" ".repeat(65 << 20))]);
    fs::write(folder.path("supergraph.yaml"), LIST.replace("products.graphql", "a.graphql"))
        .unwrap();
    let err = folder.fails();
    assert!(err.contains("it is larger than 64 MiB"), "{err}");
    assert!(Path::new(&folder.path("a.graphql")).exists());
}

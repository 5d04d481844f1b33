//! Tests of files, by folder.
//!
//! Every folder in `tests/cases/` contains a file `supergraph.yaml`, with schemas beside it, and the exact result of
//! reading and loading it (`expected.txt`). To add a case, write the file, run `UPDATE_EXPECT=1 cargo test -p
//! composition-input`, and check that the messages say where the mistake is and what to do. Every folder in
//! `tests/folders/` is itself a folder of schemas, and also has an `expected.txt`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use config::diagnostic::{Diagnostic, Style, render};
use expect_test::expect_file;

use crate::{CompositionConfig, SubgraphConfig, load};

/// The value of each secret in the cases, which no message may contain.
const SECRET: &str = "hunter2";

fn env(name: &str) -> Option<OsString> {
    match name {
        "HOST" => Some("products.internal".into()),
        "TOKEN" => Some(SECRET.into()),
        _ => None,
    }
}

#[tokio::test]
async fn every_file_gives_the_expected_subgraphs_or_messages() {
    // The working directory of tests is that of the package, so that messages do not contain it.
    let mut cases = 0;
    for entry in std::fs::read_dir("tests/cases").unwrap() {
        let folder = entry.unwrap().path();
        let path = folder.join("supergraph.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        let result = describe(CompositionConfig::parse_with(&text, &path, &env)).await;
        assert!(!result.contains(SECRET), "{} shows a secret:\n{result}", folder.display());
        expect_result(&folder, &result);
        cases += 1;
    }
    assert!(cases > 20, "only {cases} cases were found");
}

#[tokio::test]
async fn every_folder_of_schemas_gives_the_expected_subgraphs_or_messages() {
    let url = |name: &str| (name.to_owned(), format!("http://{name}.internal/graphql"));
    let urls = BTreeMap::from(["products", "stock"].map(url));
    let mut cases = 0;
    for entry in std::fs::read_dir("tests/folders").unwrap() {
        let folder = entry.unwrap().path();
        let result = describe(CompositionConfig::read_folder(&folder, &urls)).await;
        expect_result(&folder, &result);
        cases += 1;
    }
    assert!(cases > 3, "only {cases} folders were found");
}

fn expect_result(folder: &Path, result: &str) {
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("expected.txt");
    expect_file![expected].assert_eq(result);
}

async fn describe(config: Result<CompositionConfig, Vec<Diagnostic>>) -> String {
    let config = match config {
        Ok(config) => config,
        Err(diagnostics) => return render(&diagnostics, Style::Plain),
    };
    let mut result = render(&config.warnings, Style::Plain);
    for SubgraphConfig { name, routing_url, schema, subscription, .. } in &config.subgraphs {
        let _ = writeln!(result, "{name}: {routing_url:?}\n  {schema:?}");
        if let Some(subscription) = subscription {
            let _ = writeln!(result, "  {subscription:?}");
        }
    }
    // Servers have tests of their own.
    if config.has_introspection() {
        return result;
    }
    match load(&config).await {
        Ok(inputs) => {
            for input in inputs {
                let lines = input.sdl.lines().count();
                let _ = writeln!(
                    result,
                    "loaded {}: {} {:?}, lines: {lines}",
                    input.name, input.file, input.url
                );
            }
        }
        Err(errors) => {
            let diagnostics: Vec<_> = errors.into_iter().map(|it| *it.diagnostic).collect();
            result.push_str(&render(&diagnostics, Style::Plain));
        }
    }
    result
}

#[test]
fn compositions_are_told_from_configurations_of_the_router() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.yaml");
    let is_composition = |text: &str| {
        std::fs::write(&path, text).unwrap();
        CompositionConfig::is_in_file(&path)
    };
    for text in [
        "subgraphs: {a: {schema: {file: a.graphql}}}",
        "version: 1\nsubgraphs:\n  - name: a\n    introspection: {url: http://a/}\n",
        // These have mistakes.
        "subgraphs: {a: {routing_url: http://a/}}",
        "subgraphs: {a: {schema: {files: a.graphql}, url: http://a/}, b: 1}",
        "subgraphs: {a: {schema: a.graphql}}",
        "subgraph: {}\nsubgraphs: [{schema: {file: $a}}]",
    ] {
        assert!(is_composition(text), "{text}");
    }
    for text in [
        "",
        "supergraph: {compose: supergraph.yaml}\nintrospection: true\n",
        "supergraph:\n  file: a.graphql\nsubgraphs:\n  schema: {url: http://schema/}\n",
        "subgraphs: {",
        "listen: 127.0.0.1:4000",
    ] {
        assert!(!is_composition(text), "{text}");
    }
    assert!(!CompositionConfig::is_in_file(folder.path()));
}

#[test]
fn a_file_that_cannot_be_read_is_reported_with_advice() {
    let messages = |path: &Path| render(&CompositionConfig::read(path).unwrap_err(), Style::Plain);
    assert_eq!(
        messages(Path::new("tests/none.yaml")),
        "error[unreadable-file]: cannot read the composition configuration tests/none.yaml: there is no such file\n \
         |\n = help: check the path given by `--config`\n"
    );
    assert!(messages(Path::new("tests")).contains("it is a folder"));
}

//! Fixtures in `tests/fixtures/CASE/`: `operation.graphql`, optionally `name.txt` (the name of the
//! operation), `variables.json` and a `schema.graphql` of its own; `expected.txt` is the result.
//! `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use graph::Supergraph;

use super::{SCHEMA, pipeline_of, print};
use crate::{Limits, PrepareError};

#[test]
fn every_fixture_has_its_expected_result() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = cases.filter(|path| path.is_dir()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    for case in cases {
        check(&case);
    }
}

fn check(case: &Path) {
    let read = |name: &str| fs::read_to_string(case.join(name)).ok();
    let schema = read("schema.graphql").unwrap_or_else(|| SCHEMA.to_owned());
    let operation = read("operation.graphql").unwrap();
    let name = read("name.txt");
    let actual = outcome(
        &schema,
        &operation,
        name.as_deref().map(str::trim),
        read("variables.json").map(Bytes::from),
    );
    expect_test::expect_file![case.join("expected.txt")].assert_eq(&actual);
}

fn outcome(schema: &str, text: &str, name: Option<&str>, variables: Option<Bytes>) -> String {
    let pipeline = pipeline_of(schema, Limits::default());
    let normalised = match pipeline.normalise_text(text.as_bytes(), name) {
        Ok(normalised) => normalised,
        Err(error) => return errors(&error),
    };
    let graph = Supergraph::from_sdl(schema, "schema.graphql").unwrap();
    let mut out = print::operation(&graph, &normalised.operation);
    if let Some(variables) = variables {
        match normalised.variables.coerce(&variables, &pipeline.schema.input_types) {
            Ok(values) => {
                for (variable, value) in normalised.operation.variables.iter().zip(&values.values) {
                    let _ =
                        writeln!(out, "${} = {}", variable.name, value.as_deref().unwrap_or("-"));
                }
            }
            Err(problems) => out.push_str(&errors(&PrepareError::Variables(problems))),
        }
    }
    out
}

pub(super) fn errors(error: &PrepareError) -> String {
    let (kind, problems) = match error {
        PrepareError::Syntax(problems) => ("syntax", problems),
        PrepareError::Validation(problems) => ("validation", problems),
        PrepareError::Variables(problems) => ("variables", problems),
        PrepareError::UnknownOperation(message) => {
            return format!("unknown operation: {message}\n");
        }
        PrepareError::Limit { .. } => return format!("limit: {error}\n"),
        PrepareError::Denied(field) => return format!("denied: {field}\n"),
        PrepareError::Overloaded => return format!("overloaded: {error}\n"),
        PrepareError::Plan(error) => return format!("plan: {error}\n"),
        PrepareError::Internal(message) => return format!("internal: {message}\n"),
    };
    let mut out = String::new();
    for problem in problems {
        let places = problem.locations.iter().map(|(line, column)| format!(" {line}:{column}"));
        let _ = writeln!(out, "{kind}{}: {}", places.collect::<String>(), problem.message);
    }
    out
}

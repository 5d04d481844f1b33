//! Findings as JSON for programs. [`crate::render`] is the form for people.

use serde_json::{Value, json};

use crate::{
    finding::{Finding, Severity},
    source_text::Place,
};

/// Returns the result of composition without the supergraph: `{"outcome": "success", "errors": […], "hints": […]}`. A
/// composition with errors has failed.
pub fn json(errors: &[Finding], hints: &[Finding]) -> Value {
    let outcome = if errors.is_empty() { "success" } else { "failure" };
    let list = |findings: &[Finding]| findings.iter().map(finding_json).collect::<Vec<_>>();
    json!({"outcome": outcome, "errors": list(errors), "hints": list(hints)})
}

/// Returns one finding. Places without `line` and `column` concern a whole schema.
pub fn finding_json(finding: &Finding) -> Value {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    };
    let place = |place: &Place| {
        let position = |number: usize| (number > 0).then_some(number);
        json!({
            "subgraph": place.subgraph,
            "file": place.file,
            "line": position(place.line),
            "column": position(place.column),
        })
    };
    json!({
        "code": finding.code.name(),
        "severity": severity,
        "message": finding.message,
        "advice": finding.advice,
        "places": finding.places.iter().map(place).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::code::Code;

    #[test]
    fn a_failure_lists_its_errors_with_their_places() {
        let place = Place {
            subgraph: "products".into(),
            file: "products.graphql".into(),
            line: 2,
            column: 12,
            excerpt: "  product: Produkt".into(),
            excerpt_column: 1,
        };
        let whole = Place { line: 0, column: 0, ..place.clone() };
        let finding = Finding {
            code: Code::INVALID_GRAPHQL,
            severity: Severity::Error,
            message: "there is no type `Produkt`".into(),
            places: vec![place, whole],
            further_places: 0,
            advice: "define it".into(),
        };
        let hint = Finding { severity: Severity::Info, places: Vec::new(), ..finding.clone() };
        let result = json(&[finding], &[hint]);
        expect![[r#"
            {
              "outcome": "failure",
              "errors": [
                {
                  "code": "INVALID_GRAPHQL",
                  "severity": "error",
                  "message": "there is no type `Produkt`",
                  "advice": "define it",
                  "places": [
                    {
                      "subgraph": "products",
                      "file": "products.graphql",
                      "line": 2,
                      "column": 12
                    },
                    {
                      "subgraph": "products",
                      "file": "products.graphql",
                      "line": null,
                      "column": null
                    }
                  ]
                }
              ],
              "hints": [
                {
                  "code": "INVALID_GRAPHQL",
                  "severity": "info",
                  "message": "there is no type `Produkt`",
                  "advice": "define it",
                  "places": []
                }
              ]
            }"#]]
        .assert_eq(&format!("{result:#}"));
        assert_eq!(json(&[], &[])["outcome"], "success");
    }
}

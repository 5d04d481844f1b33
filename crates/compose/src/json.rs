//! Findings as JSON for programs. [`crate::render`] is the form for people.

use serde_json::{Value, json};

use crate::{
    Composition,
    finding::{Finding, Severity},
    source_text::Place,
};

/// Returns the result of composition without the supergraph: `{"outcome": "success", "errors": […], "hints": […]}`.
pub fn json(composition: &Composition) -> Value {
    let (outcome, errors, hints) = match composition {
        Composition::Success { hints, .. } => ("success", &[][..], hints),
        Composition::Failure { errors, hints } => ("failure", errors.as_slice(), hints),
    };
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
    use crate::SubgraphInput;

    #[test]
    fn a_failure_lists_its_errors_with_their_places() {
        let input = SubgraphInput {
            name: "products".into(),
            url: "http://products/".into(),
            file: "products.graphql".into(),
            sdl: "type Query {\n  product: Produkt\n}\n".into(),
        };
        let result = json(&crate::compose(&[input]));
        expect![[r#"
            {
              "outcome": "failure",
              "errors": [
                {
                  "code": "INVALID_GRAPHQL",
                  "severity": "error",
                  "message": "the schema of subgraph `products` is not valid: cannot find type `Produkt` in this document",
                  "advice": "each subgraph defines all types that it uses, also those that other subgraphs have: define the type here",
                  "places": [
                    {
                      "subgraph": "products",
                      "file": "products.graphql",
                      "line": 2,
                      "column": 12
                    }
                  ]
                }
              ],
              "hints": []
            }"#]].assert_eq(&format!("{result:#}"));
        assert_eq!(json(&crate::compose(&[]))["errors"][0]["places"], json!([]));
    }
}

//! Findings of composition as messages of the router. People see them as `starling compose` draws them.

use std::sync::Arc;

use compose::{Coloring, Finding, Severity};
use config::diagnostic::{Diagnostic, Drawing, SourceText, Span};

/// Converts errors.
pub(crate) fn errors(findings: &[Finding]) -> Vec<Diagnostic> {
    findings.iter().map(convert).collect()
}

/// Converts the hints that are probably mistakes. Differences that are normal in a federation are left out.
pub(crate) fn warnings(findings: &[Finding]) -> Vec<Diagnostic> {
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    warnings.map(convert).collect()
}

fn convert(finding: &Finding) -> Diagnostic {
    let code = finding.code.name();
    let mut diagnostic = match finding.severity {
        Severity::Error => Diagnostic::error(code, &finding.message),
        Severity::Warning | Severity::Info => Diagnostic::warning(code, &finding.message),
    };
    if let Some(place) = finding.places.first() {
        // The excerpt is part of the drawing, so the text of the schema is not needed.
        let source = SourceText { name: place.file.to_string(), text: String::new() };
        diagnostic = diagnostic.in_source(&Arc::new(source));
        if place.line > 0 {
            let span = Span { line: place.line, column: place.column, bytes: 0..0 };
            diagnostic = diagnostic.at(span, "");
        }
    }
    if !finding.advice.is_empty() {
        diagnostic = diagnostic.help(&finding.advice);
    }
    let draw =
        |coloring| compose::render(std::slice::from_ref(finding), coloring).trim_end().to_owned();
    diagnostic.drawn(Drawing { plain: draw(Coloring::Plain), colored: draw(Coloring::Ansi) })
}

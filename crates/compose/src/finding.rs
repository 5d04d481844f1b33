//! Findings: errors and hints with their places in the schemas of the subgraphs. `render` shows them to people, `json`
//! to programs.

use apollo_compiler::parser::SourceSpan;

use crate::{
    code::Code,
    source_text::{Place, SourceText},
};

/// The maximum number of findings of one phase; further ones are only counted.
pub const FINDINGS_MAX: usize = 500;

/// The maximum number of places that one finding names. Ten fit on a screen.
const PLACES_MAX: usize = 10;

/// The weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Composition fails.
    Error,
    /// The supergraph is probably not what its authors intend.
    Warning,
    /// The subgraphs differ in a way that is allowed.
    Info,
}

/// One error or hint of composition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The established code.
    pub code: Code,
    /// The weight of the finding.
    pub severity: Severity,
    /// The description: which element is wrong, and why it matters.
    pub message: String,
    /// The positions in the subgraphs, at most ten.
    pub places: Vec<Place>,
    /// The number of positions beyond them.
    pub further_places: usize,
    /// Advice on how to correct it; may be empty.
    pub advice: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        write!(f, "{kind} {}: {}", self.code, self.message)?;
        for place in &self.places {
            if place.line == 0 {
                write!(f, "\n  at {} ({})", place.file, place.subgraph)?;
            } else {
                let Place { file, line, column, subgraph, excerpt, .. } = place;
                write!(f, "\n  at {file}:{line}:{column} ({subgraph}): {}", excerpt.trim_start())?;
            }
        }
        if !self.advice.is_empty() {
            write!(f, "\n  help: {}", self.advice)?;
        }
        Ok(())
    }
}

/// A position in a subgraph before it is converted to a [`Place`]: the index of the subgraph and a span.
pub(crate) type Spot = (usize, Option<SourceSpan>);

/// Collects the findings of a phase.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    sources: &'a [SourceText],
    errors: Vec<Finding>,
    hints: Vec<Finding>,
    omitted: usize,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(sources: &'a [SourceText]) -> Self {
        Self { sources, errors: Vec::new(), hints: Vec::new(), omitted: 0 }
    }

    /// Adds an error.
    pub(crate) fn error(
        &mut self,
        code: Code,
        spots: impl IntoIterator<Item = Spot>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        if self.is_full() {
            self.omitted += 1;
            return;
        }
        let finding = self.finding(code, Severity::Error, spots, message.into(), advice.into());
        if !self.errors.contains(&finding) {
            self.errors.push(finding);
        }
    }

    /// Adds a hint.
    pub(crate) fn hint(
        &mut self,
        code: Code,
        severity: Severity,
        spots: impl IntoIterator<Item = Spot>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        if self.hints.len() < FINDINGS_MAX {
            let finding = self.finding(code, severity, spots, message.into(), advice.into());
            self.hints.push(finding);
        }
    }

    fn finding(
        &self,
        code: Code,
        severity: Severity,
        spots: impl IntoIterator<Item = Spot>,
        message: String,
        advice: String,
    ) -> Finding {
        let place = |(subgraph, span): Spot| {
            let source = self.sources.get(subgraph)?;
            Some(span.map_or_else(|| source.whole(), |span| source.place_at(span.offset())))
        };
        let mut spots = spots.into_iter();
        let places = spots.by_ref().filter_map(place).take(PLACES_MAX).collect();
        let further_places = spots.count();
        Finding { code, severity, message, places, further_places, advice }
    }

    /// Returns the name of the subgraph with that index.
    pub(crate) fn subgraph_name(&self, subgraph: usize) -> &'a str {
        self.sources.get(subgraph).map_or("", SourceText::subgraph_name)
    }

    /// True if further errors are only counted, so that their messages need not be made.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() == FINDINGS_MAX
    }

    /// True if an error was found.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns the number of errors.
    pub(crate) fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// Returns the errors after the first `count` ones.
    pub(crate) fn errors_since(&self, count: usize) -> impl Iterator<Item = &Finding> {
        self.errors.iter().skip(count)
    }

    /// Puts `context` before the messages of the errors after the first `count` ones.
    pub(crate) fn add_context(&mut self, count: usize, context: &str) {
        for error in self.errors.iter_mut().skip(count) {
            error.message.insert_str(0, context);
        }
    }

    /// Returns the errors and the hints.
    pub(crate) fn into_parts(mut self) -> (Vec<Finding>, Vec<Finding>) {
        if self.omitted > 0
            && let Some(last) = self.errors.last_mut()
        {
            let more = format!("{} more errors are not shown. ", self.omitted);
            last.advice.insert_str(0, &more);
        }
        (self.errors, self.hints)
    }
}

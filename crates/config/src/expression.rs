//! Expressions: conditions and computed values in CEL. The crate `expressions` has the language; this module has the
//! value in the file, and the check that reports mistakes with their place.

use std::ops::Range;

use expressions::{CompileError, Expected, Program, Scope};
use serde::{Deserialize, Serialize};

use super::complaint::Complaint;

/// An expression as it is written in the file. [`Expression::compile`] makes a program of it, once for each load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Expression(Box<str>);

impl Expression {
    /// Creates an expression. The text is not checked.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compiles the expression for a place. It succeeds for an expression of a loaded configuration, which has been
    /// checked for the same place.
    ///
    /// # Errors
    /// The first mistake.
    pub fn compile(&self, scope: Scope, expected: Expected) -> Result<Program, CompileError> {
        Program::compile(&self.0, scope, expected)
    }
}

/// Checks an expression for a place.
pub(super) fn check(text: &str, scope: Scope, expected: Expected) -> Result<(), Complaint> {
    let Err(error) = Program::compile(text, scope, expected) else { return Ok(()) };
    let (line, column) = error.line_column(text);
    let place = match text.trim_end().contains('\n') {
        true => format!(" (line {line}, column {column} of the expression)"),
        false => format!(" (column {column} of the expression)"),
    };
    Err(Complaint {
        reason: format!("{}{place}", error.message).into(),
        instead: error.help,
        part: Some(error.range),
    })
}

/// Narrows the place of a value in the file to a part of its text. `whole` is the place of the value in `source`, and
/// `text` is the value after unescaping. Returns `whole` if the part is not written there as it is.
pub(super) fn part_in_source(
    source: &str,
    whole: Range<usize>,
    text: &str,
    part: &Range<usize>,
) -> Range<usize> {
    let Some(written) = source.get(whole.clone()) else { return whole };
    // The line of the part: YAML indents lines, and may fold them, so they are looked for one by one.
    let line_start = text.get(..part.start).and_then(|it| it.rfind('\n')).map_or(0, |at| at + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let indent = line.len() - line.trim_start().len();
    let before = text.get(..line_start).unwrap_or_default();
    let mut from = 0;
    for earlier in before.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match written[from..].find(earlier) {
            Some(at) => from += at + earlier.len(),
            None => return whole,
        }
    }
    let Some(at) = written[from..].find(line.trim()).filter(|_| !line.trim().is_empty()) else {
        return whole;
    };
    let column = (part.start - line_start).saturating_sub(indent);
    let start = whole.start + from + at + column;
    let end = (start + part.len()).min(whole.start + from + at + line.trim().len());
    match source.get(start..end) {
        Some(marked) if !marked.is_empty() => start..end,
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_in_each_way_to_write_a_text() {
        let place = |source: &str, text: &str, part: &str| {
            let whole = source.find(": ").map_or(0, |at| at + 2)..source.len();
            let start = text.find(part).expect("a part");
            let found = part_in_source(source, whole, text, &(start..start + part.len()));
            source[found].to_owned()
        };
        assert_eq!(place("a: x == nome", "x == nome", "nome"), "nome");
        assert_eq!(place("a: 'x == nome'", "x == nome", "nome"), "nome");
        let block = "a: |\n  x == 1 &&\n    nome == 2\n";
        assert_eq!(place(block, "x == 1 &&\n  nome == 2\n", "nome"), "nome");
        assert_eq!(place(block, "x == 1 &&\n  nome == 2\n", "x"), "x");
        // Escapes hide the part.
        assert_eq!(place(r#"a: "\x41b""#, "Ab", "b"), r#""\x41b""#);
    }
}

//! The errors of expressions that cannot be compiled.

use std::ops::Range;

/// A mistake in the text of an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// The mistake, in one line.
    pub message: String,
    /// The place in the text: a range of bytes on character boundaries.
    pub range: Range<usize>,
    /// The correction, if one is known.
    pub help: Option<String>,
}

impl CompileError {
    pub(crate) fn new(range: Range<usize>, message: impl Into<String>) -> Self {
        Self { message: message.into(), range, help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the line and the column of the place in `text`, both counted from 1, columns in characters.
    pub fn line_column(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.range.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

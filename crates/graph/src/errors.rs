//! Errors in a schema, with their positions in the text. Excerpts of the text are rendered by the caller, which knows
//! the terminal.

/// The maximum number of errors that one reading reports; further ones are only counted. 50 errors are about what fits
/// on a screen, and a person corrects them a screenful at a time.
pub const ERRORS_MAX: usize = 50;

/// A range of bytes in a text, with the line and column where it starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The offset of the first byte.
    pub start: usize,
    /// The offset behind the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the span of the bytes `start..end`. Offsets outside the text or inside a character are moved down to the
    /// nearest character boundary.
    pub fn in_text(text: &str, start: usize, end: usize) -> Self {
        let start = text.floor_char_boundary(start);
        let end = text.floor_char_boundary(end.max(start));
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            start,
            end,
        }
    }
}

/// One error in a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaError {
    /// The description of the error.
    pub message: String,
    /// Advice on how to correct it.
    pub help: Option<String>,
    /// The position in the text, if the error has one.
    pub span: Option<Span>,
}

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(span) = self.span {
            write!(f, "{}:{}: ", span.line, span.column)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// All errors of a schema in the order of the text: never empty, at most [`ERRORS_MAX`] and a last one that counts the
/// rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaErrors(pub Vec<SchemaError>);

impl std::fmt::Display for SchemaErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SchemaErrors {}

/// Collects errors while a text is read.
pub(crate) struct ErrorCollector<'a> {
    text: &'a str,
    found: Vec<SchemaError>,
}

impl<'a> ErrorCollector<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(crate) fn push(
        &mut self,
        place: Option<apollo_compiler::parser::SourceSpan>,
        message: impl Into<String>,
        help: Option<&str>,
    ) {
        let span = place.map(|place| Span::in_text(self.text, place.offset(), place.end_offset()));
        self.found.push(SchemaError {
            message: message.into(),
            help: help.map(str::to_owned),
            span,
        });
    }

    /// Adds the errors that the parser or validator found.
    pub(crate) fn push_diagnostics(
        &mut self,
        diagnostics: &apollo_compiler::validation::DiagnosticList,
    ) {
        use apollo_compiler::diagnostic::ToCliReport;
        for diagnostic in diagnostics.iter() {
            self.push(diagnostic.error.location(), diagnostic.error.to_string(), None);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Takes the errors that were found since the last call. Returns `Err` if there are any.
    pub(crate) fn finish(&mut self) -> Result<(), SchemaErrors> {
        let mut found = std::mem::take(&mut self.found);
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by_key(|error| error.span.map_or((0, 0), |span| (span.start, span.end)));
        found.dedup();
        let more = found.len().saturating_sub(ERRORS_MAX);
        if more > 0 {
            found.truncate(ERRORS_MAX);
            let message = format!("and {more} more errors");
            found.push(SchemaError { message, help: None, span: None });
        }
        Err(SchemaErrors(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_start_at_one() {
        let text = "äß\nüx";
        let span = Span::in_text(text, 7, 8);
        assert_eq!((span.line, span.column), (2, 2));
        assert_eq!(Span::in_text(text, 1, 999), Span { line: 1, column: 1, start: 0, end: 8 });
    }
}

//! The text of one subgraph schema and the conversion of byte offsets to lines and columns.

use crate::input::SubgraphInput;

/// The maximum length of an excerpt in characters. Longer lines, such as minified schemas, are cut.
const EXCERPT_CHARACTERS_MAX: usize = 160;

/// The number of characters before the place that an excerpt keeps if it does not begin with the line.
const EXCERPT_CHARACTERS_BEFORE: usize = 60;

/// A position in the schema of a subgraph.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The name of the subgraph.
    pub subgraph: Box<str>,
    /// The name of the file or URL that the schema was read from.
    pub file: Box<str>,
    /// The line, counted from 1; 0 if the finding concerns the whole schema.
    pub line: usize,
    /// The column in characters, counted from 1; 0 if the finding concerns the whole schema.
    pub column: usize,
    /// The text of the line, or of the part around the place if the line is long.
    pub excerpt: Box<str>,
    /// The column at which the excerpt begins.
    pub excerpt_column: usize,
}

/// One schema text with the offsets at which its lines start.
#[derive(Debug)]
pub(crate) struct SourceText {
    subgraph: Box<str>,
    file: Box<str>,
    text: Box<str>,
    line_starts: Vec<usize>,
}

impl SourceText {
    pub(crate) fn new(input: &SubgraphInput) -> Self {
        let newlines = input.sdl.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        Self {
            subgraph: input.name.as_str().into(),
            file: input.file.as_str().into(),
            text: input.sdl.as_str().into(),
            line_starts: std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect(),
        }
    }

    /// Returns the name of the subgraph.
    pub(crate) fn subgraph_name(&self) -> &str {
        &self.subgraph
    }

    /// Returns the place of the character at byte `offset`.
    pub(crate) fn place_at(&self, offset: usize) -> Place {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_starts.partition_point(|&start| start <= offset).max(1);
        let start = self.line_starts[line - 1];
        let before = &self.text[start..offset];
        let column = before.chars().count() + 1;
        // A place near the beginning is shown with the beginning.
        let (excerpt_column, from) = match column > EXCERPT_CHARACTERS_MAX {
            true => {
                let kept = before.char_indices().rev().nth(EXCERPT_CHARACTERS_BEFORE - 1);
                (column - EXCERPT_CHARACTERS_BEFORE, kept.map_or(start, |(at, _)| start + at))
            }
            false => (1, start),
        };
        let rest = self.text[from..].lines().next().unwrap_or_default();
        let excerpt: String = rest.chars().take(EXCERPT_CHARACTERS_MAX).collect();
        Place {
            subgraph: self.subgraph.clone(),
            file: self.file.clone(),
            line,
            column,
            excerpt: excerpt.trim_end().into(),
            excerpt_column,
        }
    }

    /// Returns the place of the text as a whole.
    pub(crate) fn whole(&self) -> Place {
        Place {
            subgraph: self.subgraph.clone(),
            file: self.file.clone(),
            line: 0,
            column: 0,
            excerpt: Box::default(),
            excerpt_column: 1,
        }
    }
}

//! The text of one subgraph schema and the conversion of byte offsets to lines and columns.

use crate::input::SubgraphInput;

/// The maximum length of an excerpt in characters. Longer lines, such as minified schemas, are cut.
const EXCERPT_CHARACTERS_MAX: usize = 160;

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
    /// The text of the line.
    pub excerpt: Box<str>,
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
        let column = self.text[start..offset].chars().count() + 1;
        let rest = self.text[start..].lines().next().unwrap_or_default();
        Place {
            subgraph: self.subgraph.clone(),
            file: self.file.clone(),
            line,
            column,
            excerpt: rest.trim_end().chars().take(EXCERPT_CHARACTERS_MAX).collect(),
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
        }
    }
}

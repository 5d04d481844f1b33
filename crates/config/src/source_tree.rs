//! The tree of a configuration file: its values with the place and the spelling of each.
//!
//! `yaml` builds it, `environment` expands the values in it, and `check` determines their types.

use std::ops::Range;

/// One value.
#[derive(Debug, Clone)]
pub(super) struct SourceNode {
    /// The place of the value in the file. For an alias, the place of the value that it repeats.
    pub(super) range: Range<usize>,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Scalar),
    Sequence(Vec<SourceNode>),
    Mapping(Vec<MappingEntry>),
    /// A value that has been reported already.
    Broken,
}

#[derive(Debug, Clone)]
pub(super) struct Scalar {
    /// The text after unescaping and, later, after variables are expanded.
    pub(super) text: String,
    /// True if the value is written without quotes, so that `null` means no value.
    pub(super) is_plain: bool,
    /// True if parts of the text come from the environment, so that no message may show it.
    pub(super) has_variable: bool,
}

#[derive(Debug, Clone)]
pub(super) struct MappingEntry {
    pub(super) key: String,
    pub(super) key_range: Range<usize>,
    pub(super) value: SourceNode,
}

impl SourceNode {
    /// True if the value is missing: `key:`, `key: ~` or `key: null`.
    pub(super) fn is_null(&self) -> bool {
        match &self.content {
            Content::Scalar(scalar) => {
                scalar.is_plain
                    && !scalar.has_variable
                    && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// Returns the number of values and keys in this value, itself included.
    pub(super) fn size(&self) -> usize {
        match &self.content {
            Content::Scalar(_) | Content::Broken => 1,
            Content::Sequence(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Content::Mapping(entries) => {
                1 + entries.iter().map(|entry| 1 + entry.value.size()).sum::<usize>()
            }
        }
    }
}

//! The tree of a configuration file: its values with the place and the spelling of each.
//!
//! `yaml` builds it, `environment` expands the values in it, and `check` determines their types.

use std::ops::Range;

/// One value.
#[derive(Debug, Clone)]
pub struct SourceNode {
    /// The place of the value in the file. For an alias, the place of the value that it repeats.
    pub range: Range<usize>,
    /// The content.
    pub content: Content,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub enum Content {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<SourceNode>),
    /// Keys with values, in the order of the file.
    Mapping(Vec<MappingEntry>),
    /// A value that has been reported already.
    Broken,
}

/// A value without parts. Its type depends on its key.
#[derive(Debug, Clone)]
pub struct Scalar {
    /// The text after unescaping and, later, after variables are expanded.
    pub text: String,
    /// True if the value is written without quotes, so that `null` means no value.
    pub is_plain: bool,
    /// True if parts of the text come from the environment, so that no message may show it.
    pub has_variable: bool,
}

/// A key with its value.
#[derive(Debug, Clone)]
pub struct MappingEntry {
    /// The key.
    pub key: String,
    /// The place of the key in the file.
    pub key_range: Range<usize>,
    /// The value.
    pub value: SourceNode,
}

impl SourceNode {
    /// True if the value is missing: `key:`, `key: ~` or `key: null`.
    pub fn is_null(&self) -> bool {
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
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Scalar(_) | Content::Broken => 1,
            Content::Sequence(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Content::Mapping(entries) => {
                1 + entries.iter().map(|entry| 1 + entry.value.size()).sum::<usize>()
            }
        }
    }
}

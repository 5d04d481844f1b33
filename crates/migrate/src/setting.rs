//! Settings: the keys of the source with their values and places.

use config::{Content, MappingEntry, SourceNode};

/// The text of the source, for lines of places.
#[derive(Debug)]
pub(crate) struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// Returns the line of a byte, counted from 1.
    pub(crate) fn line_of(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }
}

/// A key of the source with its value.
#[derive(Debug, Clone)]
pub(crate) struct Setting<'a> {
    /// The path of the key: `cors.policies[0].origins`.
    pub(crate) path: String,
    /// The line of the key.
    pub(crate) line: usize,
    /// The names that the key of the rule has in place of `<name>`.
    pub(crate) names: Vec<String>,
    pub(crate) node: &'a SourceNode,
    lines: &'a Lines,
}

impl<'a> Setting<'a> {
    pub(crate) fn new(path: String, line: usize, node: &'a SourceNode, lines: &'a Lines) -> Self {
        Self { path, line, names: Vec::new(), node, lines }
    }

    /// Sets the names of the rule, for this setting and those below it.
    pub(crate) fn with_names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    /// Returns the text of a single value. `None` for lists, mappings and null.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node.content {
            Content::Scalar(scalar) if !self.node.is_null() => Some(&scalar.text),
            _ => None,
        }
    }

    /// Returns the truth value of a single value.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self.text()? {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }

    /// True for a switch that is not certainly off: the value may be a variable or an expression.
    pub(crate) fn may_be_on(&self) -> bool {
        !self.is_empty() && self.truth() != Some(false)
    }

    /// True if the value is null, or a list or mapping without content.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.node.content {
            Content::Mapping(entries) => entries.is_empty(),
            Content::Sequence(items) => items.is_empty(),
            Content::Scalar(scalar) => self.node.is_null() || scalar.text.is_empty(),
            Content::Broken => true,
        }
    }

    /// Returns the members of a mapping, none of anything else.
    pub(crate) fn members(&self) -> Vec<(&'a str, Self)> {
        let Content::Mapping(entries) = &self.node.content else { return Vec::new() };
        entries.iter().map(|entry| (&*entry.key, self.below(entry))).collect()
    }

    /// Returns one member of a mapping.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        let Content::Mapping(entries) = &self.node.content else { return None };
        entries.iter().find(|entry| entry.key == name).map(|entry| self.below(entry))
    }

    /// Returns a value further down by the names of its members.
    pub(crate) fn descendant(&self, names: &[&str]) -> Option<Self> {
        names.iter().try_fold(self.clone(), |setting, name| setting.member(name))
    }

    /// Returns the elements of a list. A single value counts as a list of one.
    pub(crate) fn items(&self) -> Vec<Self> {
        match &self.node.content {
            Content::Sequence(items) => items
                .iter()
                .enumerate()
                .map(|(index, node)| Self {
                    path: format!("{}[{index}]", self.path),
                    line: self.lines.line_of(node.range.start),
                    names: self.names.clone(),
                    node,
                    lines: self.lines,
                })
                .collect(),
            _ if self.is_empty() => Vec::new(),
            _ => vec![self.clone()],
        }
    }

    /// Returns the texts of a list of single values.
    pub(crate) fn texts(&self) -> Vec<&'a str> {
        self.items().iter().filter_map(Self::text).collect()
    }

    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.node.content, Content::Mapping(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.node.content, Content::Sequence(_))
    }

    fn below(&self, entry: &'a MappingEntry) -> Self {
        let path = match self.path.is_empty() {
            true => entry.key.clone(),
            false => format!("{}.{}", self.path, entry.key),
        };
        Self {
            path,
            line: self.lines.line_of(entry.key_range.start),
            names: self.names.clone(),
            node: &entry.value,
            lines: self.lines,
        }
    }
}

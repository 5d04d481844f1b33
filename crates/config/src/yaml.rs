//! Parser from YAML text to a tree that keeps the place and the spelling of every value.
//!
//! Types are not decided here: whether `0755` is a number or a text depends on its key, which `check` knows. This step
//! follows reading the file and precedes `environment`.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span as YamlSpan};

use super::findings::Findings;
use super::source_tree::{Content, MappingEntry, Scalar, SourceNode};

/// The maximum number of nodes of a configuration, including those that aliases repeat. A thousand subgraphs with ten
/// keys each stay far below; a "billion laughs" file is refused here.
const NODES_MAX: usize = 200_000;

/// Parses a text. `None` if the text is empty or is not YAML; in the latter case `findings` contains the reason.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<SourceNode> {
    let mut builder =
        TreeBuilder { text, findings, open: Vec::new(), anchors: HashMap::new(), nodes: 0 };
    builder.run()
}

/// A sequence or mapping whose end has not been read yet. The parser bounds the depth (255).
enum OpenCollection {
    Sequence {
        start: usize,
        anchor: usize,
        items: Vec<SourceNode>,
    },
    Mapping {
        start: usize,
        anchor: usize,
        entries: Vec<MappingEntry>,
        key: Option<(String, Range<usize>)>,
    },
}

struct TreeBuilder<'a> {
    text: &'a str,
    findings: &'a mut Findings,
    open: Vec<OpenCollection>,
    /// Complete nodes by anchor, each with its number of nodes.
    anchors: HashMap<usize, (SourceNode, usize)>,
    nodes: usize,
}

impl TreeBuilder<'_> {
    fn run(&mut self) -> Option<SourceNode> {
        let mut root = None;
        let mut documents = 0;
        for event in Parser::new_from_str(self.text) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.syntax_error(&error);
                    return None;
                }
            };
            let range = self.range(&span);
            if self.nodes > NODES_MAX {
                self.findings
                    .error("too-large", "the configuration has too many values")
                    .at(range, "more than 200000 values up to here")
                    .help("aliases (`*name`) repeat the value that they name");
                return None;
            }
            let complete = match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        self.findings
                            .error("yaml-syntax", "the file holds more than one YAML document")
                            .at(range, "a second document begins here")
                            .help("remove this `---`, or everything from here on");
                        return None;
                    }
                    None
                }
                Event::Scalar(text, style, anchor, tag) => {
                    // Tags of the core schema and `!` are accepted, and only `!!str` has an effect.
                    let suffix = tag.as_ref().map(|tag| tag.suffix());
                    let is_core = tag.as_ref().is_none_or(|tag| tag.is_yaml_core_schema());
                    self.require_tag(is_core || suffix == Some("!"), &span)?;
                    let is_plain = style == ScalarStyle::Plain && suffix != Some("str");
                    let scalar = Scalar { text: text.into_owned(), is_plain, has_variable: false };
                    Some((SourceNode { range, content: Content::Scalar(scalar) }, anchor))
                }
                Event::SequenceStart(_, anchor, tag) => {
                    let is_core = tag.as_ref().is_none_or(|tag| tag.is_yaml_core_schema());
                    self.require_tag(is_core, &span)?;
                    self.open.push(OpenCollection::Sequence {
                        start: range.start,
                        anchor,
                        items: vec![],
                    });
                    None
                }
                Event::MappingStart(_, anchor, tag) => {
                    let is_core = tag.as_ref().is_none_or(|tag| tag.is_yaml_core_schema());
                    self.require_tag(is_core, &span)?;
                    let start = range.start;
                    self.open.push(OpenCollection::Mapping {
                        start,
                        anchor,
                        entries: vec![],
                        key: None,
                    });
                    None
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(range.end),
                Event::Alias(anchor) => match self.anchors.get(&anchor) {
                    Some((node, size)) => {
                        self.nodes += size;
                        Some((node.clone(), 0))
                    }
                    None => {
                        self.findings
                            .error("yaml-syntax", "an alias repeats a value that contains it")
                            .at(range, "this would never end");
                        return None;
                    }
                },
                _ => None,
            };
            if let Some((node, anchor)) = complete {
                self.nodes += 1;
                if anchor != 0 {
                    let size = node.size();
                    // The copy counts: anchors inside of anchors would multiply as aliases do.
                    self.nodes += size;
                    self.anchors.insert(anchor, (node.clone(), size));
                }
                match self.place(node) {
                    Placement::Inside => {}
                    Placement::Root(node) => root = Some(node),
                    Placement::Refused => return None,
                }
            }
        }
        root
    }

    /// Adds a complete node to the innermost open collection, or returns it as the root.
    fn place(&mut self, node: SourceNode) -> Placement {
        match self.open.last_mut() {
            None => return Placement::Root(node),
            Some(OpenCollection::Sequence { items, .. }) => items.push(node),
            Some(OpenCollection::Mapping { entries, key, .. }) => match key.take() {
                Some((key, key_range)) => {
                    entries.push(MappingEntry { key, key_range, value: node });
                }
                None => match node.content {
                    Content::Scalar(scalar) => *key = Some((scalar.text, node.range)),
                    _ => {
                        self.findings
                            .error("wrong-type", "a key must be a single word")
                            .at(node.range, "this is a list or a mapping")
                            .help(
                                "a value that begins with `{`, `[` or a `${…}` inside braces \
                                 needs quotes",
                            );
                        return Placement::Refused;
                    }
                },
            },
        }
        Placement::Inside
    }

    fn close(&mut self, end: usize) -> Option<(SourceNode, usize)> {
        let (start, anchor, content) = match self.open.pop()? {
            OpenCollection::Sequence { start, anchor, items } => {
                (start, anchor, Content::Sequence(items))
            }
            OpenCollection::Mapping { start, anchor, entries, .. } => {
                let entries = self.without_duplicates(entries);
                (start, anchor, Content::Mapping(self.merged(entries)))
            }
        };
        // The reported end of a block collection is the beginning of the next node.
        let end = end.max(start);
        let end = start + self.text.get(start..end).map_or(0, |text| text.trim_end().len());
        Some((SourceNode { range: start..end, content }, anchor))
    }

    fn without_duplicates(&mut self, entries: Vec<MappingEntry>) -> Vec<MappingEntry> {
        let mut first: HashMap<String, Range<usize>> = HashMap::new();
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(range) = first.get(&entry.key) {
                self.findings
                    .error("duplicate-key", format!("`{}` is given twice", entry.key))
                    .at(entry.key_range, "given again here")
                    .related(range.clone(), "first given here")
                    .help("remove one of the two, or combine their contents in one");
                self.findings.hide_if_likely_secret(&entry.key, &entry.value);
            } else {
                first.insert(entry.key.clone(), entry.key_range.clone());
                kept.push(entry);
            }
        }
        kept
    }

    /// Replaces `<<: *name` by the entries of the mapping that it names. Explicit entries take precedence.
    fn merged(&mut self, mut entries: Vec<MappingEntry>) -> Vec<MappingEntry> {
        let Some(index) = entries.iter().position(|entry| entry.key == "<<") else {
            return entries;
        };
        let merge = entries.remove(index);
        let sources = match merge.value.content {
            Content::Sequence(items) => items,
            content => vec![SourceNode { range: merge.value.range, content }],
        };
        for source in sources {
            let Content::Mapping(further) = source.content else {
                self.findings
                    .error("wrong-type", "`<<` must be given a mapping")
                    .at(merge.key_range.clone(), "this merges a mapping into the one around it")
                    .help("write `<<: *name`, where `&name` precedes a mapping");
                continue;
            };
            for entry in further {
                if entries.iter().all(|present| present.key != entry.key) {
                    entries.push(entry);
                }
            }
        }
        entries
    }

    fn range(&self, span: &YamlSpan) -> Range<usize> {
        // Byte offsets are always present for text input; an empty range would only be less exact.
        let range = span.byte_range().unwrap_or(0..0);
        let start = range.start.min(self.text.len());
        start..range.end.clamp(start, self.text.len())
    }

    fn syntax_error(&mut self, error: &granit_parser::ScanError) {
        let at = error.marker().byte_offset().unwrap_or(self.text.len());
        let line_start = self.text[..at.min(self.text.len())].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let indentation = line.len() - line.trim_start().len();
        let mut range = at..at + 1;
        let reason = error.info().lines().next().unwrap_or_default().to_owned();
        let help = if line[..indentation].contains('\t') {
            range = line_start..line_start + indentation;
            "indent with spaces: YAML does not allow tabs"
        } else if reason.contains("unknown anchor") {
            let name = self.text[at..].split(|c: char| c.is_whitespace() || ",]}".contains(c));
            range.end = at + name.map(str::len).next().unwrap_or(1);
            "put `&name` before the value that `*name` repeats, further up; a value that begins \
             with `*` needs quotes"
        } else if reason.contains("quote") {
            "close the quote that opens here, on the same line"
        } else if line.contains("${") && reason.contains("flow") {
            "inside braces and brackets, `${…}` needs quotes: `{depth: \"${DEPTH}\"}`"
        } else if line.contains(": ") && line.matches(": ").count() > 1 {
            "a value that contains `: ` needs quotes"
        } else {
            "check the indentation, quotes and brackets of this line and the one before it"
        };
        self.findings.hide_likely_secrets(self.text);
        self.findings
            .error("yaml-syntax", "the file is not valid YAML")
            .at(range, reason)
            .help(help);
    }

    /// Reports a tag that is not supported, and ends parsing with `None`.
    fn require_tag(&mut self, is_supported: bool, span: &YamlSpan) -> Option<()> {
        if !is_supported {
            self.tag_error(span);
        }
        is_supported.then_some(())
    }

    fn tag_error(&mut self, span: &YamlSpan) {
        let tag = span.tag_span().map_or_else(|| self.range(span), |tag| self.range(&tag));
        self.findings
            .error("yaml-syntax", "YAML tags are not supported")
            .at(tag, "this is a tag")
            .help("put a value that begins with `!` in quotes");
        self.findings.hide_likely_secrets(self.text);
    }
}

enum Placement {
    Inside,
    Root(SourceNode),
    Refused,
}

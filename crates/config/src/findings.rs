//! Findings of the checks of a configuration file, and the places of the keys of the file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::expression::part_in_source;
use super::secrecy;
use super::source_tree::{Content, SourceNode};
use crate::diagnostic::{Diagnostic, Severity, SourceText, Span};

/// The maximum number of messages that one run shows. More would hide the first ones.
const FINDINGS_MAX: usize = 50;

/// The maximum length of a message in characters. The longest message of the router itself lists all keys of the top
/// level.
const MESSAGE_CHARS_MAX: usize = 1000;

/// The places of keys in the file, by their path (`traffic.all.timeout`, `events.providers.nats[0]`).
#[derive(Debug, Clone, Default)]
pub(super) struct KeyPlaces(HashMap<String, KeyPlace>);

/// The place of one key.
#[derive(Debug, Clone)]
pub(super) struct KeyPlace {
    /// The key; for an element of a list, its beginning.
    pub(super) key: Range<usize>,
    /// The value.
    pub(super) value: Range<usize>,
}

impl KeyPlaces {
    pub(super) fn insert(&mut self, path: &str, place: KeyPlace) {
        self.0.insert(path.to_owned(), place);
    }

    pub(super) fn get(&self, path: &str) -> Option<&KeyPlace> {
        self.0.get(path)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Removes the place of a key and of its elements, because a command line flag replaces the value.
    pub(super) fn forget(&mut self, path: &str) {
        self.0.retain(|known, _| {
            known.strip_prefix(path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('['))
        });
    }
}

/// The findings of one run so far, and the parts of the file that excerpts must not show.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    /// The last finding beyond the bound; it is not shown.
    overflow: Option<Finding>,
    overflowed: usize,
    pub(super) hidden: Vec<Range<usize>>,
}

/// A diagnostic without an excerpt. The excerpt is added at the end, when all secrets in the text are known and masked.
#[derive(Debug)]
pub(super) struct Finding {
    severity: Severity,
    code: &'static str,
    message: String,
    at: Option<Range<usize>>,
    label: String,
    related: Vec<(Range<usize>, String)>,
    help: Option<String>,
    /// The text of the value at the place, and the part of it with the mistake.
    part: Option<(String, Range<usize>)>,
}

impl Findings {
    pub(super) fn error(&mut self, code: &'static str, message: impl Into<String>) -> &mut Finding {
        self.add(Severity::Error, code, message.into())
    }

    pub(super) fn warning(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.add(Severity::Warning, code, message.into())
    }

    /// Warns that the key at `path` has no effect because the one at `switch` is off. `reason` says what is turned off.
    pub(super) fn warn_turned_off(
        &mut self,
        path: &str,
        (switch, reason): (&str, &str),
        places: &KeyPlaces,
    ) {
        self.warning("no-effect", format!("`{path}` has no effect: {reason}"))
            .at_place(places.get(path), "not used")
            .related_place(places.get(switch), "turned off here")
            .help("write `enabled: true`, or remove the key");
    }

    pub(super) fn has_errors(&self) -> bool {
        self.overflowed > 0 || self.list.iter().any(|found| found.severity == Severity::Error)
    }

    /// Hides these bytes in excerpts.
    pub(super) fn hide(&mut self, range: Range<usize>) {
        self.hidden.push(range);
    }

    /// Hides likely secrets inside this value in excerpts.
    pub(super) fn hide_if_likely_secret(&mut self, key: &str, node: &SourceNode) {
        if secrecy::sounds_secret(key) {
            return self.hide_value(node);
        }
        match &node.content {
            Content::Mapping(entries) => {
                for entry in entries {
                    self.hide_if_likely_secret(&entry.key, &entry.value);
                }
            }
            Content::Sequence(items) => {
                items.iter().for_each(|item| self.hide_if_likely_secret("", item));
            }
            Content::Scalar(_) | Content::Broken => {}
        }
    }

    /// Hides this value in excerpts, with all values in it.
    pub(super) fn hide_value(&mut self, node: &SourceNode) {
        match &node.content {
            Content::Mapping(entries) => {
                for entry in entries {
                    self.hide_value(&entry.value);
                }
            }
            Content::Sequence(items) => items.iter().for_each(|item| self.hide_value(item)),
            Content::Scalar(_) | Content::Broken => self.hide(node.range.clone()),
        }
    }

    /// Hides likely secrets in excerpts of a text with unknown structure.
    pub(super) fn hide_likely_secrets(&mut self, text: &str) {
        self.hidden.extend(secrecy::likely_secrets(text));
    }

    fn add(&mut self, severity: Severity, code: &'static str, message: String) -> &mut Finding {
        let finding = Finding {
            severity,
            code,
            message: one_line(message),
            at: None,
            label: String::new(),
            related: Vec::new(),
            help: None,
            part: None,
        };
        if self.list.len() >= FINDINGS_MAX {
            self.overflowed += 1;
            return self.overflow.insert(finding);
        }
        let index = self.list.len();
        self.list.push(finding);
        &mut self.list[index]
    }

    pub(super) fn into_diagnostics(mut self, source: Option<&Arc<SourceText>>) -> Vec<Diagnostic> {
        // The order is that of the file; findings without a place come last. The sort is stable.
        self.list.sort_by_key(|found| found.at.as_ref().map_or(usize::MAX, |range| range.start));
        let mut diagnostics: Vec<_> =
            self.list.into_iter().map(|found| found.into_diagnostic(source)).collect();
        if self.overflowed > 0 {
            diagnostics.push(Diagnostic::error(
                "too-many-errors",
                format!("{} more errors are not shown; fix the first ones", self.overflowed),
            ));
        }
        diagnostics
    }
}

impl Finding {
    pub(super) fn at(&mut self, range: Range<usize>, label: impl Into<String>) -> &mut Self {
        self.at = Some(range);
        self.label = one_line(label.into());
        self
    }

    pub(super) fn at_place(
        &mut self,
        place: Option<&KeyPlace>,
        label: impl Into<String>,
    ) -> &mut Self {
        match place {
            Some(place) => self.at(place.value.clone(), label),
            None => self,
        }
    }

    pub(super) fn related(&mut self, range: Range<usize>, label: impl Into<String>) -> &mut Self {
        self.related.push((range, label.into()));
        self
    }

    pub(super) fn related_place(
        &mut self,
        place: Option<&KeyPlace>,
        label: impl Into<String>,
    ) -> &mut Self {
        match place {
            Some(place) => self.related(place.value.clone(), label),
            None => self,
        }
    }

    /// Narrows the place to a part of the value there, which has this text.
    pub(super) fn part(&mut self, text: &str, part: Range<usize>) -> &mut Self {
        self.part = Some((text.to_owned(), part));
        self
    }

    pub(super) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(one_line(help.into()));
        self
    }

    fn into_diagnostic(self, source: Option<&Arc<SourceText>>) -> Diagnostic {
        let mut diagnostic = match self.severity {
            Severity::Error => Diagnostic::error(self.code, self.message),
            Severity::Warning => Diagnostic::warning(self.code, self.message),
        };
        diagnostic.help = self.help;
        let (Some(source), Some(mut at)) = (source, self.at) else {
            return diagnostic;
        };
        if let Some((text, part)) = &self.part {
            at = part_in_source(&source.text, at, text, part);
        }
        let span = |range| Span::of_bytes(&source.text, first_line(&source.text, range));
        diagnostic.related =
            self.related.into_iter().map(|(range, label)| (span(range), label)).collect();
        diagnostic.at(span(at), self.label).in_source(source)
    }
}

/// Makes a message safe for the log. Keys of the file are part of messages: a long key must not fill the log, and one
/// with line breaks must not fake a line of it.
fn one_line(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, "\u{fffd}");
    }
    text
}

/// Returns the part of a range that is on its first line, because an excerpt marks one line.
pub(super) fn first_line(text: &str, range: Range<usize>) -> Range<usize> {
    let inside = text.get(range.clone()).unwrap_or_default();
    let line = inside.lines().next().unwrap_or_default().trim_end();
    range.start..range.start + line.len()
}

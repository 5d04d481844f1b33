//! Messages about files that people write: the mistake, its place, and the correction.
//!
//! A [`Diagnostic`] contains everything that one message needs, so that configuration, supergraph and command line
//! errors look the same. [`render`] draws them with an excerpt of the file, [`log`] writes them to the log. The checks
//! themselves are elsewhere: for the configuration, in the other modules of this crate.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The router does not start until it is fixed.
    Error,
    /// The router works, but probably not as intended.
    Warning,
}

/// A text that diagnostics point into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// The name in messages: a path as the user gave it, or a word such as `--listen`.
    pub name: String,
    /// The whole text. Each byte of a secret is already replaced by `HIDDEN`.
    pub text: String,
}

/// The replacement of each byte of a secret in a [`SourceText`], so that later places remain valid. It is a control
/// character (DEL) that files do not contain otherwise.
pub(crate) const HIDDEN: u8 = 0x7f;

/// The text that is shown in place of a secret of any length.
const HIDDEN_SHOWN: &str = "******";

/// A text in the form in which messages show it.
pub(crate) struct ShownText<'a> {
    pub(crate) text: Cow<'a, str>,
    /// The secrets of the original text, each with its start in the shown one.
    hidden: Vec<(Range<usize>, usize)>,
}

/// Replaces each secret by a text that does not reveal its length.
pub(crate) fn shown_text(text: &str) -> ShownText<'_> {
    let mut shown = String::new();
    let mut hidden = Vec::new();
    let mut rest = 0;
    while let Some(offset) = text[rest..].find(char::from(HIDDEN)) {
        let start = rest + offset;
        let length = text[start..].bytes().take_while(|byte| *byte == HIDDEN).count();
        shown.push_str(&text[rest..start]);
        hidden.push((start..start + length, shown.len()));
        shown.push_str(HIDDEN_SHOWN);
        rest = start + length;
    }
    if hidden.is_empty() {
        return ShownText { text: text.into(), hidden };
    }
    shown.push_str(&text[rest..]);
    ShownText { text: shown.into(), hidden }
}

impl ShownText<'_> {
    /// Returns the place in the shown text of a byte of the original one.
    fn place_of(&self, byte: usize) -> usize {
        match self.hidden.iter().rev().find(|(range, _)| range.start <= byte) {
            None => byte,
            Some((range, shown)) if byte >= range.end => {
                shown + HIDDEN_SHOWN.len() + (byte - range.end)
            }
            Some((range, shown)) if byte == range.start => *shown,
            Some((_, shown)) => shown + HIDDEN_SHOWN.len(),
        }
    }

    /// Returns the bytes of a span in the shown text.
    fn range_of(&self, original: &str, span: &Span) -> Range<usize> {
        let range = within(original, span);
        self.place_of(range.start)..self.place_of(range.end)
    }
}

/// A place in a [`SourceText`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The range of bytes, within the text and on character boundaries.
    pub bytes: Range<usize>,
}

impl Span {
    /// Returns the place of a byte range. A range outside the text is moved to its end.
    pub fn of_bytes(text: &str, bytes: Range<usize>) -> Self {
        let start = floor_boundary(text, bytes.start);
        let end = floor_boundary(text, bytes.end).max(start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            bytes: start..end,
        }
    }

    /// Returns the word at a line and column, both counted from 1, columns in characters. For parsers that report a
    /// position without a range. A position outside the text is moved to the nearest one in it.
    pub fn of_line_column(text: &str, line: usize, column: usize) -> Self {
        let mut line_start = 0;
        for _ in 1..line {
            match text[line_start..].find('\n') {
                Some(newline) => line_start += newline + 1,
                None => break,
            }
        }
        let rest = text[line_start..].lines().next().unwrap_or_default();
        let in_line = rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |c| c.0);
        let word = rest[in_line..]
            .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '@'))
            .unwrap_or(rest.len() - in_line);
        // The range has at least one character, if the line has one, so that the excerpt can mark it.
        let width = word.max(rest[in_line..].chars().next().map_or(0, char::len_utf8));
        Self::of_bytes(text, line_start + in_line..line_start + in_line + width)
    }
}

/// One finding about one place, ready to be shown.
///
/// Built with [`Diagnostic::error`] or [`Diagnostic::warning`] and the methods that add to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// A stable name of the kind of finding, such as `unknown-key`.
    pub code: Cow<'static, str>,
    /// The mistake, in one line.
    pub message: String,
    /// The text that `span` and `related` point into; without it no excerpt is shown.
    pub source: Option<Arc<SourceText>>,
    /// The place of the mistake.
    pub span: Option<Span>,
    /// The text next to the place.
    pub label: String,
    /// Other places that explain the finding, each with its label.
    pub related: Vec<(Span, String)>,
    /// The correction.
    pub help: Option<String>,
    /// The message as its creator has drawn it; `None`: [`Diagnostic::render`] draws it.
    pub drawing: Option<Drawing>,
}

/// A complete message that was drawn elsewhere, because its places are in several files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// The message in characters only.
    pub plain: String,
    /// The same with ANSI colours.
    pub colored: String,
}

impl Diagnostic {
    /// Creates an error without a place.
    pub fn error(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: code.into(),
            message: message.into(),
            source: None,
            span: None,
            label: String::new(),
            related: Vec::new(),
            help: None,
            drawing: None,
        }
    }

    /// Creates a warning without a place.
    pub fn warning(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Sets the text that the places are in.
    #[must_use]
    pub fn in_source(mut self, source: &Arc<SourceText>) -> Self {
        self.source = Some(Arc::clone(source));
        self
    }

    /// Sets the place, and the text next to it.
    #[must_use]
    pub fn at(mut self, span: Span, label: impl Into<String>) -> Self {
        self.span = Some(span);
        self.label = label.into();
        self
    }

    /// Adds another place that explains the finding.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    /// Sets the message as it is shown to people.
    #[must_use]
    pub fn drawn(mut self, drawing: Drawing) -> Self {
        self.drawing = Some(drawing);
        self
    }

    /// Sets the correction.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the file, line and column, as far as they are known.
    fn place(&self) -> Option<String> {
        let name = self.source.as_ref().map(|source| source.name.as_str());
        match (name, &self.span) {
            (None, None) => None,
            (name, None) => name.map(str::to_owned),
            (name, Some(Span { line, column, .. })) => {
                Some(format!("{}:{line}:{column}", name.unwrap_or("input")))
            }
        }
    }

    /// Draws the message, with an excerpt if a text and a place are known. It does not end with a line break.
    pub fn render(&self, style: Style) -> String {
        if let Some(drawing) = &self.drawing {
            return match style {
                Style::Plain => drawing.plain.clone(),
                Style::Colored => drawing.colored.clone(),
            };
        }
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&self.message).id(&*self.code));
        match (&self.source, &self.span) {
            (Some(source), Some(span)) => {
                let shown = shown_text(&source.text);
                let range = |span| shown.range_of(&source.text, span);
                let related = self.related.iter().map(|(span, label)| {
                    AnnotationKind::Context.span(range(span)).label(some(label))
                });
                let related: Vec<_> = related.collect();
                let primary = AnnotationKind::Primary.span(range(span));
                group = group.element(
                    Snippet::source(shown.text.into_owned())
                        .path(&source.name)
                        .annotation(primary.label(some(&self.label)))
                        .annotations(related),
                );
            }
            (Some(source), None) => group = group.element(Origin::path(&source.name)),
            (None, Some(span)) => {
                let origin = Origin::path("input").line(span.line).char_column(span.column);
                group = group.element(origin);
            }
            (None, None) => {}
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        let renderer = match style {
            Style::Plain => Renderer::plain(),
            Style::Colored => Renderer::styled(),
        };
        renderer.render(&[group])
    }
}

/// One line, for logs: `file:line:column: message; help`. The excerpt is left out.
impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(out, "{}:", source.name)?;
        }
        if let Some(span) = &self.span {
            write!(out, "{}:{}:", span.line, span.column)?;
        }
        if self.source.is_some() || self.span.is_some() {
            out.write_str(" ")?;
        }
        out.write_str(&self.message)?;
        if !self.label.is_empty() {
            write!(out, " ({})", self.label)?;
        }
        match &self.help {
            Some(help) => write!(out, "; {help}"),
            None => Ok(()),
        }
    }
}

/// The colouring of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Characters only: for files, pipes and tests.
    Plain,
    /// ANSI colours.
    Colored,
}

impl Style {
    /// Coloured if `stream` is a terminal that knows colours, and `NO_COLOR` is unset or empty
    /// (<https://no-color.org>).
    pub fn for_stream(stream: &impl std::io::IsTerminal) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        if stream.is_terminal() && !forbidden { Self::Colored } else { Self::Plain }
    }
}

/// Draws messages one after the other, with a blank line between them and a line break at the end.
pub fn render(diagnostics: &[Diagnostic], style: Style) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&diagnostic.render(style));
        text.push('\n');
    }
    text
}

/// True if [`log`] writes errors. At the level `off` it does not.
pub fn is_logged() -> bool {
    tracing::enabled!(tracing::Level::ERROR)
}

/// Writes messages to the log, one line each. Line breaks of the excerpt are part of a field.
pub fn log(diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        let Diagnostic { severity, code, message, help, .. } = diagnostic;
        let (place, help) = (diagnostic.place(), help.as_deref());
        let excerpt = diagnostic.span.as_ref().map(|_| diagnostic.render(Style::Plain));
        match severity {
            Severity::Error => tracing::error!(%code, place, help, excerpt, "{message}"),
            Severity::Warning => tracing::warn!(%code, place, help, excerpt, "{message}"),
        }
    }
}

fn some(label: &str) -> Option<&str> {
    (!label.is_empty()).then_some(label)
}

/// Returns the bytes of a span, moved into the text, because a span may have been created for another version of it.
fn within(text: &str, span: &Span) -> Range<usize> {
    let start = floor_boundary(text, span.bytes.start);
    start..floor_boundary(text, span.bytes.end).max(start)
}

fn floor_boundary(text: &str, mut index: usize) -> usize {
    index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn source(text: &str) -> Arc<SourceText> {
        Arc::new(SourceText { name: "supergraph.graphql".into(), text: text.into() })
    }

    #[test]
    fn a_position_points_at_the_whole_word() {
        let text = "type Query {\n  rëviews: [Revieww]\n}\n";
        let span = Span::of_line_column(text, 2, 13);
        assert_eq!(&text[span.bytes.clone()], "Revieww");
        assert_eq!((span.line, span.column), (2, 13));
    }

    #[test]
    fn a_position_outside_the_text_moves_to_its_end() {
        for (line, column) in [(0, 0), (1, 99), (99, 1), (usize::MAX, usize::MAX)] {
            let span = Span::of_line_column("type A\n", line, column);
            assert!(span.bytes.end <= "type A\n".len(), "{line}:{column} gave {span:?}");
        }
        assert_eq!(Span::of_line_column("", 3, 3).bytes, 0..0);
    }

    #[test]
    fn a_message_shows_the_place_the_excerpt_and_the_advice() {
        let text = "type Query {\n  reviews: [Revieww]\n}\n";
        let diagnostic = Diagnostic::error("unknown-type", "`Revieww` is not defined")
            .in_source(&source(text))
            .at(Span::of_line_column(text, 2, 13), "no such type")
            .help("did you mean `Review`?");
        expect![[r#"
            error[unknown-type]: `Revieww` is not defined
             --> supergraph.graphql:2:13
              |
            2 |   reviews: [Revieww]
              |             ^^^^^^^ no such type
              |
              = help: did you mean `Review`?"#]]
        .assert_eq(&diagnostic.render(Style::Plain));
        assert_eq!(
            diagnostic.to_string(),
            "supergraph.graphql:2:13: `Revieww` is not defined (no such type); did you mean `Review`?"
        );
    }

    #[test]
    fn a_message_that_is_drawn_elsewhere_is_shown_as_it_is() {
        let drawing = Drawing { plain: "a and b".into(), colored: "in colours".into() };
        let diagnostic = Diagnostic::error("TYPES", "`A.x` has two types")
            .in_source(&source("x"))
            .help("decide on one")
            .drawn(drawing);
        assert_eq!(diagnostic.render(Style::Plain), "a and b");
        assert_eq!(diagnostic.render(Style::Colored), "in colours");
        assert_eq!(
            diagnostic.to_string(),
            "supergraph.graphql: `A.x` has two types; decide on one"
        );
    }

    #[test]
    fn a_message_without_a_text_is_still_complete() {
        let diagnostic = Diagnostic::warning("idle", "nothing listens");
        assert_eq!(diagnostic.render(Style::Plain), "warning[idle]: nothing listens");
        assert_eq!(diagnostic.to_string(), "nothing listens");
    }

    #[test]
    fn an_excerpt_does_not_reveal_how_long_a_secret_is() {
        let rendered = |length: usize| {
            let hidden = "\u{7f}".repeat(length);
            let text = format!("secret: {hidden}, algorithm: none\n");
            let place = text.find("none").expect("it is there");
            let secret = Span::of_bytes(&text, 8..8 + length);
            let diagnostic = Diagnostic::error("x", "y")
                .in_source(&source(&text))
                .at(Span::of_bytes(&text, place..place + 4), "here")
                .related(secret, "and here");
            diagnostic.render(Style::Plain)
        };
        expect![[r#"
            error[x]: y
             --> supergraph.graphql:1:28
              |
            1 | secret: ******, algorithm: none
              |         ------ and here    ^^^^ here"#]]
        .assert_eq(&rendered(3));
        assert_eq!(rendered(3), rendered(40));
    }

    #[test]
    fn control_characters_in_a_file_do_not_reach_the_terminal() {
        let text = "a\u{1b}[31m: b\n";
        let diagnostic = Diagnostic::error("x", "y\u{1b}[2J")
            .in_source(&source(text))
            .at(Span::of_bytes(text, 0..1), "here");
        assert!(!diagnostic.render(Style::Plain).contains('\u{1b}'));
    }
}

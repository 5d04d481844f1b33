//! Findings as text for people: message, places with excerpts of the schemas, reasons and advice. The look is that of
//! the messages about the configuration. [`crate::json`] is the form for programs.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::{
    finding::{Finding, Severity},
    source_text::Place,
};

/// The colouring of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coloring {
    /// Characters only: for files, pipes and tests.
    Plain,
    /// ANSI colours.
    Ansi,
}

/// The maximum number of places that are shown with an excerpt. Two or three explain nearly every finding.
const EXCERPTS_MAX: usize = 5;

/// The number of characters that are shown of a place in a long line.
const REST_CHARACTERS_MAX: usize = 60;

/// Renders findings one after the other, with a blank line between them and a line break at the end.
pub fn render(findings: &[Finding], coloring: Coloring) -> String {
    let mut text = String::new();
    for finding in findings {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&render_finding(finding, coloring));
        text.push('\n');
    }
    text
}

fn render_finding(finding: &Finding, coloring: Coloring) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Info => Level::INFO,
    };
    // Further lines of a message are reasons, such as one for each subgraph.
    let mut lines = finding.message.lines();
    let title = lines.next().unwrap_or_default().trim_end_matches(':');
    let mut group = Group::with_title(level.primary_title(title).id(finding.code.name()));
    for place in finding.places.iter().take(EXCERPTS_MAX) {
        group = add_place(group, place);
    }
    for line in lines {
        group = group.element(Level::NOTE.message(line.trim().trim_start_matches("- ")));
    }
    let further = finding.places.len().saturating_sub(EXCERPTS_MAX) + finding.further_places;
    if further > 0 {
        let places = if further == 1 { "place" } else { "places" };
        group = group.element(Level::NOTE.message(format!("and {further} more {places}")));
    }
    if !finding.advice.is_empty() {
        group = group.element(Level::HELP.message(&finding.advice));
    }
    let renderer = match coloring {
        Coloring::Plain => Renderer::plain(),
        Coloring::Ansi => Renderer::styled(),
    };
    renderer.render(&[group])
}

fn add_place<'a>(group: Group<'a>, place: &'a Place) -> Group<'a> {
    if place.line == 0 {
        let schema = format!("{} (subgraph `{}`)", place.file, place.subgraph);
        return group.element(Origin::path(schema));
    }
    let marked = marked_range(place);
    if place.excerpt_column > 1 {
        // An excerpt of a part of a line would show columns that are not those of the file.
        let schema = format!(
            "{}:{}:{} (subgraph `{}`)",
            place.file, place.line, place.column, place.subgraph
        );
        let rest: String =
            place.excerpt[marked.start..].chars().take(REST_CHARACTERS_MAX).collect();
        let note = Level::NOTE.message(format!("the line is long; the place begins with `{rest}`"));
        return group.element(Origin::path(schema)).element(note);
    }
    let label = format!("in subgraph `{}`", place.subgraph);
    let annotation = AnnotationKind::Primary.span(marked).label(label);
    let snippet = Snippet::source(&*place.excerpt).line_start(place.line).annotation(annotation);
    group.element(snippet.path(&*place.file))
}

/// Returns the bytes of the excerpt that are marked: the word at the place, with its `@` or `$`.
fn marked_range(place: &Place) -> Range<usize> {
    let before = place.column.saturating_sub(place.excerpt_column);
    let excerpt = &place.excerpt;
    let start = excerpt.char_indices().nth(before).map_or(excerpt.len(), |(at, _)| at);
    let mut characters = excerpt[start..].chars();
    let first = characters.next().map_or(0, char::len_utf8);
    let is_part = |it: &char| it.is_alphanumeric() || *it == '_';
    let is_word = excerpt[start..].starts_with(|it| is_part(&it) || it == '@' || it == '$');
    let rest: usize = match is_word {
        true => characters.take_while(is_part).map(char::len_utf8).sum(),
        false => 0,
    };
    start..start + first + rest
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::code::Code;

    fn place(file: &str, line: usize, column: usize, excerpt: &str) -> Place {
        Place {
            subgraph: file.trim_end_matches(".graphql").into(),
            file: file.into(),
            line,
            column,
            excerpt: excerpt.into(),
            excerpt_column: 1,
        }
    }

    fn finding(message: &str, places: Vec<Place>, advice: &str) -> Finding {
        Finding {
            code: Code::SATISFIABILITY_ERROR,
            severity: Severity::Error,
            message: message.to_owned(),
            places,
            further_places: 0,
            advice: advice.to_owned(),
        }
    }

    #[test]
    fn reasons_follow_the_excerpts() {
        let message = "the query `{ a }` cannot be planned:\n    - `x` has no key\n    - `y` does not resolve it";
        let places = vec![
            place("x.graphql", 9, 3, "  weight: Int @external"),
            place("x.graphql", 12, 15, "  weight: Int @external"),
            place("yyy.graphql", 104, 1, "type Product {"),
            Place { line: 0, column: 0, ..place("z.graphql", 0, 0, "") },
        ];
        let first = finding(message, places, "add a key");
        expect![[r#"
            error[SATISFIABILITY_ERROR]: the query `{ a }` cannot be planned
               --> x.graphql:9:3
                |
              9 |   weight: Int @external
                |   ^^^^^^ in subgraph `x`
                |
               ::: x.graphql:12:15
                |
             12 |   weight: Int @external
                |               ^^^^^^^^^ in subgraph `x`
                |
               ::: yyy.graphql:104:1
                |
            104 | type Product {
                | ^^^^ in subgraph `yyy`
               ::: z.graphql (subgraph `z`)
                = note: `x` has no key
                = note: `y` does not resolve it
                = help: add a key

            error[SATISFIABILITY_ERROR]: another message
        "#]]
        .assert_eq(&render(&[first, finding("another message", Vec::new(), "")], Coloring::Plain));
    }

    #[test]
    fn long_lines_are_shown_in_part_and_many_places_are_counted() {
        let mut places = vec![Place {
            excerpt_column: 990,
            ..place("x.graphql", 1, 1000, "type A { iä: Wrong(a: Int) }")
        }];
        places.extend((0..7).map(|line| place("y.graphql", line + 1, 9, "type A { }")));
        let finding = Finding { further_places: 2, ..finding("a message", places, "") };
        expect![[r#"
            error[SATISFIABILITY_ERROR]: a message
             --> x.graphql:1:1000 (subgraph `x`)
              = note: the line is long; the place begins with `ä: Wrong(a: Int) }`
              |
             ::: y.graphql:1:9
              |
            1 | type A { }
              |         ^ in subgraph `y`
              |
             ::: y.graphql:2:9
              |
            2 | type A { }
              |         ^ in subgraph `y`
              |
             ::: y.graphql:3:9
              |
            3 | type A { }
              |         ^ in subgraph `y`
              |
             ::: y.graphql:4:9
              |
            4 | type A { }
              |         ^ in subgraph `y`
              |
              = note: and 5 more places
        "#]]
        .assert_eq(&render(&[finding], Coloring::Plain));
    }

    #[test]
    fn colours_and_control_characters_of_schemas_do_not_mix() {
        let finding = finding("a\u{1b}[2Jb", vec![place("x", 1, 1, "\u{1b}[31mtype")], "c");
        assert!(!render(std::slice::from_ref(&finding), Coloring::Plain).contains('\u{1b}'));
        assert!(!render(&[finding], Coloring::Ansi).contains("\u{1b}[2J"));
    }

    #[test]
    fn places_outside_the_excerpt_are_no_reason_to_panic() {
        let places = vec![place("x", 1, 99, "type"), place("x", 7, 1, ""), place("x", 3, 0, "ö")];
        assert!(!render(&[finding("", places, "")], Coloring::Plain).is_empty());
    }
}

//! The reference pages of the codes: `docs/composition/codes.md` and a page for each code in `docs/composition/codes`.
//!
//! Each page ends with an example: the case of the code in `tests/codes` or `tests/reference`, and what composition
//! says about it. So the pages are also the snapshots of the messages.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::{Code, CodeGroup};
use crate::{Coloring, Composition, Finding, SubgraphInput};

/// The line by which readers of a page and of its source know where the page comes from.
const GENERATED: &str = "<!-- Generated from the code: `cargo xtask docs --write` -->";

/// The maximum length of a line in characters, except in tables and blocks.
const COLUMNS_MAX: usize = 120;

/// The number of errors or hints that an example shows.
const FINDINGS_SHOWN_MAX: usize = 2;

/// The example of a code.
struct Example {
    /// The sentence that says what the example shows.
    description: String,
    subgraphs: Vec<SubgraphInput>,
}

impl Example {
    fn read(code: Code) -> Self {
        let folder = case_folder(code);
        let entries = fs::read_dir(&folder).expect("the folder of a case");
        let mut files: Vec<PathBuf> = entries.map(|it| it.expect("an entry").path()).collect();
        files.retain(|it| it.extension().is_some_and(|extension| extension == "graphql"));
        files.sort();
        let mut example = Self { description: String::new(), subgraphs: Vec::new() };
        for path in files {
            let name = path.file_stem().expect("a file name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a text file");
            let (comment, sdl) = split_comment(&text);
            example.description += &comment;
            let url =
                if name.starts_with("events") { String::new() } else { format!("http://{name}/") };
            let file = format!("{name}.graphql");
            example.subgraphs.push(SubgraphInput { name, url, file, sdl, subscription: None });
        }
        example
    }

    /// Returns what composition says. An error must not come with other errors, so that the page is about one code.
    fn findings(&self, code: Code) -> Vec<Finding> {
        match crate::compose(&self.subgraphs) {
            Composition::Failure { errors, .. } => {
                assert!(errors.iter().all(|it| it.code == code), "{code}: {errors:#?}");
                errors
            }
            Composition::Success { hints, .. } => {
                hints.into_iter().filter(|it| it.code == code).collect()
            }
        }
    }
}

/// Returns the folder of the case of a code: one of ours, or one that other implementations know as well.
fn case_folder(code: Code) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let candidates =
        ["codes", "reference/codes", "reference/hints"].map(|it| tests.join(it).join(code.name()));
    let found = candidates.iter().find(|it| it.is_dir());
    found
        .unwrap_or_else(|| panic!("{code} has no case: add the folder {}", candidates[0].display()))
        .clone()
}

/// Divides the text of a case into the comment at its head and the schema.
fn split_comment(text: &str) -> (String, String) {
    let is_comment = |line: &&str| line.starts_with("# ");
    let comment: Vec<&str> = text.lines().take_while(is_comment).map(|it| &it[2..]).collect();
    let mut schema = text;
    for _ in &comment {
        schema = schema.split_once('\n').map_or("", |(_, rest)| rest);
    }
    (comment.join(" "), schema.trim_start_matches('\n').to_owned())
}

/// Wraps a paragraph.
fn wrap(text: &str) -> String {
    let mut wrapped = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > COLUMNS_MAX {
            wrapped.push('\n');
            length = 0;
        } else if length > 0 {
            wrapped.push(' ');
            length += 1;
        }
        wrapped.push_str(word);
        length += word_length;
    }
    wrapped
}

/// Returns the anchor of a heading, as Markdown viewers form it.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.collect::<String>().trim().replace(' ', "-")
}

/// True if the group is that of the hints.
fn is_hints(group: &CodeGroup) -> bool {
    *group == super::hints::GROUP
}

/// Returns the page of a code.
fn page(group: &CodeGroup, code: Code) -> String {
    let (kind, audience) = match is_hints(group) {
        true => ("hint", "what this hint of composition means, and what you can do about it"),
        false => ("error", "what this error of composition means, and how to correct it"),
    };
    let link = format!("../codes.md#{}", anchor(group.title));
    let introduction = format!("For authors of subgraphs: {audience}. The group of this code:");
    let meaning = format!("**{}** {}", code.summary(), code.reason());
    let mut page = format!(
        "# {code}\n\n{GENERATED}\n\n{}\n[{}]({link}).\n\n{}\n\n## What to do\n\n{}\n\n## Example\n\n",
        wrap(&introduction),
        group.title,
        wrap(&meaning),
        wrap(code.remedy()),
    );
    let example = Example::read(code);
    let findings = example.findings(code);
    assert!(!findings.is_empty(), "the case of {code} does not show it");
    for finding in &findings {
        assert!(!finding.places.is_empty(), "{finding} says where");
        assert!(!finding.advice.is_empty(), "{finding} says how to correct it");
    }
    assert!(!example.description.is_empty(), "the case of {code} begins without a comment");
    let _ = writeln!(page, "{}\n", wrap(&example.description));
    for SubgraphInput { file, sdl, .. } in &example.subgraphs {
        let reason = format!("the tests of composition expect this {kind}");
        let _ = writeln!(
            page,
            "`{file}`:\n\n<!-- test: not-run reason=\"{reason}\" -->\n```graphql\n{}\n```\n",
            sdl.trim_end()
        );
    }
    let shown = &findings[..findings.len().min(FINDINGS_SHOWN_MAX)];
    let messages = crate::render(shown, Coloring::Plain);
    let _ = writeln!(page, "Composition says:\n\n```text\n{}\n```", messages.trim_end());
    page
}

/// Returns the page that lists all codes.
fn index() -> String {
    let introduction = "For authors of subgraphs and for those who compose them: each error and hint of composition, \
        with a page that says what it means, how to correct it, and which subgraphs cause it. Other tools for \
        federation use the same codes, except for those of event subgraphs.";
    let mut page = format!("# Codes of composition\n\n{GENERATED}\n\n{}\n", wrap(introduction));
    for group in CodeGroup::all() {
        let _ = write!(page, "\n## {}\n\n", group.title);
        if is_hints(group) {
            let text = "The subgraphs compose. A hint tells of a difference between them that is allowed and may not be \
                intended.";
            let _ = writeln!(page, "{}\n", wrap(text));
        }
        let _ = writeln!(page, "| code | meaning |\n|---|---|");
        for code in group.codes {
            let _ = writeln!(page, "| [`{code}`](codes/{code}.md) | {} |", code.summary());
        }
    }
    page
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/composition")
}

#[test]
fn the_index_of_codes_is_up_to_date() {
    expect_test::expect_file![docs().join("codes.md")].assert_eq(&index());
}

#[test]
fn the_page_of_each_code_is_up_to_date() {
    let mut names = BTreeSet::new();
    for group in CodeGroup::all() {
        for &code in group.codes {
            names.insert(format!("{code}.md"));
            let path = docs().join("codes").join(format!("{code}.md"));
            expect_test::expect_file![path].assert_eq(&page(group, code));
        }
    }
    let entries = fs::read_dir(docs().join("codes")).expect("the folder of pages");
    let files: BTreeSet<String> = entries
        .map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, names, "each page belongs to a code");
}

#[test]
fn the_texts_of_codes_are_sentences() {
    for code in Code::all() {
        for text in [code.summary(), code.reason(), code.remedy()] {
            assert!(text.ends_with(['.', '`']), "{code}: {text}");
            assert!(!text.contains("  "), "{code}: {text}");
        }
    }
}

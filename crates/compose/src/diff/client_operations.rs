//! The operations of clients: files with several operations, and fragments that files share. Each operation becomes a
//! document of its own, and positions in it are traced back to the files.

use std::collections::{BTreeMap, BTreeSet};

use apollo_compiler::{
    ast::{Definition, Document, Selection},
    diagnostic::ToCliReport as _,
    parser::Parser,
};

/// A text with operations or fragments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationFile {
    /// The name in messages, such as a path.
    pub name: String,
    /// The GraphQL text.
    pub text: String,
}

/// A position in a file with operations.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationPlace {
    /// The index of the file.
    pub file: usize,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

/// One operation with the fragments that it uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOperation {
    /// The kind and the name with the file, such as `query Users (users.graphql)`.
    pub label: String,
    /// The name; empty if the operation has none.
    pub name: String,
    /// The position of the operation.
    pub place: OperationPlace,
    /// The document: the operation and the fragments that it uses, and nothing else.
    pub text: String,
    /// The origin of the document's lines, by the first line of each definition.
    origins: Vec<(usize, OperationPlace)>,
}

impl ClientOperation {
    /// Converts a line and a column of the document to the position in the file.
    pub fn locate(&self, line: usize, column: usize) -> OperationPlace {
        let next = self.origins.partition_point(|(first, _)| *first <= line);
        match next.checked_sub(1).and_then(|at| self.origins.get(at)) {
            Some((first, origin)) => {
                OperationPlace { file: origin.file, line: origin.line + (line - first), column }
            }
            None => self.place.clone(),
        }
    }
}

/// A mistake that makes a file unreadable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationProblem {
    /// The mistake.
    pub message: String,
    /// Its position.
    pub place: OperationPlace,
}

/// One operation or fragment of a file.
struct DefinitionText<'a> {
    place: OperationPlace,
    text: &'a str,
    name: String,
    /// `None` for a fragment.
    kind: Option<&'static str>,
    /// The names of the fragments that it spreads.
    spreads: BTreeSet<String>,
}

/// Reads the operations of `files`, in their order.
///
/// A fragment is taken from the file of the operation, else from the first file that defines it: code generators read
/// all files of a client as one document too.
///
/// # Errors
/// All mistakes of the syntax, and definitions of types beside operations. A file with nothing else is left out.
pub fn read_operations(
    files: &[OperationFile],
) -> Result<Vec<ClientOperation>, Vec<OperationProblem>> {
    let mut definitions = Vec::new();
    let mut problems = Vec::new();
    for (id, file) in files.iter().enumerate() {
        let lines = FileLines::new(id, &file.text);
        match Parser::new().parse_ast(file.text.as_str(), file.name.as_str()) {
            // Code generators keep a schema beside the operations.
            Ok(document) if is_schema(&document) => {}
            Ok(document) => read_file(&lines, &document, &mut definitions, &mut problems),
            Err(failed) => problems.extend(failed.errors.iter().map(|diagnostic| {
                let offset = diagnostic.error.location().map_or(0, |it| it.offset());
                let message = diagnostic.error.to_string();
                let message = message.strip_prefix("syntax error: ").unwrap_or(&message).to_owned();
                OperationProblem { message, place: lines.place_at(offset) }
            })),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut fragments: Fragments<'_, '_> = BTreeMap::new();
    for definition in definitions.iter().filter(|it| it.kind.is_none()) {
        fragments.entry(&definition.name).or_default().push(definition);
    }
    let operations = definitions.iter().filter(|it| it.kind.is_some());
    Ok(operations.map(|it| assemble(it, &fragments, files)).collect())
}

/// The fragments of all files by name.
type Fragments<'d, 'a> = BTreeMap<&'d str, Vec<&'d DefinitionText<'a>>>;

/// The text of a file with the offsets at which its lines start.
struct FileLines<'a> {
    file: usize,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> FileLines<'a> {
    fn new(file: usize, text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { file, text, starts }
    }

    /// Returns the position of a byte offset.
    fn place_at(&self, offset: usize) -> OperationPlace {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|&start| start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        OperationPlace { file: self.file, line, column: before.chars().count() + 1 }
    }
}

/// True if a document has definitions of types and directives only.
fn is_schema(document: &Document) -> bool {
    !document.definitions.iter().any(Definition::is_executable_definition)
}

fn read_file<'a>(
    lines: &FileLines<'a>,
    document: &Document,
    definitions: &mut Vec<DefinitionText<'a>>,
    problems: &mut Vec<OperationProblem>,
) {
    for definition in &document.definitions {
        let (start, end) =
            definition.location().map_or((0, 0), |it| (it.offset(), it.end_offset()));
        let place = lines.place_at(start);
        let (kind, name, selections) = match definition {
            Definition::OperationDefinition(it) => {
                let name = it.name.as_ref().map(ToString::to_string).unwrap_or_default();
                (Some(it.operation_type.name()), name, &it.selection_set)
            }
            Definition::FragmentDefinition(it) => (None, it.name.to_string(), &it.selection_set),
            _ => {
                let message = "the file contains a definition of a schema, not only operations";
                problems.push(OperationProblem { message: message.to_owned(), place });
                continue;
            }
        };
        let mut spreads = BTreeSet::new();
        collect_spreads(selections, &mut spreads);
        let text = lines.text.get(start..end).unwrap_or_default();
        definitions.push(DefinitionText { place, text, name, kind, spreads });
    }
}

/// Collects the fragments that the selections spread. The parser has bounded the nesting.
fn collect_spreads(selections: &[Selection], spreads: &mut BTreeSet<String>) {
    for selection in selections {
        match selection {
            Selection::Field(it) => collect_spreads(&it.selection_set, spreads),
            Selection::InlineFragment(it) => collect_spreads(&it.selection_set, spreads),
            Selection::FragmentSpread(it) => _ = spreads.insert(it.fragment_name.to_string()),
        }
    }
}

/// Writes the document of an operation.
fn assemble(
    operation: &DefinitionText<'_>,
    fragments: &Fragments<'_, '_>,
    files: &[OperationFile],
) -> ClientOperation {
    let file = operation.place.file;
    let find = |name: &String| {
        let named = fragments.get(name.as_str())?;
        named.iter().find(|it| it.place.file == file).or_else(|| named.first()).copied()
    };
    let mut parts = vec![operation];
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut next = 0;
    while let Some(part) = parts.get(next) {
        next += 1;
        let spreads = part.spreads.iter().filter(|name| known.insert(name));
        let found: Vec<_> = spreads.filter_map(find).collect();
        parts.extend(found);
    }
    let mut text = String::new();
    let mut origins = Vec::new();
    let mut line = 1;
    for part in parts {
        origins.push((line, part.place.clone()));
        // The padding keeps the columns of the first line. The widths of formatting end at 65,535.
        text.extend(std::iter::repeat_n(' ', part.place.column - 1));
        text.push_str(part.text);
        text.push('\n');
        line += part.text.matches('\n').count() + 1;
    }
    let kind = operation.kind.unwrap_or_default();
    let file = files.get(file).map_or("", |it| it.name.as_str());
    let label = match operation.name.as_str() {
        "" => format!("{kind} ({file}:{})", operation.place.line),
        name => format!("{kind} {name} ({file})"),
    };
    ClientOperation {
        label,
        name: operation.name.clone(),
        place: operation.place.clone(),
        text,
        origins,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_beside_the_operations_is_left_out() {
        let file = |text: &str| OperationFile { name: "a".to_owned(), text: text.to_owned() };
        let schema = "type Query { a: Int } extend type Query { b: Int }";
        let read = |files: &[OperationFile]| read_operations(files).map(|it| it.len());
        assert_eq!(read(&[file(schema), file("{ a }")]), Ok(1));
        let mixed = read(&[file(&format!("{schema} query A {{ a }}"))]).unwrap_err();
        assert!(mixed[0].message.contains("definition of a schema"), "{mixed:?}");
    }

    #[test]
    fn operations_far_behind_in_a_line_are_read() {
        let column = 100_000;
        let text = format!("query A {{ a }}{}query B {{ b }}", " ".repeat(column - 14));
        let file = OperationFile { name: "a.graphql".to_owned(), text };
        let operations = read_operations(&[file]).unwrap();
        assert_eq!(operations.len(), 2);
        let b = &operations[1];
        assert_eq!(b.text.trim(), "query B { b }");
        let last = b.text.trim_end().chars().count();
        assert_eq!(b.locate(1, last).column, last);
        assert_eq!(b.place, OperationPlace { file: 0, line: 1, column });
    }
}

//! Parsing the texts of `@key`, `@requires` and `@provides`, and walking them over the types of a subgraph.

use apollo_compiler::{
    Name, Node,
    ast::{self, Definition, Selection},
    parser::Parser,
};

use super::model::{FieldDefinition, SubgraphModel, TypeDefinition, TypeKind};
use crate::parsing::DEPTH_MAX;

/// The maximum number of tokens in a field set: far above any real one.
const TOKENS_MAX: usize = 10_000;

/// Parses a field set. The error is the reason without a position.
pub(crate) fn parse(text: &str) -> Result<Vec<Selection>, String> {
    let inner = text.trim();
    if let Some(names) = parse_names(inner) {
        return Ok(names);
    }
    let source = if inner.starts_with('{') { inner.to_owned() } else { format!("{{{inner}\n}}") };
    let parsed = Parser::new()
        .recursion_limit(DEPTH_MAX)
        .token_limit(TOKENS_MAX)
        .parse_ast(source, "fields");
    let document = parsed.map_err(|failed| {
        let first = failed.errors.iter().next().map(|it| it.error.to_string());
        let first = first.unwrap_or_else(|| "syntax error".to_owned());
        first.strip_prefix("syntax error: ").unwrap_or(&first).to_owned()
    })?;
    match &*document.definitions {
        [Definition::OperationDefinition(it)] if !it.selection_set.is_empty() => {
            Ok(it.selection_set.clone())
        }
        _ => Err("a field set is one list of fields".to_owned()),
    }
}

/// Parses a list of names with spaces between them, as almost all keys are, without the general parser.
fn parse_names(text: &str) -> Option<Vec<Selection>> {
    if text.is_empty()
        || !text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b' '))
    {
        return None;
    }
    let field = |name: &str| {
        Some(Selection::Field(Node::new(ast::Field {
            alias: None,
            name: Name::new(name).ok()?,
            arguments: Vec::new(),
            directives: ast::DirectiveList::new(),
            selection_set: Vec::new(),
        })))
    };
    text.split(' ').filter(|it| !it.is_empty()).map(field).collect()
}

/// Calls `visit` with every field that `selections` name on `on`, with the type that has the field. A selection on an
/// interface also visits the field of each implementation, since the router sends it to objects of those types.
/// Unknown types and fields are skipped: validation reports them.
pub(crate) fn visit_fields<'a>(
    subgraph: &'a SubgraphModel,
    on: &'a TypeDefinition,
    selections: &[Selection],
    visit: &mut impl FnMut(&'a TypeDefinition, &'a FieldDefinition),
) {
    for selection in selections {
        match selection {
            Selection::Field(it) => {
                let Some(field) = on.fields.get(&it.name) else { continue };
                visit(on, field);
                if on.kind == TypeKind::Interface {
                    for member in subgraph.possible_types(on) {
                        if let Some(own) = member.fields.get(&it.name) {
                            visit(member, own);
                        }
                    }
                }
                if let Some(below) = subgraph.types.get(field.ty.inner_named_type()) {
                    visit_fields(subgraph, below, &it.selection_set, visit);
                }
            }
            Selection::InlineFragment(it) => {
                let target =
                    it.type_condition.as_ref().map_or(Some(on), |name| subgraph.types.get(name));
                if let Some(target) = target {
                    visit_fields(subgraph, target, &it.selection_set, visit);
                }
            }
            Selection::FragmentSpread(_) => {}
        }
    }
}

/// Returns a selection as text in one normal form: single spaces, no outer braces.
pub(crate) fn print(selections: &[Selection]) -> String {
    let parts: Vec<_> = selections.iter().map(print_one).collect();
    parts.join(" ")
}

fn print_one(selection: &Selection) -> String {
    let (head, below) = match selection {
        Selection::Field(it) => {
            let arguments: Vec<_> = it
                .arguments
                .iter()
                .map(|it| format!("{}: {}", it.name, it.value.serialize().no_indent()))
                .collect();
            let head = match arguments.is_empty() {
                true => it.name.to_string(),
                false => format!("{}({})", it.name, arguments.join(", ")),
            };
            (head, &it.selection_set)
        }
        Selection::InlineFragment(it) => {
            let head = it
                .type_condition
                .as_ref()
                .map_or_else(|| "...".to_owned(), |on| format!("... on {on}"));
            (head, &it.selection_set)
        }
        Selection::FragmentSpread(it) => return format!("...{}", it.fragment_name),
    };
    if below.is_empty() { head } else { format!("{head} {{ {} }}", print(below)) }
}

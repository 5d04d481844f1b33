//! Divides a request for root fields into its fields, so that a request for some of them can be put together.

use apollo_compiler::Node;
use apollo_compiler::ast::{self, Selection};
use apollo_compiler::parser::SourceSpan;
use execute::{KeyedSelection, RootField, RootRequest, RootSelection};
use plan::{SubgraphOperation, VariableId};

use crate::keyed_selection::SelectionWriter;

/// A request that is divided.
pub(crate) struct DividedRequest<'a> {
    /// The request.
    pub(crate) request: RootRequest,
    /// The selections of each of its fields: fields of the query root.
    pub(crate) selections: Vec<Vec<&'a Selection>>,
    /// The fields in the form of keys.
    pub(crate) keyed: Vec<KeyedSelection>,
}

/// The selections of one response key.
struct FieldInProgress<'a> {
    data_key: &'a str,
    selections: Vec<&'a Selection>,
    parts: Vec<RootSelection>,
    writer: SelectionWriter<'a>,
}

/// Divides a request. `None` if its text is not in the form that the planner gives it, or asks for nothing but
/// `__typename`.
pub(crate) fn divide<'a>(
    operation: &'a SubgraphOperation,
    parsed: &'a ast::OperationDefinition,
) -> Option<DividedRequest<'a>> {
    let mut fields: Vec<FieldInProgress<'a>> = Vec::new();
    for top in &parsed.selection_set {
        let mut conditions = Vec::new();
        let (selection, field) = find_field(top, operation, &mut conditions)?;
        // The router knows the name of the query root and reads no other.
        if field.name == "__typename" {
            continue;
        }
        let data_key = field.response_name().as_str();
        let number = fields.iter().position(|it| it.data_key == data_key).unwrap_or_else(|| {
            let writer = SelectionWriter::new(&operation.variables, None);
            let (selections, parts) = (Vec::new(), Vec::new());
            fields.push(FieldInProgress { data_key, selections, parts, writer });
            fields.len() - 1
        });
        let known = &mut fields[number];
        let key_text = known.writer.write_top(field).into();
        let span = match top {
            Selection::Field(field) => field.location(),
            Selection::InlineFragment(fragment) => fragment.location(),
            Selection::FragmentSpread(_) => None,
        };
        let text = text_at(operation, span)?.into();
        let variables = variables_in(top, operation);
        known.parts.push(RootSelection { text, variables, conditions, key_text });
        known.selections.push(selection);
    }
    let declared = parsed.variables.iter().map(|variable| {
        let known = operation.variables.iter().find(|(name, _)| **name == *variable.name)?;
        let declaration = text_at(operation, variable.location())?;
        Some((known.0.clone(), known.1, declaration.into()))
    });
    let declared = declared.collect::<Option<Vec<_>>>()?;
    let (mut roots, mut selections, mut keyed) = (Vec::new(), Vec::new(), Vec::new());
    for field in fields {
        let texts: Vec<&str> = field.parts.iter().map(|it| &*it.key_text).collect();
        keyed.push(field.writer.finish(texts.join(" ")));
        selections.push(field.selections);
        roots.push(RootField { data_key: field.data_key.into(), selections: field.parts });
    }
    if roots.is_empty() {
        return None;
    }
    let request = RootRequest::new(operation.name.clone(), declared, roots);
    Some(DividedRequest { request, selections, keyed })
}

/// Returns the field below fragments that only have conditions, and adds the conditions.
fn find_field<'a>(
    selection: &'a Selection,
    operation: &SubgraphOperation,
    conditions: &mut Vec<(VariableId, bool)>,
) -> Option<(&'a Selection, &'a ast::Field)> {
    match selection {
        Selection::Field(field) => {
            add_conditions(&field.directives, operation, conditions)?;
            Some((selection, field))
        }
        Selection::InlineFragment(fragment) => {
            add_conditions(&fragment.directives, operation, conditions)?;
            let [below] = &fragment.selection_set[..] else { return None };
            match fragment.type_condition {
                None => find_field(below, operation, conditions),
                Some(_) => None,
            }
        }
        Selection::FragmentSpread(_) => None,
    }
}

/// Adds the conditions of `@skip` and `@include`. `None` if there are others.
fn add_conditions(
    directives: &ast::DirectiveList,
    operation: &SubgraphOperation,
    conditions: &mut Vec<(VariableId, bool)>,
) -> Option<()> {
    for directive in directives {
        let wanted = match directive.name.as_str() {
            "include" => true,
            "skip" => false,
            _ => return None,
        };
        let [argument] = &directive.arguments[..] else { return None };
        let name = argument.value.as_variable()?;
        let (_, id) = operation.variables.iter().find(|(known, _)| **known == **name)?;
        conditions.push((*id, wanted));
    }
    Some(())
}

/// The variables of a selection, without duplicates.
fn variables_in(selection: &Selection, operation: &SubgraphOperation) -> Vec<VariableId> {
    let mut found = Vec::new();
    collect_variables(selection, operation, &mut found);
    found.sort_unstable();
    found.dedup();
    found
}

// Recursion is bounded by the depth of operations, which is limited before they are planned.
fn collect_variables(
    selection: &Selection,
    operation: &SubgraphOperation,
    found: &mut Vec<VariableId>,
) {
    let (arguments, directives, below): (&[Node<ast::Argument>], _, &[Selection]) = match selection
    {
        Selection::Field(field) => (&field.arguments, &field.directives, &field.selection_set),
        Selection::InlineFragment(fragment) => (&[], &fragment.directives, &fragment.selection_set),
        Selection::FragmentSpread(spread) => (&[], &spread.directives, &[]),
    };
    let of_directives = directives.iter().flat_map(|directive| &directive.arguments);
    for argument in arguments.iter().chain(of_directives) {
        collect_of_value(&argument.value, operation, found);
    }
    for selection in below {
        collect_variables(selection, operation, found);
    }
}

fn collect_of_value(
    value: &ast::Value,
    operation: &SubgraphOperation,
    found: &mut Vec<VariableId>,
) {
    match value {
        ast::Value::Variable(name) => {
            let known = operation.variables.iter().find(|(known, _)| **known == **name);
            found.extend(known.map(|(_, id)| *id));
        }
        ast::Value::List(items) => {
            items.iter().for_each(|item| collect_of_value(item, operation, found));
        }
        ast::Value::Object(members) => {
            members.iter().for_each(|(_, value)| collect_of_value(value, operation, found));
        }
        _ => {}
    }
}

fn text_at(operation: &SubgraphOperation, span: Option<SourceSpan>) -> Option<&str> {
    let span = span?;
    operation.text.get(span.offset()..span.end_offset())
}

//! Parsing the texts of `@key`, `@requires` and `@provides` and resolving them against the supergraph.

use std::fmt::Write as _;

use apollo_compiler::ast::{Definition, Selection};

use crate::{FieldSet, FieldSetItem, Supergraph, TypeId, TypeKind};

/// The maximum nesting depth of field sets and defaults. Schemas written by people have about three levels.
pub(super) const DEPTH_MAX: usize = 64;

/// The maximum number of tokens in a field set: far above any real one, small enough to cost nothing.
const TOKENS_MAX: usize = 10_000;

/// Parses `text` as a selection on `on`. The error gives the reason without the position.
pub(super) fn parse_field_set(
    text: &str,
    on: TypeId,
    supergraph: &Supergraph,
) -> Result<FieldSet, String> {
    let inner = text.trim();
    if let Some(set) = parse_leaf_names(inner, on, supergraph) {
        return Ok(set);
    }
    let source = if inner.starts_with('{') { inner.to_owned() } else { format!("{{{inner}\n}}") };
    let document = apollo_compiler::parser::Parser::new()
        .recursion_limit(DEPTH_MAX)
        .token_limit(TOKENS_MAX)
        .parse_ast(source, "field set")
        .map_err(|failed| match failed.errors.iter().next() {
            Some(first) => first.error.to_string(),
            None => "syntax error".to_owned(),
        })?;
    let [Definition::OperationDefinition(operation)] = &*document.definitions else {
        return Err("a field set is one list of fields".to_owned());
    };
    let set = resolve_selections(&operation.selection_set, on, supergraph)?;
    if set.items.is_empty() {
        Err("a field set names at least one field".to_owned())
    } else {
        Ok(set)
    }
}

/// Parses names of leaves with single spaces between them, as almost all keys are. Returns `None` for any other text,
/// valid or not. A supergraph may have thousands of keys, and the general parser costs more than everything else about
/// a key.
fn parse_leaf_names(text: &str, on: TypeId, supergraph: &Supergraph) -> Option<FieldSet> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || !text.bytes().all(|byte| is_name(byte) || byte == b' ') {
        return None;
    }
    let mut items = Vec::new();
    for name in text.split(' ') {
        if name == "__typename" {
            return None;
        }
        let field = supergraph.field_named(on, name)?;
        if supergraph.ty(supergraph.field(field).ty.named()).kind.is_composite() {
            return None;
        }
        let (arguments, fields) = (Box::default(), FieldSet::default());
        items.push(FieldSetItem::Field { field, arguments, fields });
    }
    Some(FieldSet { items })
}

fn resolve_selections(
    selections: &[Selection],
    on: TypeId,
    supergraph: &Supergraph,
) -> Result<FieldSet, String> {
    let mut items = Vec::with_capacity(selections.len());
    for selection in selections {
        match selection {
            Selection::Field(field) if field.name == "__typename" => {}
            Selection::Field(field) => {
                if field.alias.is_some() || !field.directives.is_empty() {
                    return Err(format!("`{}` has an alias or directive here", field.name));
                }
                let type_name = &supergraph.ty(on).name;
                let Some(id) = supergraph.field_named(on, &field.name) else {
                    return Err(format!("type `{type_name}` has no field `{}`", field.name));
                };
                let child = supergraph.field(id).ty.named();
                let is_composite = supergraph.ty(child).kind.is_composite();
                if is_composite == field.selection_set.is_empty() {
                    let wants = if is_composite { "needs" } else { "cannot have" };
                    return Err(format!("`{type_name}.{}` {wants} a selection", field.name));
                }
                let mut arguments = String::new();
                for argument in &field.arguments {
                    if !arguments.is_empty() {
                        arguments.push_str(", ");
                    }
                    let value = argument.value.serialize().no_indent();
                    // Writing to a string does not fail.
                    let _ = write!(arguments, "{}: {value}", argument.name);
                }
                items.push(FieldSetItem::Field {
                    field: id,
                    arguments: arguments.into(),
                    fields: resolve_selections(&field.selection_set, child, supergraph)?,
                });
            }
            Selection::InlineFragment(fragment) => {
                let target = match &fragment.type_condition {
                    None => on,
                    Some(name) => supergraph
                        .type_named(name)
                        .filter(|&id| supergraph.ty(id).kind.is_composite())
                        .ok_or_else(|| format!("there is no type `{name}` to select on"))?,
                };
                let fields = resolve_selections(&fragment.selection_set, target, supergraph)?;
                let is_same = target == on && supergraph.ty(on).kind == TypeKind::Object;
                if is_same {
                    items.extend(fields.items);
                } else if !fields.items.is_empty() {
                    items.push(FieldSetItem::Fragment { on: target, fields });
                }
            }
            Selection::FragmentSpread(_) => {
                return Err("named fragments have no meaning here".to_owned());
            }
        }
    }
    Ok(FieldSet { items })
}

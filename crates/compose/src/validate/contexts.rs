//! `@context` and `@fromContext`: names of contexts, and selections of the arguments that read them.

use std::collections::HashMap;

use apollo_compiler::ast::{Selection, Type};

use crate::{
    code::Code,
    federation_spec::FederationDirective as D,
    finding::Findings,
    subgraph::{
        field_sets,
        model::{InputDefinition, SubgraphModel, TypeDefinition, TypeKind, all_of},
        usage::split_context,
    },
};

/// Checks all contexts of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    let mut setters: HashMap<&str, Vec<&TypeDefinition>> = HashMap::new();
    for ty in subgraph.types.values() {
        for applied in all_of(&ty.directives, D::Context) {
            let Some(name) = applied.text("name") else { continue };
            setters.entry(name).or_default().push(ty);
            let spot = [(subgraph.id, applied.node.location())];
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            if !is_name {
                findings.error(
                    Code::CONTEXT_NAME_INVALID,
                    spot,
                    format!("\"{name}\" cannot be the name of a context"),
                    "begin with a letter and use letters and digits only: the supergraph separates parts of names by underscores",
                );
            }
        }
    }
    for ty in subgraph.types.values() {
        for field in ty.fields.values() {
            for argument in field.arguments.values() {
                let Some(text) = &argument.from_context else { continue };
                let coordinate = format!("{}.{}({}:)", ty.name, field.name, argument.name);
                check_argument(subgraph, ty, argument, &coordinate, text, &setters, findings);
            }
        }
    }
}

fn check_argument(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    argument: &InputDefinition,
    coordinate: &str,
    text: &str,
    setters: &HashMap<&str, Vec<&TypeDefinition>>,
    findings: &mut Findings<'_>,
) {
    let spot = [subgraph.spot(&argument.name)];
    if argument.default.is_some() {
        findings.error(
            Code::CONTEXT_NOT_SET,
            spot,
            format!("`{coordinate}` reads a context and has a default, which would never apply"),
            "remove the default",
        );
        return;
    }
    let Some((name, selection)) = split_context(text) else {
        findings.error(
            Code::NO_CONTEXT_IN_SELECTION,
            spot,
            format!("`@fromContext(field: \"{text}\")` on `{coordinate}` names no context"),
            "begin with the context, such as \"$user { name }\"",
        );
        return;
    };
    let Some(types) = setters.get(name) else {
        findings.error(
            Code::CONTEXT_NOT_SET,
            spot,
            format!(
                "`{coordinate}` reads the context \"{name}\", but no type of this subgraph sets it"
            ),
            format!("put `@context(name: \"{name}\")` on a type above `{}`", ty.name),
        );
        return;
    };
    if !ty.keys.iter().any(|key| key.is_resolvable) {
        findings.error(
            Code::CONTEXT_NO_RESOLVABLE_KEY,
            [subgraph.spot(&ty.name), spot[0]],
            format!("`{coordinate}` reads a context, but `{}` has no resolvable key", ty.name),
            "the router fetches the field by an entity request with the argument: give the type a `@key`",
        );
    }
    let problem = match field_sets::parse(selection) {
        Err(reason) => Some(reason),
        Ok(_) if selection.trim().is_empty() => Some("it selects nothing".to_owned()),
        Ok(selections) => {
            let invalid = types.iter().find_map(|it| check_setter(subgraph, it, &selections).err());
            invalid.or_else(|| {
                let selected =
                    types.iter().filter_map(|it| selected_type(subgraph, it, &selections));
                let other = selected.filter(|selected| !selected.is_assignable_to(&argument.ty));
                let mut other = other.map(|it| {
                    format!(
                        "the selected field has the type `{it}`, and the argument `{}`",
                        argument.ty
                    )
                });
                other.next()
            })
        }
    };
    if let Some(problem) = problem {
        findings.error(
            Code::CONTEXT_INVALID_SELECTION,
            spot,
            format!("`@fromContext(field: \"{text}\")` on `{coordinate}` is invalid: {problem}"),
            "select one field of each type that sets the context",
        );
    }
}

/// Checks that the selection reads one value from objects of a type that sets the context.
fn check_setter(
    subgraph: &SubgraphModel,
    setter: &TypeDefinition,
    selections: &[Selection],
) -> Result<(), String> {
    match count_values(subgraph, setter, selections)? {
        0 => Err(format!("no part of it applies to `{}`, which sets the context", setter.name)),
        1 => Ok(()),
        _ => Err(format!(
            "it selects several fields of `{}`, and the argument has one value",
            setter.name
        )),
    }
}

/// Returns the number of values that `selections` read from an object of type `on`.
fn count_values(
    subgraph: &SubgraphModel,
    on: &TypeDefinition,
    selections: &[Selection],
) -> Result<usize, String> {
    let is_abstract = matches!(on.kind, TypeKind::Interface | TypeKind::Union);
    let mut count = 0;
    for selection in selections {
        match selection {
            Selection::Field(it) => {
                let Some(field) = on.fields.get(&it.name) else {
                    return Err(format!("type `{}` has no field `{}`", on.name, it.name));
                };
                let below = subgraph.types.get(field.ty.inner_named_type());
                match below.filter(|ty| ty.kind.is_composite()) {
                    None if it.selection_set.is_empty() => count += 1,
                    None => {
                        return Err(format!("`{}.{}` has no fields to select", on.name, it.name));
                    }
                    Some(_) if it.selection_set.is_empty() => {
                        return Err(format!(
                            "`{}.{}` needs a selection of its fields",
                            on.name, it.name
                        ));
                    }
                    Some(below) => count += count_values(subgraph, below, &it.selection_set)?,
                }
            }
            Selection::InlineFragment(it) => {
                let target = match &it.type_condition {
                    None => on,
                    Some(name) => subgraph
                        .types
                        .get(name)
                        .ok_or_else(|| format!("this subgraph has no type `{name}`"))?,
                };
                // An object that is an interface or union for the field can have the type of the fragment.
                if target.name == on.name || is_abstract {
                    count = count.max(count_values(subgraph, target, &it.selection_set)?);
                }
            }
            Selection::FragmentSpread(_) => {
                return Err("named fragments have no meaning here".to_owned());
            }
        }
    }
    Ok(count)
}

/// Returns the type of the value that `selections` read from an object of type `on`; `None` if it is not one field.
fn selected_type(
    subgraph: &SubgraphModel,
    on: &TypeDefinition,
    selections: &[Selection],
) -> Option<Type> {
    let mut found = selections.iter().filter_map(|selection| match selection {
        Selection::Field(it) => {
            let field = on.fields.get(&it.name)?;
            if it.selection_set.is_empty() {
                return Some(field.ty.clone());
            }
            let below = subgraph.types.get(field.ty.inner_named_type())?;
            let leaf = selected_type(subgraph, below, &it.selection_set)?;
            // A value below a list is a list, and one below a nullable object may be null.
            let leaf = if field.ty.is_non_null() { leaf } else { leaf.nullable() };
            Some(if field.ty.is_list() { leaf.list() } else { leaf })
        }
        Selection::InlineFragment(it) => {
            let applies = it.type_condition.as_ref().is_none_or(|name| *name == on.name);
            if applies { selected_type(subgraph, on, &it.selection_set) } else { None }
        }
        Selection::FragmentSpread(_) => None,
    });
    found.next()
}

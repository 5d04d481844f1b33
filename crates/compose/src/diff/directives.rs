//! Directives that operations may use.

use apollo_compiler::{
    Schema,
    ast::{DirectiveDefinition, DirectiveLocation},
};

use super::{
    annotations,
    change::{ChangeCode, ChangeList, Exposure, breaking, safe},
    input_values::{self, InputOwner},
};

/// Directives of the GraphQL specification, which every schema has whether it defines them or not.
const STANDARD: [&str; 5] = ["skip", "include", "deprecated", "specifiedBy", "oneOf"];

/// Compares the definitions of directives.
pub(super) fn compare(changes: &mut ChangeList, old: &Schema, new: &Schema) {
    let is_own = |name: &str| !STANDARD.contains(&name);
    for (name, before) in old.directive_definitions.iter().filter(|(name, _)| is_own(name)) {
        match new.directive_definitions.get(name) {
            Some(after) => compare_definition(changes, before, after),
            None => changes.add(
                ChangeCode::DirectiveRemoved,
                format!("@{name}"),
                format!("the directive `@{name}` was removed"),
                breaking("operations that use it are refused"),
                Exposure::Directive(name.clone()),
            ),
        }
    }
    for name in new.directive_definitions.keys().filter(|name| is_own(name)) {
        if !old.directive_definitions.contains_key(name) {
            changes.add(
                ChangeCode::DirectiveAdded,
                format!("@{name}"),
                format!("the directive `@{name}` was added"),
                safe("operations of today do not use it"),
                Exposure::Nothing,
            );
        }
    }
}

fn compare_definition(
    changes: &mut ChangeList,
    old: &DirectiveDefinition,
    new: &DirectiveDefinition,
) {
    let path = format!("@{}", old.name);
    annotations::compare_descriptions(
        changes,
        &path,
        old.description.as_ref(),
        new.description.as_ref(),
    );
    match (old.repeatable, new.repeatable) {
        (true, false) => changes.add(
            ChangeCode::DirectiveRepeatableRemoved,
            path.clone(),
            format!("`{path}` is no longer repeatable"),
            breaking("operations that use it twice in one place are refused"),
            Exposure::Directive(old.name.clone()),
        ),
        (false, true) => changes.add(
            ChangeCode::DirectiveRepeatableAdded,
            path.clone(),
            format!("`{path}` became repeatable"),
            safe("one use stays correct"),
            Exposure::Nothing,
        ),
        _ => {}
    }
    // Clients never use a directive on definitions.
    let is_for_operations = |it: &&DirectiveLocation| is_executable(**it);
    let removed = old.locations.iter().filter(|it| !new.locations.contains(it));
    for &location in removed.filter(is_for_operations) {
        changes.add(
            ChangeCode::DirectiveLocationRemoved,
            path.clone(),
            format!("`{path}` is no longer allowed on `{location}`"),
            breaking("operations that use it there are refused"),
            Exposure::DirectivePlace(old.name.clone(), location),
        );
    }
    let added = new.locations.iter().filter(|it| !old.locations.contains(it));
    for location in added.filter(is_for_operations) {
        changes.add(
            ChangeCode::DirectiveLocationAdded,
            path.clone(),
            format!("`{path}` is allowed on `{location}` too"),
            safe("operations of today do not use it there"),
            Exposure::Nothing,
        );
    }
    let owner = InputOwner::Directive(&old.name);
    input_values::compare(
        changes,
        owner,
        old.arguments.iter().map(|it| &**it),
        new.arguments.iter().map(|it| &**it),
    );
}

/// True if operations have such a place.
fn is_executable(location: DirectiveLocation) -> bool {
    use DirectiveLocation as L;
    matches!(
        location,
        L::Query
            | L::Mutation
            | L::Subscription
            | L::Field
            | L::FragmentDefinition
            | L::FragmentSpread
            | L::InlineFragment
            | L::VariableDefinition
    )
}
